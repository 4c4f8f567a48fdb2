"""The behaviour of every adapter's base class, whatever its framework does."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from callboard.agents import NOTHING_SAID, RunContext, TurnContext
from callboard.calls import Approval, Limits, StatusReport, ToolCall, ToolResult, report_status
from callboard.errors import AgentError, ToolCancelled, ToolLimit, ToolTimeout
from callboard.frameworks.adapter import FrameworkAgent, to_agent_id
from callboard.frameworks.turn import Turn
from callboard.models import ScriptedModel
from callboard.redaction import Redaction
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

Play = Callable[[Turn], Awaitable[None]]


class Scripted(FrameworkAgent[Play]):
    """A framework whose agents are functions that call the turn."""

    async def run_turn(self, agent: Play, turn: Turn) -> None:
        await agent(turn)

    async def run_task(self, agent: Play, turn: Turn) -> None:
        turn.add_usage(1, 2)


def events_of(play: Play, **fields: Any) -> AsyncGenerator[Event, None]:
    context = TurnContext("run_1", [], str, ScriptedModel(), **fields)
    return Scripted(lambda _: play, "agent", "", "").run(context)


async def all_of(play: Play, **fields: Any) -> list[Event]:
    return [event async for event in events_of(play, **fields)]


async def echo() -> str:
    return "echo"


async def test_a_tool_does_not_run_before_the_start_of_its_call_is_written() -> None:
    ran = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.calls.start(ToolCall("1", "echo", {}))
        ran.set()

    events = events_of(play)
    assert isinstance(await anext(events), ToolCallStart)
    await anyio.wait_all_tasks_blocked()
    assert not ran.is_set()
    await events.aclose()


async def test_second_start_and_second_end_send_no_event() -> None:
    async def play(turn: Turn) -> None:
        for _ in range(2):
            await turn.calls.start(ToolCall("1", "echo", {}))
        turn.calls.complete("1", ToolResult("once"))
        turn.calls.complete("1", ToolResult("twice"))
        turn.calls.fail("1", "and again")
        turn.calls.report("1", StatusReport("late"))

    events = await all_of(play)
    assert [type(event) for event in events] == [ToolCallStart, ToolCallComplete, Message, Done]


async def test_turn_without_answer_ends_with_text_and_usage() -> None:
    async def play(turn: Turn) -> None:
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
    async def play(turn: Turn) -> None:
        raise AssertionError("a task is no turn")

    events = await all_of(play, task="title_generation")
    assert events == [Usage(input_tokens=1, output_tokens=2, total_tokens=3), Done()]


async def test_exception_of_framework_ends_run_after_its_text() -> None:
    async def play(turn: Turn) -> None:
        turn.add_text("Once upon")
        raise ZeroDivisionError

    events = events_of(play)
    assert await anext(events) == Message(content="Once upon")
    with pytest.raises(ZeroDivisionError):
        await anext(events)


async def test_closing_the_events_ends_the_framework() -> None:
    ended = asyncio.Event()

    async def play(turn: Turn) -> None:
        turn.add_text("Once upon")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    events = events_of(play)
    await anext(events)
    await events.aclose()
    assert ended.is_set()


async def test_factory_of_agent_may_be_async() -> None:
    async def play(turn: Turn) -> None:
        turn.add_text(turn.context.run_id)

    async def make(context: RunContext) -> Play:
        # As one that connects to something first: it is waited for.
        await asyncio.sleep(0)
        return play

    agent = Scripted(make, "agent", "", "")
    events = [event async for event in agent.run(RunContext("run_1", [], str, ScriptedModel()))]
    assert events == [Message(content="run_1"), Done()]


async def test_tools_are_limited_by_turn_budget_and_timeout() -> None:
    caught: list[str] = []

    async def play(turn: Turn) -> None:
        await turn.calls.start(ToolCall("1", "hang", {}))
        with pytest.raises(ToolTimeout):
            await turn.calls.run(ToolCall("1", "hang", {}), asyncio.Event().wait)
        assert not turn.calls.is_over_limit
        with pytest.raises(ToolLimit):
            await turn.calls.run(ToolCall("2", "echo", {}), echo)
        assert turn.calls.is_over_limit
        caught.append("both")

    events = await all_of(play, limits=Limits(max_tool_calls=1, tool_timeout_seconds=0.01))
    assert caught == ["both"]
    assert events[-1] == Done(finish_reason="max_turns")


async def test_timeout_error_of_tool_is_not_turn_timeout() -> None:
    async def late() -> str:
        raise TimeoutError("the airline is slow")

    async def play(turn: Turn) -> None:
        with pytest.raises(TimeoutError, match="airline"):
            await turn.calls.run(ToolCall("1", "late", {}), late)
        turn.add_text("Late.")

    assert (await all_of(play))[-1] == Done()


async def test_user_is_asked_once_if_framework_and_server_require_approval() -> None:
    async def yes(request: InputRequest) -> bool:
        return True

    async def play(turn: Turn) -> None:
        await turn.calls.start(ToolCall("1", "wipe", {}))
        await turn.calls.approve(ToolCall("1", "wipe", {}))
        turn.calls.complete("1", ToolResult(await turn.calls.run(ToolCall("1", "wipe", {}), echo)))

    events = await all_of(play, approval=Approval(("w*",), yes))
    assert sum(isinstance(event, InputRequest) for event in events) == 1


async def test_tool_timeout_pauses_while_user_is_asked_about_inner_call() -> None:
    time_is_up = asyncio.Event()

    async def answer(_: InputRequest) -> bool:
        await time_is_up.wait()
        return True

    async def play(turn: Turn) -> None:
        async def inner() -> str:
            return await turn.calls.run(ToolCall("2", "echo", {}), echo)

        loop = asyncio.get_running_loop()
        loop.call_later(1.5 * seconds, time_is_up.set)
        outer = ToolCall("1", "outer", {})
        await turn.calls.start(outer)
        turn.calls.complete("1", ToolResult(await turn.calls.run(outer, inner)))

    seconds = 0.3
    limits = Limits(tool_timeout_seconds=seconds)
    events = await all_of(play, limits=limits, approval=Approval(("echo",), answer))
    [end] = [event for event in events if isinstance(event, ToolCallComplete)]
    assert end.result == "echo"
    assert (end.duration_ms or 0) < seconds * 1000


async def test_tool_timeout_continues_after_question_about_inner_call() -> None:
    async def agree(_: InputRequest) -> bool:
        return True

    async def wait() -> None:
        await asyncio.Event().wait()

    async def play(turn: Turn) -> None:
        async def inner() -> None:
            await turn.calls.run(ToolCall("2", "echo", {}), echo)
            await wait()

        with pytest.raises(ToolTimeout):
            await turn.calls.run(ToolCall("1", "outer", {}), inner)
        turn.add_text("ended")

    limits = Limits(tool_timeout_seconds=0.05)
    events = await all_of(play, limits=limits, approval=Approval(("echo",), agree))
    assert Message(content="ended") in events


async def test_status_belongs_to_running_call() -> None:
    async def tell(word: str) -> str:
        # Its turn goes to the other calls, which run at the same time.
        await asyncio.sleep(0)
        report_status(word)
        return word

    async def play(turn: Turn) -> None:
        async def run(call_id: str) -> None:
            await turn.calls.start(ToolCall(call_id, "tell", {}))
            turn.calls.complete(
                call_id,
                ToolResult(
                    await turn.calls.run(ToolCall(call_id, "tell", {"id": call_id}), lambda: tell(f"of {call_id}"))
                ),
            )

        await asyncio.gather(run("1"), run("2"))
        report_status("of nobody")

    events = await all_of(play)
    told = [(event.tool_call_id, event.data.status) for event in events if isinstance(event, ToolStatus)]
    assert sorted(told) == [("1", "of 1"), ("2", "of 2")]


async def test_status_after_inner_call_belongs_to_outer_call() -> None:
    async def play(turn: Turn) -> None:
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


def test_a_name_becomes_an_id() -> None:
    assert to_agent_id("  Über-Agent: the 2nd! ") == "ber-Agent:-the-2nd"
    assert to_agent_id("a.b/c:d_e-f") == "a.b/c:d_e-f"


async def play_nothing(turn: Turn) -> None: ...


async def test_result_reaches_framework_without_secrets() -> None:
    returned: list[Any] = []

    async def leaks() -> str:
        return "the key is sk-of-the-server"

    async def leaks_deeper() -> dict[str, list[str]]:
        return {"keys": ["sk-of-the-server"]}

    async def play(turn: Turn) -> None:
        for call_id, tool in (("1", leaks), ("2", leaks_deeper)):
            await turn.calls.start(ToolCall(call_id, tool.__name__, {}))
            returned.append(await turn.calls.run(ToolCall(call_id, tool.__name__, {}), tool))

    await all_of(play, redaction=Redaction(["sk-of-the-server"]))
    assert returned == ["the key is [secret]", {"keys": ["[secret]"]}]


async def test_function_in_framework_thread_is_stopped_after_timeout() -> None:
    told = threading.Event()
    timed_out = threading.Event()

    def works() -> None:
        assert timed_out.wait(30)
        try:
            report_status("processing", "still here")
        except ToolCancelled:
            told.set()

    async def play(turn: Turn) -> None:
        await turn.calls.start(ToolCall("1", "works", {}))
        with pytest.raises(ToolTimeout, match="may still be running"):
            await turn.calls.run(ToolCall("1", "works", {}), lambda: asyncio.to_thread(works))
        timed_out.set()

    await all_of(play, limits=Limits(tool_timeout_seconds=0.05))
    assert await asyncio.to_thread(told.wait, 30)


async def test_failure_message_contains_no_file_paths() -> None:
    async def play(turn: Turn) -> None:
        await turn.calls.start(ToolCall("1", "reads", {}))
        turn.calls.fail("1", "FileNotFoundError: '/usr/lib/app/notes.txt'")

    [error] = [event for event in await all_of(play) if isinstance(event, ToolCallError)]
    assert error.error == "FileNotFoundError: '…/notes.txt'"


async def test_a_piece_of_a_text_does_not_copy_the_text_before_it() -> None:
    memories = []

    async def play(turn: Turn) -> None:
        turn.add_text("x" * 1_000_000)
        with measuring_memory() as memory:
            turn.add_text("y")
        memories.append(memory)
        assert turn.draft == "x" * 1_000_000 + "y"

    await all_of(play)
    assert [memory.peak_bytes < 100_000 for memory in memories] == [True]
