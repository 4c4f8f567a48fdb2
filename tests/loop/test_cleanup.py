"""A turn that is closed or cancelled, at any point, leaves nothing running."""

import asyncio

from callboard.agents.context import TurnContext
from callboard.agents.tool_loop import run_tool_loop
from callboard.calls import report_status, tool
from callboard.models import OpenAICompatible
from callboard_protocol import Message, ToolStatus
from tests.fakes.openai_server import OpenAIServer, chunks, text
from tests.loop.conftest import Stage, says, wants


class Watched:
    """Tools that say when they run and when they are stopped."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.stopped = 0

        @tool
        async def works() -> None:
            """Works until it is stopped."""
            self.running.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1

        @tool
        async def reports() -> None:
            """Reports, and works on."""
            report_status("processing")
            await works.function()

        self.tools = [works, reports]


def others() -> set[asyncio.Task[object]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def test_closing_while_a_tool_runs_stops_every_tool() -> None:
    watched = Watched()
    stage = Stage([[wants("works"), wants("reports", index=1)], says("never")], watched.tools)
    turn = stage.turn()
    async for event in turn:
        if isinstance(event, ToolStatus):
            break
    await watched.running.wait()
    await turn.aclose()
    assert watched.stopped == 2
    assert others() == set()


async def test_closing_in_the_middle_of_the_answer_closes_the_models_request() -> None:
    async with OpenAIServer([chunks(text("Once"), ending="hang")]) as server:
        model = OpenAICompatible(server.base_url, api_key="key", model="m")
        turn = run_tool_loop(TurnContext("r", [{"role": "user", "content": "x"}], str, model), ())
        assert await anext(turn) == Message(content="Once")
        await turn.aclose()
        await server.disconnected.wait()
        await model.aclose()
