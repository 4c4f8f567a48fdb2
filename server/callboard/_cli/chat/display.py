"""Shows an answer: drawn in a terminal, as plain lines, or as JSON Lines.

All text of models and tools is made safe by `make_visible` or `make_line`. It is printed as a `Text`, because Rich
reads no markup in a `Text`.
"""

import json
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from callboard._cli.chat.answer import Answer
from callboard._cli.chat.call_rows import describe_ended, describe_running, describe_start, find_spinner_frame, make_row
from callboard._cli.chat.visible import make_line, make_visible
from callboard.calls import EndedCall, RunningCall
from callboard.text import write_json_line
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Plan,
    Reasoning,
    Rewind,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)

PLAIN_CELLS = 120
"""The maximum length of a line about a call if the output is not a terminal."""

THINKING = "Thinking…"
TAKEN_BACK = "The answer starts again. Ignore the text above that follows the last tool call."
FINISH_NOTES = {
    "length": "The answer was cut at the model's length limit.",
    "content_filter": "The answer was cut by the content filter of the model's endpoint.",
    "refusal": "The model refused to answer.",
    "max_turns": "The agent was stopped: it reached its limit of turns for one answer.",
    "cancelled": "Stopped.",
}


def make_console(out: TextIO) -> Console:
    """Return a console that prints text unchanged: it replaces no markup and no emoji names, and highlights nothing."""
    width = None if out.isatty() else PLAIN_CELLS
    return Console(file=out, width=width, markup=False, emoji=False, highlight=False)


class Display:
    """Shows an answer in a terminal, or writes it as plain lines.

    With `is_drawn`, text and ended calls are printed on `console`. The last row of the text, which may grow, and
    running calls are drawn below and change in place. Otherwise, text is written to standard output as soon as no
    rewind can remove it, and everything else to `console`. `server_url` is the base of relative URLs.
    """

    def __init__(
        self, console: Console, server_url: str = "", *, is_drawn: bool = False, is_verbose: bool = False
    ) -> None:
        self.answer = Answer()
        self._console = console
        self._server_url = server_url
        self._is_drawn = is_drawn
        self._is_verbose = is_verbose
        self._live: Live | None = None
        # The text that is drawn but not printed, and its style.
        self._last_row = ""
        self._style = ""
        # Whether text was printed that a rewind can still remove.
        self._has_printed_text = False
        # The kind of the row that was printed last. An empty line separates rows of different kinds.
        self._kind = ""

    def take(self, data: str, event: Event | None) -> None:  # noqa: ARG002 - `JsonLines` needs the JSON
        """Show an event of the run, given as JSON and decoded; `event` is None if this version cannot decode it."""
        if event:
            self.show(event)

    def show(self, event: Event) -> None:
        """Show an event of the run, or an event that the client made itself."""
        text = self.answer.apply(event)
        match event:
            case Message() | Reasoning() if self._is_drawn:
                self._add_text(event.content, "dim" if isinstance(event, Reasoning) else "")
            case Rewind():
                self._remove_text()
            case Status() | Plan() if not self._is_drawn:
                self.say(f"· {make_line(event.content if isinstance(event, Status) else event.summary)}")
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                self._end_text(text)
                self._print_call(event.tool_call_id)
            case Done() | Error():
                self._end_text(text)
                self._print_ending(event)

    def say(self, words: str) -> None:
        """Print a line."""
        self._print("words", Text(words))

    def start(self) -> None:
        """Start to draw below the printed rows."""
        if self._is_drawn:
            self._live = Live(self, console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def tick(self) -> None:
        """Draw the running calls and the spinner again, because they change with time."""
        if self._live:
            self._live.refresh()

    def stop(self) -> None:
        """Print the text so far, and stop drawing, so that the terminal can be used for questions."""
        self._print_last_row()
        live, self._live = self._live, None
        if live:
            live.stop()

    def end(self) -> None:
        """Print the sources and the summary."""
        sources = [f"[source{make_line(number)}] {make_line(line)}" for number, line in self.answer.sources.items()]
        self._print("sources", *(Text(line, "dim") for line in sources))
        self._print("summary", Text(self.answer.summary, "dim"))

    def __rich__(self) -> Group:
        """Return the rows to draw: the last row of the text, the running calls, and the plan and status of the run."""
        if not self._live:
            return Group()
        calls = [row for call in self.answer.running_calls for row in describe_running(call, self._is_verbose)]
        last_row = [Text(self._last_row.rstrip(), self._style)] if self._last_row else []
        parts = {f"text {self._style}": last_row, "call": calls, "activity": self._describe_activity()}
        rows: list[Text] = []
        before = self._kind
        for kind, part in parts.items():
            if part:
                rows += [Text(), *part] if before not in ("", kind) else part
                before = kind
        return Group(*rows)

    def _describe_activity(self) -> list[Text]:
        """Return rows with the plan and the status of the run; "Thinking…" if no other row shows activity."""
        rows = [Text(make_line(self.answer.plan), "dim")] if self.answer.plan else []
        shows_activity = self._last_row or self.answer.running_calls
        if words := make_line(self.answer.status) or ("" if shows_activity else THINKING):
            rows.append(make_row(find_spinner_frame(), (f" {words}", "dim")))
        return rows

    def _print_call(self, call_id: str) -> None:
        match self.answer.calls.get(call_id):
            case EndedCall() as call:
                self._print("call", *describe_ended(call, self._server_url, self._is_verbose))
            case RunningCall() as call if not self._is_drawn:
                self._print("call", *describe_start(call, ("→", "dim"), self._is_verbose))

    def _print_ending(self, event: Done | Error) -> None:
        """Print the error, or the reason why the answer is incomplete."""
        if isinstance(event, Error):
            self._print("ending", Text(f"✗ {make_visible(event.message)}", "red"))
        elif note := FINISH_NOTES.get(event.finish_reason):
            self._print("ending", Text(f"· {note}", "dim"))

    def _add_text(self, text: str, style: str) -> None:
        """Print the full rows of a text.

        The last row is kept, because it may grow. White space at the end is kept, because the text may end there.
        """
        if style != self._style:
            self._print_last_row()
            self._style = style
        self._last_row += make_visible(text)
        if self._kind != f"text {style}":
            self._last_row = self._last_row.lstrip()
        words = self._last_row.rstrip()
        space = self._last_row[len(words) :]
        *rows, last = Text(words).wrap(self._console, self._console.width)
        self._last_row = f"{last.plain}{space}"
        self._print_text(row.plain for row in rows)

    def _print_last_row(self) -> None:
        row = self._last_row.rstrip()
        self._last_row = ""
        self._print_text([row] if row else [])

    def _print_text(self, rows: Iterable[str]) -> None:
        texts = [Text(row, self._style) for row in rows]
        self._has_printed_text |= bool(texts)
        self._print(f"text {self._style}", *texts)

    def _remove_text(self) -> None:
        self._last_row = ""
        if self._has_printed_text:
            self._print("words", Text(TAKEN_BACK, "yellow"))
        self._has_printed_text = False

    def _end_text(self, text: str) -> None:
        """Print the rest of the text, because no rewind can remove it any more. `text` is all of it."""
        self._print_last_row()
        self._has_printed_text = False
        if text and not self._is_drawn:
            # An empty line between two texts, as in `Answer.text`.
            gap = "\n" if len(self.answer.texts) > 1 else ""
            print(f"{gap}{make_visible(text)}", flush=True)

    def _print(self, kind: str, *rows: Text) -> None:
        """Print rows above the drawn rows. If rows are drawn, an empty line separates rows of different kinds."""
        if not rows:
            return
        gap = [Text()] if self._is_drawn and self._kind not in ("", kind) else []
        self._kind = kind
        # In a group, because otherwise Rich joins the texts and does not cut the joined text at the terminal's width.
        self._console.print(Group(*gap, *rows), soft_wrap=not self._is_drawn)


class JsonLines(Display):
    """Writes each event as the server sent it, as a line of JSON. Messages of the client are written to `console`."""

    def take(self, data: str, event: Event | None) -> None:
        """Write the event, even if this version cannot decode it."""
        sys.stdout.write(write_json_line(json.loads(data)))
        sys.stdout.flush()
        if event:
            self.answer.apply(event)

    def show(self, event: Event) -> None:
        """Write the message of an event that the client made itself."""
        self.answer.apply(event)
        match event:
            case Status():
                self.say(f"callboard: {event.content}")
            case Error():
                self.say(f"callboard: {event.message}")

    def end(self) -> None:
        """Write nothing, because the events contain the sources."""
