"""An answer as rows of a terminal: those that will not change any more, and those that may.

Pure: it is asked for rows, and draws nothing itself.
"""

import json
from collections.abc import Iterator, Sequence

from callboard._cli.chat.answer import Answer, Card, Piece, Words, is_from_text, write_arguments
from callboard._cli.chat.screen import Row, Span, Style
from callboard._cli.chat.visible import make_line, make_visible, wrap

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
BAR_CELLS = 16
INDENT = "  "

THINKING = "Thinking…"
TAKEN_BACK = "What stands above since the last tool call is taken back: the answer begins anew."

_MARGINS = {"text": Span(""), "thought": Span("│ ", "dim"), "note": Span("· ", "dim"), "problem": Span("✗ ", "red")}
_STYLES: dict[str, Style] = {"text": "", "thought": "dim", "note": "dim", "problem": "red"}


def format_seconds(seconds: float) -> str:
    """Return the time as people read it."""
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


class Drawing:
    """The rows of one answer, each given out as fixed once."""

    def __init__(self, answer: Answer, *, is_verbose: bool) -> None:
        self._answer = answer
        self._is_verbose = is_verbose
        self._rewinds = 0
        # The pieces that are wholly fixed, the one after them, and how many of its rows are.
        self._fixed: list[Piece] = []
        self._piece: Piece | None = None
        self._fixed_rows = 0
        self._wrapped: dict[Piece, _Wrapped] = {}

    @property
    def _first(self) -> int:
        """The place of the first piece that is not wholly fixed."""
        return len(self._fixed)

    def rows(
        self, columns: int, lines: int, now_seconds: float, *, is_asked: bool = False
    ) -> tuple[list[Row], list[Row]]:
        """Return the rows that are fixed from now on, and those that may still change, for a terminal of that size.

        `is_asked`: the user is asked something below the text so far, which is fixed then.
        """
        fixed = [*self._take_back(columns, now_seconds)]
        pieces = self._answer.pieces
        while self._first < len(pieces) and (
            self._is_final(self._first) or (is_asked and isinstance(pieces[self._first], Words))
        ):
            fixed += self._rows_of(self._first, columns, now_seconds)
            self._wrapped.pop(pieces[self._first], None)
            self._fixed.append(pieces[self._first])
            self._fixed_rows = 0
        self._piece = pieces[self._first] if self._first < len(pieces) else None
        first = self._rows_of(self._first, columns, now_seconds) if self._piece else []
        live = [*first]
        for place in range(self._first + 1, len(pieces)):
            live += self._rows_of(place, columns, now_seconds)
        if activity := self._show_activity(now_seconds):
            live += [[], activity] if pieces else [activity]
        # What does not fit would be out of sight: text that is read already goes, its last row may still grow.
        too_many = len(live) - max(lines - 1, 1)
        if too_many > 0 and isinstance(self._piece, Words):
            given = min(too_many, max(len(first) - 1, 0))
            fixed += live[:given]
            live = live[given:]
            self._fixed_rows += given
        return fixed, live

    def _take_back(self, columns: int, now_seconds: float) -> Iterator[Row]:
        """Yield words about what was fixed and is taken back now."""
        if self._answer.rewinds == self._rewinds:
            return
        self._rewinds = self._answer.rewinds
        pieces = self._answer.pieces
        is_lost = False
        while self._fixed and self._fixed[-1] not in pieces[self._first - 1 : self._first]:
            self._fixed.pop()
            self._fixed_rows = 0
            is_lost = True
        piece = pieces[self._first] if self._first < len(pieces) else None
        left = 0
        if piece is not None and piece is self._piece:
            before = self._fixed_rows
            self._fixed_rows = 0
            left = len(self._rows_of(self._first, columns, now_seconds))
            self._fixed_rows = before
        if self._fixed_rows > left or is_lost:
            self._fixed_rows = min(self._fixed_rows, left)
            yield []
            yield [Span(TAKEN_BACK, "yellow")]

    def _is_final(self, place: int) -> bool:
        """Return whether nothing changes the piece any more."""
        if self._answer.ending:
            return True
        piece = self._answer.pieces[place]
        if isinstance(piece, Card):
            return not piece.is_open
        return place < self._answer.kept - 1

    def _rows_of(self, place: int, columns: int, now_seconds: float) -> list[Row]:
        """Return the rows of a piece, without those that are fixed already."""
        piece = self._answer.pieces[place]
        rows: list[Row] = []
        if place and not (isinstance(piece, Card) and isinstance(self._answer.pieces[place - 1], Card)):
            rows.append([])
        if isinstance(piece, Card):
            rows += show_card(piece, columns, now_seconds, is_verbose=self._is_verbose)
        else:
            margin = _MARGINS[piece.kind]
            wrapped = self._wrapped.setdefault(piece, _Wrapped())
            rows += [
                [margin, Span(row, _STYLES[piece.kind])]
                for row in wrapped.take(piece.parts, max(columns - len(margin.text), 1))
            ]
        return rows[self._fixed_rows :] if place == self._first else rows

    def _show_activity(self, now_seconds: float) -> Row | None:
        """Return what the run does where nothing else shows it: before the first word, and between rounds."""
        answer = self._answer
        if answer.ending:
            return None
        last = answer.pieces[-1] if answer.pieces else None
        is_seen = isinstance(last, Words) or any(card.is_open for card in answer.cards.values())
        if is_seen and not answer.status:
            return None
        return [_spin(now_seconds), Span(make_line(answer.status) or THINKING, "dim")]


class _Wrapped:
    """A text's rows, counted on with each part."""

    def __init__(self) -> None:
        self._columns = 0
        self._start()

    def _start(self) -> None:
        self._taken = 0
        self._rows: list[str] = []
        self._last = ""

    def take(self, parts: Sequence[str], columns: int) -> list[str]:
        """Return the rows of the text so far, without empty ones at its end."""
        if columns != self._columns or len(parts) < self._taken:
            self._columns = columns
            self._start()
        text = self._last + make_visible("".join(parts[self._taken :]))
        self._taken = len(parts)
        *lines, last = text.split("\n")
        for line in lines:
            self._rows += wrap(line, columns)
        *full, self._last = wrap(last, columns)
        self._rows += full
        rows = [*self._rows, self._last]
        while rows and not rows[-1].strip():
            rows.pop()
        return rows


def show_card(card: Card, columns: int, now_seconds: float, *, is_verbose: bool) -> list[Row]:
    """Return a call's rows: its name and arguments, and below how far it is or what came of it."""
    name = make_line(card.name) + (" · from text" if is_from_text(card) else "")
    name += f" · {card.ending}" if card.state == "ended" else ""
    head = [_show_state(card, now_seconds), Span(name, "bold")]
    if is_verbose:
        body: list[Row] = [head]
        body += show_block(_pretty(card), columns, "dim")
        body += [[Span(f"{INDENT}{_write_step(step.progress, step.message)}", "dim")] for step in card.steps]
    else:
        body = [[*head, Span(f"  {make_line(write_arguments(card))}", "dim")]]
    if card.is_open:
        return [*body, [Span(INDENT), *_show_progress(card, columns, now_seconds)]]
    took = "" if card.took_seconds is None else f"{format_seconds(card.took_seconds)}  "
    style: Style = "red" if card.state == "failed" else "dim"
    if is_verbose:
        body.append([Span(f"{INDENT}{took}", "dim")])
        body += show_block(card.result, columns, style)
    else:
        body.append([Span(f"{INDENT}{took}", "dim"), Span(make_line(card.result), style)])
    for file in card.files:
        # Whole: an address that is cut is none.
        body += show_block(f"⇩ {make_line(file)}", columns, "cyan")
    return body


def _show_state(card: Card, now_seconds: float) -> Span:
    match card.state:
        case "done":
            return Span("✓ ", "green")
        case "failed":
            return Span("✗ ", "red")
        case "ended":
            return Span("– ", "dim")
        case _ if card.is_waiting:
            return Span("? ", "yellow")
        case _:
            return _spin(now_seconds)


def _spin(now_seconds: float) -> Span:
    return Span(f"{SPINNER[int(now_seconds * FRAMES_PER_SECOND) % len(SPINNER)]} ", "yellow")


def _show_progress(card: Card, columns: int, now_seconds: float) -> list[Span]:
    if card.state == "preparing":
        return [Span("writing its arguments", "dim")]
    if card.is_waiting:
        return [Span("waiting for you", "yellow")]
    seconds = format_seconds(now_seconds - card.began_at_seconds)
    step = card.steps[-1] if card.steps else None
    if step is None:
        return [Span(seconds, "dim")]
    spans = []
    if step.progress is not None and columns >= 2 * BAR_CELLS:
        full = round(BAR_CELLS * step.progress / 100)
        spans = [Span("━" * full, "green"), Span("━" * (BAR_CELLS - full), "dim"), Span(" ")]
    return [*spans, Span(f"{_write_step(step.progress, step.message)}  {seconds}", "dim")]


def _write_step(progress: float | None, message: str) -> str:
    percent = "" if progress is None else f"{progress:.0f}% "
    return f"{percent}{make_line(message)}".strip()


def _pretty(card: Card) -> str:
    if isinstance(card.arguments, dict):
        return json.dumps(card.arguments, ensure_ascii=False, indent=2)
    return write_arguments(card)


def show_block(text: str, columns: int, style: Style = "") -> list[Row]:
    """Return a text of others as rows, indented."""
    rows: list[Row] = []
    for line in make_visible(text).rstrip().split("\n"):
        rows += [[Span(INDENT), Span(row, style)] for row in wrap(line, max(columns - len(INDENT), 1))]
    return rows


def show_end(answer: Answer, seconds: float) -> list[Row]:
    """Return the rows below an answer: its sources, and what it took."""
    rows: list[Row] = []
    if answer.sources:
        rows.append([])
    rows += [
        [Span(f"[source{make_line(number)}] ", "cyan"), Span(make_line(line), "dim")]
        for number, line in answer.sources.items()
    ]
    return [*rows, [], [Span(sum_up(answer, seconds), "dim")]]


def sum_up(answer: Answer, seconds: float) -> str:
    """Return what an answer took, in one line: `2 calls, 4 s, 300 tokens`."""
    parts = []
    if calls := len(answer.cards):
        parts.append("1 call" if calls == 1 else f"{calls} calls")
    parts.append(format_seconds(seconds))
    if answer.usage and answer.usage.total_tokens:
        parts.append(f"{answer.usage.total_tokens:,} tokens")
    return ", ".join(parts)
