"""Shows an answer: drawn in a terminal, as plain lines, or as JSON Lines.

All text of models and tools is made safe by `make_visible` or `make_line`. It is printed as a `Text`, because Rich
reads no markup in a `Text`.
"""

import json
import re
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TextIO

from rich.console import Console, Group
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from callboard._cli.chat.visible import make_line, make_visible
from callboard.calls import EndedCall, RunningCall, StatusReport, follow_call
from callboard.data_urls import content_type_of, count_bytes
from callboard.text import write_json_line
from callboard_protocol import (
    FAILED,
    Done,
    Error,
    Event,
    Message,
    Plan,
    Reasoning,
    Rewind,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    Usage,
    find_ending,
)

PLAIN_CELLS = 120
"""The maximum length of a line about a call if the output is not a terminal."""

BAR_CELLS = 16
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10

THINKING = "Thinking…"
WRITING_CALL = "Writing a tool call…"
TAKEN_BACK = "The answer starts again. Ignore the text above that follows the last tool call."
FINISH_NOTES = {
    "length": "The answer was cut at the model's length limit.",
    "content_filter": "The answer was cut by the content filter of the model's endpoint.",
    "refusal": "The model refused to answer.",
    "max_turns": "The agent was stopped: it reached its limit of turns for one answer.",
    "cancelled": "Stopped.",
}

SERVER_FILE = re.compile(r"/v1/runs/[\w-]+/files/[\w-]+", re.ASCII)
"""The path of a file that the server keeps."""

Call = RunningCall | EndedCall
Mode = Literal["drawn", "plain", "json"]


def make_console(out: TextIO) -> Console:
    """Return a console that prints text unchanged: it replaces no markup and no emoji names, and highlights nothing."""
    width = None if out.isatty() else PLAIN_CELLS
    return Console(file=out, width=width, markup=False, emoji=False, highlight=False)


class Display:
    """The state of one answer, and its output.

    - drawn: text and ended calls are printed on `console`. The last row of the text, which may grow, and running calls
      are drawn below and change in place.
    - plain: text is written to standard output as soon as no rewind can remove it, and everything else to `console`.
    - json: each event is written to standard output as the server sent it. The words of this command and the reason of
      an incomplete answer are printed on `console`.

    `server_url` is the base of relative URLs.
    """

    def __init__(
        self, console: Console, mode: Mode = "plain", server_url: str = "", *, is_verbose: bool = False
    ) -> None:
        self.texts: list[str] = []
        """The final texts before, between and after the calls. No rewind can remove them."""
        self.calls: dict[str, Call] = {}
        self.ending: Done | Error | None = None
        self._console = console
        self._mode = mode
        self._server_url = server_url
        self._is_verbose = is_verbose
        self._live: Live | None = None
        self._began_at_seconds = time.monotonic()
        # The line of each source, by the source's number.
        self._sources: dict[str, str] = {}
        self._total_tokens = 0
        self._plan = ""
        # The status that the last event reports, and a status that is shown instead of it until the answer ends.
        self._status = ""
        self._held_status = ""
        # The text that a rewind can still remove, and whether a part of it was printed.
        self._open_text = ""
        self._has_printed_text = False
        # The text that is drawn but not printed, and its style.
        self._last_row = ""
        self._style = ""
        # The kind of the row that was printed last. An empty line separates rows of different kinds.
        self._kind = ""

    @property
    def text(self) -> str:
        """All final texts, without thoughts."""
        return "\n\n".join(self.texts)

    @property
    def running_calls(self) -> list[RunningCall]:
        """The calls that have not ended."""
        # Iterate over a copy: if a tool in this process prints, Rich calls this in the tool's thread.
        return [call for call in list(self.calls.values()) if isinstance(call, RunningCall)]

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The files of all calls."""
        return [file for call in self.calls.values() if isinstance(call, EndedCall) for file in call.files]

    def show(self, event: Event | None, data: str = "") -> None:
        """Show an event of the run, or an event that the client made itself.

        `data` is the JSON of the server, and empty for an event of the client. `event` is None if this version cannot
        decode the JSON.
        """
        if data and self._mode == "json":
            sys.stdout.write(write_json_line(json.loads(data)))
            sys.stdout.flush()
        if not event:
            return
        follow_call(self.calls, event)
        self._status = ""
        match event:
            case Message():
                self._open_text += event.content
                self._draw_text(event.content, "")
            case Reasoning():
                self._draw_text(event.content, "dim")
            case Rewind():
                self._remove_text()
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                self._end_text()
                if call := self.calls.get(event.tool_call_id):
                    self._print_call(call)
            case Done() | Error():
                self.ending = event
                self._end_text()
                self._print_ending(event)
            case _:
                self._follow_activity(event)

    def _follow_activity(self, event: Event) -> None:
        match event:
            case Status():
                self._status = event.content
                self._print_status(event.content)
            case Plan():
                self._plan = event.summary
                self._print_status(event.summary)
            case ToolCallArgsDelta():
                self._status = WRITING_CALL
            case Source():
                self._add_source(event)
            case Usage():
                self._total_tokens = event.total_tokens

    def hold_status(self, words: str) -> None:
        """Show a status until the answer ends, instead of the statuses of the run."""
        self._held_status = words
        if self._mode != "drawn":
            self.say(f"· {words}")

    def say(self, words: str) -> None:
        """Print a line of this command."""
        self._print("words", Text(words))

    def start(self) -> None:
        """Start to draw below the printed rows."""
        if self._mode == "drawn":
            self._live = Live(self, console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def refresh(self) -> None:
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
        """Print the sources and the summary: `2 calls, 4 s, 300 tokens`."""
        sources = [f"[source{make_line(number)}] {make_line(line)}" for number, line in self._sources.items()]
        self._print("sources", *(Text(line, "dim") for line in sources))
        count = len(self.calls)
        calls = ["1 call" if count == 1 else f"{count} calls"] if count else []
        tokens = [f"{self._total_tokens:,} tokens"] if self._total_tokens else []
        took = _format_seconds(time.monotonic() - self._began_at_seconds)
        self._print("summary", Text(", ".join([*calls, took, *tokens]), "dim"))

    def __rich__(self) -> Group:
        """Return the rows to draw: the last row of the text, the running calls, and the plan and status of the run."""
        if not self._live:
            return Group()
        calls = [row for call in self.running_calls for row in describe_running(call, self._is_verbose)]
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
        rows = [Text(make_line(self._plan), "dim")] if self._plan else []
        shows_activity = self._last_row or self.running_calls
        if words := make_line(self._held_status or self._status) or ("" if shows_activity else THINKING):
            rows.append(_make_row(_find_spinner_frame(), (f" {words}", "dim")))
        return rows

    def _print_status(self, words: str) -> None:
        if self._mode == "plain":
            self._print("status", Text(f"· {make_line(words)}"))

    def _print_call(self, call: Call) -> None:
        if isinstance(call, EndedCall):
            self._print("call", *describe_ended(call, self._server_url, self._is_verbose))
        elif self._mode == "plain":
            self._print("call", *_describe_start(call, ("→", "dim"), self._is_verbose))

    def _print_ending(self, event: Done | Error) -> None:
        """Print the error, or the reason why the answer is incomplete."""
        if isinstance(event, Error):
            self._print("ending", Text(f"✗ {make_visible(event.message)}", "red"))
        elif note := FINISH_NOTES.get(event.finish_reason):
            self._print("ending", Text(f"· {note}", "dim"))

    def _add_source(self, event: Source) -> None:
        name = event.source.get("name") or event.source.get("url")
        for about in event.metadata or ({},):
            number = about.get("source_number", len(self._sources) + 1)
            url = about.get("source") or event.source.get("url") or ""
            self._sources[str(number)] = f"{about.get('name') or name}  {url}"

    def _draw_text(self, text: str, style: str) -> None:
        """Print the full rows of a text.

        The last row is kept, because it may grow. White space at the end is kept, because the text may end there.
        """
        if self._mode != "drawn":
            return
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
        self._open_text = self._last_row = ""
        if self._has_printed_text:
            self._print("words", Text(TAKEN_BACK, "yellow"))
        self._has_printed_text = False

    def _end_text(self) -> None:
        """Print the rest of the text, because no rewind can remove it any more."""
        self._print_last_row()
        text = self._open_text.strip()
        self._open_text = ""
        self._has_printed_text = False
        if text:
            # An empty line between two texts, as in `text`.
            gap = "\n" if self.texts else ""
            self.texts.append(text)
            if self._mode == "plain":
                print(f"{gap}{make_visible(text)}", flush=True)

    def _print(self, kind: str, *rows: Text) -> None:
        """Print rows above the drawn rows. If rows are drawn, an empty line separates rows of different kinds."""
        if not rows or (self._mode == "json" and kind not in ("words", "ending")):
            return
        is_drawn = self._mode == "drawn"
        gap = [Text()] if is_drawn and self._kind not in ("", kind) else []
        self._kind = kind
        # In a group, because otherwise Rich joins the texts and does not cut the joined text at the terminal's width.
        self._console.print(Group(*gap, *rows), soft_wrap=not is_drawn)


def describe_running(call: RunningCall, is_verbose: bool) -> list[Text]:
    """Return the rows of a running call, with its progress."""
    progress = [("  ", "")]
    if call.steps:
        step = call.steps[-1]
        if step.progress is not None:
            filled = round(step.progress * BAR_CELLS / 100)
            progress += [("━" * filled, "green"), ("━" * (BAR_CELLS - filled), "dim"), (" ", "")]
        progress.append((f"{make_line(_format_step(step))}  ", "dim"))
    progress.append((_format_seconds(call.clock.elapsed_ms / 1000), "dim"))
    return [*_describe_start(call, _find_spinner_frame(), is_verbose), _make_row(*progress)]


def describe_ended(call: EndedCall, server_url: str, is_verbose: bool) -> list[Text]:
    """Return the rows of an ended call, with its result and its files. `server_url` is the base of relative URLs."""
    sign, style = ("✗", "red") if call.is_failed else ("–", "dim") if call.error_code else ("✓", "green")
    result_style = "red" if call.is_failed else "dim"
    took = f"{_format_seconds(call.duration_ms / 1000)}  " if call.duration_ms is not None and call.has_run else ""
    url = call.end.result_url if isinstance(call.end, ToolCallComplete) else None
    result = f"{call.display_text} {url or ''}"
    rows = _describe_start(call, (sign, style), is_verbose)
    if is_verbose:
        rows.append(_make_block(f"{took}{result}", result_style))
    else:
        rows.append(_make_row((f"  {took}", "dim"), (make_line(result), result_style)))
    files = [describe_file(file, server_url) for file in call.files]
    files += ["a page, which Open WebUI shows"] * len(call.embeds)
    return [*rows, *(Text(f"  ⇩ {file}", "cyan") for file in files)]


def describe_file(file: Mapping[str, object], server_url: str) -> str:
    """Return a line about a file: its name, its type, its size if known, and its URL."""
    url = str(file.get("url") or "")
    size = file.get("size") or count_bytes(url)
    kind = str(file.get("content_type") or content_type_of(url) or file.get("type") or "file")
    about = f"{kind}, {decimal(size)}" if isinstance(size, int) else kind
    if file.get("dropped"):
        place = f"  not available: {file['dropped']}"
    elif url.startswith("data:") or (SERVER_FILE.fullmatch(url) and not server_url):
        # A browser cannot open this URL.
        place = ""
    else:
        place = f"  {server_url if url.startswith('/') else ''}{url}"
    return make_line(f"{file.get('name') or 'file'} ({about}){place}")


def _describe_start(call: Call, sign: tuple[str, str], is_verbose: bool) -> list[Text]:
    """Return the rows with a call's name and arguments, and with `is_verbose` its steps.

    `sign` is the character before the name, and its style.
    """
    label = ""
    if isinstance(call, EndedCall) and call.error_code and (ending := find_ending(call.error_code)) is not FAILED:
        label = ending.label
    names = (make_line(call.name), "from text" if call.is_from_text else "", label)
    title = (f" {' · '.join(filter(None, names))}", "bold")
    if not is_verbose:
        return [_make_row(sign, title, (f"  {make_line(_format_arguments(call))}".rstrip(), "dim"))]
    steps = [_make_block(make_line(_format_step(step)), "dim") for step in call.steps]
    return [_make_row(sign, title), _make_block(_format_arguments(call), "dim"), *steps]


def _format_arguments(call: Call) -> str:
    """Return the arguments on one line: `city="Oslo", days=2`."""
    arguments = call.start.tool_args
    if isinstance(arguments, str):
        return arguments
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())


def _format_step(step: StatusReport) -> str:
    percent = "" if step.progress is None else f"{step.progress:.0f}% "
    return f"{percent}{step.message}".strip()


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def _find_spinner_frame() -> tuple[str, str]:
    """Return the character of the spinner at this time, and its style."""
    return SPINNER[int(time.monotonic() * FRAMES_PER_SECOND) % len(SPINNER)], "yellow"


def _make_row(*parts: tuple[str, str]) -> Text:
    """Join texts with their styles to one row, which is cut at the width of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _make_block(text: str, style: str) -> Text:
    return Text(textwrap.indent(make_visible(text).rstrip(), "  "), style)
