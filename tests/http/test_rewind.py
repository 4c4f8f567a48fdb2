"""What an agent takes back, as OpenAI's clients see it, streamed and whole, and what the next turn is told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard._openai.answer import TAKEN_BACK
from callboard.agents import RunContext
from callboard_protocol import Event, Message, Reasoning, Rewind, Source, Status, ToolCallComplete, ToolCallStart
from tests.openai_client import QUESTION, URL, asking
from tests.serving import ScriptedAgent, request, serving

BEFORE = "Let me look."
MEANWHILE = " While it runs:"
HALF = "```\nHalf an answer"
WHOLE = "A whole answer."
LEFT = f"{BEFORE}{MEANWHILE}{WHOLE}"


def hesitant(drafts: int) -> ScriptedAgent:
    """Answers that often before the answer that stands; speaks while its tool runs."""

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=BEFORE)
        yield ToolCallStart(tool_call_id="a", tool_name="look_up", tool_args="{}")
        yield Message(content=MEANWHILE)
        yield ToolCallComplete(tool_call_id="a", result="a fruit")
        yield Source(source={"name": "Apples", "url": URL})
        for _ in range(drafts):
            yield Reasoning(content="Hm.")
            yield Message(content=HALF)
            # It sends what is held to be joined: a draft that nobody has seen is taken back without a word.
            yield Status(content="Checking")
            yield Rewind()
        yield Reasoning(content="So.")
        yield Message(content=WHOLE)

    return ScriptedAgent(script)


def activities(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("body", [{"callboard": {"tool_activity": name}} for name in names], ids=names)


@activities("none", "details")
async def test_a_stream_of_chunks_says_so_in_words_and_to_programs_how_much_stays(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with asking(tmp_path, hesitant(1)) as (_, client):
        stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True, extra_body=body)
        chunks = [chunk async for chunk in stream]
        whole = await client.chat.completions.create(model="scripted", messages=QUESTION, extra_body=body)
    read = ""
    followed = ""
    for chunk in chunks:
        piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
        read += piece
        mark = (chunk.model_extra or {}).get("callboard")
        followed = followed[: mark["rewind"]["content_chars"]] if mark else followed + piece
    assert f"{HALF}\n```{TAKEN_BACK}" in read
    assert read.endswith(f"\n\n{WHOLE}")
    message = whole.choices[0].message
    assert followed == message.content
    assert followed.replace("\n\n", "")[: len(BEFORE + MEANWHILE)] == BEFORE + MEANWHILE
    assert followed.endswith(WHOLE)
    assert message.model_extra == {"reasoning_content": "So."}


@activities("items", "none")
async def test_a_stream_of_items_ends_them_with_the_text_that_is_left(tmp_path: Path, body: dict[str, Any]) -> None:
    async with asking(tmp_path, hesitant(2)) as (_, client):
        stream = await client.responses.create(model="scripted", input=QUESTION, stream=True, extra_body=body)
        events: list[Any] = [event async for event in stream]
    added = [event.output_index for event in events if event.type == "response.output_item.added"]
    assert added == list(range(len(added)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    texts = [(item.status, item.content[0].text) for item in done if item.type == "message"]
    assert "".join(text for _, text in texts) == LEFT
    assert [status for status, text in texts if not text] == ["incomplete"] * 2
    ended = [event.text for event in events if event.type == "response.output_text.done"]
    assert "".join(ended) == LEFT
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas.count(f"{HALF}\n```{TAKEN_BACK}") == 2
    assert events[-1].response.output_text == LEFT


async def test_the_chat_keeps_what_is_left(tmp_path: Path) -> None:
    async with serving(tmp_path, hesitant(2)) as service:
        events = await service.events(request(chat_id="c", message_id="m"))
        kept = (await service.client.get("/v1/chats/c/messages")).text
    assert [event.type for event in events].count("rewind") == 2
    assert WHOLE in kept
    assert "Half" not in kept
