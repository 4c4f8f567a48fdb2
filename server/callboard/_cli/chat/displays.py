"""Where a run's events go: plain lines or JSON Lines; `drawn` has the display of a terminal."""

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
"""The length of a plain line about a call."""

RECONNECTING = "Reconnecting…"


class Display:
    """Shows a run: the base of all displays."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._told = ""

    def take(self, data: str, event: Event | None) -> None:  # noqa: ARG002 - not every display needs the JSON
        """Take in one event: its JSON, and the event if this version knows it."""
        if self._told == RECONNECTING:
            self._told = ""
        if event:
            self.answer.apply(event)

    def tick(self) -> None:
        """Draw the changes; called several times a second."""

    def tell(self, words: str) -> None:
        """Show how the run is getting on."""
        if words != self._told:
            self._told = words
            self.say(words)

    def say(self, words: str) -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to a question until the block ends."""
        return nullcontext()

    def end(self) -> None:
        """Show the rest of the answer, and what it took."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Plain(Display):
    """Writes the answer's text to standard output and everything else, line by line, to standard error.

    A file cannot take anything back, so a text is written once no rewind can reach it.
    """

    def __init__(self, answer: Answer, *, is_verbose: bool) -> None:
        super().__init__(answer)
        self._is_verbose = is_verbose
        self._written = 0
        self._has_text = False

    def take(self, data: str, event: Event | None) -> None:
        """Write what the event says."""
        super().take(data, event)
        self._write_words()
        match event:
            case ToolCallStart():
                call = self.answer.calls[event.tool_call_id]
                self._write_line(f"→ {make_line(call.title)}({make_line(call.arguments_line)})")
            case ToolStatus() if self._is_verbose and (step_of := self.answer.calls.get(event.tool_call_id)):
                self.say(f"  {make_line(step_of.title)}: {make_line(format_step(event.data))}")
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
        """Write the sources and what the answer took."""
        self._write_words()
        for number, line in self.answer.sources.items():
            self.say(f"[source{make_line(number)}] {make_line(line)}")
        self.say(self.answer.summary)

    def _write_words(self) -> None:
        pieces = self.answer.pieces
        while self._written < len(pieces) and self.answer.is_kept(self._written):
            piece = pieces[self._written]
            self._written += 1
            match piece:
                case Words(kind="text"):
                    # An empty line between two, as in `Answer.text`.
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
        """Write the event, one that this version does not know too."""
        super().take(data, event)
        sys.stdout.write(write_json_line(json.loads(data)))
        sys.stdout.flush()

    def say(self, words: str) -> None:
        """Write a line to standard error."""
        print(f"callboard: {words}", file=sys.stderr)

    def end(self) -> None:
        """Say what no event has said: that the last event did not come."""
        if isinstance(self.answer.ending, Error) and self.answer.ending.code == LOST_CODE:
            self.say(self.answer.ending.message)
