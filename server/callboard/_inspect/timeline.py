"""The timeline of a run: rounds, each with its requests to the model and its calls. Pure.

Positions and lengths are in percent of the whole width. A bar that would be too short to see is made longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from callboard._inspect.shown import SentRequest, ShownCall, ShownRun
from callboard.calls.approval import PENDING

MIN_PERCENT = 0.4
MAX_TICKS = 60

Kind = Literal["first", "model", "running", "complete", "error", "stopped", "waiting"]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a row; `kind` decides its color."""

    kind: Kind
    at: float
    length: float


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """The row of a request or a call; each of its steps is a tick."""

    bars: tuple[Bar, ...]
    ticks: tuple[float, ...] = ()
    call: ShownCall | None = None
    request: SentRequest | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """A round: requests to the model, then the calls of the answer. `number` counts from 1."""

    number: int
    band: Bar
    rows: tuple[TimelineRow, ...]

    @property
    def calls(self) -> int:
        """The number of its calls."""
        return sum(row.call is not None for row in self.rows)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a run. Times are in seconds; concurrent work is counted once."""

    rounds: tuple[Round, ...]
    seconds: float
    model_seconds: float | None
    tool_seconds: float
    waiting_seconds: float


def draw(run: ShownRun, now: float) -> Timeline:
    """Return the timeline of a run; requests and calls that have not ended last until `now`."""
    calls = sorted(run.calls, key=lambda call: (call.started_at, call.place))
    requests = run.requests or ()
    ends = [one.ended_at or now for one in calls] + [one.answered_at or now for one in requests]
    begins = [one.started_at for one in calls] + [one.asked_at for one in requests]
    drawing = _Drawing(min([run.began_at, *begins]), max([run.ended_at or now, *ends]), now)
    waits = [wait for call in calls for wait in _find_waits(call, now)]
    worked = [_cut_out((call.started_at, call.ended_at or now), _find_waits(call, now)) for call in calls]
    asked = [(one.asked_at, one.answered_at or now) for one in requests]
    return Timeline(
        rounds=tuple(drawing.draw_rounds(calls, requests)),
        seconds=drawing.end - drawing.begin,
        model_seconds=_measure(asked) if asked else None,
        tool_seconds=_measure(span for spans in worked for span in spans),
        waiting_seconds=_measure(waits),
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Draws what happened from `begin` to `end`; requests and calls that have not ended last until `now`."""

    begin: float
    end: float
    now: float

    def draw_rounds(self, calls: Sequence[ShownCall], requests: Sequence[SentRequest]) -> Iterable[Round]:
        numbers = sorted({call.start.round_index for call in calls})
        left = list(requests)
        for position, number in enumerate(numbers):
            of_round = [call for call in calls if call.start.round_index == number]
            begin = min(call.started_at for call in of_round)
            asked = [request for request in left if request.asked_at <= begin]
            left = left[len(asked) :]
            yield self._draw_round(position + 1, asked, of_round)
        if left:
            yield self._draw_round(len(numbers) + 1, left, ())

    def _draw_round(self, number: int, requests: Sequence[SentRequest], calls: Sequence[ShownCall]) -> Round:
        spans = [(one.asked_at, one.answered_at or self.now) for one in requests]
        spans += [(one.started_at, one.ended_at or self.now) for one in calls]
        band = self._draw_bar("model", (min(span[0] for span in spans), max(span[1] for span in spans)))
        return Round(number, band, (*map(self._draw_request, requests), *map(self._draw_call, calls)))

    def _draw_request(self, request: SentRequest) -> TimelineRow:
        begin = request.asked_at
        end = request.answered_at or self.now
        first_seconds = request.answer.first_seconds if request.answer else None
        if first_seconds is None:
            return TimelineRow((self._draw_bar("first", (begin, end)),), request=request)
        first = min(end, begin + first_seconds)
        bars = (self._draw_bar("first", (begin, first)), self._draw_bar("model", (first, end)))
        return TimelineRow(bars, request=request)

    def _draw_call(self, call: ShownCall) -> TimelineRow:
        waits = _find_waits(call, self.now)
        kind: Kind = "running" if call.ended_at is None else "complete" if call.error_code is None else "stopped"
        if call.is_failed:
            kind = "error"
        spans = _cut_out((call.started_at, call.ended_at or self.now), waits)
        bars = [*(self._draw_bar(kind, span) for span in spans), *(self._draw_bar("waiting", wait) for wait in waits)]
        ticks = [self._place(step.at) for step in call.steps][:MAX_TICKS]
        return TimelineRow(tuple(bars), tuple(ticks), call=call)

    def _draw_bar(self, kind: Kind, span: Span) -> Bar:
        at = min(self._place(span[0]), 100 - MIN_PERCENT)
        length = max(MIN_PERCENT, self._place(span[1]) - at)
        return Bar(kind, at, round(min(length, 100 - at), 3))

    def _place(self, at: float) -> float:
        whole = max(self.end - self.begin, 0.001)
        return round(min(100.0, max(0.0, (at - self.begin) / whole * 100)), 3)


def _find_waits(call: ShownCall, now: float) -> list[Span]:
    """Return when a call waited for its user's approval; a wait that goes on lasts until `now`."""
    found: list[Span] = []
    began: float | None = None
    for step in call.steps:
        if step.status == PENDING:
            began = step.at
        elif began is not None:
            found.append((began, step.at))
            began = None
    if began is not None:
        found.append((began, call.ended_at or now))
    return found


def _cut_out(span: Span, holes: Sequence[Span]) -> list[Span]:
    """Return the parts of a span outside the holes, which are sorted; the whole span if there are no holes."""
    left: list[Span] = []
    at = span[0]
    for begin, end in holes:
        if begin > at:
            left.append((at, begin))
        at = max(at, end)
    if span[1] > at or not holes:
        left.append((at, max(at, span[1])))
    return left


def _measure(spans: Iterable[Span]) -> float:
    """Return the total length of the spans, with overlaps counted once."""
    total = 0.0
    until = float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
