"""Agents written by hand: their tools run inside consent, limits, time-outs and recording, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard import Agent, RunContext, Skill, ToolContext, ToolError, tool
from callboard.errors import ToolDenied
from callboard.models import ScriptedModel
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)
from tests.serving import ScriptedAgent, Service, numbered, request, serving

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def add(context: ToolContext, a: int, b: int = 0) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    ran.append(f"{context.user_id} {context.agent_id} {a}+{b}")
    await context.status("processing", "adding")
    return a + b


@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a


@tool
async def wait() -> str:
    """Wait for ever."""
    ran.append("wait")
    await asyncio.Event().wait()
    return ""


@tool(requires_confirmation=True)
def wipe() -> str:
    """Wipe the disk."""
    ran.append("wipe")
    return "wiped"


async def answered(service: Service, value: object, **fields: Any) -> list[Event]:
    """The events of a run whose questions are all answered with `value`."""
    events: list[Event] = []
    body = request(run_id="r", user={"id": "ann"}, **fields)
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for _, event in numbered(response):
            events.append(event)
            if isinstance(event, InputRequest):
                answer = {"request_id": event.request_id, "value": value}
                asked = await service.client.post("/v1/runs/r/input", params={"user_id": "ann"}, json=answer)
                assert asked.status_code == 202
    return events


def of(kind: type[Event], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def adds(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Let me see. ")
    try:
        result = await context.call(add, {"a": 1, "b": 2})
    except ToolError as error:
        yield Message(content=f"{error.code}: {error}")
    else:
        yield Message(content=f"It is {result.text}.")


async def test_call_is_checked_run_for_the_user_shown_in_order_and_stored(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(adds)) as service:
        events = await answered(service, True, chat_id="c")
        kept = (await service.client.get("/v1/tool-calls", params={"user_id": "ann"})).json()["tool_calls"]
    shown = [event.type for event in events if not isinstance(event, Message | ToolStatus)]
    assert shown == ["run_start", "tool_call_start", "tool_call_complete", "done"]
    assert "".join(event.content for event in of(Message, events)) == "Let me see. It is 3."
    assert isinstance(events[1], Message), "what was said before the call stands before it"
    assert of(ToolCallStart, events)[0].tool_args == {"a": 1, "b": 2}
    assert [event.data.message for event in of(ToolStatus, events)] == ["adding"]
    assert [(call["tool_name"], call["status"], call["result"]) for call in kept] == [("add", "complete", "3")]
    assert ran == ["ann scripted 1+2"]


@pytest.mark.parametrize(("answer", "result"), [(True, "It is 3."), (False, "denied: ")])
async def test_setting_makes_a_call_ask_the_user(tmp_path: Path, answer: bool, result: str) -> None:
    async with serving(tmp_path, ScriptedAgent(adds), confirm_tools="ad*") as service:
        events = await answered(service, answer)
    [question] = of(InputRequest, events)
    assert question.message == "a: 1\nb: 2"
    assert result in "".join(event.content for event in of(Message, events))
    assert bool(ran) == answer


async def test_arguments_that_do_not_fit_are_shown_and_nothing_runs(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        await context.call(add, '{"a": 1', call_id="model_1")
        yield Message(content="never")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await answered(service, True)
    [error] = of(ToolCallError, events)
    assert (error.code, error.tool_call_id) == ("invalid_args", "model_1")
    assert isinstance(events[-1], Error)
    assert events[-1].code == "invalid_args"
    assert ran == []


async def test_calls_have_a_time_limit_and_a_maximum_number(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for number in range(3):
            try:
                await context.call(wait if number == 0 else add, {} if number == 0 else {"a": number})
            except ToolError as error:
                yield Message(content=f"{number} {error.code} ")

    settings = {"tool_timeout_seconds": 0.05, "max_tool_calls_per_turn": 2}
    async with serving(tmp_path, ScriptedAgent(script), **settings) as service:
        events = await answered(service, True)
    assert "".join(event.content for event in of(Message, events)) == "0 timeout 2 limit "
    assert ran == ["wait", "ann scripted 1+0"]


async def test_calls_run_side_by_side_and_a_model_sees_the_id_that_is_stored(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        calls = [context.call(add, f'{{"a": {number}}}', call_id=f"model_{number}") for number in range(4)]
        yield Message(content=" ".join([result.text for result in await asyncio.gather(*calls)]))

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await answered(service, True)
    assert of(Message, events)[-1].content == "0 1 2 3"
    starts = {event.tool_call_id for event in of(ToolCallStart, events)}
    assert starts == {event.tool_call_id for event in of(ToolCallComplete, events)} == {f"model_{n}" for n in range(4)}


async def test_a_run_that_is_cancelled_stops_its_tool(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        await context.call(wait, {})
        yield Message(content="never")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events: list[Event] = []
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r")) as response:
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, ToolCallStart):
                    await service.client.post("/v1/runs/r/cancel")
    assert [event.code for event in of(ToolCallError, events)] == ["cancelled"]
    assert events[-1] == Done(finish_reason="cancelled")


async def starts_by_itself(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="own", tool_name="wipe", tool_args={})
    ran.append("wipe")
    yield ToolCallComplete(tool_call_id="own", result="wiped")


async def ends_what_it_never_started(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallComplete(tool_call_id="own", tool_name="wipe", result="wiped")


async def starts_another_of_one_id(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="", tool_name="look", tool_args={})
    yield ToolCallComplete(tool_call_id="", result="")
    yield ToolCallStart(tool_call_id="", tool_name="wipe", tool_args={})
    ran.append("wipe")


@pytest.mark.parametrize("script", [starts_by_itself, ends_what_it_never_started, starts_another_of_one_id])
async def test_events_of_a_call_without_required_consent_end_the_run(tmp_path: Path, script: Any) -> None:
    async with serving(tmp_path, ScriptedAgent(script), confirm_tools="wipe") as service:
        events = await answered(service, True)
    last = events[-1]
    assert isinstance(last, Error)
    assert last.code == "agent_error"
    assert "await context.call(wipe, …)" in last.message
    assert "wipe" not in [event.tool_name for event in of(ToolCallStart, events)]
    assert ran == []


async def test_events_of_other_calls_are_shown_and_the_log_warns_once(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(starts_by_itself, "by_itself"), confirm_tools="other") as service:
        with capture_logs() as logs:
            for _ in range(2):
                events = await service.events(request(agent="by_itself"))
    assert isinstance(events[-1], Done)
    warned = [log for log in logs if log["event"] == "call_outside_consent"]
    assert [(log["agent"], log["tool"]) for log in warned] == [("by_itself", "wipe")]


async def test_agent_that_delegates_to_another_agent_is_accepted(
    tmp_path: Path,
) -> None:
    inner = Agent("inner", skills=[Skill("s", "d", tools=[add])], confirm=["add"])

    async def hands_over(context: RunContext) -> AsyncIterator[Event]:
        async for event in inner.run(context):
            yield event

    async with serving(tmp_path, ScriptedAgent(hands_over), confirm_tools="*") as service:
        events = await answered(service, True)
    assert isinstance(events[-1], Done)


class Desk:
    @tool
    def write(self) -> str:
        """Write."""
        return "written"


@pytest.mark.parametrize(
    ("given", "words"),
    [("add", "write @tool above"), (Desk.write, "instance.write")],
)
async def test_call_of_something_else_than_a_tool_raises_a_clear_error(tmp_path: Path, given: Any, words: str) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        await context.call(given, {})
        yield Message(content="never")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        [_, last] = await service.events(request())
    assert isinstance(last, Error)
    assert words in last.message


async def test_hand_made_context_runs_tools_and_cannot_ask() -> None:
    context = RunContext("r", [], str, ScriptedModel())
    assert (await context.call(double, {"a": 2})).text == "4"
    with pytest.raises(ToolDenied):
        await context.call(wipe, {})
    assert ran == []
