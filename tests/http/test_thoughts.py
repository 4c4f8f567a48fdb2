"""What a ReAct model thought before a call, it reads again on the next turn; no other model does."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from callboard._formats import ToolFormat
from callboard.agents import Agent
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Skill
from tests.serving import request, serving

SECRET = "k3y-that-nobody-may-read"
THOUGHT = "Without the card I cannot know.\nSo I look."
ROUND = f'Thought: {THOUGHT}\nAction: look_up\nAction Input: {{"word": "storm"}}'
USER = {"id": "u"}
ASKED = {"role": "user", "content": "hi"}
SECOND_TURN: Any = [
    ASKED,
    {"role": "assistant", "id": "m1", "content": "It is wind."},
    {"role": "user", "content": "and?"},
]


class Reader:
    """An agent whose model looks a word up and answers; `requests` are what it was sent."""

    def __init__(self, tool_format: ToolFormat, thought: str = ROUND) -> None:
        self.requests: list[ModelRequest] = []

        @tool
        async def look_up(word: str) -> str:
            """Looks up."""
            return f"{word}: wind"

        def script(sent: ModelRequest) -> Iterable[ModelDelta]:
            self.requests.append(sent)
            return [TextDelta(thought if len(self.requests) == 1 else "Final Answer: It is wind.")]

        skill = Skill("words", "Words.", tools=(look_up,))
        self.agent = Agent("scripted", skills=(skill,), model=ScriptedModel(script), tool_format=tool_format)

    @property
    def told(self) -> list[Any]:
        """The messages of the last request, without the system prompt."""
        return [message for message in self.requests[-1].messages if message["role"] != "system"]


async def test_a_thought_is_read_again_on_the_next_turn_after_a_restart_of_the_server(tmp_path: Path) -> None:
    before = Reader("react")
    after = Reader("react", "Final Answer: More wind.")
    async with serving(tmp_path, before.agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    assert before.told[1] == {"role": "assistant", "content": ROUND}
    async with serving(tmp_path, after.agent) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert [message["content"] for message in after.told] == [
        "hi",
        ROUND,
        "Observation: storm: wind",
        "It is wind.",
        "and?",
    ]


@pytest.mark.parametrize("tool_format", ["native", "auto", "xml", "rescue", "hermes"])
async def test_a_model_of_another_format_that_goes_on_with_the_chat_is_not_told_of_it(
    tmp_path: Path, tool_format: ToolFormat
) -> None:
    other = Reader(tool_format, "More wind.")
    async with serving(tmp_path, Reader("react").agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    async with serving(tmp_path, other.agent) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert "look_up" in str(other.told)
    assert "thought" not in str(other.told).lower()


async def test_a_thought_is_kept_without_secrets(tmp_path: Path) -> None:
    reader = Reader("react", ROUND.replace("the card", SECRET))
    async with serving(tmp_path, reader.agent, model_api_key=SECRET) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
        history = await service.state.store.chats("u").history("c")
    [record] = history.calls
    assert record.details["thought"].startswith("Without ")
    assert SECRET not in str(record.details)


async def test_a_thought_that_holds_what_became_a_secret_later_is_not_told(tmp_path: Path) -> None:
    before = Reader("react", ROUND.replace("the card", SECRET))
    after = Reader("react", "Final Answer: More wind.")
    async with serving(tmp_path, before.agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    async with serving(tmp_path, after.agent, model_api_key=SECRET) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert "Thought: Without" in str(after.told)
    assert SECRET not in str(after.told)
