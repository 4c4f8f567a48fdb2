"""The behaviour of every adapter's base class, whatever its framework does."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from callboard.agents.context import TurnContext
from callboard.agents.notices import NOTHING_SAID
from callboard.calls import StatusReport, ToolCall, ToolResult, report_status
from callboard.calls.approval import Approval
from callboard.calls.limits import Limits
from callboard.errors import AgentError, ToolCancelled, ToolTimeout
from callboard.frameworks.adapter import FrameworkAgent
from callboard.frameworks.turn import AdapterTurn
from callboard.models import ScriptedModel
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
)
from tests.measuring import measuring_memory

Play = Callable[[AdapterTurn], Awaitable[None]]


class Scripted(FrameworkAgent[Play]):
    """A framework whose agents are functions that call the turn."""

    async def run_turn(self, agent: Play, turn: AdapterTurn) -> None:
        await agent(turn)

    async def run_task(self, agent: Play, turn: AdapterTurn) -> None:
        turn.add_usage(1, 2)


def events_of(play: Play, **fields: Any) -> AsyncGenerator[Event, None]:
    return Scripted(lambda _: play, "agent", "", "").run(TurnContext("run_1", [], str, ScriptedModel(), **fields))


async def all_of(play: Play, **fields: Any) -> list[Event]:
    return [event async for event in events_of(play, **fields)]


async def echo() -> str:
    return "echo"


async def test_a_tool_does_not_run_before_the_start_of_its_call_is_written() -> None:
    ran = asyncio.Event()

    async def play(turn: AdapterTurn) -> None:
        await turn.calls.start(ToolCall("1", "echo", {}))
        ran.set()

    events = events_of(play)
    assert isinstance(await anext(events), ToolCallStart)
    await anyio.wait_all_tasks_blocked()
    assert not ran.is_set()
    await events.aclose()


async def test_second_start_and_second_end_send_no_event() -> None:
    async def play(turn: AdapterTurn) -> None:
        for _ in range(2):
            await turn.calls.start(ToolCall("1", "echo", {}))
        turn.calls.complete("1", ToolResult("once"))
        turn.calls.complete("1", ToolResult("twice"))
        turn.calls.fail("1", "and again")
        turn.calls.report("1", StatusReport("late"))

    events = await all_of(play)
    assert [type(event) for event in events] == [ToolCallStart, ToolCallComplete, Message, Done]


async def test_turn_without_answer_ends_with_text_and_usage() -> None:
    async def play(turn: AdapterTurn) -> None:
        turn.add_text("Let me see.")
        turn.add_usage(10, 5)
        await turn.calls.start(ToolCall("1", "echo", {}))
        turn.calls.complete("1", ToolResult("echo"))
        turn.add_usage(20, None)

    events = await all_of(play)
    assert events[-3:] == [
        Message(content=NOTHING_SAID),
        Usage(input_tokens=30, output_tokens=5, total_tokens=35),
        Done(),
    ]


async def test_background_task_without_answer_gets_no_text() -> None:
    async def play(turn: AdapterTurn) -> None:
        raise AssertionError("a task is no turn")

    events = await all_of(play, task="title_generation")
    assert events == [Usage(input_tokens=1, output_tokens=2, total_tokens=3), Done()]


async def test_user_is_asked_once_if_framework_and_server_require_approval() -> None:
    async def yes(request: InputRequest) -> bool:
        return True

    async def play(turn: AdapterTurn) -> None:
        await turn.calls.start(ToolCall("1", "wipe", {}))
        await turn.calls.approve(ToolCall("1", "wipe", {}))
        turn.calls.complete("1", ToolResult(await turn.calls.run(ToolCall("1", "wipe", {}), echo)))

    events = await all_of(play, approval=Approval(("w*",), yes))
    assert sum(isinstance(event, InputRequest) for event in events) == 1


async def test_status_after_inner_call_belongs_to_outer_call() -> None:
    async def play(turn: AdapterTurn) -> None:
        async def delegate() -> str:
            await turn.calls.run(ToolCall("2", "echo", {}), echo)
            report_status("back")
            return "done"

        await turn.calls.start(ToolCall("1", "delegate", {}))
        await turn.calls.start(ToolCall("2", "echo", {}))
        turn.calls.complete("1", ToolResult(await turn.calls.run(ToolCall("1", "delegate", {}), delegate)))
        turn.calls.complete("2", ToolResult("echo"))

    events = await all_of(play)
    assert [event.tool_call_id for event in events if isinstance(event, ToolStatus)] == ["1"]


@pytest.mark.parametrize("agent_id", ["", "has space", "-", "x" * 129])
def test_an_id_that_a_model_list_cannot_hold_is_refused(agent_id: str) -> None:
    with pytest.raises(AgentError, match="agent_id="):
        Scripted(lambda _: play_nothing, agent_id, "", "")


async def play_nothing(turn: AdapterTurn) -> None: ...


async def test_a_function_that_needs_a_user_says_so_if_the_request_names_none() -> None:
    agent = Scripted(lambda run: run.user.id, "agent", "", "")  # type: ignore[union-attr,arg-type,return-value] # the mistake
    with pytest.raises(AgentError, match="this request names no user"):
        await anext(agent.run(TurnContext("run_1", [], str, ScriptedModel())))


async def test_function_in_framework_thread_is_stopped_after_timeout() -> None:
    told = threading.Event()
    timed_out = threading.Event()

    def works() -> None:
        assert timed_out.wait(30)
        try:
            report_status("processing", "still here")
        except ToolCancelled:
            told.set()

    async def play(turn: AdapterTurn) -> None:
        await turn.calls.start(ToolCall("1", "works", {}))
        with pytest.raises(ToolTimeout, match="may still be running"):
            await turn.calls.run(ToolCall("1", "works", {}), lambda: asyncio.to_thread(works))
        timed_out.set()

    await all_of(play, limits=Limits(tool_timeout_seconds=0.05))
    assert await asyncio.to_thread(told.wait, 30)


async def test_failure_message_contains_no_file_paths() -> None:
    async def play(turn: AdapterTurn) -> None:
        await turn.calls.start(ToolCall("1", "reads", {}))
        turn.calls.fail("1", "FileNotFoundError: '/usr/lib/app/notes.txt'")

    [error] = [event for event in await all_of(play) if isinstance(event, ToolCallError)]
    assert error.error == "FileNotFoundError: '…/notes.txt'"


async def test_a_piece_of_a_text_does_not_copy_the_text_before_it() -> None:
    memories = []

    async def play(turn: AdapterTurn) -> None:
        turn.add_text("x" * 1_000_000)
        with measuring_memory() as memory:
            turn.add_text("y")
        memories.append(memory)
        assert turn.draft == "x" * 1_000_000 + "y"

    await all_of(play)
    assert [memory.peak_bytes < 100_000 for memory in memories] == [True]


async def test_tool_timeout_pauses_while_user_is_asked_about_inner_call_and_continues_after_it() -> None:
    reached: list[str] = []

    async def answer(_: InputRequest) -> bool:
        await time_is_up.wait()
        return True

    async def play(turn: AdapterTurn) -> None:
        async def inner() -> None:
            reached.append(await turn.calls.run(ToolCall("2", "echo", {}), echo))
            await asyncio.Event().wait()

        asyncio.get_running_loop().call_later(1.5 * seconds, time_is_up.set)
        with pytest.raises(ToolTimeout):
            await turn.calls.run(ToolCall("1", "outer", {}), inner)
        reached.append("timeout")

    time_is_up = asyncio.Event()
    seconds = 0.1
    await all_of(play, limits=Limits(tool_timeout_seconds=seconds), approval=Approval(("echo",), answer))
    assert reached == ["echo", "timeout"]
