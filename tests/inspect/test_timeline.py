"""How a run is drawn, and what is told of its messages."""

from dataclasses import replace
from typing import Any

from callboard._inspect.messages import mark_messages
from callboard._inspect.shown import RunState, SentRequest, ShownCall, ShownRun
from callboard._inspect.timeline import MIN_PERCENT, Timeline, TimelineRow, draw_timeline
from callboard._inspect.values import is_picture, read_arguments, read_value, web_address
from callboard.calls import RunningCall, StatusReport
from callboard.observers import ModelAnswered
from callboard.storage.summaries import ResultSize
from callboard_protocol import ToolCallComplete, ToolCallStart


def shown_call(
    name: str,
    begin: float,
    end: float | None,
    *,
    of_round: int = 0,
    steps: tuple[StatusReport, ...] = (),
) -> ShownCall:
    running = RunningCall(ToolCallStart(tool_call_id=name, tool_name=name, round_index=of_round), begin, list(steps))
    return replace(running.end(ToolCallComplete(tool_call_id=name, result="x")), ended_at=end) if end else running


def shown_request(index: int, begin: float, end: float, first: float | None = None) -> SentRequest:
    return SentRequest(index, "m", begin, 1, answer=ModelAnswered("m", end - begin, first, "stop", None, None))


def shown_run(
    calls: tuple[ShownCall, ...], requests: tuple[SentRequest, ...] | None = (), end: float | None = 10.0
) -> ShownRun:
    state: RunState = "complete" if end else "running"
    return ShownRun(
        run_id="r",
        agent_id="clerk",
        user_id=None,
        user_name=None,
        chat_id="c",
        state=state,
        began_at=0.0,
        ended_at=end,
        calls=calls,
        requests=requests,
    )


def bars(drawn: Timeline, row: TimelineRow) -> list[tuple[str, float, float]]:
    """Return the kind, position and length of each bar of a row."""
    return [(span.kind, *drawn.place_bar(span)) for span in row.spans]


def test_each_round_has_its_requests_and_calls() -> None:
    calls = (shown_call("a", 2, 4), shown_call("b", 2, 5), shown_call("c", 7, 8, of_round=1))
    requests = (shown_request(0, 0, 2, 1), shown_request(1, 5, 7, 1), shown_request(2, 8, 10, 1))
    drawn = draw_timeline(shown_run(calls, requests), 10)
    names = [[row.call.name if row.call else "asked" for row in one.rows] for one in drawn.rounds]
    assert names == [["asked", "a", "b"], ["asked", "c"], ["asked"]]
    assert [drawn.place_bar(one.span) for one in drawn.rounds] == [(0, 50), (50, 30), (80, 20)]
    assert bars(drawn, drawn.rounds[0].rows[0]) == [("first", 0, 10), ("model", 10, 10)]


def test_concurrent_time_counts_once() -> None:
    calls = (shown_call("a", 2, 4), shown_call("b", 3, 6))
    drawn = draw_timeline(shown_run(calls, (shown_request(0, 0, 2),)), 10)
    assert (drawn.model_seconds, drawn.tool_seconds, drawn.waiting_seconds, drawn.seconds) == (2, 4, 0, 10)
    assert draw_timeline(shown_run(calls, None), 10).model_seconds is None


def test_waiting_for_approval_does_not_count_as_tool_time_and_a_repeated_question_is_one_wait() -> None:
    steps = (
        StatusReport("asking", "Which seats?", None, 2.0),
        StatusReport("pending", "waiting for approval", None, 4.0),
        StatusReport("processing", "approved", None, 6.0),
        StatusReport("processing", "half", 50, 7.0),
    )
    drawn = draw_timeline(shown_run((shown_call("a", 2, 8, steps=steps),)), 10)
    [row] = drawn.rounds[0].rows
    assert bars(drawn, row) == [("waiting", 20, 40), ("complete", 60, 20)]
    assert [drawn.place(tick) for tick in row.ticks] == [20, 40, 60, 70]
    assert (drawn.tool_seconds, drawn.waiting_seconds) == (2, 4)


def test_running_call_lasts_until_now_and_short_bars_are_visible() -> None:
    steps = (StatusReport("pending", "waiting for approval", None, 4.0),)
    waiting = shown_call("a", 4, None, steps=steps)
    drawn = draw_timeline(shown_run((shown_call("b", 1, 1.001), waiting), end=None), 8)
    [(_, _, length)], long = (bars(drawn, row) for row in drawn.rounds[0].rows)
    assert length == MIN_PERCENT
    assert long == [("waiting", 50, 50)]
    last = draw_timeline(shown_run((shown_call("c", 10, 10),)), 10)
    [(_, at, length)] = bars(last, last.rounds[0].rows[0])
    assert at + length <= 100


def test_messages_are_marked_replayed_compacted_shortened_and_new() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "short"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "x\n[… 1,234 more characters of this older result are left out]",
        },
        {"role": "tool", "tool_call_id": "c", "content": "own"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "d"}}],
        },
    ]
    results = {"a": ResultSize("old", 900, 5), "b": ResultSize("old", 9_000, 9_000), "c": ResultSize("now", 3, 3)}
    marked = mark_messages(messages, results, "now", first_new=4)
    assert [[mark.word for mark in one.marks] for one in marked] == [
        [],
        ["replayed"],
        ["replayed", "compacted"],
        ["replayed", "shortened"],
        ["new"],
        ["new"],
    ]
    assert "5 of 900 characters" in marked[2].marks[1].meaning
    assert "1,234" in marked[3].marks[1].meaning
    assert (marked[5].text, marked[5].parts) == ("see", 1)
    assert [(one.name, one.id) for one in marked[1].calls] == [("look", "a")]


def test_kind_of_a_text_is_recognized() -> None:
    assert read_value('{"b": [1], "a": "ü"}') == '{\n  "b": [\n    1\n  ],\n  "a": "ü"\n}'
    # The last one would have forty million characters if it were indented.
    for text in ("{no json", "[" * 100_000, f"{'[' * 900}{'0,' * 20_000}0{']' * 900}"):
        assert read_value(text) == text
        assert read_arguments(text) == read_arguments(f'{{"a": {text}}}')[6:-1] == text
    assert read_arguments('{"to": "ada", "body": "Hello\\nAda"}') == "to: ada\nbody:\n    Hello\n    Ada"
    assert read_arguments("[1]") == "[1]"
    assert is_picture("data:image/png;base64,AAAA")
    assert not is_picture("data:image/svg+xml;base64,AAAA")


def test_only_http_and_https_urls_are_web_addresses() -> None:
    for text in (
        "javascript:1",
        "data:text/html,x",
        "//a.example",
        "http://",
        "https://a\n.example",
        "http://[",
        None,
        7,
    ):
        assert web_address(text) is None
    assert web_address("https://a.example/x?y") == "https://a.example/x?y"
