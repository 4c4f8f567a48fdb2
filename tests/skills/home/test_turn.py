"""The tool within a turn: the user's consent, and the limit over all calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callboard.agents import Agent
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills.home import HOME
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer
from tests.loop.conftest import wants
from tests.serving import numbered, request, serving

Call = dict[str, Any]


def calling(*rounds: Sequence[Call], **fields: Any) -> Agent:
    """An agent whose model makes these calls of `home`, round by round."""

    def script(asked: ModelRequest) -> list[ModelDelta]:
        made = sum(message["role"] == "assistant" for message in asked.messages)
        if made == len(rounds):
            return [TextDelta("Done.")]
        return [wants("home", call, index=index, call_id=f"{made}_{index}") for index, call in enumerate(rounds[made])]

    return Agent("house", skills=(HOME,), model=ScriptedModel(script), **fields)


async def played(folder: Path, agent: Agent, home: HomeAssistantServer, answer: object = None) -> list[Event]:
    """The events of a run in which the user answers every question so."""
    events: list[Event] = []
    settings = {"home_assistant_url": home.url, "home_assistant_token": TOKEN}
    async with serving(folder, agent, **settings) as service:
        body = request(agent="house", run_id="r", chat_id="c")
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, InputRequest):
                    sent = {"request_id": event.request_id, "value": answer}
                    assert (await service.client.post("/v1/runs/r/input", json=sent)).status_code == 202
    return events


OPEN: Call = {"action": "set", "targets": ["garage door"], "command": "open"}
LOOK: Call = {"action": "query", "area": "garage"}


async def test_an_agent_that_confirms_home_asks_about_changes_alone(
    tmp_path: Path, assistant: HomeAssistantServer
) -> None:
    events = await played(tmp_path, calling([LOOK, OPEN], confirm=("home",)), assistant, answer=True)
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert asked.tool_call_id == "0_1"
    assert assistant.called == [("cover.open_cover", "cover.garage_door", {})]


async def test_a_change_that_the_user_refuses_is_not_made(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    events = await played(tmp_path, calling([OPEN], confirm=("home",)), assistant, answer=False)
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["denied"]
    assert assistant.called == []


async def test_without_confirm_nobody_is_asked(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    events = await played(tmp_path, calling([OPEN]), assistant)
    assert not any(isinstance(event, InputRequest) for event in events)
    assert len(assistant.called) == 1


async def test_the_limit_holds_over_the_rounds_of_a_turn_and_calls_side_by_side(
    tmp_path: Path, assistant: HomeAssistantServer
) -> None:
    lights = {"action": "set", "targets": ["bed light", "kitchen lights"], "command": "off"}
    more = [{"action": "set", "targets": [name], "command": "on"} for name in ("ac", "ceiling lights", "yaml switch")]
    events = await played(tmp_path, calling([lights], more), assistant)
    assert sum(isinstance(event, ToolCallComplete) for event in events) == 2
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["limit", "limit"]
    assert len({entity_id for _, entity_id, _ in assistant.called}) == 3
