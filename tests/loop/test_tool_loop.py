"""The tool loop: what the user sees, what the model is told, and how a turn ends."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from callboard._formats import Format
from callboard.agents.context import TurnContext
from callboard.agents.tool_loop import run_tool_loop
from callboard.calls import report_status, tool
from callboard.errors import ModelError, ToolError
from callboard.models import ModelDelta, OpenAICompatible, TextDelta, TokenUsage
from callboard_protocol import (
    Done,
    Event,
    Message,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
)
from tests.fakes.openai_server import OpenAIServer, chunks, text
from tests.loop.conftest import Answer, Stage, add, errors, results_sent, says, text_of, wants

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


@tool
async def fails() -> None:
    """Fails."""
    raise ValueError("no luck")


@tool(secrets=("pin",))
async def unlock(door: str, pin: str) -> str:
    """Opens a door."""
    return f"{door} with {pin}"


@tool(secrets=("headers",))
async def fetch(headers: dict[str, str]) -> str:
    """Fetches a page."""
    return f"sent {headers}"


@tool
async def draw(is_bad: bool = False) -> dict[str, str]:
    """Draws a picture."""
    if is_bad:
        raise ToolError(f"{PNG} is too small")
    return {"title": "An owl", "image": PNG}


async def test_picture_in_the_text_of_a_result_is_shown_and_leaves_a_mark() -> None:
    stage = Stage([[wants("draw"), wants("draw", '{"is_bad": true}', call_id="bad")], says("Here.")], [draw])
    events = await stage.play()
    [complete] = [event for event in events if isinstance(event, ToolCallComplete)]
    [failed] = [event for event in events if isinstance(event, ToolCallError)]
    assert failed.error == "[image, image/png, about 69 bytes: it cannot be shown here] is too small"
    assert complete.files == ({"type": "image", "url": f"data:image/png;base64,{PNG}"},)
    assert complete.result == '{"title":"An owl","image":"[image, image/png, about 69 bytes: the user sees it]"}'
    assert results_sent(stage) == [complete.result, f"Error: {failed.error}"]


async def test_call_runs_the_model_gets_its_result_and_the_answer_follows() -> None:
    stage = Stage(
        [[TextDelta("Let me see."), wants("add", '{"a": 1,  "b": 2}', call_id="c1")], says("It is 3.")],
        [replace(add, show="text")],
    )
    events = await stage.play()
    start, complete = events[1:3]
    assert start == ToolCallStart(
        tool_call_id="c1", tool_name="add", tool_args='{"a": 1,  "b": 2}', label="add · 1", show="text"
    )
    assert isinstance(complete, ToolCallComplete)
    assert (complete.result, complete.result_chars, complete.tool_call_id) == ("3", 1, "c1")
    assert text_of(events) == "Let me see.It is 3."
    assert events[-1] == Done(finish_reason="stop")
    assert stage.requests[1].messages[1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1,  "b": 2}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    assert stage.requests[1].tools == [add.schema()]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "told"),
    [
        ("", "{}", "unknown_tool", "The call names no tool. The tools are: add, fails."),
        ("ad", "{}", "unknown_tool", "There is no tool 'ad'. Did you mean 'add'? The tools are: add, fails."),
        ("add", '{"a": 1, "b"', "invalid_args", "not valid JSON"),
        ("add", "[1, 2]", "invalid_args", "must be one JSON object, not a list"),
        ("add", '{"a": 1}', "invalid_args", "argument 'b' is missing"),
    ],
)
async def test_rejected_call_starts_as_written_and_ends_with_the_reason(
    name: str, arguments: str, code: str, told: str
) -> None:
    stage = Stage([[wants(name, arguments)], says("Sorry.")], [add, fails])
    events = await stage.play()
    assert isinstance(events[0], ToolCallStart)
    assert events[0].tool_args == arguments
    [(shown_code, shown)] = errors(events)
    assert shown_code == code
    assert told in shown
    assert results_sent(stage) == [f"Error: {shown}"]


async def test_tools_that_a_call_adds_or_removes_hold_for_the_next_request() -> None:
    tools: list[Any] = []

    @tool
    async def swap() -> str:
        """Takes itself away, and adds another tool."""
        tools[:] = [draw]
        return "swapped"

    tools.append(swap)
    stage = Stage([[wants("swap")], [wants("draw")], says("Done.")], tools)
    events = await stage.play()
    assert [[one["function"]["name"] for one in request.tools] for request in stage.requests] == [
        ["swap"],
        ["draw"],
        ["draw"],
    ]
    assert not errors(events)


async def test_call_of_an_agent_without_tools_gets_an_error() -> None:
    stage = Stage([[wants("add")], says("Text then.")])
    [(code, shown)] = errors(await stage.play())
    assert (code, "answer in text" in shown) == ("unknown_tool", True)


async def test_usage_is_summed_over_requests_and_a_running_total_counts_once() -> None:
    stage = Stage(
        [
            [TokenUsage(10, 1, 11), wants("add", {"a": 1, "b": 1}), TokenUsage(10, 5, 15)],
            [TextDelta("2"), TokenUsage(20, 2, 22)],
        ],
        [add],
    )
    assert (await stage.play())[-2] == Usage(input_tokens=30, output_tokens=7, total_tokens=37)


@pytest.mark.parametrize("reason", ["stop", None, "weird"])
async def test_calls_are_run_whatever_reason_the_model_gives_for_stopping(reason: str | None) -> None:
    stage = Stage([[wants("add", {"a": 1, "b": 1}), *says("", reason)], says("2")], [add])
    await stage.play()
    assert results_sent(stage) == ["2"]


@pytest.mark.parametrize(
    ("tool_format", "call"),
    [
        ("native", wants("add", '{"a": 1, "b": 2}')),
        ("react", TextDelta('\nAction: add\nAction Input: {"a": 1, "b": 2}\n')),
        ("xml", TextDelta('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')),
    ],
)
async def test_error_of_the_model_after_a_call_is_raised_and_nothing_runs(tool_format: Any, call: ModelDelta) -> None:
    def breaks() -> Answer:
        yield from (TextDelta("Sums: "), call)
        raise ModelError("the endpoint is gone")

    stage = Stage([breaks()], [add], tool_format=Format(tool_format))
    shown: list[Event] = []

    async def play() -> None:
        async for event in stage.turn():
            shown.append(event)  # noqa: PERF401 - what came before the failure is looked at too

    with pytest.raises(ModelError, match="gone"):
        await play()
    assert text_of(shown).strip() == "Sums:"
    assert not any(isinstance(event, ToolCallComplete) for event in shown)


PIN = "48213377"


@pytest.mark.parametrize("tool_format", ["native", "react"])
@pytest.mark.parametrize(
    ("name", "arguments", "is_found"),
    [
        ("unlock", {"door": PIN, "pin": PIN}, True),
        ("unlock", {"door": "front", "pin": {"value": PIN}}, True),
        ("unlock", f'{{"pin": {"[" * 500}{PIN}{"]" * 500}}}', True),
        ("unlock", {"door": "front", "pin": "1", "code": PIN}, True),
        ("unlock", {"doors": [], "pin_code": PIN}, True),
        ("unlock", r'{"door": "front", "pin": "4\u0038213377"}', True),
        ("unlock", f'{{"door": "front", "pin": "{PIN}", "pin": "1"}}', False),
        ("unlock", f'{{"door": "front", "pin": "{PIN}', False),
        ("unlok", {"door": "front", "pin": PIN}, True),
        ("fetch", {"headers": {PIN: "of the house"}}, True),
        ("add", {"a": 1, "b": 2, "pin": PIN}, True),
    ],
)
async def test_secret_of_a_call_is_hidden_from_its_start_on(
    name: str, arguments: Any, tool_format: Any, *, is_found: bool
) -> None:
    """As the recorder and the inspector hide it: an event when it comes, and a request when it is looked at."""
    answer = says(f"It was {PIN}." if is_found else "I see.")
    stage = Stage([[wants(name, arguments)], answer], [unlock, fetch, add], tool_format=Format(tool_format))
    shown = [
        stage.redaction(event.model_dump_json())
        async for event in stage.turn()
        # The arguments of a tool without secrets are shown while the model writes them, before the start.
        if not (isinstance(event, ToolCallArgsDelta) and event.tool_name == "add")
    ]
    sent = stage.redaction(json.dumps(stage.requests[-1].messages))
    assert [text for text in [*shown, sent] if PIN[1:] in text] == []
    assert (stage.redaction(PIN) == "[secret]") is is_found


# --- A turn that is closed leaves nothing running.


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
        turn = run_tool_loop(TurnContext("r", [{"role": "user", "content": "x"}], str, model), tuple)
        assert await anext(turn) == Message(content="Once")
        await turn.aclose()
        await server.disconnected.wait()
        await model.aclose()
