"""The loop over models that call tools badly: repaired, refused, in text, in another format than asked for."""

import json
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from callboard._formats import Format, ToolFormat
from callboard.calls import Tool, tool
from callboard.models import Finish, ReasoningDelta, TextDelta
from callboard_protocol import (
    Done,
    Event,
    Reasoning,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)
from tests.loop.conftest import Answer, Stage, add, errors, says, text_of, wants


@tool(read_only=True)
async def search(query: str, limit: int = 5) -> str:
    """Searches."""
    return f"{limit} about {query}"


ran: list[str] = []


@tool
async def send(text: str) -> str:
    """Sends a message."""
    ran.append(text)
    return "sent"


TOOLS: list[Tool] = [add, search, send]


def tokens(text: str) -> Answer:
    return [*(TextDelta(text[at : at + 3]) for at in range(0, len(text), 3)), Finish("stop")]


def results(events: list[Event]) -> list[str]:
    return [event.result for event in events if isinstance(event, ToolCallComplete)]


async def test_a_call_that_was_repaired_runs_and_its_timeline_says_what_was_repaired() -> None:
    stage = Stage([[wants("google", "{'query': 'storms', 'limit': '3'}", call_id="c")], says("Found.")], TOOLS)
    start, status, complete, *_ = await stage.play()
    assert isinstance(start, ToolCallStart)
    assert isinstance(status, ToolStatus)
    assert isinstance(complete, ToolCallComplete)
    assert start.tool_name == "search"
    assert isinstance(start.tool_args, str)
    assert json.loads(start.tool_args) == {"query": "storms", "limit": 3}
    assert (status.tool_call_id, status.data.status) == ("c", "repaired")
    assert "google" in status.data.message
    assert "Python" in status.data.message
    assert "google({'query': 'storms', 'limit': '3'})" in status.data.message
    assert (complete.tool_name, complete.result) == ("search", "3 about storms")
    [told] = stage.requests[1].messages[1]["tool_calls"]
    assert told["function"] == {"name": "search", "arguments": start.tool_args}


async def test_a_truncated_call_is_never_completed() -> None:
    ran.clear()
    stage = Stage(
        [[wants("send", '{"text": "I love y'), wants("search", '{"query": "sto', index=1)], says("Hm.")], TOOLS
    )
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["invalid_args", "invalid_args"]
    assert all("cut off" in shown for _, shown in errors(events))
    assert (ran, results(events)) == ([], [])


FORMATS = {"react": Format("react"), "xml": Format("xml")}
TEXT_AND_NATIVE: list[ToolFormat] = ["native", "react", "xml"]
CALLS = {
    "react": 'Thought: Sums.\nAction: add\nAction Input: {"a": 1, "b": 2}\n',
    "xml": '<think>Sums.</think><tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
}
ENDS = {"react": "Thought: Done.\nFinal Answer: It is 3.", "xml": "<think>Done.</think>It is 3."}
CUT = {
    "react": 'Action: send\nAction Input: {"text": "I',
    "xml": '<tool_call>{"name": "send", "arguments": {"text": "I',
}


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def speak(tool_format: str, thought: str, said: str, calls: Sequence[tuple[str, str]]) -> Answer:
    """One answer of the model in this format; a model that calls in text goes on with results that it imagines."""
    if tool_format == "native":
        parts = [wants(name, arguments, index=number) for number, (name, arguments) in enumerate(calls)]
        return [ReasoningDelta(thought), TextDelta(said), *parts, Finish("stop")]
    text = f"<think>{thought}</think>\n{said}\n" if thought else f"{said}\n"
    if tool_format == "xml":
        made = [f'<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>' for name, given in calls]
        imagined = "\n<tool_response>7</tool_response>It is 7."
    else:
        made = [f"Action: {name}\nAction Input: {given}" for name, given in calls]
        imagined = "\nObservation: 7\nFinal Answer: It is 7."
        text = text if calls else f"Final Answer: {said}"
    return tokens(text + "\n".join(made) + imagined * bool(calls))


NESTED = '{"text": "\\"Ünïcode\\" } \\n🎭 <b>"}'
STEPS = [
    ("", "", [("search", '{"query": "x"}'), ("add", '{"a": 1, "b": 2}')]),
    ("One more.", "Well.", [("send", NESTED)]),
    ("", "", [("web-search", "{'query': 'masks', 'limit': '4'}")]),
    ("", "", [("fly_to", '{"moon": true}')]),
    ("", "", [("add", '{"a": 1}')]),
    ("", "| kept |\n| --- |\n\n```python\nprint('<tool_call>')\n```", []),
]


async def test_a_turn_has_the_same_events_in_every_format() -> None:
    told = []
    for tool_format in TEXT_AND_NATIVE:
        stage = Stage([speak(tool_format, *step) for step in STEPS], TOOLS, tool_format=Format(tool_format))
        events = await stage.play()
        assert results(events) == ["5 about x", "3", "sent", "4 about masks"]
        assert [code for code, _ in errors(events)] == ["unknown_tool", "invalid_args"]
        assert ran[-1] == '"Ünïcode" } \n🎭 <b>'
        assert events[-1] == Done(finish_reason="stop")
        thought = "".join(event.content for event in events if isinstance(event, Reasoning))
        ends = [event.model_dump(exclude={"duration_ms", "tool_call_id"}) for event in events if is_of_call(event)]
        pieces = [event.delta for event in stage.events if isinstance(event, ToolCallArgsDelta)]
        told.append((thought, text_of(events).split(), ends, "".join(pieces)))
    assert told[1:] == told[:1] * 2


def is_of_call(event: Event) -> bool:
    return isinstance(event, ToolCallStart | ToolStatus | ToolCallComplete | ToolCallError)


async def test_text_model_gets_tools_calls_and_results_as_text_and_a_stop_sequence(name: str) -> None:
    stage = Stage([tokens(CALLS[name]), tokens(ENDS[name])], TOOLS, tool_format=FORMATS[name])
    await stage.play()
    first, second = stage.requests
    for request in (first, second):
        assert not request.tools
        assert 1 <= len(request.stops) <= 4
        assert [message["role"] for message in request.messages][:2] == ["system", "user"]
        assert all(one.name in request.messages[0]["content"] for one in TOOLS)
        assert all(set(message) == {"role", "content"} for message in request.messages)
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
    assert '{"a": 1, "b": 2}' in second.messages[2]["content"]
    assert "3" in second.messages[3]["content"]


async def test_a_model_that_thinks_before_its_actions_reads_its_own_thoughts_in_the_next_request() -> None:
    asked = (
        "I look at it.\n\n**Thought:** Two sums.\nThe first one first.\n"
        'Action: add\nAction Input: {"a": 1, "b": 2}\n'
        "Thought: Now the other.\nThought: Really.\n"
        'Action: add\nAction Input: {"a": 3, "b": 4}\n'
        "Thought: I wonder what comes out.\n"
    )
    stage = Stage([tokens(asked), tokens(ENDS["react"])], TOOLS, tool_format=Format("react"))
    await stage.play()
    assert stage.requests[1].messages[2]["content"] == (
        "I look at it.\n"
        'Thought: Two sums.\nThe first one first.\nAction: add\nAction Input: {"a": 1, "b": 2}\n'
        'Thought: Now the other.\nThought: Really.\nAction: add\nAction Input: {"a": 3, "b": 4}'
    )


async def test_a_call_cut_off_in_the_text_is_refused_and_the_model_tries_again(name: str) -> None:
    ran.clear()
    stage = Stage([tokens(CUT[name]), tokens(ENDS[name])], TOOLS, tool_format=FORMATS[name])
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["invalid_args"]
    assert ran == []
    assert text_of(events) == "It is 3."


async def test_native_calls_of_a_model_that_was_asked_for_text_are_run(name: str) -> None:
    stage = Stage([[wants("add", {"a": 1, "b": 2})], tokens(ENDS[name])], TOOLS, tool_format=FORMATS[name])
    assert results(await stage.play()) == ["3"]


async def test_a_call_that_stands_in_the_text_as_well_is_run_once() -> None:
    answers: list[Answer] = [[TextDelta(CALLS["xml"]), wants("add", {"a": 1, "b": 2})], says("3")]
    stage = Stage(answers, TOOLS, tool_format=Format("rescue"))
    with capture_logs():
        events = await stage.play()
    assert results(events) == ["3"]
    assert text_of(events) == "3"
    assert len({event.tool_call_id for event in stage.events if isinstance(event, ToolCallArgsDelta)}) == 1


async def test_model_at_the_limit_is_told_that_it_has_no_more_calls(name: str) -> None:
    twice = tokens(CALLS[name].replace("1", "2"))
    stage = Stage([tokens(CALLS[name]), twice, tokens(ENDS[name])], TOOLS, tool_format=FORMATS[name], max_tool_calls=1)
    events = await stage.play()
    assert text_of(events) == "It is 3."
    assert events[-1] == Done(finish_reason="max_turns")
    assert "No tool can be called any more" in stage.requests[-1].messages[0]["content"]
    assert stage.requests[-1].stops
