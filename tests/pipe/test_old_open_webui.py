"""Open WebUI 0.6 and 0.7: events change the answer in place, and a chunk at the end makes Open WebUI save it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Event,
    Message,
    Reasoning,
    RunStart,
    Source,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    Usage,
)
from tests.pipe.loader import PIPE, read_next_turn
from tests.pipe.old_open_webui import OldOpenWebUI, stopped, unescaped
from tests.pipe.owui_blocks import tool_blocks
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_stream import a_pipe, start

CALL = ToolCallStart(tool_call_id="c", tool_name="draw", tool_args={"what": "a cat"})
PROGRESS = ToolStatus(tool_call_id="c", data=ToolStatusData(status="processing", message="Painting", progress=45))
SOURCE = Source(source={"name": "b", "url": "http://b"}, document=("b",), metadata=({"source_number": 4},))
TALK: list[Event] = [
    RunStart(run_id="r", agent="a"),
    Reasoning(content="Hm."),
    Message(content="Look: "),
    CALL,
    PROGRESS,
]
END: list[Event] = [
    ToolCallComplete(tool_call_id="c", result="a <cat>"),
    SOURCE,
    Message(content="Done [source4]."),
    Usage(total_tokens=3),
    Done(),
]


@pytest.fixture(params=["0.6.43", "0.7.2"], autouse=True)
def old_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIPE, "VERSION", request.param)


async def watched(updates: AsyncIterator[Any], webui: OldOpenWebUI, drawn: asyncio.Event) -> AsyncIterator[Any]:
    """The same stream; `drawn` is set when the call's progress has been on screen."""
    async for update in updates:
        yield update
        if webui.screens and "· 45% Painting" in webui.screen:
            drawn.set()


async def answered(server: ScriptedServer, rendering: str = "details") -> OldOpenWebUI:
    webui = OldOpenWebUI()
    drawn = asyncio.Event()
    server.on("POST", "runs", stream(frames(*TALK), drawn, frames(*END, first=len(TALK) + 1)))
    pipe = a_pipe(server.url)
    pipe.valves.RENDERING = rendering
    await webui.consume(watched(await start(pipe), webui, drawn))
    return webui


@pytest.mark.parametrize("rendering", ["details", "native"])
async def test_a_call_is_seen_live_with_its_progress_and_changes_in_place(
    server: ScriptedServer, rendering: str
) -> None:
    webui = await answered(server, rendering)
    states = [[block.attributes["name"] for block in tool_blocks(screen)] for screen in webui.screens]
    assert ["draw · 45% Painting"] in states
    assert states[-1] == ["draw"]
    assert all(len(blocks) <= 1 for blocks in states), "appended, not replaced"


async def test_what_is_on_screen_at_the_end_is_what_is_kept(server: ScriptedServer) -> None:
    webui = await answered(server)
    assert webui.saved == webui.screen == webui.streamed
    [block] = tool_blocks(webui.saved)
    assert (block.attributes["done"], block.value("result")) == ("true", "a <cat>")
    assert webui.saved.endswith("Done [1#source4].")
    assert [one["metadata"][0]["source"] for one in webui.sources] == ["http://b"]
    assert webui.usage["total_tokens"] == 3


async def test_on_the_next_turn_the_model_reads_the_result(server: ScriptedServer) -> None:
    webui = await answered(server)
    [message] = read_next_turn([{"role": "assistant", "content": webui.next_turn()}])
    assert "<details" not in message["content"]
    assert "Hm." not in message["content"]
    assert "a <cat>" in unescaped(message["content"])
    assert message["content"].endswith("Done [source4].")


async def test_stop_leaves_no_spinner_and_loses_no_text(server: ScriptedServer) -> None:
    webui = OldOpenWebUI()
    drawn = asyncio.Event()
    server.on("POST", "runs", stream(frames(*TALK), end="hang"))
    await stopped(webui, watched(await start(a_pipe(server.url)), webui, drawn), drawn)
    await server.seen("POST", "cancel")
    assert webui.saved == webui.screen
    assert "Look: " in webui.saved
    assert 'done="false"' not in webui.saved
    [block] = tool_blocks(webui.saved)
    assert block.value("result") == "Stopped by the user"
