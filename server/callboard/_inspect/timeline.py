"""The timeline of a run: its rounds, each with its requests to the model and its calls. Does no I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from callboard._inspect.shown import SentRequest, ShownCall, ShownRun
from callboard.calls.approval import ASKING, PENDING

MIN_PERCENT = 0.4
"""The minimum width of a bar, in percent of the whole width, so that short bars are visible."""
MAX_TICKS = 60

Kind = Literal["first", "model", "running", "complete", "error", "stopped", "waiting"]


class Span(NamedTuple):
    """An interval, in seconds since the epoch. `kind` decides the color of its bar."""

    begin: float
    end: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """The row of a request, a call, or a message of the user (`said`). `ticks` are the times of a call's steps."""

    spans: tuple[Span, ...]
    ticks: tuple[float, ...] = ()
    call: ShownCall | None = None
    request: SentRequest | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A round: requests to the model, and then the calls of the answer. The first round has the number 1."""

    number: int
    rows: tuple[TimelineRow, ...]

    @property
    def calls(self) -> int:
        """The number of its calls."""
        return sum(row.call is not None for row in self.rows)

    @property
    def span(self) -> Span:
        """The interval from the beginning of the first row to the end of the last."""
        spans = [span for row in self.rows for span in row.spans]
        return Span(min(span.begin for span in spans), max(span.end for span in spans), "model")


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a run from `begin` to `end`. Durations are in seconds; concurrent work is counted once."""

    begin: float
    end: float
    rounds: tuple[Round, ...]
    model_seconds: float | None
    tool_seconds: float
    waiting_seconds: float

    @property
    def seconds(self) -> float:
        """The duration of the run, or its duration so far."""
        return self.end - self.begin

    def place(self, at: float) -> float:
        """Return the position of a time, in percent of the whole width."""
        return round(min(100.0, max(0.0, (at - self.begin) / max(self.seconds, 0.001) * 100)), 3)

    def place_bar(self, span: Span) -> tuple[float, float]:
        """Return the position and the length of a bar, in percent of the whole width."""
        at = min(self.place(span.begin), 100 - MIN_PERCENT)
        return at, round(min(max(MIN_PERCENT, self.place(span.end) - at), 100 - at), 3)


def draw_timeline(run: ShownRun, now: float) -> Timeline:
    """Return the timeline of a run. Requests and calls that have not ended last until `now`."""
    calls = [_draw_call(call, now) for call in sorted(run.calls, key=lambda call: (call.started_at, call.place))]
    requests = [_draw_request(request, now) for request in run.requests or ()]
    asked = [span for row in requests for span in row.spans]
    said = [TimelineRow((Span(at, at, "waiting"),), said=text) for at, text in run.said]
    before_calls = sorted([*requests, *said], key=lambda row: row.spans[0].begin)
    worked = [span for row in calls for span in row.spans if span.kind != "waiting"]
    waits = [span for row in calls for span in row.spans if span.kind == "waiting"]
    spans = [*asked, *worked, *waits]
    return Timeline(
        begin=min([run.began_at, *(span.begin for span in spans)]),
        end=max([run.ended_at or now, *(span.end for span in spans)]),
        rounds=tuple(_group_rounds(calls, before_calls)),
        model_seconds=_sum_seconds(asked) if asked else None,
        tool_seconds=_sum_seconds(worked),
        waiting_seconds=_sum_seconds(waits),
    )


def _group_rounds(calls: Sequence[TimelineRow], requests: Sequence[TimelineRow]) -> Iterator[Round]:
    """Yield the rounds. Each has the requests and messages since the previous round that began before its calls."""
    rounds: dict[int, list[TimelineRow]] = {}
    for row in calls:
        assert row.call is not None
        rounds.setdefault(row.call.start.round_index, []).append(row)
    left = list(requests)
    for number, index in enumerate(sorted(rounds), 1):
        begin = min(row.spans[0].begin for row in rounds[index])
        asked = [row for row in left if row.spans[0].begin <= begin]
        left = left[len(asked) :]
        yield Round(number, (*asked, *rounds[index]))
    if left:
        yield Round(len(rounds) + 1, tuple(left))


def _draw_request(request: SentRequest, now: float) -> TimelineRow:
    begin = request.asked_at
    end = request.answered_at or now
    first_seconds = request.answer.first_seconds if request.answer else None
    if first_seconds is None:
        return TimelineRow((Span(begin, end, "first"),), request=request)
    first = min(end, begin + first_seconds)
    return TimelineRow((Span(begin, first, "first"), Span(first, end, "model")), request=request)


def _draw_call(call: ShownCall, now: float) -> TimelineRow:
    """Return the row of a call. The times at which its user was asked are separate spans of the kind `waiting`."""
    kind: Kind = "running" if call.ended_at is None else "complete" if call.error_code is None else "stopped"
    if call.is_failed:
        kind = "error"
    end = call.ended_at or now
    spans: list[Span] = []
    at = call.started_at
    for wait in _find_waits(call, end):
        if wait.begin > at:
            spans.append(Span(at, wait.begin, kind))
        spans.append(wait)
        at = max(at, wait.end)
    if end > at or not spans:
        spans.append(Span(at, max(at, end), kind))
    return TimelineRow(tuple(spans), tuple(step.at for step in call.steps[:MAX_TICKS]), call=call)


def _find_waits(call: ShownCall, end: float) -> Iterator[Span]:
    """Yield the intervals in which a call waited for its user. An open interval lasts until `end`."""
    began: float | None = None
    for step in call.steps:
        if step.status in (PENDING, ASKING):
            # If the question is asked again, the interval continues.
            began = step.at if began is None else began
        elif began is not None:
            yield Span(began, step.at, "waiting")
            began = None
    if began is not None:
        yield Span(began, end, "waiting")


def _sum_seconds(spans: Iterable[Span]) -> float:
    """Return the total length of the spans, with overlaps counted once."""
    total = 0.0
    until = float("-inf")
    for begin, end, _ in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
