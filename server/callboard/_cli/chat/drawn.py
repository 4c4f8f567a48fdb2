"""The display of a terminal, with Rich: finished pieces are printed and scroll away, the others change in place below.

All text of models and tools goes through `make_visible` into a `Text`, in which Rich looks for no markup.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.segment import Segment, SegmentLines
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from callboard._cli.chat.answer import Answer, Call, Piece, Words, format_seconds, format_step
from callboard._cli.chat.displays import Display
from callboard._cli.chat.visible import make_line, make_visible
from callboard_protocol import Event, Rewind

BAR_CELLS = 16
INDENT = (0, 0, 0, 2)

THINKING = "Thinking…"
TAKEN_BACK = "The text above since the last tool call is withdrawn: the answer begins again."

_STYLES = {"text": "", "thought": "dim", "note": "dim", "problem": "red", "✓": "green", "✗": "red", "?": "yellow"}
_PREFIXES = {"text": "", "thought": "", "note": "· ", "problem": "✗ "}


def make_console(out: TextIO) -> Console:
    """Return a console that prints text unchanged: without markup, names of emoji and highlighting."""
    return Console(file=out, markup=False, emoji=False, highlight=False)


class Drawn(Display):
    """Draws an answer in a terminal."""

    def __init__(self, answer: Answer, console: Console, *, is_verbose: bool) -> None:
        super().__init__(answer)
        self._console = console
        self._is_verbose = is_verbose
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._spinner = Spinner("dots", style="yellow")
        self._is_paused = False
        # The number of pieces that are printed, and of printed characters of the next piece.
        self._printed = 0
        self._printed_chars = 0

    def take(self, data: str, event: Event | None) -> None:
        """Update the answer; the next tick draws it."""
        if not isinstance(event, Rewind):
            super().take(data, event)
            return
        printed_chars = _count_chars(self.answer.pieces[: self._printed]) + self._printed_chars
        super().take(data, event)
        self._printed = min(self._printed, len(self.answer.pieces))
        open_chars = _count_chars(self.answer.pieces[self._printed : self._printed + 1])
        self._printed_chars = min(self._printed_chars, open_chars)
        if printed_chars > _count_chars(self.answer.pieces):
            self._console.print(Text(f"\n{TAKEN_BACK}", "yellow"))

    def tick(self) -> None:
        """Print finished pieces, and redraw the others: if they are higher than the terminal, only the last rows."""
        if self._is_paused:
            return
        finished: list[RenderableType] = []
        while self._is_finished(self._printed):
            finished += self._take_piece()
        rows = self._render()
        max_rows = max(self._console.height - 1, 2)
        while len(rows) > max_rows and (lines := self._take_lines()):
            finished += lines
            rows = self._render()
        if len(rows) > max_rows:
            left_out = len(rows) - max_rows + 1
            hint = Text(f"… {left_out} more lines, shown when the calls have ended", "dim", no_wrap=True)
            rows = [*self._console.render_lines(hint, pad=False), *rows[left_out:]]
        self._draw(finished, rows)

    def show_state(self, words: str) -> None:
        """Show the words below the answer until it has ended."""
        self._state = words

    def say(self, words: str) -> None:
        """Print a line."""
        self._console.print(Text(words))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Print the text so far, and draw nothing until the block ends."""
        self._is_paused = True
        finished: list[RenderableType] = []
        while lines := self._take_lines(is_whole=True):
            finished += lines
        self._draw(finished, [])
        self.close()
        try:
            yield
        finally:
            self._is_paused = False

    def end(self) -> None:
        """Print the rest of the answer, its sources and its summary."""
        self.tick()
        self.close()
        sources = [
            Text.assemble((f"[source{make_line(number)}] ", "cyan"), (make_line(line), "dim"))
            for number, line in self.answer.sources.items()
        ]
        if sources:
            self._console.print(Text(), *sources, sep="\n")
        self._console.print(Text(f"\n{self.answer.summary}", "dim"))

    def close(self) -> None:
        """Erase the rows that are redrawn."""
        self._live.stop()

    def _is_finished(self, place: int) -> bool:
        pieces = self.answer.pieces
        if place >= len(pieces) or not self.answer.is_final(place):
            return False
        piece = pieces[place]
        return isinstance(piece, Words) or bool(piece.sign)

    def _take_piece(self) -> list[RenderableType]:
        """Return the first piece that is not printed, and count it as printed."""
        piece = [*self._show(self._printed)]
        self._printed += 1
        self._printed_chars = 0
        return piece

    def _take_lines(self, *, is_whole: bool = False) -> list[RenderableType]:
        """Return the first text that is not printed, without its last row unless `is_whole`; count it as printed."""
        pieces = self.answer.pieces
        piece = pieces[self._printed] if self._printed < len(pieces) else None
        if not isinstance(piece, Words):
            return []
        if self._printed < len(pieces) - 1:
            return self._take_piece()
        text = make_visible(piece.text)
        *full_rows, last_row = Text(text[self._printed_chars :]).wrap(self._console, self._console.width)
        end = len(text) if is_whole else len(text) - len(last_row)
        if end <= self._printed_chars or not (full_rows or is_whole):
            return []
        lines = [*self._show(self._printed, end)]
        self._printed_chars = end
        return lines

    def _draw(self, finished: Sequence[RenderableType], rows: list[list[Segment]]) -> None:
        """Replace the rows that are redrawn, and print finished pieces above them, in one write to avoid flicker."""
        with self._console:
            self._live.start()
            self._live.update(SegmentLines(rows, new_lines=True), refresh=True)
            if finished:
                self._console.print(Group(*finished))

    def _render(self) -> list[list[Segment]]:
        places = range(self._printed, len(self.answer.pieces))
        shown = [part for place in places for part in self._show(place)]
        return self._console.render_lines(Group(*shown, *self._show_activity()), pad=False)

    def _show(self, place: int, end: int | None = None) -> Iterator[RenderableType]:
        """Yield a piece up to `end`, without the characters that are printed already."""
        piece = self.answer.pieces[place]
        before = self.answer.pieces[place - 1] if place else None
        begin = self._printed_chars if place == self._printed else 0
        if before and not begin and not (isinstance(piece, Call) and isinstance(before, Call)):
            yield Text()
        if isinstance(piece, Call):
            yield from self._show_call(piece)
            return
        text = make_visible(piece.text)[begin:end]
        text = text.rstrip() if end is None else text.removesuffix("\n")
        if text or end is not None:
            yield Text(f"{'' if begin else _PREFIXES[piece.kind]}{text}", _STYLES[piece.kind])

    def _show_activity(self) -> Iterator[RenderableType]:
        """Yield the state or status of the run, or "Thinking…" if nothing else shows that it goes on."""
        if self.answer.ending:
            return
        pieces = self.answer.pieces
        is_seen = bool(pieces) and (
            isinstance(pieces[-1], Words) or any(not call.sign for call in self.answer.calls.values())
        )
        words = self._state or make_line(self.answer.status) or ("" if is_seen else THINKING)
        if words:
            gap = [Text()] if pieces else []
            yield from (*gap, _make_row(self._spin(), (f" {words}", "dim")))

    def _show_call(self, call: Call) -> Iterator[RenderableType]:
        """Yield two rows: the name and arguments, and below them the progress or the result."""
        sign = Text(call.sign, _STYLES.get(call.sign, "dim")) if call.sign else self._spin()
        if call.is_waiting and not call.sign:
            sign = Text("?", _STYLES["?"])
        title = (f" {make_line(call.title)}", "bold")
        if self._is_verbose:
            yield _make_row(sign, title)
            yield Padding(Text(make_visible(call.arguments_block), "dim"), INDENT)
            for step in call.steps:
                yield Padding(Text(make_line(format_step(step)), "dim"), INDENT)
        else:
            yield _make_row(sign, title, (f"  {make_line(call.arguments_line)}", "dim"))
        if not call.sign:
            yield _show_progress(call)
            return
        style = "red" if call.sign == "✗" else "dim"
        if self._is_verbose:
            if call.took:
                yield Padding(Text(call.took, "dim"), INDENT)
            yield Padding(Text(make_visible(call.result).rstrip(), style), INDENT)
        else:
            took = f"{call.took}  " if call.took else ""
            yield _make_row((f"  {took}", "dim"), (make_line(call.result), style))
        for file in call.files:
            yield Padding(Text(f"⇩ {file}", "cyan"), INDENT)

    def _spin(self) -> Text:
        frame = self._spinner.render(time.monotonic())
        assert isinstance(frame, Text)
        return frame


def _count_chars(pieces: Sequence[Piece]) -> int:
    return sum(len(make_visible(piece.text)) for piece in pieces if isinstance(piece, Words))


def _make_row(*parts: Text | tuple[str, str]) -> Text:
    """Return one row, cut at the width of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _show_progress(call: Call) -> RenderableType:
    if call.is_waiting:
        return Text("  waiting for you", "yellow")
    if call.began_at_seconds is None:
        return Text("  writing its arguments", "dim")
    seconds = format_seconds(time.monotonic() - call.began_at_seconds)
    if not call.steps:
        return Text(f"  {seconds}", "dim")
    step = call.steps[-1]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=1)
    cells: list[RenderableType] = []
    if step.progress is not None:
        row.add_column(width=BAR_CELLS)
        cells.append(ProgressBar(completed=step.progress, width=BAR_CELLS))
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row("", *cells, Text(f"{make_line(format_step(step))}  {seconds}", "dim"))
    return row
