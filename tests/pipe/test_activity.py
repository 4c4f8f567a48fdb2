"""What the run is doing, as lines above the answer: seen live, kept in order, closed at every end."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from callboard._openwebui.status_lines import StatusLines
from callboard_protocol import EVENT_CLASSES
from tests.pipe.loader import PIPE
from tests.pipe.test_rendering import completed, failed, message, started, status

START = {"type": "run_start", "run_id": "r", "agent": "a"}
DONE = {"type": "done", "finish_reason": "stop"}


class Watched:
    """A pipe's transcript under a clock, and the status lines that its emitter sends."""

    def __init__(self, emitter: Any = None) -> None:
        self.seconds = 100.0
        self.transcript = PIPE.Transcript()
        self.transcript.clock = lambda: self.seconds
        self.emitter = emitter or PIPE.StreamEmitter("m")

    def after(self, seconds: float, *events: dict[str, Any]) -> list[tuple[str, bool]]:
        self.seconds += seconds
        for event in events:
            self.transcript.apply(event)
        return self.told()

    def told(self) -> list[tuple[str, bool]]:
        updates = self.emitter.updates(self.transcript, self.seconds, final=self.transcript.ended)
        data = [update["event"]["data"] for update in updates if update.get("event", {}).get("type") == "status"]
        return [(line["description"], line["done"]) for line in data]


@pytest.fixture(params=["StreamEmitter", "WholeEmitter", "NativeEmitter", "EventEmitter"])
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(getattr(PIPE, request.param)("m"))


def test_a_run_says_what_it_does_from_before_its_first_word_to_what_it_took(watched: Watched) -> None:
    assert watched.after(0, START) == [("Thinking…", True)]
    assert watched.after(2, started(name="draw")) == [("Running draw", True)]
    assert watched.after(2, status("Mixing", 10)) == [("draw: Mixing", True)]
    assert watched.after(2, status("Painting", 45), status("Painting", 90)) == [("draw: Painting", True)]
    assert watched.after(2, completed(duration_ms=6100)) == [("draw: done after 6 s", True), ("Thinking…", True)]
    assert watched.after(2, message("Here")) == [("Answering…", True)]
    assert watched.after(2, message(" it is.")) == []
    assert watched.after(2, DONE) == [("1 call, 14 s", True)]


def test_what_only_passes_is_not_told_once_it_has_passed_and_steps_are(watched: Watched) -> None:
    assert watched.after(0, START, started(), completed(), started("d"), failed("no", "d"), message("So")) == [
        ("Running draw", True),
        ("draw: done", True),
        ("Running draw", True),
        ("draw: failed", True),
        ("Answering…", True),
    ]
    assert watched.after(0.1, DONE) == [("2 calls, 1 failed, under 1 s", True)]


def test_lines_come_once_a_second_at_most_and_the_first_and_the_last_of_many_are_told(watched: Watched) -> None:
    watched.after(0, START)
    assert watched.after(0.1, started(), *(status(f"step {n}") for n in range(50))) == []
    assert watched.emitter.due_at_seconds <= 101
    told = watched.after(1)
    assert len(told) <= PIPE.LINES_AT_ONCE + 1
    assert (told[0], told[-1]) == (("Running draw", True), ("draw: step 49", True))


def test_a_run_without_an_end_of_steps_leaves_a_bounded_history(watched: Watched) -> None:
    told = watched.after(0, START, started())
    for n in range(1000):
        told += watched.after(2, status(f"step {n}"))
    assert len(told) == PIPE.MAX_LINES - len(["Thinking…"])
    assert watched.after(1, completed(), DONE) == [("1 call, 2001 s", True)]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ({"type": "done", "finish_reason": "cancelled"}, "stopped, 1 call, 1 stopped, 3 s"),
        ({"type": "error", "message": "No model."}, "failed, 1 call, 1 failed, 3 s"),
        ({"type": "done", "finish_reason": "length"}, "1 call, 1 failed, 3 s"),
    ],
)
def test_every_end_closes_the_line(ending: dict[str, Any], said: str) -> None:
    watched = Watched()
    watched.after(0, START, started())
    assert watched.after(3, ending)[-1] == (said, True)


def test_stop_closes_the_line_too() -> None:
    watched = Watched()
    watched.after(0, START, message("So"))
    watched.seconds += 4
    watched.transcript.close("Stopped by the user", how="stopped")
    assert watched.told() == [("stopped, 4 s", True)]


def test_an_agents_own_last_word_stays_to_be_read_behind_the_end() -> None:
    watched = Watched()
    notice = {"type": "status", "content": "The model big is no longer served.", "done": True}
    watched.after(0, START, notice)
    assert watched.after(3, message("Hi"), DONE) == [("The model big is no longer served. · 3 s", True)]


def test_the_lines_are_those_of_the_openai_endpoint() -> None:
    events = [
        START,
        started("a", "look up", round_index=0),
        started("b", "draw"),
        status("Painting", 5, "b"),
        status("Painting", 50, "b"),
        status("", 60, "b"),
        completed("x", "a", duration_ms=1500),
        failed("no", "b"),
        {"type": "status", "content": "Nearly", "done": False},
        message(" "),
        message("Hi"),
        message(" you"),
        {"type": "status", "content": "As it is", "done": True},
        DONE,
    ]
    ticks: Iterator[int] = itertools.count(0, 7)
    server = StatusLines(lambda: next(ticks))
    lines = [line for event in events for line in server.lines(EVENT_CLASSES[event["type"]].model_validate(event))]
    clock = iter([0, 7])
    activity = PIPE.Activity(lambda: next(clock))
    for event in events[:-1]:
        activity.apply(event)
    activity.close()
    assert [line["description"] for line in lines] == [line.words for line in activity.lines]


def test_of_a_call_that_stop_may_not_end_the_card_says_so() -> None:
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
