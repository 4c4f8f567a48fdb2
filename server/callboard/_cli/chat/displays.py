"""Where a run's events go: drawn in place, as plain lines, or as JSON Lines."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from callboard._cli.chat.answer import LOST_CODE, Answer, Card, Piece, Words, write_arguments
from callboard._cli.chat.drawing import TAKEN_BACK, Drawing, format_seconds, show_end, sum_up
from callboard._cli.chat.screen import Row, Screen, Span
from callboard._cli.chat.visible import clip, make_line, make_visible
from callboard._text import write_json_line
from callboard_protocol import (
    Error,
    Event,
    Message,
    Reasoning,
    Rewind,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)

PLAIN_COLUMNS = 120
"""The width of a plain line about a call."""

RECONNECTING = "Reconnecting…"


class Display(Protocol):
    """What shows a run."""

    answer: Answer

    def take(self, data: str, event: Event | None) -> None:
        """Take one event in: its JSON, and what it is where that is known here."""

    def tick(self) -> None:
        """Show what has changed, and that time goes by."""

    def tell(self, words: str) -> None:
        """Say something of our own, which holds until there is news."""

    def announce(self, words: str) -> None:
        """Say something of our own, which holds until the end."""

    def make_room(self, rows: Sequence[Row]) -> TextIO:
        """Write rows and leave the place below them to the user, until `go_on`; returns where to write."""

    def go_on(self) -> None:
        """Take the place back."""

    def end(self) -> None:
        """Show what is left to be shown."""


class Drawn:
    """Draws the answer in a terminal."""

    def __init__(self, answer: Answer, screen: Screen, out: TextIO, *, is_verbose: bool) -> None:
        self.answer = answer
        self._screen = screen
        self._out = out
        self._drawing = Drawing(self.answer, is_verbose=is_verbose)
        self._began_at_seconds = time.monotonic()
        self._told = ""
        self._announced = ""
        self._is_users = False

    def take(self, data: str, event: Event | None) -> None:  # noqa: ARG002 - the event says it all
        """Change the answer; it is drawn with the next tick."""
        self._told = ""
        if event:
            self.answer.apply(event, time.monotonic())

    def tick(self) -> None:
        """Draw what has changed."""
        if self._is_users:
            return
        columns, lines = self._screen.size
        told = [] if self.answer.ending else [words for words in (self._told, self._announced) if words]
        fixed, live = self._drawing.rows(columns, lines - len(told), time.monotonic())
        live += [[Span(words, "yellow")] for words in told]
        self._screen.draw(fixed, live)

    def tell(self, words: str) -> None:
        """Say it below the answer."""
        self._told = words

    def announce(self, words: str) -> None:
        """Say it below the answer, to its end."""
        self._announced = words

    def make_room(self, rows: Sequence[Row]) -> TextIO:
        """Take what is live away, for the user to type there."""
        self._is_users = True
        columns, lines = self._screen.size
        fixed, _ = self._drawing.rows(columns, lines, time.monotonic(), is_asked=True)
        self._screen.draw([*fixed, *rows], [])
        return self._out

    def go_on(self) -> None:
        """Draw on below what the user has typed."""
        self._is_users = False

    def end(self) -> None:
        """Draw the rest, and what the answer took."""
        self._is_users = False
        self.tick()
        self._screen.draw(show_end(self.answer, time.monotonic() - self._began_at_seconds), [])


class Plain:
    """Writes the answer's text to one place and everything else, line by line, to another."""

    def __init__(self, answer: Answer, out: TextIO, beside: TextIO, *, is_verbose: bool) -> None:
        self.answer = answer
        self._out = out
        self._beside = beside
        self._is_verbose = is_verbose
        self._began_at_seconds = time.monotonic()
        # A file has no way to take anything back: what may be taken back is not written yet.
        self._is_held = not out.isatty()
        self._texts_written = 0
        # The parts that were written of each text and thought, where these are shown as they come.
        self._parts_written: dict[Words, int] = {}
        # Where a line has been begun and not ended.
        self._in_line: TextIO | None = None
        self._told = ""

    def take(self, data: str, event: Event | None) -> None:  # noqa: ARG002 - the event says it all
        """Write what the event says."""
        self._told = ""
        if event is None:
            return
        self.answer.apply(event, time.monotonic())
        match event:
            case Message() | Reasoning():
                self._write_parts()
            case Rewind() if not self._is_held:
                self._line(TAKEN_BACK)
            case ToolCallStart():
                self._write_card(self.answer.cards[event.tool_call_id], "→")
            case ToolStatus() if self._is_verbose:
                card = self.answer.cards.get(event.tool_call_id)
                self._line(f"  {make_line(card.name if card else '')}: {make_line(event.data.message)}")
            case ToolCallComplete():
                self._write_end(self.answer.cards[event.tool_call_id], "✓")
            case ToolCallError():
                self._write_end(self.answer.cards[event.tool_call_id], "✗")
            case Status():
                self._line(f"· {make_line(event.content)}")
            case _:
                pass

    def tick(self) -> None:
        """Do nothing: plain lines are not drawn anew."""

    def tell(self, words: str) -> None:
        """Say it once."""
        if words != self._told:
            self._told = words
            self._line(words)

    def announce(self, words: str) -> None:
        """Say it."""
        self._line(words)

    def make_room(self, rows: Sequence[Row]) -> TextIO:
        """Write the rows."""
        for row in rows:
            self._line("".join(span.text for span in row))
        return self._beside

    def go_on(self) -> None:
        """Do nothing: the next line goes below."""

    def end(self) -> None:
        """Write what is held back, the notes, the sources and what the answer took."""
        self._write_texts(self.answer.pieces)
        self._end_line()
        for piece in self.answer.pieces:
            if isinstance(piece, Words) and piece.kind in ("note", "problem"):
                self._line(make_visible(piece.text))
        for row in show_end(self.answer, 0)[:-2]:
            self._line("".join(span.text for span in row))
        self._line(sum_up(self.answer, time.monotonic() - self._began_at_seconds))

    def _write_parts(self) -> None:
        """Write what has come of the text or thought that is last, where it is shown as it comes."""
        last = self.answer.pieces[-1] if self.answer.pieces else None
        if not isinstance(last, Words):
            return
        is_thought = last.kind == "thought"
        is_shown = self._is_verbose if is_thought else not self._is_held
        if not is_shown:
            return
        out = self._beside if is_thought else self._out
        is_begun = last in self._parts_written
        part = make_visible("".join(last.parts[self._parts_written.get(last, 0) :]))
        self._parts_written[last] = len(last.parts)
        if not part:
            return
        if self._in_line is not out:
            self._end_line()
        elif not is_begun:
            # Apart from the text before, as in `Answer.text`.
            out.write("\n\n")
        out.write(part)
        out.flush()
        self._in_line = None if part.endswith("\n") else out

    def _write_ended_texts(self) -> None:
        """Write the texts that are held back, now that no rewind reaches them, but for one that may go on."""
        self._write_texts(self.answer.pieces[:-1])

    def _write_texts(self, pieces: Sequence[Piece]) -> None:
        """Write the texts among `pieces` that are held back, an empty line between two, as in `Answer.text`."""
        if not self._is_held:
            return
        texts = [piece for piece in pieces if isinstance(piece, Words) and piece.kind == "text"]
        for piece in texts[self._texts_written :]:
            gap = "\n" if self._texts_written else ""
            self._out.write(f"{gap}{make_visible(piece.text.strip())}\n")
            self._texts_written += 1
        self._out.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._in_line.write("\n")
            self._in_line.flush()
            self._in_line = None

    def _line(self, text: str) -> None:
        self._end_line()
        self._beside.write(f"{text}\n")
        self._beside.flush()

    def _write_card(self, card: Card, sign: str) -> None:
        self._write_ended_texts()
        arguments = write_arguments(card)
        head = f"{sign} {make_line(card.name)}({make_line(arguments)})"
        self._line(head if self._is_verbose else clip(head, PLAIN_COLUMNS))

    def _write_end(self, card: Card, sign: str) -> None:
        self._write_ended_texts()
        took = "" if card.took_seconds is None else f" {format_seconds(card.took_seconds)}"
        head = f"{sign} {make_line(card.name)}{took}: "
        if self._is_verbose:
            self._line(head + make_visible(card.result))
        else:
            self._line(clip(head + make_line(card.result), PLAIN_COLUMNS))
        for file in card.files:
            self._line(f"  ⇩ {make_line(file)}")


class JsonLines:
    """Writes each event as the server sent it, as JSON on a line; what is ours to say goes beside."""

    def __init__(self, answer: Answer, out: TextIO) -> None:
        self.answer = answer
        self._out = out
        self._told = ""

    def take(self, data: str, event: Event | None) -> None:
        """Write the event, one that is not known here too."""
        self._told = ""
        if event:
            self.answer.apply(event, time.monotonic())
        self._out.write(write_json_line(json.loads(data)))
        self._out.flush()

    def tick(self) -> None:
        """Do nothing: what is written is written."""

    def tell(self, words: str) -> None:
        """Say it on standard error, once."""
        if words != self._told:
            self._told = words
            self.announce(words)

    def announce(self, words: str) -> None:
        """Say it on standard error."""
        print(f"callboard: {words}", file=sys.stderr)

    def make_room(self, rows: Sequence[Row]) -> TextIO:
        """Never be asked: scripts answer nothing here."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Say what no event has said: that the last of them did not come."""
        if isinstance(self.answer.ending, Error) and self.answer.ending.code == LOST_CODE:
            self.announce(self.answer.ending.message)
