"""
title: Callboard
author: Callboard
version: 0.1.0
license: MIT
description: Every tool call of an agent: live, in place, and remembered. Needs a Callboard server (callboard serve).
required_open_webui_version: 0.6.43
"""

# This file is pasted into Open WebUI as it is, so it is one file and imports nothing that Open WebUI does not ship.
# From top to bottom:
#
#   Limits            what is waited for, and how much is shown
#   Words             what people read
#   Server events     the server's stream of bytes, read into events
#   Answer            events, gathered into the text of an answer and the status lines above it
#   Emission          what has changed in an answer, as each Open WebUI takes it
#   Server client     HTTP
#   Open WebUI        its users, its file store and its dialogs
#   Run               one answer, from its first event to its last
#   Pipe              what Open WebUI calls, and the valves

import asyncio
import base64
import html
import inspect
import io
import itertools
import json
import logging
import math
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

import httpx
from pydantic import BaseModel, Field

try:
    from open_webui.env import VERSION
except ImportError:
    VERSION = ""

log = logging.getLogger("callboard.pipe")

Json = dict[str, Any]


# --- Limits ---------------------------------------------------------------------------------------------------------

TOKEN_SECONDS = 300  # How long the server may take a user's token, as with Open WebUI's own.
# Open WebUI says at once that a session has no page, and notices after a second that a page has left.
LEAST_SHOWN_SECONDS = 1.0
QUEUES = "callboard_question_queues"
RESUME_JITTER = 0.25  # No two pipes try at the same moment.


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the pipe waits, in seconds.

    Attributes:
        connect_seconds: For a connection to the server.
        read_seconds: For the server's next bytes. It pings every 15 s; four missed pings are a dead connection.
        models_seconds: For the model list.
        resume_seconds: For a server that is away, since the last new event: it may come back, or another stands in.
        resume_waits_seconds: Before each try to resume; the last is repeated.
        page_seconds: From the start of a new chat until its page knows the chat's id.
    """

    connect_seconds: float = 5.0
    read_seconds: float = 60.0
    models_seconds: float = 3.0
    resume_seconds: float = 20.0
    resume_waits_seconds: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    page_seconds: float = 1.0

    def resume_wait_seconds(self, tries: int) -> float:
        """Return how long to wait after so many tries."""
        return self.resume_waits_seconds[min(tries, len(self.resume_waits_seconds) - 1)]


# A change in place is sent anew, and the page redraws every item: the more, the slower.
UPDATE_INTERVAL_SECONDS = 0.1
SENT_CHARS_PER_SECOND = 400_000
DRAWN_ITEMS_PER_SECOND = 4_000
ITEM_CHARS = 20_000
EVENTS_AT_ONCE = 4

# Events of these kinds rewrite the whole chat in Open WebUI's database.
REPLACE_INTERVAL_SECONDS = 0.25
STATUS_INTERVAL_SECONDS = 1.0

# The status lines above an answer.
LINES_AT_ONCE = 8
CALLS_NAMED = 5  # Of one tool; of more, every fifth.
MAX_LINES = 200

# What of a text is shown.
LABEL_CHARS = 80
NOTICE_CHARS = 1_000
CUT_LINE_CHARS = 40

# All else in the body of a request is a parameter for the model, such as temperature.
NOT_PARAMETERS = {"model", "messages", "stream", "stream_options", "metadata", "files", "tools", "tool_choice"}


# --- Words ----------------------------------------------------------------------------------------------------------

NOTICE = "> **Callboard:** "  # The server knows notices by this, and takes them out of what the model reads.
FROM_TEXT = "from text"  # What the card of a call says that the server read from the model's text.
INNER = "↳ "  # Begins the line of a call inside another one; the server takes these lines out again.
THINKING = "Thinking…"
ANSWERED = "Answered"
RECONNECTING = "Reconnecting…"
TAKEN_BACK = "\n\n> The answer begins anew: what stands above since the last tool call is taken back.\n\n"
MAY_GO_ON = ". Its tool was told to stop; it runs in a thread, which nobody can end, and may go on for a while."
FINISH_NOTICES = {
    "length": "The answer was cut at the model's length limit.",
    "content_filter": "The answer was cut by the content filter of the model's endpoint.",
    "refusal": "The model refused to answer.",
    "max_turns": "The agent was stopped: it used all the turns that it may take for one answer.",
    "cancelled": "Stopped.",
    "stored": "Open WebUI was stopped in this answer. The server had kept its text and its calls, and nothing else.",
}
IF_DECLINED = "If you cancel or close this, you refuse: it is not run, and the agent goes on without it."
STOPPED_BY_USER = "Stopped by the user"
PIPE_FAILED = "The pipe failed; the reason is in Open WebUI's log."
CANNOT_REACH = (
    "Cannot reach the Callboard server at {url}. Is it running (callboard serve)? "
    "The address is the valve CALLBOARD_URL."
)
NOT_CALLBOARD = "What answers at {url} does not look like a Callboard server. The address is the valve CALLBOARD_URL."
BAD_KEY = "The key cannot be sent. It is the valve CALLBOARD_API_KEY, and holds characters that do not belong there."
FORGOTTEN = "Open WebUI was stopped in this answer, and the Callboard server has nothing of it: ask once more."
STAYED_AWAY = (
    "Open WebUI was stopped in this answer, and the Callboard server at {url} could not be used since: ask once more."
)
LOST = (
    "The connection to the Callboard server at {url} was lost and the answer could not be resumed: the server was "
    "restarted, cannot be reached, or no longer has the run's log."
)


@dataclass(frozen=True, slots=True)
class CallEnding:
    """How a call ended that gave no result.

    `label` is what the card and the status lines say. `words` tell a person what happened; empty if the error's own
    words do. `is_failure`: the card is red. `has_run`: the tool was started, so the call has a duration.
    """

    label: str
    words: str = ""
    is_failure: bool = False
    has_run: bool = True


# By the error's code, as in the server's `callboard_protocol/endings.py`; all other codes are failures.
FAILED = CallEnding("failed", is_failure=True)
ENDINGS = {
    "denied": CallEnding("declined", "Declined: it was not run.", has_run=False),
    "not_asked": CallEnding("not asked", "Not run: nobody could be asked.", has_run=False),
    "not_answered": CallEnding("not answered", "Not run: no answer came in time.", has_run=False),
    "cancelled": CallEnding("stopped"),
    "timeout": CallEnding("timed out", is_failure=True),
}


# --- Server events: bytes to events. Pure. --------------------------------------------------------------------------

# The line ends of https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream, and no
# others: str.splitlines() would cut JSON at U+2028 or U+0085.
LINE_END = re.compile(rb"\r\n|\r|\n")
FRAME_END = re.compile(rb"\r\n\r\n|\r\r|\n\n")


class FrameDecoder:
    """Reads a stream of bytes, cut at any place, into frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Yield the last id seen and the data of each frame that the chunk completes."""
        *frames, self._rest = FRAME_END.split(self._rest + chunk)
        for frame in frames:
            data = []
            is_first_id = True
            for line in LINE_END.split(frame):
                name, _, value = line.decode("utf-8", "replace").partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    data.append(value)
                elif name == "id" and is_first_id:
                    self._id = value
                    is_first_id = False
            if data:
                yield self._id, "\n".join(data)


def read_event(data: str) -> Json | None:
    """Return the event in a frame's data; None, and a line in the log, where it is no JSON object with a `type`."""
    with suppress(ValueError, RecursionError):
        event = json.loads(data)
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            return event
    log.warning("Callboard: skipped a frame that cannot be read: %.80r", data)
    return None


def select_dicts(values: object) -> list[Json]:
    """Return the dicts of a list; none where it is no list."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


# --- Answer: events to text and status lines. Pure. -----------------------------------------------------------------

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

ARGUMENT_NAME = re.compile(r"^[^\s:]+:(?=\s|$)", re.MULTILINE)  # In the lines of a call that is asked about.

# Plain <details> is HTML; with attributes it may be a block that Open WebUI draws itself. With an invisible space it
# is no tag, and reads as it should in code too, where no entity would be decoded.
UNSAFE = re.compile("<details(?!>)")
GUARDED = "<\u200bdetails"

# A citation, and the end of a text that may still become one, or a tag.
CITATION = re.compile(r"(?i)[\[【]sources? ?\d{1,9}(?:[,;] ?(?:source ?)?\d{1,9})*[\]】]")
UNFINISHED = re.compile(r"(?i)(?:<d?e?t?a?i?l?s?|[\[【][source\d ,;]{0,200})\Z")

# What swallows a block that follows it, until it ends: code fences, and HTML of CommonMark 4.6, kinds 1 to 5.
FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(`{3,}(?=[^`]*$)|~{3,})")
HTML_BLOCK = re.compile(r"(?i) {0,3}<(?:(script|pre|style|textarea)(?=[\s>]|$)|(!--|\?|!\[CDATA\[|![A-Z]))")
HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}


def close_markdown(text: str) -> str:
    """Return what has to follow the text so that no open code fence or HTML swallows a block."""
    end = ""
    for line in text.split("\n"):
        fence = end.lstrip(" ")
        if not end:
            end = find_end_of_opened(line)
        elif fence.startswith(("`", "~")):
            marks = line.strip()
            if marks.startswith(fence) and not marks.strip(fence[0]):
                end = ""
        elif end in line.lower():
            end = ""
    return f"\n{end}" if end and not text.endswith("\n") else end


def find_end_of_opened(line: str) -> str:
    """Return what ends the code fence or the HTML that begins in this line and does not end there; else ""."""
    if fence := FENCE.match(line):
        return " " * len(fence[1]) + fence[2]
    block = HTML_BLOCK.match(line)
    if not block:
        return ""
    end = f"</{block[1]}>".lower() if block[1] else HTML_ENDS.get(block[2].lower(), ">")
    # `<!-->` is a whole comment: its end may share the dashes.
    rest_from = block.end() - 2 if block[2] == "!--" else block.end()
    return "" if end in line[rest_from:].lower() else end


def make_storable(text: str) -> str:
    """Return the text without what would lose the whole answer: PostgreSQL refuses NUL, UTF-8 lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def escape(text: str) -> str:
    """Return the text for an attribute; Open WebUI substitutes {{user}} and the like everywhere in a message."""
    return html.escape(text).replace("{{", "&#123;&#123;")


def escape_label(text: str) -> str:
    """Return the text for a label without tags, images and links: 0.6 to 0.10 draw a running call's as Markdown."""
    return escape(CONTROL.sub(" ", text).replace("<", "‹").replace(">", "›").replace("](", "] ("))


def format_seconds(seconds: float) -> str:
    """Return the time as people read it: "2.5 s", "12 s"."""
    if seconds < 0.1:
        return "under 0.1 s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def format_duration(event: Json) -> str:
    """Return how long the call ran that an event ends; empty if it never ran or this is not known."""
    duration_ms = event.get("duration_ms")
    has_run = ENDINGS.get(str(event.get("code")), FAILED).has_run
    return format_seconds(duration_ms / 1000) if isinstance(duration_ms, int) and has_run else ""


def format_percent(data: Json) -> str:
    """Return how far a call is, as its tool reports it: "45% "; empty if it does not say."""
    progress = data.get("progress")
    return f"{progress:.0f}% " if isinstance(progress, (int, float)) and 0 <= progress <= 100 else ""


# An answer is a list of pieces. Neighbouring calls and thoughts are one segment, which Open WebUI draws as a group;
# each text and each notice is a segment of its own. Segments of some `ITEM_CHARS` are one item of a message.


@dataclass(slots=True)
class Piece:
    """One piece of an answer; `segment` and `item` number the groups that it belongs to."""

    is_block: ClassVar[bool] = False
    is_open: bool = False
    segment: int = 0
    item: int = 0

    def render(self) -> str:
        """Return the piece as it stands in the answer."""
        raise NotImplementedError


@dataclass(slots=True)
class Text(Piece):
    """The model's own words.

    `held` is its end, as long as that may become a tag or a citation; `closing` ends what the text leaves open.
    """

    text: str = ""
    held: str = ""
    closing: str = ""

    def render(self) -> str:
        """Return the text, such that a block may follow."""
        return self.text + self.closing


@dataclass(slots=True)
class Notice(Piece):
    """A line of Markdown that the pipe itself has to say."""

    text: str = ""

    def render(self) -> str:
        """Return the line, with an empty one before it."""
        return self.text


@dataclass(slots=True)
class Thought(Piece):
    """The model's reasoning, and how long it took, where that is known."""

    is_block: ClassVar[bool] = True
    round: ClassVar[str] = "0"  # That of calls that have not started.
    text: str = ""
    began_at_seconds: float = 0.0
    seconds: int | None = None

    def render(self) -> str:
        """Return the `<details>` block that Open WebUI draws as reasoning."""
        state = 'done="false"' if self.is_open else 'done="true"'
        if self.seconds is not None:
            state += f' duration="{self.seconds}"'
        lines = escape("\n".join(f"> {line}" for line in self.text.splitlines()))
        return f'<details type="reasoning" {state}>\n<summary>Thought</summary>\n{lines}\n</details>'


@dataclass(slots=True)
class Call(Piece):
    """A tool call.

    `arguments` are JSON text, `draft` what the model has written of them so far. The card says behind the name `about`,
    the argument that tells it from others, the `mark` that it keeps, the `label` that changes while the call runs, and
    the time that it `took`. `round` is which answer of the model it is of, told back on the next turn. `inner` are the
    calls that another agent made inside this one: they have no cards, but a line each above the result of this one.
    """

    is_block: ClassVar[bool] = True
    id: str = ""
    name: str = "tool"
    about: str = ""
    mark: str = ""
    label: str = ""
    took: str = ""
    state: Literal["preparing", "running", "done", "failed"] = "preparing"
    draft: str = ""
    arguments: str = "{}"
    result: str = ""
    files: list[Json] = field(default_factory=list)
    round: str = "0"
    stoppable: bool = True
    parent: "Call | None" = field(default=None, compare=False, repr=False)
    inner: list["Call"] = field(default_factory=list)

    @property
    def shown_name(self) -> str:
        """The name as the card says it."""
        return " · ".join(part for part in (self.name, self.about, self.mark, self.label, self.took) if part)

    def list_inner(self, indent: str = "") -> Iterator[str]:
        """Yield a line for each call inside this one."""
        for call in self.inner:
            yield f"{INNER}{indent}{CONTROL.sub(' ', call.shown_name)}"
            yield from call.list_inner(f"{indent}  ")

    def tell_parents(self) -> None:
        """Say on the cards of the calls around this one how far it is."""
        if self.parent and self.parent.is_open:
            self.parent.label = self.shown_name
            self.parent.tell_parents()

    def render(self) -> str:
        """Return the `<details>` block that 0.6 to 0.12 draw as a tool call."""
        attributes = {"type": "tool_calls", "done": "false" if self.is_open else "true"}
        if self.state == "running":
            # Beside done="false" this reads "Executing" everywhere; nothing reads "Preparing".
            attributes["status"] = "completed"
        elif self.state == "failed":
            attributes["status"] = "failed"
        attributes["id"] = escape_label(self.id)
        attributes["name"] = escape_label(self.shown_name)
        # JSON is ASCII on one line: a raw line end or U+2028 would lose an attribute, a raw `>` the whole block.
        attributes["arguments"] = escape(self.arguments)
        if not self.is_open:
            attributes["result"] = escape(json.dumps(self.result))
        if self.files:
            attributes["files"] = escape(json.dumps(self.files))
        attributes["round"] = self.round
        attributes["math"] = " $$"  # Ends 0.9's look for formulas.
        tag = " ".join(f'{name}="{value}"' for name, value in attributes.items())
        return f"<details {tag}>\n<summary>Tool Executed</summary>\n</details>"

    def show_status(self, data: Json) -> None:
        """Put a report of the tool on the card."""
        if self.state != "running":
            return
        if data.get("status") == "from_text":
            self.mark = FROM_TEXT
            return
        # Behind the name of a running call Open WebUI writes three dots of its own.
        message = str(data.get("message") or "").strip()[:LABEL_CHARS].rstrip(".… ")
        self.label = (format_percent(data) + message).strip()

    def show_question(self, kind: object) -> None:
        """Say on the card that the user is asked."""
        self.label = "waiting for approval" if kind == "confirmation" else "waiting for you"


def split_segments(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Return the pieces of each segment."""
    return [[*segment] for _, segment in groupby(pieces, key=lambda piece: piece.segment)]


def render(pieces: Iterable[Piece]) -> str:
    """Return the text of whole segments. Blocks begin with the blank line that they need."""
    texts = []
    for segment in split_segments(pieces):
        if segment[0].is_block:
            blocks = "\n".join(piece.render() for piece in segment)
            texts.append(f"\n{blocks}\n")
        else:
            texts.append(segment[0].render())
    return "\n".join(texts)


@dataclass
class Totals:
    """What an answer took, with what it had taken before it was continued."""

    calls: int = 0
    seconds: float = 0.0
    endings: Counter[str] = field(default_factory=Counter)

    def describe(self, how: str, *, has_time: bool) -> str:
        """Return the line that ends the answer: "2 calls, 1 failed, 3.2 s"."""
        calls = [f"{self.calls} call" if self.calls == 1 else f"{self.calls} calls"] if self.calls else []
        endings = [f"{count} {ending}" for ending, count in self.endings.items()]
        took = [format_seconds(self.seconds)] if has_time else []
        return ", ".join(part for part in (how, *calls, *endings, *took) if part)


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A line of Open WebUI's status history; one that `passes` is sent only while it is the last.

    The last line of an answer has its `totals`, which are kept with it for the case that the answer is continued.
    """

    words: str
    passes: bool = False
    totals: Totals | None = None


class Activity:
    """Status lines that tell what a run is doing: its steps in their order, at its end what it took.

    A call's steps are its reports with new words. Nothing is said before `run_start`. An answer without calls and
    without statuses has no lines. `opening` stands before the first line.
    """

    def __init__(self, clock: Callable[[], float], totals: Totals, *, is_late: bool = False) -> None:
        self.lines: list[StatusLine] = []
        self.opening = ""
        self._clock = clock
        self._totals = totals
        self._is_late = is_late
        self._began_at_seconds = math.inf
        self._last_word = ""
        self._open: dict[str, tuple[str, str]] = {}  # By call id: the call's label, and its last report.
        self._calls: Counter[str] = Counter()  # By the tool's name.

    def apply(self, event: Json) -> None:
        """Add the lines that an event makes."""
        if event["type"] == "run_start":
            self._began_at_seconds = self._clock()
        if self._began_at_seconds == math.inf:
            return
        match event["type"]:
            case "reconnecting":
                self._add(RECONNECTING, passes=True)
            case "status":
                words = str(event["content"])
                self._last_word = words if event.get("done") is True else ""
                self._add(words)
            case "tool_call_start" | "tool:status" | "tool_call_complete" | "tool_call_error":
                self._apply_step(event)

    def close(self, how: str = "") -> None:
        """Add the last line; calls that are open end as the answer does. An agent's own last word stays to be read."""
        if self._began_at_seconds == math.inf:
            return
        totals = self._totals
        if self._open:
            totals.endings["stopped" if how == "stopped" else FAILED.label] += len(self._open)
        if not self._is_late:
            totals.seconds += self._clock() - self._began_at_seconds
        if self.lines or how:
            words = totals.describe(how, has_time=not self._is_late)
            words = " · ".join(part for part in (self._last_word, words) if part)
            self._open_lines()
            self.lines.append(StatusLine(words or ANSWERED, totals=totals))

    def _apply_step(self, event: Json) -> None:
        call_id = str(event.get("tool_call_id"))
        label, report = self._open.get(call_id, ("", ""))
        match event["type"]:
            case "tool_call_start" if not label:
                self._start(call_id, event)
            case "tool:status" if label:
                data = event["data"]
                words = str(data.get("message") or "").strip()
                if words and words != report:
                    self._open[call_id] = (label, words)
                    self._add(f"{label}: {format_percent(data)}{words}")
            case "tool_call_complete" | "tool_call_error" if label:
                del self._open[call_id]
                self._end(label, event)

    def _start(self, call_id: str, event: Json) -> None:
        name = str(event.get("tool_name") or "tool")
        label = str(event.get("label") or name)
        self._open[call_id] = (label, "")
        self._totals.calls += 1
        self._calls[name] += 1
        if self._calls[name] <= CALLS_NAMED:
            self._add(f"Running {label}")
        elif self._calls[name] % CALLS_NAMED == 0:
            self._add(f"Running {name}, {self._calls[name]} times so far")

    def _end(self, label: str, event: Json) -> None:
        took = format_duration(event)
        if event["type"] == "tool_call_error":
            ending = ENDINGS.get(str(event.get("code")), FAILED)
            self._totals.endings[ending.label] += 1
            self._add(f"{label}: {ending.label}" + (f" after {took}" if took else ""))
        elif not self._open:
            self._add(THINKING, passes=True)

    def _add(self, words: str, *, passes: bool = False) -> None:
        self._open_lines()
        if len(self.lines) < MAX_LINES:
            self.lines.append(StatusLine(CONTROL.sub(" ", words)[:NOTICE_CHARS], passes))

    def _open_lines(self) -> None:
        """Put the opening before the first line."""
        if self.opening and not self.lines:
            self.lines.append(StatusLine(self.opening))


class Transcript:
    """The answer so far: what the events of one run amount to.

    The model's text is not trusted: it can neither fake a block nor break one. As a tail that may yet do so is held
    back, the text only grows, but for rewinds. What cannot be read is logged and survived, as are ends without starts.

    Attributes:
        pieces: What the answer is made of.
        events: Events of Open WebUI's own, to be sent beside the answer: sources, and pages that tools made.
        activity: The status lines.
        usage: The counts of tokens, once they are known.
        rewinds: Of each rewind, how many characters of the text it left.
        ended: Whether the answer is over; nothing changes any more.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        result_chars: int = 10_000,
        found: object = None,
        *,
        totals: Totals | None = None,
        is_late: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            result_chars: Where results are cut.
            found: The sources that the message has already.
            totals: What the message has taken already, if it is continued.
            is_late: The events come later than they happened, so how long anything took is not known.
        """
        self.pieces: list[Piece] = []
        self.events: list[Json] = []
        self.activity = Activity(lambda: self.clock(), totals or Totals(), is_late=is_late)
        self.usage: Json = {}
        self.rewinds: list[int] = []
        self.ended = False
        self._result_chars = result_chars
        self._is_late = is_late
        self._calls: dict[str, Call] = {}
        self._embeds: list[str] = []
        self._space = ""  # Blank text that has no piece yet.
        self._last_segment = 0
        self._source_places: dict[str, int] = {}  # Its place among the message's sources, by a source's key.
        self._source_numbers: dict[str, int] = {}  # The same, by the agent's number for it.
        for source in select_dicts(found):
            self._cite(source)
        self._source_numbers.clear()
        self._is_rewound = False
        self._mark()

    def is_settled(self, part: list[Piece]) -> bool:
        """Return true where nothing in these neighbouring pieces will change any more."""
        is_followed = self.ended or part[-1] is not self.pieces[-1]
        return is_followed and not any(piece.is_open for piece in part)

    def is_waiting(self, question: Json) -> bool:
        """Return whether an answer to the question may still be awaited: its call, if it has one, has not ended."""
        call = self._calls.get(str(question.get("tool_call_id")))
        return call is None or call.is_open

    def render(self) -> str:
        """Return the text of the whole answer."""
        return render(self.pieces)

    def apply(self, event: Json) -> None:
        """Change the answer as the event says."""
        if self.ended:
            return
        try:
            self._apply(event)
            self.activity.apply(event)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("Callboard: skipped an event that cannot be read: %s (%r)", event["type"], error)

    def close(self, reason: str, notice: str = "", how: str = "failed") -> None:
        """End the answer, once.

        Args:
            reason: Why calls that are still open have no result.
            notice: What is said below the answer.
            how: What the last status line says of the end, if anything: "stopped", "failed".
        """
        self._finish_last()
        # Those inside others first: they are lines of their cards.
        for call in reversed(self._calls.values()):
            if call.is_open:
                if how == "stopped" and call.state == "running" and not call.stoppable:
                    # Nobody can wait here for what the server will find.
                    self._fail_call(call, reason + MAY_GO_ON, "cancelled")
                else:
                    self._fail_call(call, reason, "cancelled" if how == "stopped" else "")
        if self._embeds and not self.ended:
            # This name is kept with the chat: once, for it adds to what is there.
            self.events.append({"type": "embeds", "data": {"embeds": self._embeds}})
        if notice:
            self._add_notice(notice)
        if not self.ended:
            self.activity.close(how)
        self.ended = True

    def _apply(self, event: Json) -> None:
        match event["type"]:
            case "message":
                self._add_text(make_storable(event["content"]))
            case "reasoning":
                self._add_thought(make_storable(event["content"]))
            case "tool_call_args_delta" | "tool_call_start" | "tool_call_complete" | "tool_call_error":
                self._apply_call(event)
            case "tool:status" | "input_request":
                self._relabel_call(event)
            case "rewind":
                self._rewind()
            case "source":
                self.events.append({"type": "source", "data": self._cite(event)})
            case "usage":
                self.usage = {name: value for name, value in event.items() if isinstance(value, int)}
            case "done":
                reason = str(event.get("finish_reason"))
                how = "stopped" if reason == "cancelled" else ""
                self.close("no result arrived", FINISH_NOTICES.get(reason, ""), how)
            case "error":
                self.close("no result arrived", str(event.get("message") or "The run failed."))

    # Pieces.

    def _append(self, piece: Piece) -> None:
        """Put the piece at the end of the answer, and into its segment and item."""
        is_first_of_segment = True
        is_first_of_item = False
        if self.pieces:
            self._finish_last()
            last = self.pieces[-1]
            item = [*takewhile(lambda other: other.item == last.item, reversed(self.pieces))]
            group = takewhile(lambda other: other.segment == last.segment, item)
            # A change re-emits its item, so what a call costs must not grow with the calls before it.
            is_first_of_item = len(render(item)) >= ITEM_CHARS and not any(other.is_open for other in group)
            # After a rewind nothing joins what was there: its place may have been that of a piece that is gone.
            is_joined = piece.is_block and last.is_block and not self._is_rewound
            is_first_of_segment = is_first_of_item or not is_joined
            piece.item = last.item + is_first_of_item
        if is_first_of_segment:
            self._last_segment += 1
        piece.segment = self._last_segment
        self.pieces.append(piece)
        self._is_rewound = False
        self._space = ""

    def _finish_last(self) -> None:
        """End the text or the thought that the answer ends in."""
        match self.pieces[-1:]:
            case [Text(is_open=True) as text]:
                text.text += self._guard(text.held)
                text.held = ""
                text.closing = close_markdown(text.text)
                text.is_open = False
            case [Thought(is_open=True) as thought]:
                if not self._is_late:
                    thought.seconds = round(self.clock() - thought.began_at_seconds)
                thought.is_open = False

    def _mark(self) -> None:
        """Remember how far the answer is: no rewind goes further back."""
        self._kept_count = len(self.pieces)
        self._end_of_kept = replace(self.pieces[-1]) if self.pieces else None

    def _rewind(self) -> None:
        """Take back what was said since the mark, and calls that have not started."""
        for gone in self.pieces[self._kept_count :]:
            if isinstance(gone, Call):
                self._calls.pop(gone.id, None)
        del self.pieces[self._kept_count :]
        if isinstance(self._end_of_kept, Text | Thought):
            self.pieces[-1] = replace(self._end_of_kept)
        self._space = ""
        self._is_rewound = True
        self.rewinds.append(len(self.render()))

    # Text, thoughts and notices.

    def _add_text(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Text):
            # Blank text between two calls would only tear their group apart.
            self._space += text
            text = self._space
            if not text.strip():
                return
            last = Text(is_open=True)
            self._append(last)
        text = last.held + text
        unfinished = UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        last.text += self._guard(text[:end])
        last.held = text[end:]

    def _add_thought(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Thought):
            if not text.strip():
                return
            last = Thought(is_open=True, began_at_seconds=self.clock())
            self._append(last)
        last.text = UNSAFE.sub(GUARDED, last.text + text)

    def _add_notice(self, message: str, url: str = "") -> None:
        # One line, and no markup: messages quote whatever failed.
        words = CONTROL.sub(" ", message).strip()[:NOTICE_CHARS].replace("<", "&lt;").replace("](", "] (")
        if url:
            address = quote(url, safe=":/?#@!$&*+,;=%~")
            words = f"[{words}]({address})"
        self._append(Notice(text=f"\n{NOTICE}{words}\n"))

    def _guard(self, text: str) -> str:
        """Return the model's text without tags of blocks, and with `[k#sourceN]` for `[sourceN]`.

        That is drawn as `[k]`, and the server reads it back as N.
        """

        def link(citation: re.Match[str]) -> str:
            linked = []
            for number in re.findall(r"\d+", citation[0]):
                if number not in self._source_numbers:
                    return citation[0]
                linked.append(f"{self._source_numbers[number]}#source{number}")
            return f"[{', '.join(linked)}]"

        return CITATION.sub(link, UNSAFE.sub(GUARDED, text))

    def _cite(self, event: Json) -> Json:
        """Return a source as Open WebUI takes it.

        It draws `[k]` as the k-th source of a message; agents count over all turns.
        """
        source = event["source"]
        abouts = []
        for about in select_dicts(event.get("metadata")) or [{}]:
            key = str(about.get("source") or source.get("id") or source.get("url") or source.get("name"))
            place = self._source_places.setdefault(key, len(self._source_places) + 1)
            self._source_numbers[str(about.get("source_number", place))] = place
            abouts.append(about | {"source": key})
        documents = [str(text) for text in event.get("document") or ()]
        documents += [""] * len(abouts)
        return {"source": source, "document": documents[: len(abouts)], "metadata": abouts}

    # Tool calls.

    def _relabel_call(self, event: Json) -> None:
        call = self._calls.get(str(event.get("tool_call_id")))
        if not call or not call.is_open:
            return
        if event["type"] == "tool:status":
            call.show_status(event["data"])
        else:
            call.show_question(event.get("kind"))
        call.tell_parents()

    def _apply_call(self, event: Json) -> None:
        call_id = make_storable(event["tool_call_id"])
        if call_id not in self._calls:
            parent = self._calls.get(make_storable(str(event.get("parent_call_id"))))
            call = Call(is_open=True, id=call_id)
            if parent and parent.is_open:
                call.parent = parent
                parent.inner.append(call)
            else:
                self._append(call)
            self._calls[call_id] = call
        call = self._calls[call_id]
        if not call.is_open:
            return
        if call.state == "preparing":
            call.name = make_storable(event.get("tool_name") or call.name)
        match event["type"]:
            case "tool_call_args_delta":
                call.draft += make_storable(event["delta"])
                return
            case "tool_call_start" if call.state == "preparing":
                call.arguments = json.dumps(event.get("tool_args", {}))
                call.state = "running"
                call.label = ""
                call.about = make_storable(str(event.get("label") or "")).removeprefix(call.name).removeprefix(" · ")
                call.stoppable = event.get("stoppable") is not False
                if isinstance(event.get("round_index"), int):
                    call.round = str(event["round_index"])
            case "tool_call_complete":
                self._complete_call(call, event)
            case "tool_call_error":
                self._fail_call(call, str(event.get("error") or "the tool failed"), str(event.get("code")))
        call.took = format_duration(event)
        call.tell_parents()
        self._mark()

    def _fail_call(self, call: Call, error: str, code: str) -> None:
        """End a call that gave no result; `error` is what the model is told."""
        ending = ENDINGS.get(code, FAILED)
        words = ending.words or error
        if not ending.is_failure:
            words = words.removeprefix("Error: ")
        elif not words.lower().startswith("error:"):
            words = f"Error: {words}"
        self._end_call(call, "failed" if ending.is_failure else "done", words)
        if ending is not FAILED:
            call.label = ending.label

    def _complete_call(self, call: Call, event: Json) -> None:
        result = event.get("result", "")
        if not isinstance(result, str):
            result = json.dumps(result)
        chars = event.get("result_chars")
        if event.get("truncated") is not True or not isinstance(chars, int):
            chars = 0
        url = event.get("result_url")
        self._end_call(call, "done", result, chars, f": {url}" if isinstance(url, str) else "")
        self._attach_files(call, event)

    def _end_call(
        self, call: Call, state: Literal["done", "failed"], result: str, chars: int = 0, link: str = ""
    ) -> None:
        """End the call with its result, of which the server has `chars` characters where it has cut it."""
        if call.state == "preparing" and call.draft:
            # It never started, so what the model wrote is all there is.
            call.arguments = json.dumps(call.draft)
        chars = max(chars, len(result))
        if chars > self._result_chars:
            # The line counts too: Open WebUI hides what is beyond its own 10,000 characters behind a button.
            shown = result[: max(0, self._result_chars - CUT_LINE_CHARS - len(link))]
            result = f"{shown}\n… [{chars - len(shown):,} more characters{link}]"
        if inner := [*call.list_inner()]:
            result = "\n".join([*inner, "", result])
        call.result = result
        call.state = state
        call.label = ""
        call.is_open = False

    def _attach_files(self, call: Call, event: Json) -> None:
        """Draw images under their call, other files as links below it, and pages as frames of the message."""
        for file in select_dicts(event.get("files")):
            url = str(file.get("url") or "")
            name = str(file.get("name") or "file")
            if file.get("type") == "image" and url.startswith(("data:image/", "/api/")):
                while call.parent:
                    call = call.parent
                call.files.append({"type": "image", "url": url})
            elif url.startswith(("https://", "http://", "/api/")):
                self._add_notice(name.replace("[", "(").replace("]", ")"), url)
            else:
                log_of = "the server's" if file.get("dropped") else "Open WebUI's"
                self._add_notice(f"The file {name} could not be kept: {log_of} log has the reason.")
        if embeds := [embed for embed in event.get("embeds") or () if isinstance(embed, str)]:
            # In the block's own attribute they would hide its input and output. This name replaces what it showed.
            self._embeds += embeds
            self.events.append({"type": "chat:message:embeds", "data": {"embeds": [*self._embeds]}})


# --- Emission: what has changed in an answer, as dicts for Open WebUI. Pure. ----------------------------------------
#
#   Open WebUI        RENDERING details    RENDERING native
#   0.11.4 and later  StreamEmitter        NativeEmitter
#   0.11.1 to 0.11.3  StreamEmitter        as details
#   0.8.0 to 0.11.0   WholeEmitter         as details
#   0.6.43 to 0.7     EventEmitter         as details
#   no saved chat     ChunkEmitter         as details


class Emitter:
    """Hands a transcript's changes over.

    Attributes:
        shows_events: Open WebUI's own events are shown too: sources, pages of tools, status lines.
        due_at_seconds: When changes that wait are due.
    """

    shows_events: ClassVar[bool] = True

    def __init__(self, model: str = "") -> None:
        self.due_at_seconds = math.inf
        self._model = model
        self._id = uuid.uuid4().hex
        self._next_content_at_seconds = 0.0
        self._next_status_at_seconds = 0.0
        self._events_sent = 0
        self._lines_sent = 0

    def updates(self, transcript: Transcript, now_seconds: float, *, final: bool = False) -> list[Json]:
        """Return what is to be yielded now; with `final` all that is left of a transcript that has ended."""
        updates: list[Json] = []
        if final or now_seconds >= self._next_content_at_seconds:
            self.due_at_seconds = math.inf
            content = [*self._content(transcript, final=final)]
            self._next_content_at_seconds = now_seconds + self._pause_seconds(content)
            updates += content
        else:
            self.due_at_seconds = self._next_content_at_seconds
        if self.shows_events:
            updates += [{"event": event} for event in transcript.events[self._events_sent :]]
            self._events_sent = len(transcript.events)
            updates += self._status(transcript.activity.lines[self._lines_sent :], now_seconds, final=final)
        if final and transcript.usage:
            updates.append(self._chunk(usage=transcript.usage))
        return updates

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:
        """Yield what has changed in the answer."""
        raise NotImplementedError

    def _pause_seconds(self, content: list[Json]) -> float:
        """Return how long the next change has to wait after these."""
        raise NotImplementedError

    def _status(self, lines: list[StatusLine], now_seconds: float, *, final: bool) -> Iterator[Json]:
        if not lines:
            return
        if not final and now_seconds < self._next_status_at_seconds:
            self.due_at_seconds = min(self.due_at_seconds, self._next_status_at_seconds)
            return
        self._lines_sent += len(lines)
        self._next_status_at_seconds = now_seconds + STATUS_INTERVAL_SECONDS
        for line in select_lines(lines):
            # One that is not done shimmers, and for ever where Open WebUI is stopped before the next.
            data: Json = {"description": line.words, "done": True}
            if line.totals:
                data["callboard"] = vars(line.totals)
            yield {"event": {"type": "status", "data": data}}

    def _chunk(self, text: str = "", **fields: Any) -> Json:
        # Never a plain string: Open WebUI passes one that begins with "data:" through as it is.
        choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}] if text else []
        return {
            "id": f"chatcmpl-{self._id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self._model,
            "choices": choices,
            **fields,
        }


def select_lines(lines: list[StatusLine]) -> list[StatusLine]:
    """Return the lines without those that have passed by now, and without the middle of too many."""
    *steps, last = lines
    steps = [line for line in steps if not line.passes]
    half = LINES_AT_ONCE // 2
    return [*steps[:half], *steps[half:][-half:], last]


class ChunkEmitter(Emitter):
    """For API callers without a saved chat: nothing can be taken back, so a group is sent once all in it have ended."""

    shows_events = False

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._shown = ""
        self._rewinds_seen = 0
        self._note = ""

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:
        settled: list[Piece] = []
        for segment in split_segments(transcript.pieces):
            if segment[0].is_block and not transcript.is_settled(segment):
                break
            settled += segment
        text = render(settled)
        rewinds = transcript.rewinds[self._rewinds_seen :]
        self._rewinds_seen = len(transcript.rewinds)
        if rewinds and not text.startswith(self._shown):
            self._note += close_markdown(self._shown) + TAKEN_BACK
            self._shown = self._shown[: min(rewinds)]
        added = text[len(self._shown) :]
        if added or (final and self._note):
            yield self._chunk(self._note + added)
            self._shown = text
            self._note = ""

    def _pause_seconds(self, content: list[Json]) -> float:  # noqa: ARG002 - nothing is drawn anew
        return 0.0


class EventEmitter(Emitter):
    """For Open WebUI 0.6 and 0.7: `replace` events, and the whole text as a chunk at the end, for events get lost."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._shown = ""

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:
        content = transcript.render()
        if final and content:
            yield self._chunk(content)
        elif content != self._shown:
            self._shown = content
            yield {"event": {"type": "replace", "data": {"content": content}}}

    def _pause_seconds(self, content: list[Json]) -> float:
        return REPLACE_INTERVAL_SECONDS if content else 0.0


class StreamEmitter(Emitter):
    """For Open WebUI 0.11.1 and later: Responses-style dicts, message items whose text changes in place.

    An item is opened empty (0.9.6 draws text inside `added` late) and always carries its `output_index` (0.11.1 and
    later insert it before the last one else). A change costs its item, not the whole answer.
    """

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._settled = 0  # So many pieces will not change any more.
        self._places: dict[str, int] = {}  # The `output_index` of each item by its id.
        self._sent: dict[str, Json] = {}  # Each item by its id, as it was sent last.
        self._rewinds_seen = 0

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:  # noqa: ARG002 - all is sent as it comes
        changes: list[Json] = []
        if self._rewinds_seen != len(transcript.rewinds):
            self._rewinds_seen = len(transcript.rewinds)
            self._settled = 0
            changes += self._empty_lost_items(transcript)
        is_settled = True
        for part in self._split(transcript.pieces[self._settled :]):
            for item in self._items(part):
                changes += self._changes(item)
            is_settled = is_settled and transcript.is_settled(part)
            if is_settled:
                self._settled += len(part)
        if len(changes) > EVENTS_AT_ONCE:
            # Many are drawn at once by this one with all items. Whatever its name, it ends nothing.
            items = [self._sent[key] for key in self._places]
            changes = [{"type": "response.completed", "response": {"output": items}}]
        yield from changes

    def _pause_seconds(self, content: list[Json]) -> float:
        """Return how long the changes take to be sent and drawn; what changes in place waits longer than growth."""
        seconds = max(
            self._count_chars(content) / SENT_CHARS_PER_SECOND,
            len(content) * len(self._places) / DRAWN_ITEMS_PER_SECOND,
        )
        for change in content:
            if "delta" not in change and change.get("item", {}).get("type") != "message":
                return max(seconds, UPDATE_INTERVAL_SECONDS)
        return seconds

    def _count_chars(self, changes: list[Json]) -> int:
        return sum(len(str(change)) for change in changes)

    def _split(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Return the pieces that change together."""
        return [[*item] for _, item in groupby(pieces, key=lambda piece: piece.item)]

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        """Yield the items that these pieces are."""
        yield self._message(f"msg_{self._id}_{part[0].item}", render(part))

    def _message(self, key: str, text: str) -> Json:
        content = {"type": "output_text", "text": text}
        return {"type": "message", "id": key, "role": "assistant", "status": "in_progress", "content": [content]}

    def _changes(self, item: Json) -> Iterator[Json]:
        """Yield what makes of the item that was sent this one."""
        key = item["id"]
        text = item["content"][0]["text"]
        shown = self._sent[key]["content"][0]["text"] if key in self._sent else ""
        self._sent[key] = item
        if text and key not in self._places:
            yield self._added(self._message(key, ""))
        if text == shown:
            return
        where = {"item_id": key, "output_index": self._places[key], "content_index": 0}
        if text.startswith(shown):
            yield {"type": "response.output_text.delta", **where, "delta": text[len(shown) :]}
        else:
            yield {"type": "response.output_text.done", **where, "text": text}

    def _added(self, item: Json) -> Json:
        place = self._places.setdefault(item["id"], len(self._places))
        return {"type": "response.output_item.added", "output_index": place, "item": item}

    def _empty_lost_items(self, transcript: Transcript) -> Iterator[Json]:
        """Yield what becomes of items that a rewind took back: the browser forgets no item, but draws no empty one."""
        kept = {item["id"] for part in self._split(transcript.pieces) for item in self._items(part)}
        for key in self._places:
            if key not in kept:
                yield from self._empty(key)

    def _empty(self, key: str) -> Iterator[Json]:
        yield from self._changes(self._message(key, ""))


class WholeEmitter(StreamEmitter):
    """For Open WebUI 0.8.0 to 0.11.0, which hand the page the whole answer with every change: one item is enough."""

    def _split(self, pieces: list[Piece]) -> list[list[Piece]]:
        return [pieces] if pieces else []

    def _count_chars(self, changes: list[Json]) -> int:
        chars = 0
        for item in self._sent.values():
            text: str = item["content"][0]["text"]
            # At each paragraph their Markdown readers look through all that follows.
            chars += len(text) * (1 + text.count("\n\n") // 50)
        return len(changes) * chars


class NativeEmitter(StreamEmitter):
    """For Open WebUI 0.11.4 and later: calls and reasoning as its own items, so that exports and later turns have them.

    An item that is added again is replaced. A call that ends gets its output with it: one that has none at the end of
    the stream would be run by Open WebUI, and the pipe called again.
    """

    def _split(self, pieces: list[Piece]) -> list[list[Piece]]:
        return split_segments(pieces)

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        blocks = [(number, piece) for number, piece in enumerate(part) if isinstance(piece, Thought | Call)]
        if not blocks:
            yield self._message(f"msg_{self._id}_{part[0].segment}", render(part))
        for _, blocks_of_round in groupby(blocks, key=lambda block: block[1].round):
            outputs = []
            for number, piece in blocks_of_round:
                key = f"{self._id}_{piece.segment}_{number}"
                if isinstance(piece, Thought):
                    yield make_reasoning_item(piece, key)
                else:
                    yield make_call_item(piece, key)
                    if not piece.is_open:
                        outputs.append(make_output_item(piece, key))
            # Outputs last: on the next turn, calls with an output in between are told as two rounds.
            yield from outputs

    def _changes(self, item: Json) -> Iterator[Json]:
        if item["type"] == "message":
            yield from super()._changes(item)
        elif self._sent.get(item["id"]) != item:
            self._sent[item["id"]] = item
            yield self._added(item)

    def _empty(self, key: str) -> Iterator[Json]:
        self._sent[key] = self._message(key, "")
        yield self._added(self._sent[key])


def make_reasoning_item(thought: Thought, key: str) -> Json:
    """Return a thought as Open WebUI's own item."""
    item: Json = {
        "type": "reasoning",
        "id": f"rs_{key}",
        # No "summary": Open WebUI's editor shows one in place of the content, an empty one too.
        "content": [{"type": "output_text", "text": thought.text}],
    }
    if thought.is_open:
        return item | {"status": "in_progress"}
    item |= {"status": "completed"}
    return item if thought.seconds is None else item | {"duration": thought.seconds}


def make_call_item(call: Call, key: str) -> Json:
    """Return a call as Open WebUI's own item."""
    arguments = call.arguments
    if arguments.startswith('"'):
        # What the model wrote of a call that never started.
        arguments = json.loads(arguments)
    return {
        "type": "function_call",
        "id": f"fc_{key}",
        "call_id": call.id,
        "name": call.shown_name,
        "arguments": arguments,
        "status": choose_item_status(call),
    }


def make_output_item(call: Call, key: str) -> Json:
    """Return the result of a call that has ended as Open WebUI's own item."""
    return {
        "type": "function_call_output",
        "id": f"fco_{key}",
        "call_id": call.id,
        "status": choose_item_status(call),
        "output": [{"type": "input_text", "text": call.result}],
        "files": call.files,
    }


def choose_item_status(call: Call) -> str:
    """Return the status of a call's items: without an output "completed" reads "Executing", others "Preparing"."""
    return {"preparing": "in_progress", "failed": "failed"}.get(call.state, "completed")


def choose_emitter(version: str, rendering: str, model: str, metadata: Json) -> Emitter:
    """Return the emitter that this Open WebUI understands; an unknown version is taken for the newest."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    release = numbers if any(numbers) else [99]
    # What Open WebUI's own stream handler looks at are the ids: chat and message, before 0.9 the session too.
    needed = ["chat_id", "message_id"]
    if release < [0, 9]:
        needed.append("session_id")
    is_saved = all(metadata.get(name) for name in needed)
    if rendering == "native":
        if is_saved and release >= [0, 11, 4]:
            return NativeEmitter(model)
        log.info("Callboard: drawn as details: RENDERING native needs a saved chat in Open WebUI 0.11.4 or later")
    if not is_saved:
        return ChunkEmitter(model)
    if release >= [0, 11, 1]:
        return StreamEmitter(model)
    if release >= [0, 8]:
        return WholeEmitter(model)
    return EventEmitter(model)


# --- Server client: the only HTTP. ----------------------------------------------------------------------------------


class ServerProblem(Exception):
    """The server cannot be used; the message is for a person and names what to change."""


class Passing(ServerProblem):
    """A server that is about to stop says so, or was lost before it answered: it, or another, may take the next try."""


class Refusal(ServerProblem):
    """A Callboard server says itself that it will not do what it was asked for, now or later."""


class NotThere(Refusal):
    """A Callboard server says that it knows nothing of what it was asked about."""


Deliver = Callable[[Json], None]
OpenStream = Callable[[], AbstractAsyncContextManager[httpx.Response]]


@dataclass(frozen=True, slots=True)
class LeftAnswer:
    """What the server has of an answer that Open WebUI was stopped in.

    Attributes:
        run_id: The run that the answer is of.
        rows: Its messages, as the server keeps them with the chat.
        is_logged: Its events can still be read; they are forgotten some time after its end.
        is_awaited: Somebody listens to it, so that the answer comes to its chat by itself.
    """

    run_id: str
    rows: list[Json]
    is_logged: bool = False
    is_awaited: bool = False


def read_rows(rows: list[Json]) -> Iterator[Json]:
    """Yield the events that the stored messages of a run amount to."""
    for row in rows:
        if row["role"] == "assistant" and row["content"]:
            yield {"type": "message", "content": row["content"]}
        if row["role"] != "tool":
            continue
        call = {name: row.get(name) for name in ("tool_call_id", "tool_name", "parent_call_id")}
        arguments: object = row["arguments"]
        with suppress(ValueError, TypeError, RecursionError):
            arguments = json.loads(row["arguments"])
        yield call | {"type": "tool_call_start", "tool_args": arguments, "round_index": row["round_index"]}
        if row["error_code"] is not None:
            yield call | {"type": "tool_call_error", "error": row["tool_output"], "code": row["error_code"]}
        elif row["ended_at"] is not None:
            yield call | {"type": "tool_call_complete", "result": row["tool_output"]}
    yield {"type": "done", "finish_reason": "stored"}


USER_TOKEN = "X-OpenWebUI-User-Jwt"  # noqa: S105 - a header


class ServerClient:
    """One request's connection to the server at `url`. Every failure is a `ServerProblem`."""

    def __init__(self, url: str, key: str, timing: Timing, user: Json | None = None) -> None:
        self._url = url.strip().rstrip("/")
        self._key = key.strip()
        self._signed_user = user or {}
        # A run that was started for a user is that user's alone.
        self._user = {"user_id": str(user["id"])} if user else {}
        self._timing = timing
        self._last_seq = 0

    async def list_models(self) -> list[Json]:
        """Return the agents, each with its name, description, suggestions and icon."""
        try:
            async with asyncio.timeout(self._timing.models_seconds):
                _, body = await self._fetch("GET", "/v1/models", "json")
            return [
                {
                    "id": str(entry["id"]),
                    "name": str(entry.get("name") or entry["id"]),
                    "description": str(entry.get("description") or ""),
                    "suggestions": [str(text) for text in entry.get("suggestions") or ()],
                    "icon": str(entry.get("icon") or "") or None,
                }
                for entry in json.loads(body)["data"]
            ]
        except TimeoutError as error:
            raise self._problem(CANNOT_REACH) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def run(self, request: Json, deliver: Deliver) -> None:
        """Start a run and deliver its events up to the last.

        Asked for once more by its id, where the server was lost before its first event, it is started once.
        """
        await self._deliver_all(
            lambda: self._send("POST", "/v1/runs", "event-stream", json=request),
            lambda: self._open_events(str(request["run_id"])),
            deliver,
        )

    async def follow(self, run_id: str, deliver: Deliver) -> None:
        """Deliver the events of a run that was started earlier, from the first up to the last."""
        open_events = partial(self._open_events, run_id)
        await self._deliver_all(open_events, open_events, deliver)

    def _open_events(self, run_id: str) -> AbstractAsyncContextManager[httpx.Response]:
        """Return the run's stream from the first event that was not delivered."""
        headers = {"Last-Event-ID": str(self._last_seq)}
        return self._send("GET", f"/v1/runs/{run_id}/events", "event-stream", headers=headers, params=self._user)

    async def _deliver_all(self, begin: OpenStream, resume: OpenStream, deliver: Deliver) -> None:
        """Deliver the events of the stream that `begin` opens; one that is cut is opened again by `resume`.

        Where the server is away it is tried for `resume_seconds` since the last new event, and a `reconnecting` event,
        which is the pipe's own, says so.
        """
        tries = 0
        lost_at_seconds = 0.0
        problem = self._problem(LOST)
        while True:
            seq_before = self._last_seq
            try:
                async with (resume if self._last_seq else begin)() as response:
                    if await self._read(response, deliver):
                        return
            except (httpx.HTTPError, ServerProblem) as error:
                if isinstance(error, ServerProblem) and not tries and not isinstance(error, Passing):
                    raise
                if isinstance(error, Refusal):
                    raise self._problem(LOST) from error
                log.info("Callboard: the stream was cut after event %d (%s)", seq_before, type(error).__name__)
                if isinstance(error, ServerProblem) and not self._last_seq:
                    problem = error
            if not tries or self._last_seq > seq_before:
                tries = 0
                lost_at_seconds = time.monotonic()
            wait_seconds = self._timing.resume_wait_seconds(tries)
            if time.monotonic() + wait_seconds > lost_at_seconds + self._timing.resume_seconds:
                raise problem if not self._last_seq else self._problem(LOST)
            if wait_seconds:
                deliver({"type": "reconnecting"})
                jitter = random.uniform(-RESUME_JITTER, RESUME_JITTER)  # noqa: S311 - it keeps no secret
                await asyncio.sleep(wait_seconds * (1 + jitter))
            tries += 1

    async def find_answer(self, chat_id: str, message_id: str) -> LeftAnswer:
        """Return what the server has of the answer to a message; raises `NotThere` where it has nothing."""
        path = f"/v1/chats/{quote(chat_id, safe='')}/messages"
        _, body = await self._fetch("GET", path, "json", params=self._user)
        try:
            rows = [row for row in json.loads(body)["messages"] if row["message_id"] == message_id]
            run_id = str(rows[-1]["run_id"]) if rows else ""
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._problem(NOT_CALLBOARD) from error
        if not run_id:
            raise NotThere(FORGOTTEN)
        rows = [row for row in rows if row["run_id"] == run_id]
        try:
            _, body = await self._fetch("GET", f"/v1/runs/{run_id}", "json", params=self._user)
            run = json.loads(body)
            return LeftAnswer(run_id, rows, is_logged=True, is_awaited=bool(run["listened_to"]))
        except NotThere:
            return LeftAnswer(run_id, rows)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    def lost(self, *, is_away: bool) -> ServerProblem:
        """Return the words for an answer that cannot be restored."""
        return self._problem(STAYED_AWAY if is_away else FORGOTTEN)

    async def forget_chat(self, chat_id: str) -> None:
        """Let the server forget a chat; one that it does not know is forgotten already."""
        with suppress(NotThere):
            await self._fetch("DELETE", f"/v1/chats/{quote(chat_id, safe='')}", params=self._user)

    async def forget_chats(self, begun_before: float) -> None:
        """Let the server forget all chats of the user that began before then, in Unix seconds."""
        await self._fetch("DELETE", "/v1/chats", params={**self._user, "begun_before": str(begun_before)})

    async def answer(self, run_id: str, request_id: object, value: object, *, asked: bool) -> None:
        """Tell the server what the user answered, null if nothing; `asked` is false if nobody could be asked.

        A server that is being started anew is waited for as a stream waits.
        """
        body = {"request_id": request_id, "value": value} | ({} if asked else {"asked": False})
        began_at_seconds = time.monotonic()
        for tries in itertools.count(1):
            try:
                await self._fetch("POST", f"/v1/runs/{run_id}/input", json=body, params=self._user)
            except ServerProblem as problem:
                wait_seconds = self._timing.resume_wait_seconds(tries)
                is_late = time.monotonic() + wait_seconds > began_at_seconds + self._timing.resume_seconds
                if isinstance(problem, Refusal) or is_late:
                    raise
                await asyncio.sleep(wait_seconds)
            else:
                return

    async def fetch_file(self, path: str) -> tuple[str, bytes]:
        """Return the content type and the content of a file that the server holds."""
        return await self._fetch("GET", path, params=self._user)

    async def leave(self, reader: asyncio.Task[None], cancel_run_id: str | None) -> None:
        """End the connection that `reader` reads; with `cancel_run_id` the run too."""
        if cancel_run_id:
            with suppress(ServerProblem, TimeoutError):
                async with asyncio.timeout(self._timing.connect_seconds):
                    await self._fetch("POST", f"/v1/runs/{cancel_run_id}/cancel", params=self._user)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    async def _fetch(self, method: str, path: str, kind: str = "", **options: Any) -> tuple[str, bytes]:
        """Return the content type and the body of a whole answer."""
        try:
            async with self._send(method, path, kind, **options) as response:
                return response.headers.get("content-type", ""), await response.aread()
        except httpx.HTTPError as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def _read(self, response: httpx.Response, deliver: Callable[[Json], None]) -> bool:
        """Deliver the events of one stream, each once; return true after the run's last."""
        decoder = FrameDecoder()
        async for chunk in response.aiter_bytes():
            for frame_id, data in decoder.feed(chunk):
                seq = self._last_seq + 1
                if frame_id.isdecimal() and len(frame_id) < 18:
                    seq = int(frame_id)
                if seq <= self._last_seq:
                    continue
                self._last_seq = seq
                if event := read_event(data):
                    deliver(event)
                    if event["type"] in ("done", "error"):
                        return True
        return False

    @asynccontextmanager
    async def _send(self, method: str, path: str, kind: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yield an accepted answer of that kind, its body unread; everything else is a problem."""
        if not re.fullmatch(r"[\x21-\x7e]*", self._key):
            # httpx would quote the key in its own message.
            raise self._problem(BAD_KEY)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # Anew for each request: an answer may take longer than a token holds.
        if token := sign_user(self._signed_user):
            headers[USER_TOKEN] = token
        timeout = httpx.Timeout(self._timing.read_seconds, connect=self._timing.connect_seconds)
        # To load the certificates costs 20 ms, which plain HTTP can do without.
        verify = not self._url.startswith("http:")
        async with httpx.AsyncClient(headers=headers, timeout=timeout, verify=verify) as http:
            try:
                request = http.build_request(method, self._url + path, **options)
                response = await http.send(request, stream=True)
            except (httpx.ReadError, httpx.RemoteProtocolError, AttributeError, RuntimeError) as error:
                # In uvloop, Open WebUI's event loop, a connection that is torn as soon as it is made has no socket any
                # more, and httpx says that None has no such attribute, or that the handler is closed.
                raise Passing(str(self._problem(CANNOT_REACH))) from error
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError) as error:
                raise self._problem(CANNOT_REACH) from error
            if not response.is_success or kind not in response.headers.get("content-type", ""):
                raise self._read_refusal(response.status_code, await response.aread())
            yield response

    def _read_refusal(self, status: int, body: bytes) -> ServerProblem:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            error = json.loads(body)["error"]
            message = str(error["message"])
            if self._key:
                message = message.replace(self._key, "***")
            if error.get("code") in ("unknown_run", "unknown_chat"):
                return NotThere(message)
            if error.get("code") == "shutting_down":
                return Passing(message)
            # A server that is full or stops says so too, and may take the next try, or another server.
            is_final = 400 <= status < 500 and status not in (408, 425, 429)
            return Refusal(message) if is_final else ServerProblem(message)
        return self._problem(NOT_CALLBOARD)

    def _problem(self, words: str) -> ServerProblem:
        # What people are shown has no password in it.
        url = re.sub(r"//[^/@]*@", "//", self._url)
        return ServerProblem(words.format(url=url))


# --- Open WebUI: its users, its file store and its dialogs. ---------------------------------------------------------


def sign_user(user: Json) -> str:
    """Return what vouches for a user to the server, signed as Open WebUI signs it; "" where it has no secret for that.

    Open WebUI sends such a token along with its own requests alone, and this one is the pipe's.
    """
    try:
        import jwt
        from open_webui.env import FORWARD_USER_INFO_HEADER_JWT_SECRET
    except ImportError:
        return ""
    if not FORWARD_USER_INFO_HEADER_JWT_SECRET or not user:
        return ""
    now = int(time.time())
    claims: Json = {
        **{name: user[name] for name in ("name", "email", "role", "groups") if name in user},
        "sub": user["id"],
        "iss": "open-webui",
        "iat": now,
        "exp": now + TOKEN_SECONDS,
    }
    return str(jwt.encode(claims, FORWARD_USER_INFO_HEADER_JWT_SECRET, algorithm="HS256"))


async def settle(result: object) -> Any:
    """Return what a function of Open WebUI's gave, which is async in some versions only."""
    return await result if inspect.isawaitable(result) else result


async def list_groups(user_id: str) -> list[str]:
    """Return the names of the groups that a user is in; none where Open WebUI does not say."""
    try:
        from open_webui.models.groups import Groups

        groups = await settle(Groups.get_groups_by_member_id(user_id))
        return [str(group.name) for group in groups]
    except ImportError:
        return []
    except Exception:
        log.exception("Callboard: Open WebUI did not give a user's groups")
        return []


async def add_entries(function_id: str, agents: list[Json], access: str) -> None:
    """Give each agent without an entry among Open WebUI's models one, to be seen by whom `access` says.

    Without an entry only admins see an agent. An entry that is there belongs to the admins, and stays as it is.
    """
    try:
        from open_webui.models.models import ModelForm, Models
        from open_webui.models.users import Users

        known = {entry.id for entry in await settle(Models.get_base_models())}
        missing = [agent for agent in agents if f"{function_id}.{agent['id']}" not in known]
        if not missing:
            return
        grants = await list_grants(access)
        owner = await settle(Users.get_super_admin_user())
        for agent in missing:
            prompts = [{"content": text, "title": [text, ""]} for text in agent["suggestions"]]
            entry = ModelForm(
                id=f"{function_id}.{agent['id']}",
                name=agent["name"],
                meta={
                    "description": agent["description"],
                    "profile_image_url": agent["icon"],
                    "suggestion_prompts": prompts or None,
                },
                params={},
                access_grants=grants,
            )
            await settle(Models.insert_new_model(entry, owner.id))
    except ValueError as error:
        log.warning("Callboard: the agents get no entries: %s", error)
    except Exception:
        # Whatever a version of Open WebUI does otherwise: the agents are listed for admins all the same.
        log.exception("Callboard: Open WebUI took no entries for the agents")


async def list_grants(access: str) -> list[Json]:
    """Return who may use a model, as Open WebUI has it; raises `ValueError` for a word or a group that is not known."""
    from open_webui.models.groups import Groups

    if access == "admins":
        return []
    who = [("user", "*")]
    if access != "everyone":
        kind, _, name = access.partition(":")
        groups = await settle(Groups.get_groups(filter={})) if kind == "group" else []
        who = [("group", group.id) for group in groups if group.name == name]
        if not who:
            raise ValueError(
                f"the valve ACCESS is {access!r}: it takes everyone, admins or group:NAME, of a group there"
            )
    return [{"principal_type": kind, "principal_id": id_, "permission": "read"} for kind, id_ in who]


async def store_file(request: object, user: Json, name: str, kind: str, content: bytes) -> str:
    """Return the address of a file that is put into Open WebUI's own store; "" where it cannot be."""
    try:
        from open_webui.routers.files import UploadFile, upload_file_handler

        file = UploadFile(io.BytesIO(content), filename=name, headers={"content-type": kind})
        stored = await settle(
            upload_file_handler(request, file, metadata={}, process=False, user=SimpleNamespace(**user))
        )
    except Exception:
        log.exception("Callboard: Open WebUI did not keep a file")
        return ""
    return f"/api/v1/files/{stored.id}/content"


async def read_file(user: Json, file_id: str) -> bytes:
    """Return a file of Open WebUI's store that is the user's own, for the browser says which; b"" where it cannot."""
    try:
        from open_webui.models.files import Files
        from open_webui.storage.provider import Storage

        file = await settle(Files.get_file_by_id(file_id))
        path = Storage.get_file(file.path) if file.user_id == user["id"] else ""
        return await asyncio.to_thread(Path(path).read_bytes)
    except Exception:
        log.exception("Callboard: Open WebUI did not give a file")
        return b""


def is_continued(body: Json) -> bool:
    """Return whether the user lets an answer go on: Open WebUI then sends what there is of it."""
    return [message.get("role") for message in select_dicts(body.get("messages"))[-1:]] == ["assistant"]


async def read_totals(metadata: Json) -> Totals:
    """Return what the message of a request has taken so far, as the status line says that ends it."""
    try:
        from open_webui.models.chats import Chats

        place = metadata.get("chat_id"), metadata.get("message_id")
        message = await settle(Chats.get_message_by_id_and_message_id(*place))
        kept = [line["callboard"] for line in select_dicts(message["statusHistory"]) if "callboard" in line]
        return Totals(kept[-1]["calls"], kept[-1]["seconds"], Counter(kept[-1]["endings"]))
    except (ImportError, LookupError, TypeError, AttributeError):
        # Open WebUI keeps no such message, or its lines are not the pipe's.
        return Totals()


async def attach_files(user: Json, metadata: Json, messages: list[Json]) -> None:
    """Add the user's files to their last message: all but images and sources, which Open WebUI has put there."""
    places = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if not places:
        return
    place = places[-1]
    source_ids = [
        source["source"].get("id") for source in select_dicts(metadata.get("sources")) if source.get("source")
    ]
    for file in select_dicts(metadata.get("files")):
        kind = str(file.get("content_type") or "application/octet-stream")
        if file.get("type") != "file" or kind.startswith("image/") or file.get("id") in source_ids:
            continue
        content = base64.b64encode(await read_file(user, str(file.get("id")))).decode()
        part = {
            "filename": str(file.get("name") or "file"),
            "file_data": f"data:{kind};base64,{content}" if content else "",
        }
        parts = messages[place].get("content")
        if not isinstance(parts, list):
            parts = [{"type": "text", "text": parts}]
        messages[place] = messages[place] | {"content": [*parts, {"type": "file", "file": part}]}


def make_visible(text: str) -> str:
    """Return the text as HTML; what cannot be seen, or turns the text around, has its number."""
    shown = "".join(char if char.isprintable() or char in "\n\u3000\xa0" else ascii(char)[1:-1] for char in text)
    return html.escape(shown)


def make_dialog(question: Json, agent_name: str = "", place: str = "") -> Json:
    """Return the question for Open WebUI's dialogs, which read Markdown and then HTML.

    `place` is which of several questions it is, such as "1 of 2".
    """
    is_confirmation = question.get("kind") == "confirmation"
    is_approval = is_confirmation and question.get("tool_call_id")
    parts = []
    if agent_name:
        name = make_visible(CONTROL.sub(" ", agent_name))
        parts.append(f'<p style="margin: 0 0 0.5em"><b>{name}</b> asks{f" ({place})" if place else ""}</p>')
    if message := make_visible(str(question.get("message") or "")):
        if is_approval:
            # So that no value that is wrapped can pass for another argument.
            message = ARGUMENT_NAME.sub(r"<b>\g<0></b>", message)
        style = "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 50vh; overflow: auto"
        parts.append(f'<pre style="{style}">{message}</pre>')
    if is_approval:
        parts.append(f'<p style="margin: 0.5em 0 0">{IF_DECLINED}</p>')
    return {
        "type": "confirmation" if is_confirmation else "input",
        "data": {
            "title": str(question.get("title") or ""),
            "placeholder": str(question.get("placeholder") or ""),
            # To Markdown each of them is HTML as it stands, up to the empty line.
            "message": "\n\n".join(parts),
            "type": str(question.get("kind")),
        },
    }


# --- Run: one answer, from its first event to its last. -------------------------------------------------------------

# The event loop itself keeps no hold of its tasks.
background_tasks: set[asyncio.Task[None]] = set()

AskUser = Callable[[Json], Awaitable[object]]


def read_answer(question: Json, answer: object) -> bool | str | None:
    """Return what a dialog gave as the server takes it; None if it gave no answer, such as `{"error": …}`."""
    if question.get("kind") == "confirmation":
        return answer if isinstance(answer, bool) else None
    # True is an empty text in 0.8 and 0.9.
    return "" if answer is True else answer if isinstance(answer, str) else None


def is_without_page(answer: object, seconds: float) -> bool:
    """Return whether a dialog was shown to nobody, by what Open WebUI gave after so many seconds.

    The sessions of channels, automations and closed tabs have no page: Open WebUI gives an error at once.
    """
    if not isinstance(answer, dict) or seconds >= LEAST_SHOWN_SECONDS:
        return False
    return "timed out" not in str(answer.get("error"))


class QuestionQueue:
    """The questions of all runs in one page, which shows one dialog: a second would take the place of the first."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._open = 0
        self.shown = 0
        self.count = 0

    @asynccontextmanager
    async def wait(self) -> AsyncIterator["QuestionTicket"]:
        """Wait for the questions that came before, and hold back those that come after until this context ends."""
        if not self._open:
            self.shown = self.count = 0
        self._open += 1
        self.count += 1
        ticket = QuestionTicket(self)
        try:
            async with self._lock:
                yield ticket
        finally:
            self._open -= 1
            if not ticket.is_shown:
                self.count -= 1


class QuestionTicket:
    """The place of one question in its queue."""

    def __init__(self, queue: QuestionQueue) -> None:
        self.is_shown = False
        self._queue = queue

    def show(self) -> str:
        """Count the question as shown; return its place, such as "1 of 2", "" if it is the only one."""
        self.is_shown = True
        self._queue.shown += 1
        return f"{self._queue.shown} of {self._queue.count}" if self._queue.count > 1 else ""


own_state = SimpleNamespace()  # For an Open WebUI that gives no request.


def find_queue(request: object, user_id: object, metadata: Json) -> QuestionQueue:
    """Return the queue of the questions in a request's page; one of its own if Open WebUI names no session.

    The queues are kept in `app.state` of Open WebUI, which all its functions share: pipes of two servers take turns.
    """
    queue = QuestionQueue()
    if not (session_id := metadata.get("session_id")):
        return queue
    shared = getattr(getattr(request, "app", None), "state", own_state)
    if not hasattr(shared, QUEUES):
        setattr(shared, QUEUES, WeakValueDictionary())
    # By user too: the id of the session is the browser's word.
    found: QuestionQueue = getattr(shared, QUEUES).setdefault((str(user_id), str(session_id)), queue)
    return found


StoreFile = Callable[[str, str, bytes], Awaitable[str]]


class Run:
    """Reads the server, draws, asks, and ends the run when the user stops it."""

    def __init__(
        self,
        client: ServerClient,
        run_id: str,
        read: Callable[[Deliver], Coroutine[Any, Any, None]],
        emitter: Emitter,
        transcript: Transcript,
        store: StoreFile,
        ask_user: AskUser | None,
        queue: QuestionQueue,
        agent_name: str,
        page_seconds: float,
    ) -> None:
        """Prepare an answer whose events `read` delivers; `ask_user` is None if nobody can be asked."""
        self._client = client
        self._read = read
        self._run_id = run_id
        self._emitter = emitter
        self._transcript = transcript
        self._store = store
        self._ask_user = ask_user
        self._page_is_ready_at_seconds = time.monotonic() + page_seconds
        self._has_left = False
        self._queue = queue
        self._agent_name = agent_name
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def stream(self) -> AsyncGenerator[Json, None]:
        """Yield the answer as Open WebUI's stream takes it. On stop, one last update with every block closed."""
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(queue.put_nowait))
        # None wakes the loop when the reader is over, whichever way.
        reader.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while not self._transcript.ended:
                for event in await self._receive(queue):
                    if event is None:
                        reader.result()
                    else:
                        self._transcript.apply(event)
                for update in self._emitter.updates(self._transcript, time.monotonic()):
                    yield update
        except asyncio.CancelledError:
            self._leave(reader)
            self._transcript.close(STOPPED_BY_USER, how="stopped")
            for update in self._emitter.updates(self._transcript, time.monotonic(), final=True):
                yield update
            raise
        except ServerProblem as problem:
            log.warning("Callboard: %s", problem)
            # Open WebUI 0.11 loses an answer that ends before its page has heard that it began.
            await asyncio.sleep(0 if self._transcript.pieces else UPDATE_INTERVAL_SECONDS)
            self._transcript.close("the connection was lost", str(problem))
        except Exception:
            log.exception("Callboard: the answer failed")
            self._leave(reader)
            self._transcript.close("the pipe failed", PIPE_FAILED)
        finally:
            self._leave(reader)
        for update in self._emitter.updates(self._transcript, time.monotonic(), final=True):
            yield update

    async def text(self) -> str:
        """Return the whole answer at once."""
        await self._finish()
        return self._transcript.render()

    async def plain_text(self) -> str:
        """Return the model's own words; "" where something has gone wrong."""
        await self._finish()
        words = ""
        for piece in self._transcript.pieces:
            if isinstance(piece, Notice):
                return ""
            if isinstance(piece, Text):
                words += piece.render().replace(GUARDED, "<details")
        return words

    async def _finish(self) -> None:
        async for _ in self.stream():
            pass

    async def _receive(self, queue: asyncio.Queue[Json | None]) -> list[Json | None]:
        """Return all that has arrived, its questions asked; nothing where a change that waits is due first."""
        arrived: list[Json | None] = []
        due_at_seconds = self._emitter.due_at_seconds
        seconds = None if due_at_seconds == math.inf else due_at_seconds - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                arrived.append(await queue.get())
        while not queue.empty():
            arrived.append(queue.get_nowait())
        for event in arrived:
            if event and event["type"] == "input_request":
                # A server that goes on with the run asks again what nobody has answered.
                question_id = str(event.get("request_id"))
                if question_id not in self._questions:
                    self._questions[question_id] = asyncio.create_task(self._ask(event))
            elif event and event["type"] == "tool_call_complete":
                event["files"] = [await self._store_file(file) for file in select_dicts(event.get("files"))]
        return arrived

    async def _store_file(self, file: Json) -> Json:
        """Return the file with an address that a browser can open: what the server holds goes to Open WebUI's store."""
        url = str(file.get("url"))
        if not re.fullmatch(rf"/v1/runs/{self._run_id}/files/[\w-]+", url):
            return file
        try:
            kind, content = await self._client.fetch_file(url)
        except ServerProblem as problem:
            log.warning("Callboard: a file of a tool is lost: %s", problem)
            return file
        return file | {"url": await self._store(str(file.get("name") or "file"), kind, content)}

    async def _ask(self, question: Json) -> None:
        """Ask the user, after the questions of this page that came before, and tell the server."""
        value: bool | str | None = None
        is_asked = self._ask_user is not None
        seconds = question.get("timeout_seconds")
        began_at_seconds = time.monotonic()
        try:
            async with (
                asyncio.timeout(seconds if isinstance(seconds, (int, float)) else None),
                self._queue.wait() as ticket,
            ):
                if self._ask_user:
                    # The page of a new chat drops what comes before it knows the chat's id (0.9 to 0.11).
                    await asyncio.sleep(self._page_is_ready_at_seconds - time.monotonic())
                    if not self._transcript.is_waiting(question):
                        return
                    began_at_seconds = time.monotonic()
                    answer = await self._ask_user(make_dialog(question, self._agent_name, ticket.show()))
                    value = read_answer(question, answer)
                    is_asked = not is_without_page(answer, time.monotonic() - began_at_seconds)
        except TimeoutError:
            log.info("Callboard: the user gave no answer in time")
        except Exception as error:
            is_asked = time.monotonic() - began_at_seconds >= LEAST_SHOWN_SECONDS
            log.warning("Callboard: the user gave no answer (%s)", type(error).__name__, exc_info=True)
        # Where the server does not take it, the call has ended in the meantime.
        with suppress(ServerProblem):
            await self._client.answer(self._run_id, question.get("request_id"), value, asked=is_asked)

    def _leave(self, reader: asyncio.Task[None]) -> None:
        """End the connection in the background, and the run where it has not ended: nothing may be awaited here."""
        if self._has_left:
            return
        self._has_left = True
        for question in self._questions.values():
            question.cancel()
        task = asyncio.create_task(self._client.leave(reader, None if self._transcript.ended else self._run_id))
        background_tasks.add(task)
        task.add_done_callback(background_tasks.discard)


# --- Pipe: what Open WebUI calls. -----------------------------------------------------------------------------------


def build_request(body: Json, user: Json, groups: list[str], metadata: Json, task: str | None) -> Json:
    """Return the body of `POST /v1/runs`; temporary chats are not kept, nor channels, which belong to no one user."""
    model = str(body.get("model", ""))
    chat_id = str(metadata.get("chat_id") or "")
    if chat_id.startswith(("local:", "temporary:", "channel:")):
        chat_id = ""
    known: Json = {}
    if user.get("id"):
        known = {name: str(user[name]) for name in ("id", "name", "email", "role") if user.get(name)}
        known["groups"] = groups
    return {
        "agent": model.partition(".")[2] or model,
        "chat_id": chat_id or None,
        "message_id": metadata.get("message_id") or None,
        "user": known or None,
        "messages": select_dicts(body.get("messages")),
        "task": str(task) if task else None,
        "options": {name: body[name] for name in body if name not in NOT_PARAMETERS and body[name] is not None},
        "run_id": uuid.uuid4().hex,
    }


# Open WebUI tells a function its id by the name of its module, which has a number behind it in some versions.
FUNCTION_ID = re.sub(r"^function_|_[0-9a-f]{32}$", "", __name__)


def make_inspector_line(url: str, request: Json) -> str:
    """Return the status line that leads to a run's page in the inspector.

    It is text: the links that Open WebUI draws in a status line send their address to Google for an icon.
    """
    place = {"id": request["run_id"], **({"chat": request["chat_id"]} if request["chat_id"] else {})}
    return f"Inspector: {url.rstrip('/')}/run?{urlencode(place)}"


class Pipe:
    """The object that Open WebUI loads: one for all users, so it holds nothing of a request."""

    class Valves(BaseModel):
        """Settings of an admin."""

        CALLBOARD_URL: str = Field(
            default="http://127.0.0.1:8700",
            description="Where the Callboard server listens.",
        )
        CALLBOARD_API_KEY: str = Field(
            default="",
            description="The server's key, if any.",
            json_schema_extra={"input": {"type": "password"}},
        )
        RESULT_CHARS: int = Field(
            default=10_000,
            ge=0,
            description="Where results are cut for display, in characters.",
        )
        RENDERING: Literal["details", "native"] = Field(
            default="details",
            description="How tool calls are drawn.",
        )
        ACCESS: str = Field(
            default="",
            description="Who sees agents that Open WebUI has no entry of yet: everyone, admins or group:NAME.",
        )
        RECALL: bool = Field(
            default=True,
            description="What agents know of a user from earlier chats is told to them.",
        )
        INSPECTOR_URL: str = Field(
            default="",
            description="The inspector's address in an admin's browser; admins then see the address of each run.",
        )

    def __init__(self) -> None:
        self.valves = self.Valves()
        self.timing = Timing()
        self._agents: list[Json] = []
        self._adding = asyncio.Lock()

    async def pipes(self) -> list[Json]:
        """Return the agents for the model list; those last known and what is wrong where the server cannot be used."""
        client = self._connect()
        problems = []
        try:
            # Kept, or Open WebUI would take the chats of a server that is being restarted to another model.
            self._agents = await client.list_models()
        except ServerProblem as problem:
            log.warning("Callboard: %s", problem)
            valve = "CALLBOARD_API_KEY" if "CALLBOARD_API_KEY" in str(problem) else "CALLBOARD_URL"
            name = f"Callboard: {str(problem).partition('. ')[0]} (valve {valve})"
            problems.append({"id": "unreachable", "name": name})
        if self.valves.ACCESS:
            # Pages ask for the list at the same time, and an entry is added once.
            async with self._adding:
                await add_entries(FUNCTION_ID, self._agents, self.valves.ACCESS)
        return [*({"id": agent["id"], "name": agent["name"]} for agent in self._agents), *problems]

    async def pipe(
        self,
        body: Json,
        __user__: Json | None = None,
        __metadata__: Json | None = None,
        __task__: str | None = None,
        __event_call__: AskUser | None = None,
        __request__: object = None,
    ) -> str | AsyncGenerator[Json, None]:
        """Return one answer: a stream, or a `str` where Open WebUI wants none or a background task's text."""
        try:
            user = __user__ or {}
            metadata = __metadata__ or {}
            model = str(body.get("model", ""))
            is_streamed = bool(body.get("stream")) and not __task__

            groups = await list_groups(str(user["id"])) if user.get("id") else []
            request = build_request(body, user, groups, metadata, __task__)
            if not self.valves.RECALL:
                request["recall"] = False
            await attach_files(user, metadata, request["messages"])

            async def store(name: str, kind: str, content: bytes) -> str:
                return await store_file(__request__, user, name, kind, content)

            totals = await read_totals(metadata) if is_continued(body) else None
            transcript = Transcript(self.valves.RESULT_CHARS, metadata.get("sources"), totals=totals)
            if self.valves.INSPECTOR_URL and user.get("role") == "admin":
                transcript.activity.opening = make_inspector_line(self.valves.INSPECTOR_URL, request)
            client = self._connect(request["user"])
            run = Run(
                client=client,
                run_id=request["run_id"],
                read=partial(client.run, request),
                emitter=(
                    choose_emitter(VERSION, self.valves.RENDERING, model, metadata)
                    if is_streamed
                    else ChunkEmitter(model)
                ),
                transcript=transcript,
                store=store,
                ask_user=None if __task__ else __event_call__,
                queue=find_queue(__request__, user.get("id"), metadata),
                agent_name=self._name_agent(model),
                page_seconds=self.timing.page_seconds,
            )
            if is_streamed:
                return run.stream()
            return await run.plain_text() if __task__ else await run.text()
        except Exception:
            log.exception("Callboard: the request could not be made")
            return "" if __task__ else NOTICE + PIPE_FAILED

    # What `callboard_events.py` asks for, the function beside this one that hears of Open WebUI's events.

    async def find_answer(self, user_id: str, chat_id: str, message_id: str) -> LeftAnswer | None:
        """Return what the server has of the answer to a message; None while that cannot be known."""
        try:
            return await self._connect({"id": user_id}).find_answer(chat_id, message_id)
        except NotThere:
            return LeftAnswer("", [])
        except ServerProblem as problem:
            log.info("Callboard: an answer cannot be looked for: %s", problem)
            return None

    def restore(
        self,
        answer: LeftAnswer | None,
        user: Json,
        metadata: Json,
        model: str,
        request: object,
        ask_user: AskUser,
    ) -> AsyncGenerator[Json, None]:
        """Return an answer anew that Open WebUI was stopped in, up to its end; of one that is lost, why.

        Args:
            answer: What `find_answer` has found last; None where the server stayed away.
            user: The user that it is for.
            metadata: Of the message: its ids, and the `sources` that it has.
            model: The id of its model.
            request: A request of Open WebUI's, for its file store.
            ask_user: Asks what the agent may have to ask.
        """
        client = self._connect({"id": str(user["id"])})

        async def deliver_rows(deliver: Deliver) -> None:
            deliver({"type": "run_start"})
            if not answer or not answer.rows:
                raise client.lost(is_away=answer is None)
            for event in read_rows(answer.rows):
                deliver(event)

        async def store(name: str, kind: str, content: bytes) -> str:
            return await store_file(request, user, name, kind, content)

        run = Run(
            client=client,
            run_id=answer.run_id if answer else "",
            read=partial(client.follow, answer.run_id) if answer and answer.is_logged else deliver_rows,
            emitter=choose_emitter(VERSION, self.valves.RENDERING, model, metadata),
            transcript=Transcript(self.valves.RESULT_CHARS, metadata.get("sources"), is_late=True),
            store=store,
            ask_user=ask_user,
            queue=find_queue(request, user["id"], metadata),
            agent_name=self._name_agent(model),
            page_seconds=self.timing.page_seconds,
        )
        return run.stream()

    async def forget_chat(self, user_id: str, chat_id: str) -> bool:
        """Let the server forget a chat of the user's; false where it could not."""
        return await self._forget(self._connect({"id": user_id}).forget_chat(chat_id))

    async def forget_chats(self, user_id: str, begun_before: float) -> bool:
        """Let the server forget all chats of the user that began before then, in Unix seconds; false as above."""
        return await self._forget(self._connect({"id": user_id}).forget_chats(begun_before))

    async def _forget(self, forgetting: Awaitable[None]) -> bool:
        try:
            await forgetting
        except ServerProblem as problem:
            log.warning("Callboard: what was deleted in Open WebUI is not forgotten yet: %s", problem)
            return False
        return True

    def _name_agent(self, model: str) -> str:
        """Return the agent's name; its id if the server's list was not read yet.

        Open WebUI's own `metadata["model"]` is the first model of a chat that has several.
        """
        agent_id = model.partition(".")[2] or model
        return next((str(agent["name"]) for agent in self._agents if agent["id"] == agent_id), agent_id)

    def _connect(self, user: Json | None = None) -> ServerClient:
        return ServerClient(self.valves.CALLBOARD_URL, self.valves.CALLBOARD_API_KEY, self.timing, user)
