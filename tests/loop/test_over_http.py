"""Whole turns over a real HTTP endpoint that streams as endpoints really do."""

import pytest

from callboard._formats import Format, FormatChoice, ToolFormat
from callboard.agents.context import TurnContext
from callboard.agents.tool_loop import run_tool_loop
from callboard.calls import tool
from callboard.errors import ModelCutOff, ModelError, ModelTimeout
from callboard.models import OpenAICompatible
from callboard_protocol import Done, Event, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import (
    Answer,
    Body,
    Chunks,
    Ending,
    OpenAIServer,
    Refusal,
    call,
    chunks,
    finish,
    text,
    usage,
)
from tests.loop.conftest import Stage, text_of


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def turn(
    server: OpenAIServer,
    events: list[Event],
    *,
    tool_format: Format | None = None,
    timeout_seconds: float = 20,
    max_retries: int = 0,
) -> None:
    model = OpenAICompatible(
        server.base_url, api_key="key", model="m", timeout_seconds=timeout_seconds, max_retries=max_retries
    )
    asked = [{"role": "user", "content": "sums"}]
    try:
        context = TurnContext("r", asked, Stage([]).claim, model)
        async for event in run_tool_loop(context, [add], tool_format=tool_format):
            events.append(event)  # noqa: PERF401 - what came before a failure is looked at too
    finally:
        await model.aclose()


SLOPPY = {
    "all index 0": chunks(
        text("Sums:"),
        call("add", '{"a": 1,', call_id="x"),
        call(arguments='"b": 2}'),
        call("add", "", call_id="y"),
        call(arguments='{"a": 3, "b": 4}'),
        call("add", "{oops", call_id="z"),
        finish("stop"),
        usage(10, 5),
    ),
    "no index, one id for all, no reason": chunks(
        text("Sums:"),
        call("add", '{"a": 1, "b": 2}', index=None, call_id="x"),
        call("add", '{"a": 3, "b": 4}', index=None, call_id="x"),
        call("add", '{"a": 3', index=None, call_id="other"),
    ),
}


@pytest.mark.parametrize("first", SLOPPY.values(), ids=SLOPPY.keys())
async def test_nonstandard_streams_give_the_intended_calls_and_a_valid_next_request(first: Chunks) -> None:
    events: list[Event] = []
    async with OpenAIServer([first, chunks(text("3 and 7."), finish("stop"))]) as server:
        await turn(server, events)
    assert sorted(event.result for event in events if isinstance(event, ToolCallComplete)) == ["3", "7"]
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["invalid_args"]
    assert text_of(events) == "Sums:3 and 7."
    assert events[-1] == Done(finish_reason="stop")
    _, asked, *answers = server.requests[1]["messages"]
    ids = [entry["id"] for entry in asked["tool_calls"]]
    assert len(set(ids)) == 3
    assert [answer["tool_call_id"] for answer in answers] == ids
    assert [entry["function"]["arguments"] for entry in asked["tool_calls"]][2] == "{}"
    assert [answer["content"] for answer in answers][:2] == ["3", "7"]


async def test_broken_connection_fails_the_turn_after_its_text() -> None:
    events: list[Event] = []
    async with OpenAIServer([chunks(text("Once upon"), ending="cut")]) as server:
        with pytest.raises(ModelCutOff, match="in the middle"):
            await turn(server, events)
    assert text_of(events) == "Once upon"


async def test_a_call_cut_in_its_arguments_is_never_run() -> None:
    events: list[Event] = []
    async with OpenAIServer([chunks(call("add", '{"a": 1, "b": 2}', call_id="x"), ending="cut")]) as server:
        with pytest.raises(ModelCutOff):
            await turn(server, events)
    assert not any(isinstance(event, ToolCallComplete) for event in events)


def call_in(name: ToolFormat) -> list[Body | str]:
    """A call of `add`, whole, in pieces, with chunks in between that say nothing."""
    written = {
        "react": 'Action: add\nAction Input: {"a": 1, "b": 2}\n',
        "xml": '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>',
    }
    nothing: list[Body | str] = [text(None), text(""), {"choices": [{"delta": None}]}, {"choices": []}]
    if name not in written:
        return [*nothing, call("add", "", call_id="x"), *nothing, call(arguments='{"a": 1, "b": 2}'), *nothing]
    said = written[name]
    return [*nothing, text(said[:9]), *nothing, *(text(said[at : at + 4]) for at in range(9, len(said), 4)), *nothing]


TEXT_AND_NATIVE: list[ToolFormat] = ["native", "react", "xml"]


@pytest.mark.parametrize("name", TEXT_AND_NATIVE)
async def test_null_deltas_wrong_finish_reason_and_rate_limit_do_not_stop_calls(name: ToolFormat) -> None:
    events: list[Event] = []
    script: list[Answer] = [
        Refusal(429, "slow down", {"Retry-After": "0"}),
        chunks(*call_in(name), finish("stop")),
        Refusal(429, "slow down", {"Retry-After": "0"}),
        chunks(text("It is 3."), finish("stop"), ending="eof"),
    ]
    async with OpenAIServer(script) as server:
        await turn(server, events, tool_format=FormatChoice(name).for_name("m"), max_retries=1)
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["3"]
    assert text_of(events) == "It is 3."
    assert events[-1] == Done(finish_reason="stop")


BREAKS: dict[str, tuple[list[Body | str], Ending, type[ModelError]]] = {
    "an error object": ([{"error": {"message": "boom"}}], "done", ModelError),
    "a cut connection": ([], "cut", ModelCutOff),
    "an end without a reason": ([], "eof", ModelCutOff),
    "a hang": ([], "hang", ModelTimeout),
}


@pytest.mark.parametrize("name", TEXT_AND_NATIVE)
@pytest.mark.parametrize(("last", "ending", "error"), BREAKS.values(), ids=BREAKS.keys())
async def test_a_stream_that_breaks_after_a_call_fails_the_turn_and_runs_nothing(
    name: ToolFormat, last: list[Body | str], ending: Ending, error: type[ModelError]
) -> None:
    events: list[Event] = []
    async with OpenAIServer([chunks(text("Sums: "), *call_in(name), *last, ending=ending)]) as server:
        with pytest.raises(error):
            await turn(server, events, tool_format=FormatChoice(name).for_name("m"), timeout_seconds=1)
    assert text_of(events).strip() == "Sums:"
    assert not any(isinstance(event, ToolCallComplete) for event in events)
