"""Displays that need no terminal: plain lines and JSON Lines. The display of a terminal is in `drawn`."""

import json
import sys
from contextlib import AbstractContextManager, nullcontext

from callboard._cli.chat.answer import LOST_CODE, Answer, Call, Words, format_step
from callboard._cli.chat.visible import make_line, make_visible
from callboard._text import write_json_line
from callboard_protocol import (
    Error,
    Event,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)

PLAIN_CHARS = 120
"""Maximum length of a line about a call."""

RECONNECTING = "Reconnecting…"


class Display:
    """Shows a run: the base of all displays."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._state = ""

    def take(self, data: str, event: Event | None) -> None:  # noqa: ARG002 - some displays need the JSON
        """Handle an event: its JSON, and the decoded event, None if this version does not know its type."""
        if self._state == RECONNECTING:
            self._state = ""
        if event:
            self.answer.apply(event)

    def tick(self) -> None:
        """Draw the changes; called several times a second."""

    def show_state(self, words: str) -> None:
        """Show the state of the run until it changes, for example "Reconnecting…"."""
        if words != self._state:
            self._state = words
            self.say(words)

    def say(self, words: str) -> None:
        """Print a line."""
        raise NotImplementedError

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to a question until the block ends."""
        return nullcontext()

    def end(self) -> None:
        """Show the rest of the answer and its summary."""

    def close(self) -> None:
        """Restore the terminal."""


class Plain(Display):
    """Writes the answer's text to standard output, and everything else to standard error, line by line.

    Written text cannot be removed, so a text is written when no rewind can remove it any more.
    """

    def __init__(self, answer: Answer, *, is_verbose: bool) -> None:
        super().__init__(answer)
        self._is_verbose = is_verbose
        self._written = 0
        self._has_text = False

    def take(self, data: str, event: Event | None) -> None:
        """Write the lines of the event."""
        super().take(data, event)
        self._write_words()
        match event:
            case ToolCallStart():
                call = self.answer.calls[event.tool_call_id]
                self._write_line(f"→ {make_line(call.title)}({make_line(call.arguments_line)})")
            case ToolStatus() if self._is_verbose and (reporting := self.answer.calls.get(event.tool_call_id)):
                self.say(f"  {make_line(reporting.title)}: {make_line(format_step(event.data))}")
            case ToolCallComplete() | ToolCallError():
                self._write_end(self.answer.calls[event.tool_call_id])
            case Status():
                self.say(f"· {make_line(event.content)}")
            case _:
                pass

    def say(self, words: str) -> None:
        """Write a line to standard error."""
        print(words, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Write the sources and the summary."""
        self._write_words()
        for number, line in self.answer.sources.items():
            self.say(f"[source{make_line(number)}] {make_line(line)}")
        self.say(self.answer.summary)

    def _write_words(self) -> None:
        pieces = self.answer.pieces
        while self._written < len(pieces) and self.answer.is_final(self._written):
            piece = pieces[self._written]
            self._written += 1
            match piece:
                case Words(kind="text"):
                    # An empty line between two texts, as in `Answer.text`.
                    gap = "\n" if self._has_text else ""
                    print(f"{gap}{make_visible(piece.text).strip()}", flush=True)
                    self._has_text = True
                case Words() if piece.kind != "thought" or self._is_verbose:
                    self.say(make_visible(piece.text).strip())
                case _:
                    pass

    def _write_end(self, call: Call) -> None:
        result = make_visible(call.result) if self._is_verbose else make_line(call.result)
        self._write_line(f"{call.sign} {make_line(call.title)} {call.took}".rstrip() + f": {result}")
        for file in call.files:
            self.say(f"  ⇩ {file}")

    def _write_line(self, line: str) -> None:
        is_whole = self._is_verbose or len(line) <= PLAIN_CHARS
        self.say(line if is_whole else f"{line[: PLAIN_CHARS - 1]}…")


class JsonLines(Display):
    """Writes each event as the server sent it, as JSON on a line; messages of the client go to standard error."""

    def take(self, data: str, event: Event | None) -> None:
        """Write the event, even if this version does not know its type."""
        super().take(data, event)
        sys.stdout.write(write_json_line(json.loads(data)))
        sys.stdout.flush()

    def say(self, words: str) -> None:
        """Write a line to standard error."""
        print(f"callboard: {words}", file=sys.stderr)

    def end(self) -> None:
        """Report a lost connection, which is the client's own error and therefore not among the events."""
        if isinstance(self.answer.ending, Error) and self.answer.ending.code == LOST_CODE:
            self.say(self.answer.ending.message)
