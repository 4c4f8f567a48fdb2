"""The status lines above an answer: live, in order, with a last line at every ending."""

from typing import Any

import pytest

from tests.pipe.loader import PIPE
from tests.pipe.test_rendering import completed, failed, message, started, status

START = {"type": "run_start", "run_id": "r", "agent": "a"}
DONE = {"type": "done", "finish_reason": "stop"}


class Watched:
    """A pipe's transcript under a clock, and the status lines that its emitter sends."""

    def __init__(self, emitter: Any = None, totals: Any = None) -> None:
        self.seconds = 100.0
        self.transcript = PIPE.Transcript(totals=totals)
        self.transcript.clock = lambda: self.seconds
        self.emitter = emitter or PIPE.StreamEmitter("m")

    def after(self, seconds: float, *events: dict[str, Any]) -> list[tuple[str, bool]]:
        self.seconds += seconds
        for event in events:
            self.transcript.apply(event)
        return self.sent_lines()

    def sent_lines(self) -> list[tuple[str, bool]]:
        updates = self.emitter.updates(self.transcript, self.seconds, final=self.transcript.ended)
        data = [update["event"]["data"] for update in updates if update.get("event", {}).get("type") == "status"]
        return [(line["description"], line["done"]) for line in data]


@pytest.fixture(params=["StreamEmitter", "NativeEmitter"])
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(getattr(PIPE, request.param)("m"))


def labelled(call_id: str, argument: object, name: str = "draw") -> dict[str, Any]:
    return started(call_id, name) | {"label": f"{name} · {argument}"}


def test_lines_show_the_steps_of_calls_and_the_totals(watched: Watched) -> None:
    assert watched.after(0, START) == []
    assert watched.after(2, labelled("c", "a cat")) == [("Running draw · a cat", True)]
    assert watched.after(2, status("Mixing")) == [("draw · a cat: Mixing", True)]
    assert watched.after(2, status("Painting", 45), status("Painting", 49), status("Painting", 90)) == [
        ("draw · a cat: 45% Painting", True),
        ("draw · a cat: 90% Painting", True),
    ]
    assert watched.after(2, completed(duration_ms=6100)) == [("Thinking…", True)]
    assert watched.after(2, message("Here")) == []
    assert watched.after(2, DONE) == [("1 call, 12 s", True)]


def test_parallel_calls_of_one_tool_have_their_own_lines(watched: Watched) -> None:
    calls = labelled("a", "a cat"), labelled("b", "a cat"), status("Mixing", 5, "a"), status("Mixing", 5, "b")
    assert watched.after(0, START, *calls) == [("draw · a cat: 5% Mixing", True)] * 2
    assert watched.after(2, completed("x", "a")) == [("draw · a cat: done", True)], "the newest line is of an open call"


DRAW = "Draw a picture"


def test_sixty_calls_of_a_tool_are_a_few_lines(watched: Watched) -> None:
    told = watched.after(0, START)
    for number in range(60):
        told += watched.after(2, started(f"c{number}") | {"label": f"{DRAW} · {number}"})
        watched.after(2, completed(call_id=f"c{number}"))
    assert [words for words, _ in told] == [
        *(f"Running {DRAW} · {number}" for number in range(5)),
        *(f"Running {DRAW}, {count} times so far" for count in range(10, 61, 5)),
    ]


def test_fifty_fast_calls_are_one_line(watched: Watched) -> None:
    calls = [event for number in range(50) for event in (started(f"c{number}"), completed(call_id=f"c{number}"))]
    assert watched.after(0, START, *calls) == [("Thinking…", True)]
    assert watched.after(2, started("d"), completed(call_id="d")) == []
    assert watched.after(2, message("Here"), DONE) == [("51 calls, 4.0 s", True)]


def test_lines_are_sent_once_a_second_and_the_middle_of_many_is_dropped(watched: Watched) -> None:
    watched.after(0, START, started())
    assert watched.after(0.1, *(status(f"step {n}") for n in range(50))) == []
    assert watched.emitter.due_at_seconds <= 101
    told = watched.after(1)
    assert len(told) <= PIPE.LINES_AT_ONCE + 1
    assert (told[0], told[-1]) == (("draw: step 0", True), ("draw: step 49", True))


def test_endless_steps_leave_a_bounded_history(watched: Watched) -> None:
    told = watched.after(0, START, started())
    for n in range(1000):
        told += watched.after(2, status(f"step {n}"))
    assert len(told) == PIPE.MAX_LINES
    assert watched.after(1, completed(), DONE) == [("1 call, 2001 s", True)]


def test_last_line_repeats_the_agents_final_status() -> None:
    watched = Watched()
    notice = {"type": "status", "content": "The model big is no longer available.", "done": True}
    watched.after(0, START, notice)
    assert watched.after(3, message("Hi"), DONE) == [("The model big is no longer available. · 3.0 s", True)]


def test_continued_answer_adds_to_its_totals() -> None:
    watched = Watched()
    watched.after(0, START, started(), failed("no"))
    watched.after(3, DONE)
    kept = watched.transcript.activity.lines[-1].totals
    again = Watched(totals=PIPE.Totals(kept.calls, kept.seconds, kept.endings))
    again.after(0, START, started("d"), completed(call_id="d"))
    assert again.after(2, DONE) == [("2 calls, 1 failed, 5.0 s", True)]


def test_waiting_for_a_person_is_not_counted_as_work() -> None:
    watched = Watched()
    question = {"type": "input_request", "request_id": "approve:d", "kind": "confirmation", "tool_call_id": "d"}
    watched.after(0, START, started("c"), started("d", parent_call_id="c"), started("e"), question)
    # The call `e` runs meanwhile.
    watched.after(1, completed(call_id="e"))
    watched.after(40, status("approved", call_id="d"))
    watched.after(2, completed(call_id="d"), completed(call_id="c"))
    watched.after(0, started("f"), question | {"tool_call_id": "f"})
    watched.after(70, failed("no", "f", code="denied"))
    assert watched.after(1, DONE) == [("4 calls, 1 declined, 4.0 s", True)]


def test_card_says_if_stop_cannot_end_the_tool() -> None:
    watched = Watched()
    watched.after(
        0, START, started("a", stoppable=False), started("b"), started("c", stoppable=False), completed("x", "c")
    )
    watched.transcript.close("Stopped by the user", how="stopped")
    assert [piece.result for piece in watched.transcript.pieces] == [
        f"Stopped by the user{PIPE.MAY_GO_ON}",
        "Stopped by the user",
        "x",
    ]
