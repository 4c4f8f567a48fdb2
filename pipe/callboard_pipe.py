"""
title: Callboard
author: Callboard
version: 0.1.0
license: MIT
description: Every tool call of an agent: live, in place, and remembered. Needs a Callboard server (callboard serve).
required_open_webui_version: 0.11.4
"""

# Admins paste this file into Open WebUI, so it is one file and imports only packages that Open WebUI ships.
# From top to bottom:
#
#   Limits            timeouts and size limits
#   Texts             the texts that users read
#   Page              the parameters of an answer
#   Server events     reads events from the server's byte stream
#   Answer            turns events into the text of an answer and the status lines above it
#   Emission          sends changes of an answer in the form that the valve RENDERING names
#   Server client     HTTP
#   Open WebUI        its users, its file store, its tools and its dialogs
#   AnswerStream      streams one answer, from its first event to its last
#   Pipe              the class that Open WebUI calls, and the valves

import asyncio
import base64
import html
import io
import itertools
import json
import logging
import math
import random
import re
import ssl
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, TypeVar
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
T = TypeVar("T")

OLDEST = (0, 11, 4)  # Of Open WebUI; before it, an item that is added again does not replace the first one.


# --- Limits ---------------------------------------------------------------------------------------------------------

TOKEN_SECONDS = 300  # Lifetime of a user's token, the same as for Open WebUI's own tokens.
# How often a question looks for new pages. A dialog that is open for this time was shown, because Open WebUI reports an
# error at once if a session has no page.
PAGE_POLL_SECONDS = 1.0
FORM_TIMEOUT_MS = 240_000  # The longest time that Open WebUI allows for a form.
RESUME_JITTER = 0.25  # As a fraction of the wait, so that pipes do not all reconnect at the same moment.


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and waits of the pipe.

    Attributes:
        connect_seconds: Timeout for a connection to the server.
        read_seconds: Timeout for the next bytes. The server pings every 15 s, so four pings were missed by then.
        models_seconds: Timeout for the model list.
        resume_seconds: How long to try to resume a stream, since the last new event.
        resume_waits_seconds: The wait before each try to resume; the last value is repeated.
        page_seconds: From the start of a new chat until its page knows the chat's id.
    """

    connect_seconds: float = 5.0
    read_seconds: float = 60.0
    models_seconds: float = 3.0
    resume_seconds: float = 20.0
    resume_waits_seconds: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    page_seconds: float = 1.0

    def resume_waits(self) -> Iterator[float]:
        """Yield the wait before each try: the first, and all others that begin within `resume_seconds` from now."""
        until_seconds = time.monotonic() + self.resume_seconds
        first, *others = self.resume_waits_seconds
        yield first
        for wait_seconds in itertools.chain(others, itertools.repeat(self.resume_waits_seconds[-1])):
            if time.monotonic() + wait_seconds > until_seconds:
                return
            yield wait_seconds


# Limits on the rate of changes: a changed item is sent again as a whole, and the page then redraws every item.
UPDATE_INTERVAL_SECONDS = 0.1
SENT_CHARS_PER_SECOND = 400_000
DRAWN_ITEMS_PER_SECOND = 4_000
ITEM_CHARS = 20_000
EVENTS_AT_ONCE = 4

# A status rewrites the whole chat in Open WebUI's database.
STATUS_INTERVAL_SECONDS = 1.0

# The status lines above an answer.
LINES_AT_ONCE = 8
CALLS_NAMED = 5  # Calls of one title that get a line each, and that a group of cards names each.
MAX_LINES = 200

# Limits on the length of texts.
LABEL_CHARS = 80
NOTICE_CHARS = 1_000
CUT_LINE_CHARS = 40
LONG_CHARS = 1_000  # The card of a longer result says its length.
ROWS_DRAWN = 20
COLUMNS_DRAWN = 20
CELL_CHARS = 200
PREVIEW_BYTES = 1_000_000  # Open WebUI's file dialog shows the text of files up to this size.

TOOL_RESULT_CHARS = 500_000  # Of Open WebUI's tools; sent to the server and to the model.

# More tools than any model accepts. Longer names are refused by OpenAI's API.
MAX_TOOLS = 512
MAX_TOOL_ID_CHARS = 1_024
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ACCEPTED_NAME = re.compile(r"[A-Za-z0-9_-]+")  # As in `callboard_filter.py`.


# All other fields of a request's body are parameters for the model, for example temperature.
NOT_PARAMETERS = {"model", "messages", "stream", "stream_options", "metadata", "files", "tools", "tool_choice"}


# --- Texts ----------------------------------------------------------------------------------------------------------

NOTICE = "> **Callboard:** "  # The server recognises notices by this prefix and removes them before the model reads.
SAID = "> **You:** "  # Begins a message of the user to the run; the server replays the stored message at this place.
LABEL = " · "  # Between the title of a call, its argument and notes, on its card and in its label from the server.
ARGUMENTS_CHANGED = "arguments changed"  # On the card of a call whose arguments the user has changed.
FROM_TEXT = "from text"  # On the card of a call that the server parsed from the model's text.
QUESTION = (
    "\u200b\u200b"  # Without width; begins the lines above pending cards. The server removes these lines as well.
)
INNER = "↳ "  # Prefix of the line for a call inside another one; the server removes these lines as well.
THINKING = "Thinking…"
ENDED = "done"
NOT_SHARED = "Not shared with you, or deleted: "
ANSWERED = "Answered"
RECONNECTING = "Reconnecting…"
TAKEN_BACK = "\n\n> The answer starts again. Ignore the text above that follows the last tool call.\n\n"
MAY_GO_ON = ". Its tool was asked to stop, but cannot be forced to stop: it may continue for a while."
FINISH_NOTICES = {
    "length": "The answer was cut at the model's length limit.",
    "content_filter": "The answer was cut by the content filter of the model's endpoint.",
    "refusal": "The model refused to answer.",
    "max_turns": "The agent was stopped: it reached its limit of turns for one answer.",
    "cancelled": "Stopped.",
    "stored": "Open WebUI was stopped during this answer. Only its text and its tool calls could be restored.",
}
IF_DECLINED = "If you cancel or close this, the call is refused: it does not run, and the agent continues without it."
WAITS = "Waits for your approval"  # The last status line of an answer that waits.
NOT_APPROVED = "Error: Not run: the user has not approved it."
RUNS_LATER = "Allowed. It has not run yet: it runs when the other questions of this answer are answered."
ANSWERED_ELSEWHERE = "answered elsewhere first"  # On a card whose answer came too late.
IN_INSPECTOR = " in the inspector"  # In texts of the server about a call that a person in the inspector has answered.
APPROVAL_LOST = "Error: Callboard could not run this call: "
NO_FILTER = (
    "Open WebUI found no tool for the card above, because its function “Callboard approvals” is missing or inactive. "
    "Your answer still counts; the call below shows it. An admin can install the function: callboard install-pipe."
)
OTHER_ANSWER = "Or in your own words"
WORDS = "Or say what to do instead"
IF_WORDS = "If you write something here, or close this, the call does not run."
BY_NUMBER = "A number, or the words"
IF_EMPTY = "Leave it empty to skip it."
ONCE = "Allow once"
ALWAYS = "Allow always in this chat"
MARK = "▸"  # Before the name of an argument; an escape everywhere else.
ARGUMENT = "argument "  # Begins the names of arguments in a form, which also has the decision and the words.
OPEN_URL = "Open this address, then confirm:"
NOT_READ = "[The tool has run, but {parts} could not be read. Open WebUI's log has the reason.]"
STOPPED_BY_USER = "Stopped by the user"
PIPE_FAILED = "The pipe failed; the reason is in Open WebUI's log."
TOO_OLD = "Callboard needs Open WebUI 0.11.4 or later; this is {version}."
CANNOT_REACH = (
    "Cannot reach the Callboard server at {url}. Is it running (callboard serve)? "
    "The address is the valve CALLBOARD_URL."
)
NOT_CALLBOARD = "{url} did not answer like a Callboard server. Check the address in the valve CALLBOARD_URL."
BAD_KEY = "The key in the valve CALLBOARD_API_KEY cannot be sent: it may only have ASCII characters and no spaces."
FORGOTTEN = "Open WebUI was stopped during this answer, and the Callboard server has not stored it: ask again."
STAYED_AWAY = (
    "Open WebUI was stopped during this answer, and the Callboard server at {url} could not be used: ask again."
)
LOST = (
    "The connection to the Callboard server at {url} was lost and the answer could not be resumed: the server was "
    "restarted, cannot be reached, or no longer has the run's log."
)


@dataclass(frozen=True, slots=True)
class CallEnding:
    """How a call without a result ended.

    `label`: text on the card and in the status lines. `words`: shown in place of the error's message; empty to show
    that message. `is_failure`: the words are an error. `has_run`: the tool was started, so the call has a duration.
    `card`: the status of the card; Open WebUI draws "rejected" as "Denied".
    """

    label: str
    words: str = ""
    is_failure: bool = False
    has_run: bool = True
    card: Literal["failed", "rejected"] = "failed"


# By error code, as in the server's `callboard_protocol/endings.py`; all other codes are failures.
FAILED = CallEnding("failed", is_failure=True)
ENDINGS = {
    "denied": CallEnding("declined", "Declined: it was not run.", has_run=False, card="rejected"),
    "not_asked": CallEnding("not asked", "Not run: the question could not be asked.", has_run=False),
    "not_answered": CallEnding("not answered", "Not run: no valid answer came.", has_run=False),
    "cancelled": CallEnding("stopped"),
    "timeout": CallEnding("timed out", is_failure=True),
    "limit": CallEnding("over the limit", "Error: over the limit of calls.", is_failure=True, has_run=False),
}


# The messages of the status "processing" after a question of a call, as in the server's `calls/approval.py` and
# `calls/runner.py`, and the prefix of the id of a question that is asked again because its answer did not fit.
ANSWERED_MESSAGES = (
    "approved",
    "approved in the inspector",
    "allowed always in this chat",
    "the other calls are decided",
    "answered",
    "no answer",
)
ASKED_AGAIN = "again"

# The states of Open WebUI's tasks: of the current task, of the other tasks that are left to do, and of ended tasks.
TASK_STATES = ("in_progress", "pending", "completed", "cancelled")


# --- Page: the parameters of an answer. -----------------------------------------------------------------------------


def is_release(*release: int) -> bool:
    """Return whether this is Open WebUI of that release or later; an unknown version counts as the newest."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", VERSION)[:3])
    return numbers >= release or not any(numbers)


AskUser = Callable[[Json], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Page:
    """The parameters that Open WebUI passes for an answer.

    Attributes:
        model: The id of the model.
        user: The user who gets the answer.
        metadata: Open WebUI's own object, which gets the tools of calls that wait for approval.
        request: Open WebUI's request.
        ask_user: Asks the user; None if nobody can be asked.
    """

    model: str
    user: Json
    metadata: Json
    request: Any = None
    ask_user: AskUser | None = None

    @property
    def agent_id(self) -> str:
        """The agent's id on the server, which follows the id of this function."""
        return self.model.partition(".")[2] or self.model

    @property
    def chat_id(self) -> str:
        """The chat's id; "" without a chat."""
        return str(self.metadata.get("chat_id") or "")

    @property
    def message_id(self) -> str:
        """The id of the answer's message; "" without a chat."""
        return str(self.metadata.get("message_id") or self.metadata.get("assistant_message_id") or "")

    @property
    def session_id(self) -> str:
        """The id of the browser's page; "" if there is none."""
        return str(self.metadata.get("session_id") or "")

    @property
    def is_temporary(self) -> bool:
        """Whether the chat is one that Open WebUI does not store."""
        return self.chat_id.startswith(("local:", "temporary:"))

    @property
    def is_channel(self) -> bool:
        """Whether the answer is for a channel, which has several users."""
        return self.chat_id.startswith("channel:")

    @property
    def is_saved(self) -> bool:
        """Whether the chat is among Open WebUI's chats."""
        return bool(self.chat_id) and not self.is_temporary and not self.is_channel


# --- Server events: bytes to events. Pure. --------------------------------------------------------------------------

# Only the line ends of https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream:
# str.splitlines() would also split JSON at U+2028 or U+0085.
LINE_END = re.compile(rb"\r\n|\r|\n")
FRAME_END = re.compile(rb"\r\n\r\n|\r\r|\n\n")


class FrameDecoder:
    """Splits a byte stream, which arrives in chunks of any size, into frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Yield the last id so far and the data of each frame that the chunk completes."""
        *frames, self._rest = FRAME_END.split(self._rest + chunk)
        for frame in frames:
            data = []
            for line in LINE_END.split(frame):
                name, _, value = line.decode("utf-8", "replace").partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    data.append(value)
                elif name == "id":
                    self._id = value
            if data:
                yield self._id, "\n".join(data)


def read_event(data: str) -> Json | None:
    """Return the event in a frame's data; log and return None if it is not a JSON object with a `type`."""
    with suppress(ValueError, RecursionError):
        event = json.loads(data)
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            return event
    log.warning("Callboard: skipped a frame that cannot be read: %.80r", data)
    return None


def select_dicts(values: object) -> list[Json]:
    """Return the dicts in a list; an empty list if `values` is not a list."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


# --- Answer: events to text and status lines. Pure. -----------------------------------------------------------------

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

ARGUMENT_NAME = re.compile(r"^[^\s:]+:(?=\s|$)", re.MULTILINE)  # In the question whether a call may run.

# Open WebUI draws `<details` as a tool call or as reasoning, depending on its attributes, and reads the content of one
# without attributes again after decoding its entities. So a zero-width space breaks every such tag, except if the next
# character continues another tag's name. JavaScript has other space characters than Python, so none are listed here. At
# the end of a text, the tag's beginning is broken too: "Continue Response" may add the rest. So is a beginning before a
# citation: if the model's citations are switched off, Open WebUI removes `[1]` and the spaces before it. An entity
# instead of the zero-width space would not do, because it is not decoded in code.
UNSAFE = re.compile(r"<(?=details(?![A-Za-z0-9_/-])|d?e?t?a?i?l?s?[\s\ufeff]*(?:\[[0-9]|\Z))")
GUARDED = "<\u200b"

# A citation, and the end of a text that may be the start of a citation or a tag.
CITATION = re.compile(r"(?ai)[\[【]sources? ?\d{1,9}(?:[,;] ?(?:source ?)?\d{1,9})*[\]】]")
UNFINISHED = re.compile(r"(?i)(?:<d?e?t?a?i?l?s?[\s\ufeff]{0,200}\[?|[\[【][source0-9 ,;]{0,200})\Z")

LINE_BREAK = re.compile(r"\r\n|\r|\n")

# Constructs that would swallow a following block: code fences, and HTML blocks of CommonMark 4.6, kinds 1 to 5.
FENCE = re.compile(r"( *(?:(?:[-*+]|[0-9]{1,9}[.)]) +)*)(`{3,}(?=[^`]*$)|~{3,})")
HTML_BLOCK = re.compile(r"(?ai) {0,3}<(?:(script|pre|style|textarea)(?![\w-])|(!--|\?|!\[CDATA\[|![A-Z]))")
HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}


def close_markdown(text: str) -> str:
    """Return the text that closes an open code fence or HTML block, so that it does not swallow a following block."""
    end = ""
    for line in LINE_BREAK.split(text):
        fence = end.lstrip(" ")
        if not end:
            end = find_end_of_opened(line)
        elif fence.startswith(("`", "~")):
            marks = line.lstrip(" \t").rstrip(" ")
            if marks.startswith(fence) and not marks.strip(fence[0]):
                end = ""
        elif end in line.lower():
            end = ""
    return f"\n{end}" if end and not text.endswith(("\n", "\r")) else end


def find_end_of_opened(line: str) -> str:
    """Return the end marker of a code fence or HTML block that this line opens and does not close; otherwise ""."""
    if fence := FENCE.match(line):
        return " " * len(fence[1]) + fence[2]
    block = HTML_BLOCK.match(line)
    if not block:
        return ""
    end = f"</{block[1]}>".lower() if block[1] else HTML_ENDS.get(block[2].lower(), ">")
    # `<!-->` is a complete comment: its start and end share the dashes.
    rest_from = block.end() - 2 if block[2] == "!--" else block.end()
    return "" if end in line[rest_from:].lower() else end


def separate(before: str, text: str) -> str:
    """Return what belongs between a text and its continuation: a space before a new sentence, otherwise nothing."""
    ends, begins = before[-1:], text[:1]
    if before.endswith(("```", "~~~", ">")) and not begins.isspace():
        # A fence or HTML ends only at the end of a line.
        return "\n\n"
    is_after_stop = ends != "" and ends in ".!?:;,)" and begins.isalpha() and not begins.islower()
    return " " if is_after_stop or (ends.isalnum() and begins.isupper()) else ""


def make_storable(text: str) -> str:
    """Replace NUL, which PostgreSQL refuses, and lone surrogates, which UTF-8 cannot encode.

    Either one would make Open WebUI fail to save the whole answer.
    """
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def escape(text: str) -> str:
    """Escape the text for an attribute, also from Open WebUI, which replaces {{user}} etc. anywhere in a message."""
    return html.escape(text).replace("{{", "&#123;&#123;")


def break_markup(text: str) -> str:
    """Break tags and lines, which would break the block of a call, and links, for where it is not drawn as a block."""
    return CONTROL.sub(" ", text).replace("<", "‹").replace(">", "›").replace("](", "] (")


def escape_label(text: str) -> str:
    """Return the text of a label for an attribute; Open WebUI draws an escaped character as its code."""
    return re.sub(r"\{(?=\{)", "{ ", break_markup(text).replace('"', "”"))


def format_seconds(seconds: float) -> str:
    """Return the time for display: "2.5 s", "12 s"."""
    if seconds < 0.1:
        return "under 0.1 s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def format_duration(event: Json) -> str:
    """Return how long the call that an event ends has run; empty if it never ran or the time is unknown."""
    duration_ms = event.get("duration_ms")
    has_run = ENDINGS.get(str(event.get("code")), FAILED).has_run
    return format_seconds(duration_ms / 1000) if isinstance(duration_ms, int) and has_run else ""


def read_progress(data: Json) -> float | None:
    """Return the progress that a tool reports, in percent; None if it reports none."""
    progress = data.get("progress")
    return progress if isinstance(progress, (int, float)) and 0 <= progress <= 100 else None


def format_percent(data: Json) -> str:
    """Return the progress that a tool reports, with a space after it: "45% "; empty if it reports none."""
    progress = read_progress(data)
    return "" if progress is None else f"{progress:.0f}% "


# An answer is a list of pieces. Neighbouring calls and thoughts form one segment, which Open WebUI draws as a group.
# Each text and each notice is a segment of its own. A segment is a message item: Open WebUI parses each item's Markdown
# by itself, so whatever a text leaves open cannot swallow a card.


@dataclass(slots=True)
class Piece:
    """One piece of an answer; `segment` is the number of the group to which it belongs."""

    is_block: ClassVar[bool] = False
    is_open: bool = False
    segment: int = 0

    def render(self) -> str:
        """Return the piece as text of the answer."""
        raise NotImplementedError


@dataclass(slots=True)
class Text(Piece):
    """Text of the model.

    `held_back`: the end of the text, while it may be the start of a tag or a citation. `closing`: closes code fences
    and HTML that the text leaves open.
    """

    text: str = ""
    held_back: str = ""
    closing: str = ""

    def render(self) -> str:
        """Return the text, after which a block may follow."""
        return self.text + self.closing


@dataclass(slots=True)
class Notice(Piece):
    """A message of the pipe itself: one line of Markdown, after an empty line."""

    text: str = ""

    def render(self) -> str:
        """Return the line."""
        return self.text


@dataclass(slots=True)
class Thought(Piece):
    """The model's reasoning; `seconds` is how long it took, None if that is unknown."""

    is_block: ClassVar[bool] = True
    round: ClassVar[str] = "0"  # The same as for calls that have not started.
    text: str = ""
    began_at_seconds: float = 0.0
    seconds: int | None = None

    @property
    def shown_text(self) -> str:
        """The text with broken tags: Open WebUI draws it as Markdown."""
        return UNSAFE.sub(GUARDED, self.text)

    def render(self) -> str:
        """Return the `<details>` block that Open WebUI draws as reasoning."""
        state = 'done="false"' if self.is_open else 'done="true"'
        if self.seconds is not None:
            state += f' duration="{self.seconds}"'
        lines = escape("\n".join(f"> {line}" for line in self.shown_text.splitlines()))
        return f'<details type="reasoning" {state}>\n<summary>Thought</summary>\n{lines}\n</details>'


@dataclass(slots=True)
class Call(Piece):
    """A tool call.

    The card shows the title and, after it, `mark`, `label` and `took`.

    Attributes:
        title: The tool's name for people, with the argument that distinguishes this call from others, or with
            `ARGUMENTS_CHANGED`; "" for the tool's name alone.
        is_counted: The card shows neither that argument nor the time: Open WebUI counts equal names in a group.
        mark: A note that stays on the card.
        label: A note that changes while the call runs.
        took: How long the call ran.
        show: The form of the result, as its tool declares it: "table", "markdown", "code", "code:LANGUAGE", or "text"
            for the card alone; "" to choose by the result.
        size: The length of a result that is long or drawn below the card.
        drawn: The Markdown that draws the result below the card, escaped; "" if the card is enough.
        draft: The arguments that the model has written so far.
        arguments: The complete arguments as JSON text.
        round: The number of the model's response that made the call. The server reads it back on the next turn.
        parent: The call whose agent made this call.
        inner: The calls made by an agent inside this call. Each is a line above the result, not a card of its own.
        questions: Whether the user has answered each question of the call, by the question's id.
        asked: The text of the newest question whether the call may run: its arguments, and why it is asked.
    """

    is_block: ClassVar[bool] = True
    id: str = ""
    name: str = "tool"
    title: str = ""
    is_counted: bool = False
    mark: str = ""
    label: str = ""
    took: str = ""
    show: str = ""
    size: str = ""
    drawn: str = ""
    state: Literal["preparing", "running", "done", "failed", "rejected"] = "preparing"
    draft: str = ""
    arguments: str = "{}"
    result: str = ""
    files: list[Json] = field(default_factory=list)
    round: str = "0"
    stoppable: bool = True
    parent: "Call | None" = field(default=None, compare=False, repr=False)
    inner: list["Call"] = field(default_factory=list)
    questions: dict[str, bool] = field(default_factory=dict)
    asked: str = ""

    @property
    def shown_id(self) -> str:
        """The call's id, escaped for the attribute `id` of its block."""
        return escape(break_markup(self.id))

    @property
    def shown_arguments(self) -> str:
        """The arguments for the card; "" if there are none, because Open WebUI draws a heading above `{}`."""
        return "" if self.arguments == "{}" else self.arguments

    @property
    def short_title(self) -> str:
        """The title without the argument."""
        return self.title.partition(LABEL)[0] or self.name

    @property
    def shown_name(self) -> str:
        """The name of the card."""
        parts = [self.short_title if self.is_counted else self.title or self.name, self.mark, self.label]
        parts += [] if self.is_counted else ["" if self.drawn else self.size, self.took]
        title = LABEL.join(filter(None, parts))
        # Open WebUI adds three dots to the name of a running call.
        return title.rstrip("·.… ") if self.is_open else title

    def list_inner(self, indent: str = "") -> Iterator[str]:
        """Yield a line for each call inside this one, at any depth."""
        for call in self.inner:
            yield f"{INNER}{indent}{CONTROL.sub(' ', call.shown_name)}"
            yield from call.list_inner(f"{indent}  ")

    def update_parent_labels(self) -> None:
        """Show the progress of this call on the cards of the calls that contain it."""
        if self.parent and self.parent.is_open:
            self.parent.label = self.shown_name
            self.parent.update_parent_labels()

    def render(self) -> str:
        """Return the `<details>` block that Open WebUI draws as a tool call."""
        attributes = {"type": "tool_calls", "done": "false" if self.is_open else "true"}
        if self.state == "running":
            # With done="false", Open WebUI shows "Executing" for this status, and "Preparing" without one.
            attributes["status"] = "completed"
        elif self.state in ("failed", "rejected"):
            attributes["status"] = self.state
        attributes["id"] = self.shown_id
        attributes["name"] = escape_label(self.shown_name)
        attributes["tool"] = escape(break_markup(self.name))
        # JSON is ASCII on one line. A raw line end or U+2028 would drop an attribute, a raw `>` the whole block.
        attributes["arguments"] = escape(self.shown_arguments)
        if not self.is_open:
            attributes["result"] = escape(json.dumps(self.result))
        if self.files:
            attributes["files"] = escape(json.dumps(self.files))
        attributes["round"] = self.round
        # Where an answer is one text, it ends the search for a formula or a definition of a link that begins above.
        attributes["math"] = " $$ [("
        tag = " ".join(f'{name}="{value}"' for name, value in attributes.items())
        return f"<details {tag}>\n<summary>Tool Executed</summary>\n</details>"

    def show_status(self, data: Json) -> None:
        """Make the tool's newest status event the label of the running call's card."""
        if self.state != "running":
            return
        if data.get("status") == "from_text":
            self.mark = FROM_TEXT
            return
        if data.get("arguments") is not None:
            self.arguments = json.dumps(data["arguments"])
            self.title = f"{self.short_title}{LABEL}{ARGUMENTS_CHANGED}"
            return
        message = str(data.get("message") or "").strip()[:LABEL_CHARS]
        if data.get("status") == "elsewhere":
            self.mark = message
            return
        self.label = (format_percent(data) + message).strip()
        if data.get("status") == "processing" and message in ANSWERED_MESSAGES:
            if message.endswith(IN_INSPECTOR):
                self.mark = message
            still_open = [request_id for request_id, is_answered in self.questions.items() if not is_answered]
            # The status does not name its question. A question that is asked twice is better than one that never is.
            if len(still_open) == 1:
                self.questions[still_open[0]] = True

    def show_question(self, question: Json) -> None:
        """Show on the card that the call waits for the user."""
        request_id = str(question.get("request_id"))
        for earlier in self.questions:
            # Asked again because its answer did not fit.
            if find_first_question(earlier) == find_first_question(request_id):
                self.questions[earlier] = True
        self.questions[request_id] = False
        if is_approval(question):
            self.asked = str(question.get("message") or "")
        self.label = "waiting for approval" if is_approval(question) else "waiting for you"


def find_first_question(request_id: str) -> str:
    """Return the id of the question that was first asked, if this one asks it again."""
    return request_id.partition(":")[2] if request_id.startswith(ASKED_AGAIN) else request_id


def is_approval(question: Json) -> bool:
    """Return whether the question is whether a call may run."""
    return question.get("kind") == "confirmation" and bool(question.get("tool_call_id")) and not question.get("url")


def split_segments(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Return the pieces of each segment."""
    return [[*segment] for _, segment in groupby(pieces, key=lambda piece: piece.segment)]


def render(pieces: Iterable[Piece]) -> str:
    """Return the text of complete segments. Blocks start with the blank line that they need."""
    texts = []
    for segment in split_segments(pieces):
        if segment[0].is_block:
            blocks = "\n".join(piece.render() for piece in segment)
            results = draw_results(segment)
            texts.append(f"\n{blocks}\n" + (f"\n{results}\n" if results else ""))
        else:
            texts.append(segment[0].render())
    return "\n".join(texts)


# Results that are easier to read than in a card are drawn below the group of cards, folded. Results are untrusted, so
# their Markdown is not cleaned but written anew: tables from the parsed data, fences that are longer than any in the
# code, and in all other text an invisible joiner (U+2060) behind each character that could begin HTML, a formula, a
# citation, a definition or a link without http. The joiner works whatever the text around it is, so nothing depends on
# how a parser understands the text. The whole is escaped once more, because Open WebUI decodes the content of a block.

DANGEROUS = re.compile(
    r"<(?=[A-Za-z/!?@#$])|!(?=\[)|\$(?![A-Za-z0-9])"
    r"|\\(?=[(\[cpb])|\[(?=[\d^!])|\](?=:|\((?!https?://))|:(?=::)|`(?=``)|~(?=~~)"
    r"|^(?:[ \t]*+(?:>|(?:[*+-]|\d+[.)])(?=[ \t]))){8}",  # Deeper nesting overflows the stack of Open WebUI's parser.
    re.MULTILINE,
)
FENCED = re.compile(r"(?ms)^( *+)(`{3,}+|~{3,}+) *+([\w+#-]*+)[^`\n]*+\n(.*?)(?:^ *+\2[`~]*+ *+$|\Z)")
DIFF = re.compile(r"(?m)^(?:diff --git |--- .*\n\+\+\+ .*\n@@ )")
MARKDOWN = re.compile(r"(?m)^(?:#{1,6} \S.*\n[ \t]*+\n|\|? ?:?-{3,}:? ?\|)|\*\*\w[^*\n]*\*\*|\[[^\[\]\n]+\]\(https?://")
JSON = re.compile(r'\s*(?:\{|\[\s*["{\[])')
# Open WebUI runs blocks of other languages, or offers to do so: html, svg, javascript, mermaid, python.
INERT = {"bash", "c", "cpp", "diff", "go", "java", "json", "ruby", "rust", "sql", "toml", "typescript", "yaml"}


def draw_results(pieces: Iterable[Piece]) -> str:
    """Return the readable results of these calls as folded blocks, and many of them inside one block."""
    calls = [piece for piece in pieces if isinstance(piece, Call) and piece.drawn]
    blocks = "\n".join(fold(f"{call.title or call.name}: {call.size}", call.drawn) for call in calls)
    return blocks if len(calls) <= CALLS_NAMED else fold(f"{len(calls)} results", escape(blocks))


def fold(title: str, body: str) -> str:
    """Return a block that is folded until the reader opens it. The server removes it from the answer."""
    return f'<details type="result">\n<summary>{escape_label(title)}</summary>\n{body}\n</details>'


def make_readable(show: str, result: str, chars: int, limit: int, url: str = "") -> tuple[str, str]:
    """Return the size of a result and the escaped Markdown that draws it; "" instead of Markdown if the card is enough.

    `chars` is the length of the whole result, which the server may have cut; `limit`, how many characters are drawn.
    """
    shown = make_storable(result[:limit])
    size = count_things(chars, "character")
    rest = f"{chars - len(shown):,} more characters" if chars > len(shown) else ""
    is_cut = chars > len(result)
    if not shown.strip():
        show = "text"
    kind, _, language = (show or guess_form(shown)).partition(":")
    if show in ("", "table") and (rows := read_table(result, is_cut=is_cut, is_exact=not show)):
        body, count = draw_table(rows, limit)
        size = "more than " * is_cut + count_things(len(rows), "row")
        rest = "more rows" if is_cut else count_things(len(rows) - count, "more row") * (count < len(rows))
    elif kind == "markdown":
        body = draw_markdown(shown)
    elif kind == "code":
        body = draw_code(shown, language)
    else:
        return size * (chars > LONG_CHARS), ""
    if rest:
        body += escape_markdown(f"\n\n… {rest}{url and ': '}{url}")
    return size, escape(body)


def count_things(count: int, thing: str) -> str:
    """Return the number of things: "1 row", "1,200 rows"."""
    return f"{count:,} {thing}" + "s" * (count != 1)


def guess_form(text: str) -> str:
    """Return the form in which people read a text: "markdown", "code", "code:diff" or "text"."""
    ends = [line.rstrip()[-1] for line in text.splitlines() if line.strip()]
    if len(ends) < 2 or JSON.match(text):  # The card formats JSON.
        return "text"
    if FENCED.search(text):
        return "markdown"
    if DIFF.search(text):
        return "code:diff"
    if len(ends) > 2 and sum(end in "{}()[];:," for end in ends) * 2 > len(ends):
        return "code"
    return "markdown" if MARKDOWN.search(text) else "text"


def read_table(result: str, *, is_cut: bool, is_exact: bool) -> list[Json]:
    """Return the objects of a JSON list, which may be cut; with `is_exact` only if they have no lists and objects."""
    value: Any = None
    with suppress(ValueError):
        value = json.loads(result.rpartition("},")[0] + "}]" if is_cut else result)
    if isinstance(value, dict) and not is_exact:
        value = next((member for member in value.values() if isinstance(member, list)), None)
    rows = select_dicts(value)
    if not any(rows) or len(rows) < len(value):
        return []
    is_flat = not any(isinstance(cell, dict | list) for row in rows for cell in row.values())
    return rows if is_flat or not is_exact else []


def draw_table(rows: list[Json], limit: int) -> tuple[str, int]:
    """Return a table in Markdown, and the number of its rows; rows after the first ones are in a folded table."""
    keys = [*dict.fromkeys(key for row in rows for key in row)]
    columns = keys[:COLUMNS_DRAWN] + ["…"] * (len(keys) > COLUMNS_DRAWN)
    head = [draw_row(columns), "| --- " * len(columns) + "|"]
    drawn: list[str] = []
    for row in rows:
        drawn.append(draw_row(map(row.get, columns)))
        limit -= len(drawn[-1])
        if limit < 0:
            break
    table = "\n".join(head + drawn[:ROWS_DRAWN])
    if others := drawn[ROWS_DRAWN:]:
        table += "\n\n" + fold(count_things(len(others), "more row"), escape("\n".join(head + others)))
    return table, len(drawn)


def draw_row(values: Iterable[object]) -> str:
    """Return the values as a row of a table."""
    return f"| {' | '.join(map(draw_cell, values))} |"


def draw_cell(value: object) -> str:
    """Return a value as a cell of a table."""
    if value is None:
        return ""
    text = CONTROL.sub(" ", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).strip()
    return escape_markdown(text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}…")


def draw_code(code: str, language: str) -> str:
    """Return a fence around the code. The name of a language that Open WebUI may run is one that it does not know."""
    # Without citations, Open WebUI removes `[1]` and the space before it, which may join all marks in the code.
    marks = "`" * max(3, code.count("`") + 1)
    language = re.sub(r"[^\w+#-]", "", language)
    language = language.lower() if language.lower() in INERT else f"{language or 'text'}\u2060"
    return f"{marks}{language}\n{code.rstrip()}\n{marks}"


def draw_markdown(text: str) -> str:
    """Return Markdown that is drawn like this text, except HTML, formulas and other addresses; pictures are links."""

    def draw(found: re.Match[str]) -> str:
        indent, marks, language, code = found.groups()
        if marks:
            return f"\n{draw_code(re.sub(rf'(?m)^ {{0,{len(indent)}}}', '', code), language)}\n"
        return "\u2060[Image: " if found[0] == "![" else f"{found[0]}\u2060"

    return re.sub(rf"{FENCED.pattern}|!\[|{DANGEROUS.pattern}", draw, text).strip("\n")


def escape_markdown(text: str) -> str:
    """Return Markdown that is drawn as this text, inside a line; addresses become links."""
    escaped = re.sub(r"(https?://[^\s<>|`\\]+)|[\\`*_~|&\]]", lambda found: found[1] or f"\\{found[0]}", text)
    return DANGEROUS.sub("\\g<0>\u2060", escaped)


OPEN_CALL = re.compile(r'<details type="tool_calls" done="false" .*?id="([^"]*)".*?</details>', re.DOTALL)
OPEN_THOUGHT = '<details type="reasoning" done="false">'


def close_blocks(message: Json, pieces: Iterable[Piece]) -> Json:
    """Close the open calls of a stored message; return its new content and output, or an empty dict if none is open.

    `pieces` has the calls with their results.
    """
    calls = {piece.id: piece for piece in pieces if isinstance(piece, Call)}
    ended = {call.shown_id: call.render() for call in calls.values()}

    def close(text: str) -> str:
        text = text.replace(OPEN_THOUGHT, OPEN_THOUGHT.replace("false", "true"))
        # A call that was taken back meanwhile has no block.
        return OPEN_CALL.sub(lambda block: ended.get(block[1], ""), text)

    stored: Json = {"content": str(message.get("content") or ""), "output": select_dicts(message.get("output"))}
    output: list[Json] = []
    with_output = {item["call_id"] for item in stored["output"] if item.get("type") == "function_call_output"}
    for item in stored["output"]:
        call = calls.get(item.get("call_id", "")) if item.get("type") == "function_call" else None
        if item.get("type") == "message":
            item = item | {"content": [part | {"text": close(str(part.get("text", "")))} for part in item["content"]]}
        output.append(item)
        if call and call.id not in with_output:
            key = item["id"].removeprefix("fc_")
            output[-1:] = [make_call_item(call, key), make_output_item(call, key)]
    closed = {"content": close(stored["content"]), "output": output}
    return {} if closed == stored else closed


@dataclass
class Totals:
    """Number of calls, endings and seconds of an answer, including those from before it was continued.

    Open WebUI keeps the fields with the chat, so their names must not change.
    """

    calls: int = 0
    seconds: float = 0.0
    endings: Counter[str] = field(default_factory=Counter)

    def describe(self, how: str, *, has_time: bool) -> str:
        """Return the last status line of the answer: "2 calls, 1 failed, 3.2 s"."""
        calls = [count_things(self.calls, "call")] if self.calls else []
        # In an answer that was stopped or has failed, the calls that were open have ended in the same way.
        endings = [f"{count} {ending}" for ending, count in self.endings.items() if ending != how]
        took = [format_seconds(self.seconds)] if has_time else []
        return ", ".join(part for part in (how, *calls, *endings, *took) if part)


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A line of Open WebUI's status history.

    `is_transient`: sent only if it is the newest line when lines are sent. `totals`: set on the last line of an answer,
    so that they are kept with the chat in case the answer is continued.
    """

    words: str
    is_transient: bool = False
    totals: Totals | None = None


class Activity:
    """Makes the status lines of a run: its steps in order, and its totals at the end.

    There are no lines before `run_start`. Starts and successful ends of calls are transient, because cards show all
    calls. The time counts while the run works: not while every open call waits for the user. Status events of a call
    that repeat the previous message add no line, unless the progress has reached the next quarter. An answer without
    calls and status events has no lines. `address` is the line before the last one. A plan is a line if `shows_plan` is
    true. `unshared` has the names of skills and knowledge that the user may not see; they are the first line.
    """

    def __init__(
        self, clock: Callable[[], float], totals: Totals, *, is_late: bool = False, shows_plan: bool = True
    ) -> None:
        self.lines: list[StatusLine] = []
        self.address = ""
        self.unshared: list[str] = []
        self.is_after_wait = False  # The answer goes on after an approval; it gets a last line even without others.
        self._clock = clock
        self.totals = totals
        self._is_late = is_late
        self._shows_plan = shows_plan
        self._counted_until_seconds = math.inf  # Infinite before `run_start`.
        self._parents: dict[str, str] = {}  # By call id: the call around the call.
        self._asking: set[str] = set()  # The calls that wait for the user.
        self._final_status = ""  # The agent's status event with "done", which the last line repeats.
        # By call id: the call's label, its last status message, and the quarter of the progress.
        self._open: dict[str, tuple[str, str, int | None]] = {}
        self._named: set[str] = set()  # The calls whose start is a line, so that their end is one too.
        self._calls: Counter[str] = Counter()  # By their titles without arguments.

    def apply(self, event: Json) -> None:
        """Add the lines for an event."""
        self._count_time()
        if event["type"] == "run_start":
            self._counted_until_seconds = self._clock()
            if self.unshared:
                self.apply({"type": "status", "content": NOT_SHARED + ", ".join(self.unshared), "done": True})
        if self._counted_until_seconds == math.inf:
            return
        match event["type"]:
            case "reconnecting":
                self._add(RECONNECTING, is_transient=True)
            case "status":
                words = str(event["content"])
                self._final_status = words if event.get("done") is True else ""
                self._add(words)
            case "plan" if self._shows_plan:
                self._add(describe_tasks(make_tasks(event)))
            case "tool_call_start" | "tool:status" | "tool_call_complete" | "tool_call_error":
                self._apply_step(event)
            case "input_request" if event.get("tool_call_id") in self._open:
                self._asking.add(event["tool_call_id"])

    def _count_time(self) -> None:
        """Count the time since the last event, unless every open call waits for the user or for such a call."""
        now_seconds = self._clock()
        waiting: set[str] = set()
        for call_id in self._asking:
            while call_id and call_id not in waiting:
                waiting.add(call_id)
                call_id = self._parents.get(call_id, "")
        if not self._is_late and not (waiting and self._open.keys() <= waiting):
            self.totals.seconds += max(0.0, now_seconds - self._counted_until_seconds)
        self._counted_until_seconds = max(now_seconds, self._counted_until_seconds)

    def close(self, how: str = "") -> None:
        """Add the last line, which also repeats the agent's final status; open calls count as ended with the answer."""
        if self._counted_until_seconds == math.inf:
            return
        self._count_time()
        totals = self.totals
        if self._open and how != WAITS:
            totals.endings["stopped" if how == "stopped" else FAILED.label] += len(self._open)
        if self.lines or how or self.is_after_wait:
            words = totals.describe(how, has_time=not self._is_late)
            words = " · ".join(part for part in (self._final_status, words) if part)
            if self.address:
                self.lines.append(StatusLine(self.address))
            self.lines.append(StatusLine(words or ANSWERED, totals=totals))

    def _apply_step(self, event: Json) -> None:
        call_id = str(event.get("tool_call_id"))
        label, *last = self._open.get(call_id, ("", "", None))
        match event["type"]:
            case "tool_call_start" if not label:
                self._start(call_id, event)
            case "tool:status" if label:
                data = event["data"]
                words = str(data.get("message") or "").strip()
                if data.get("status") == "processing" and words in ANSWERED_MESSAGES:
                    self._asking.discard(call_id)
                progress = read_progress(data)
                # A line for each per cent would hide the other steps.
                quarter = None if progress is None else int(progress // 25)
                if words and [words, quarter] != last:
                    self._open[call_id] = (label, words, quarter)
                    self._add(f"{label}: {format_percent(data)}{words}")
            case "tool_call_complete" | "tool_call_error" if label:
                del self._open[call_id]
                self._asking.discard(call_id)
                self._end(call_id, label, event)

    def _start(self, call_id: str, event: Json) -> None:
        label = str(event.get("label") or event.get("tool_name") or "tool")
        name = label.partition(LABEL)[0]
        self._open[call_id] = (label, "", None)
        self._parents[call_id] = str(event.get("parent_call_id") or "")
        self.totals.calls += 1
        self._calls[name] += 1
        if self._calls[name] <= CALLS_NAMED:
            self._named.add(call_id)
            self._add(f"Running {label}", is_transient=True)
        elif self._calls[name] % CALLS_NAMED == 0:
            self._add(f"Running {name}, {self._calls[name]} times so far", is_transient=True)

    def _end(self, call_id: str, label: str, event: Json) -> None:
        how = ""
        if event["type"] == "tool_call_error":
            how = ENDINGS.get(str(event.get("code")), FAILED).label
            self.totals.endings[how] += 1
        if how or call_id in self._named:
            took = format_duration(event)
            self._add(f"{label}: {how or ENDED}" + (f" after {took}" if took else ""), is_transient=not how)
        if not how and not self._open:
            self._add(THINKING, is_transient=True)

    def _add(self, words: str, *, is_transient: bool = False) -> None:
        if len(self.lines) < MAX_LINES:
            self.lines.append(StatusLine(CONTROL.sub(" ", words)[:NOTICE_CHARS], is_transient))


def make_tasks(plan: Json) -> list[Json]:
    """Return the steps of a plan in Open WebUI's form. Ids are positions, because pages fail on equal ids."""
    return [
        {
            "id": str(number),
            "content": CONTROL.sub(" ", make_storable(str(step.get("content"))))[:NOTICE_CHARS],
            "status": step["state"] if step.get("state") in TASK_STATES else "pending",
        }
        for number, step in enumerate(select_dicts(plan.get("steps")), 1)
    ]


def describe_tasks(tasks: list[Json]) -> str:
    """Return the number of completed tasks and the current task: "Plan: 2 of 5: Write the report"."""
    done = sum(task["status"] == "completed" for task in tasks)
    current = [task["content"] for state in TASK_STATES[:2] for task in tasks if task["status"] == state]
    return ": ".join(("Plan", f"{done} of {len(tasks)}", *current[:1]))


STORED_FILE = re.compile(r"/api/v1/files/([\w-]+)/content")


class FileChips:
    """The files of a message, which Open WebUI draws as buttons above the text and stores with the message.

    Open WebUI's database puts the files of a `files` event before those of the message. Pages replace the files of the
    message, except that newer ones add them in temporary chats.
    """

    def __init__(self, known: object = None, *, is_temporary: bool = False) -> None:
        """Begin with the files that the message already has; `is_temporary`: Open WebUI does not store the chat."""
        self._files = select_dicts(known)
        self._is_temporary = is_temporary

    def find(self, path: str) -> str | None:
        """Return the URL of the copy of a file that has this path on the server; None if the message has none."""
        for file in self._files:
            if file.get("callboard_path") == path:
                return f"/api/v1/files/{file['id']}/content"
        return None

    def add(self, files: list[Json]) -> list[Json]:
        """Add files of Open WebUI's store, and return the events that show them now."""
        known = [file.get("id") for file in self._files]
        added = [chip for chip in map(make_chip, files) if chip["id"] not in known]
        self._files = added + self._files
        if self._is_temporary or not added:
            return []
        return [self._event("files", added), self._event("chat:message:files", self._files)]

    def close(self) -> list[Json]:
        """Return the events that show the files at the end of the answer."""
        return [self._event("files", self._files)] if self._is_temporary and self._files else []

    def _event(self, kind: str, files: list[Json]) -> Json:
        return {"type": kind, "data": {"files": [*files]}}


def make_chip(file: Json) -> Json:
    """Return a file of Open WebUI's store in the form of a message's files."""
    stored = STORED_FILE.fullmatch(file["url"])
    file_id = stored[1] if stored else ""
    # The address is the id, as in files that users attach. No content type, because images would be drawn in full size.
    chip = {"type": "file", "id": file_id, "url": file_id, "name": str(file.get("name") or "file")}
    return chip | {name: file[name] for name in ("size", "callboard_path") if name in file}


class Transcript:
    """The answer so far, built from the events of one run.

    The model's text is untrusted: it can neither imitate a block nor break one. The end of a text is held back while it
    may be the start of a tag, so the text only grows, except for rewinds. Invalid events are logged and skipped. Ends
    of calls without starts are accepted.

    Attributes:
        pieces: The pieces of the answer, in order.
        events: Open WebUI's own events to send with the answer: sources, and pages made by tools.
        activity: The status lines.
        usage: Token counts, when they are known.
        chips: The files of the message; None if it cannot have files.
        tasks: The agent's plan, as Open WebUI's task panel has it; None if there is no plan yet, or no panel.
        parked: The calls that wait for approval, without a card here: Open WebUI draws its own.
        rewinds: For each rewind, the number of characters of text that it left.
        ended: Whether the answer has ended; nothing changes after that.
        has_failed: Whether it has ended with an error, or because the connection was lost.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        result_chars: int = 10_000,
        found: object = None,
        *,
        totals: Totals | None = None,
        chips: FileChips | None = None,
        embeds: object = None,
        has_panel: bool = False,
        has_sources: bool = True,
        is_late: bool = False,
        before: str = "",
    ) -> None:
        """Begin an answer.

        Args:
            result_chars: The length at which results are cut.
            found: The sources that the message already has.
            totals: The totals of the message so far, if it is continued.
            chips: The files of the message; None if it cannot have files, which are links then.
            embeds: The pages that the message already has.
            has_panel: Plans are shown in Open WebUI's task panel; otherwise each is a status line.
            has_sources: The reader gets the sources; otherwise `[sourceN]` stays as the model wrote it.
            is_late: The events arrive later than they happened, so durations are unknown.
            before: The text that the answer continues; Open WebUI puts a text directly behind it.
        """
        self.pieces: list[Piece] = []
        self.events: list[Json] = []
        # A lambda, so that a test can replace the clock.
        self.activity = Activity(lambda: self.clock(), totals or Totals(), is_late=is_late, shows_plan=not has_panel)
        self.usage: Json = {}
        self.parked: list[Call] = []
        self.rewinds: list[int] = []
        self.ended = False
        self.has_failed = False
        self.chips = chips
        self.tasks: list[Json] | None = None
        self._has_panel = has_panel
        self._has_sources = has_sources
        self._result_chars = result_chars
        self._is_late = is_late
        self._before = before
        self._calls: dict[str, Call] = {}
        self._embeds: list[str] = [*embeds] if isinstance(embeds, list) else []
        self._has_new_embeds = False
        self._blank_text = ""  # Received before a text that is not blank.
        self._last_segment = 0
        self._source_places: dict[str, int] = {}  # Position among the message's sources, by the source's key.
        self._source_numbers: dict[str, int] = {}  # The same, by the agent's number of the source.
        self._found = select_dicts(found)
        for place, source in enumerate(self._found, 1):
            if isinstance(source.get("source"), dict):
                self._convert_source(source)
            else:
                # Of another function, in a form that cannot be read: it has a number nevertheless.
                self._source_places[f"unreadable {place}"] = len(self._source_places) + 1
        self._source_numbers.clear()
        self._is_rewound = False
        self._set_rewind_point()

    def is_final(self, part: list[Piece]) -> bool:
        """Return whether these neighbouring pieces can no longer change."""
        is_followed = self.ended or part[-1] is not self.pieces[-1]
        return is_followed and not any(piece.is_open for piece in part)

    def is_waiting(self, question: Json) -> bool:
        """Return whether the run may still wait for an answer: there is none, and the question's call is open."""
        call = self._calls.get(str(question.get("tool_call_id")))
        return call is None or (call.is_open and not call.questions.get(str(question.get("request_id"))))

    def render(self) -> str:
        """Return the text of the whole answer."""
        return render(self.pieces)

    def find_call(self, call_id: str) -> Call | None:
        """Return a call; None if there is none, or if it waits."""
        return self._calls.get(call_id)

    def apply(self, event: Json) -> None:
        """Update the answer with an event."""
        if self.ended:
            return
        try:
            self._apply(event)
            self.activity.apply(event)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("Callboard: skipped an event that cannot be read: %s (%r)", event["type"], error)

    def close(self, reason: str, notice: str = "", how: str = "failed") -> None:
        """End the answer; an answer that has ended does not change.

        Args:
            reason: Why calls that are still open have no result.
            notice: A line to add below the answer.
            how: The ending in the last status line: "stopped", "failed" or "".
        """
        if self.ended:
            return
        self._finish_last()
        # Inner calls first, because they are lines in the results of the calls that contain them.
        for call in reversed(self._calls.values()):
            if call.is_open:
                # The pipe cannot wait until the server knows whether a tool that cannot be stopped has ended.
                goes_on = how == "stopped" and call.state == "running" and not call.stoppable
                self._fail_call(call, reason + (MAY_GO_ON if goes_on else ""), "cancelled" if how == "stopped" else "")
        self._save_embeds()
        if self.chips:
            self.events += self.chips.close()
        if any(task["status"] in TASK_STATES[:2] for task in self.tasks or ()):
            # Otherwise the panel would show the unfinished plan again during the next answer of the chat.
            self._show_tasks([])
        if notice:
            self._add_notice(notice)
        self.activity.close(how)
        self.ended = True
        self.has_failed = how == "failed"

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
            case "plan" if self._has_panel:
                self._show_tasks(make_tasks(event))
            case "source" if self._has_sources:
                self._add_source(self._convert_source(event))
            case "usage":
                self.usage = {name: value for name, value in event.items() if isinstance(value, int)}
            case "done" | "error":
                self._apply_ending(event)
            case _:
                self._apply_rare(event)

    def _apply_ending(self, event: Json) -> None:
        if event["type"] == "error":
            self.close("no result arrived", str(event.get("message") or "The run failed."))
            return
        reason = str(event.get("finish_reason"))
        self.close("no result arrived", FINISH_NOTICES.get(reason, ""), "stopped" if reason == "cancelled" else "")

    def _show_tasks(self, tasks: list[Json]) -> None:
        if tasks != self.tasks:
            self.tasks = tasks
            self.events.append({"type": "chat:message:tasks", "data": {"tasks": tasks}})

    def _apply_rare(self, event: Json) -> None:
        """Handle messages to the run, and the events of answers that wait; the last two are only the pipe's own."""
        match event["type"]:
            case "user_message":
                self._append(Notice(text=f"\n{draw_said(event['content'])}\n"))
                self._set_rewind_point()
            case "unread_message":
                self._add_notice(f"The agent has not read this message, send it again: {event['content']}")
            case "parked":
                self._park(event)
            case "card_end":
                self._end_card(event)
                self._set_rewind_point()
            case "notice":
                self._add_notice(event["content"])
                self._set_rewind_point()

    def _park(self, event: Json) -> None:
        """End the answer for now: the calls that wait leave it, because Open WebUI shows a card of its own for each."""
        self.parked = [call for name in event["tool_call_ids"] if (call := self._calls.pop(str(name), None))]
        self._finish_last()
        self.pieces = [piece for piece in self.pieces if piece not in self.parked]
        self.rewinds.append(len(self.render()))
        self._save_embeds()
        self.activity.close(WAITS)
        self.ended = True

    def _end_card(self, event: Json) -> None:
        """Count the end of a call whose card is Open WebUI's own, and show its result and its files below the card."""
        totals = self.activity.totals
        totals.seconds += (event.get("duration_ms") or 0) / 1000
        call = Call(name=event["tool_name"], title=make_title(event.get("label", "")), show=event.get("show", ""))
        if code := event.get("code"):
            totals.endings[ENDINGS.get(code, FAILED).label] += 1
        else:
            self._complete_call(call, event)
        if results := draw_results([call]):
            self._append(Notice(text=f"\n{results}\n"))
        for file in call.files:
            self._append(Notice(text=f"\n![]({quote(file['url'], safe=':/;,+=')})\n"))

    # Pieces.

    def _append(self, piece: Piece) -> None:
        """Add the piece to the end of the answer, and set its segment."""
        is_joined = False
        if self.pieces:
            self._finish_last()
            last = self.pieces[-1]
            group = [*takewhile(lambda other: other.segment == last.segment, reversed(self.pieces))]
            # A change sends its segment again, so the size of a segment must not grow with the number of calls.
            is_full = len(render(group)) >= ITEM_CHARS and not any(other.is_open for other in group)
            # After a rewind, start a new segment: a removed piece may have had this position.
            is_joined = piece.is_block and last.is_block and not is_full and not self._is_rewound
        if not is_joined:
            self._last_segment += 1
        piece.segment = self._last_segment
        self.pieces.append(piece)
        self._is_rewound = False
        self._blank_text = ""

    def _finish_last(self) -> None:
        """Close the last piece if it is an open text or thought."""
        match self.pieces[-1:]:
            case [Text(is_open=True) as text]:
                text.text += self._sanitize(text.held_back)
                text.held_back = ""
                text.closing = close_markdown(text.text)
                text.is_open = False
            case [Thought(is_open=True) as thought]:
                if not self._is_late:
                    thought.seconds = round(self.clock() - thought.began_at_seconds)
                thought.is_open = False

    def _set_rewind_point(self) -> None:
        """Remember the current end of the answer, to which a rewind returns."""
        self._kept_count = len(self.pieces)
        self._last_kept = replace(self.pieces[-1]) if self.pieces else None

    def _rewind(self) -> None:
        """Remove everything after the rewind point: text, thoughts, and calls that have not started."""
        for removed in self.pieces[self._kept_count :]:
            if isinstance(removed, Call):
                self._calls.pop(removed.id, None)
        del self.pieces[self._kept_count :]
        if isinstance(self._last_kept, Text | Thought):
            self.pieces[-1] = replace(self._last_kept)
        self._blank_text = ""
        self._is_rewound = True
        self.rewinds.append(len(self.render()))

    # Text, thoughts and notices.

    def _add_text(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Text):
            # Not added yet, because blank text between two calls would split their group.
            self._blank_text += text
            text = self._blank_text
            if not text.strip():
                return
            if not self.pieces:
                text = separate(self._before, text) + text
            last = Text(is_open=True)
            self._append(last)
        text = last.held_back + text
        unfinished = UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        last.text += self._sanitize(text[:end])
        last.held_back = text[end:]

    def _add_thought(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Thought):
            if not text.strip():
                return
            last = Thought(is_open=True, began_at_seconds=self.clock())
            self._append(last)
        last.text += text

    def _add_notice(self, message: str, url: str = "") -> None:
        # One line without markup, because messages may quote untrusted text.
        words = CONTROL.sub(" ", message).strip()[:NOTICE_CHARS].replace("<", "&lt;").replace("](", "] (")
        if url:
            address = quote(url, safe=":/?#@!$&*+,;=%~")
            words = f"[{words}]({address})"
        self._append(Notice(text=f"\n{NOTICE}{words}\n"))

    def _sanitize(self, text: str) -> str:
        """Return the model's text with `<details` tags broken and `[sourceN]` replaced with `[k#sourceN]`.

        Open WebUI draws the latter as `[k]`, and the server reads it back as `[sourceN]`.
        """

        def link(citation: re.Match[str]) -> str:
            linked = []
            for number in re.findall(r"\d+", citation[0]):
                if number not in self._source_numbers:
                    return citation[0]
                linked.append(f"{self._source_numbers[number]}#source{number}")
            return f"[{', '.join(linked)}]"

        return CITATION.sub(link, UNSAFE.sub(GUARDED, text))

    def _convert_source(self, event: Json) -> Json:
        """Return a source in Open WebUI's form, and give it a number.

        Open WebUI draws `[k]` as the k-th source of the message, but agents number the sources of all turns.
        """
        source = event["source"]
        abouts = []
        for about in select_dicts(event.get("metadata")) or [{}]:
            key = str(about.get("source") or source.get("id") or source.get("url") or source.get("name"))
            place = self._source_places.setdefault(key, len(self._source_places) + 1)
            self._source_numbers[str(about.get("source_number", place))] = place
            abouts.append(about | {"source": key})
        # A click on the citation draws the document as Markdown.
        documents = [UNSAFE.sub(GUARDED, str(text)) for text in event.get("document") or ()]
        documents += [""] * len(abouts)
        return {"source": source, "document": documents[: len(abouts)], "metadata": abouts}

    def _add_source(self, source: Json) -> None:
        # An answer that goes on, or is restored, gets the events from before as well.
        if source not in self._found:
            self.events.append({"type": "source", "data": source})

    # Tool calls.

    def _relabel_call(self, event: Json) -> None:
        call = self._calls.get(str(event.get("tool_call_id")))
        if not call or not call.is_open:
            return
        if event["type"] == "tool:status":
            call.show_status(event["data"])
        else:
            call.show_question(event)
        call.update_parent_labels()

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
                call.title = make_title(str(event.get("label") or ""))
                call.show = str(event.get("show") or "")
                self._count_equal(call)
                call.stoppable = event.get("stoppable") is not False
                if isinstance(event.get("round_index"), int):
                    call.round = str(event["round_index"])
            case "tool_call_complete":
                self._complete_call(call, event)
            case "tool_call_error":
                self._fail_call(call, str(event.get("error") or "the tool failed"), str(event.get("code")))
        call.took = format_duration(event)
        call.update_parent_labels()
        self._set_rewind_point()

    def _count_equal(self, call: Call) -> None:
        """Let Open WebUI count the calls of this title if their group has more than a person reads."""
        group = takewhile(lambda piece: piece.segment == call.segment, reversed(self.pieces))
        equal = [one for one in group if isinstance(one, Call) and one.short_title == call.short_title]
        if len(equal) > CALLS_NAMED:
            for one in equal:
                one.is_counted = True

    def _fail_call(self, call: Call, error: str, code: str) -> None:
        """End a call without a result; `error` is the message for the model."""
        ending = ENDINGS.get(code, FAILED)
        words = ending.words or error
        if not ending.is_failure:
            words = words.removeprefix("Error: ")
        elif not words.lower().startswith("error:"):
            words = f"Error: {words}"
        self._end_call(call, ending.card, words)
        if ending is not FAILED:
            call.label = ending.label + IN_INSPECTOR * (code == "denied" and IN_INSPECTOR in error)

    def _complete_call(self, call: Call, event: Json) -> None:
        result = event.get("result", "")
        if not isinstance(result, str):
            result = json.dumps(result)
        chars = event.get("result_chars")
        if event.get("truncated") is not True or not isinstance(chars, int):
            chars = len(result)
        url = str(event.get("result_url") or "")
        self._end_call(call, "done", result, chars, f": {url}" if url else "")
        if not call.parent:  # The result of an inner call is a line in that of the call around it.
            with suppress(RecursionError):
                call.size, call.drawn = make_readable(call.show, result, chars, self._result_chars, url)
        self._attach_files(call, event)

    def _end_call(
        self, call: Call, state: Literal["done", "failed", "rejected"], result: str, chars: int = 0, link: str = ""
    ) -> None:
        """End the call with its result; `chars` is the full length of a result that the server has cut, otherwise 0."""
        if call.state == "preparing" and call.draft:
            # The call never started, so show the unfinished arguments.
            call.arguments = json.dumps(call.draft)
        chars = max(chars, len(result))
        if chars > self._result_chars:
            # Leave room for the line below: Open WebUI hides text after 10,000 characters behind a button.
            shown = result[: max(0, self._result_chars - CUT_LINE_CHARS - len(link))]
            result = f"{shown}\n… [{chars - len(shown):,} more characters{link}]"
        if inner := [*call.list_inner()]:
            result = "\n".join([*inner, "", result])
        call.result = result
        call.state = state
        call.label = ""
        call.is_open = False

    def _attach_files(self, call: Call, event: Json) -> None:
        """Show images under their call, other files as chips of the message, and pages as embeds of the message.

        Files on the web, and those of a message without chips, are links below the call.
        """
        chips = []
        for file in select_dicts(event.get("files")):
            url = str(file.get("url") or "")
            name = str(file.get("name") or "file")
            if file.get("type") == "image" and url.startswith(("data:image/", "/api/")):
                while call.parent:
                    call = call.parent
                call.files.append({"type": "image", "url": url})
            elif self.chips and STORED_FILE.fullmatch(url):
                chips.append(file)
            elif url.startswith(("https://", "http://", "/api/")):
                self._add_notice(name.replace("[", "(").replace("]", ")"), url)
            else:
                log_of = "the server's" if file.get("dropped") else "Open WebUI's"
                self._add_notice(f"The file {name} could not be saved: {log_of} log has the reason.")
        if self.chips:
            self.events += self.chips.add(chips)
        if embeds := [embed for embed in event.get("embeds") or () if isinstance(embed, str)]:
            # In an attribute of the block they would hide its input and output. This event replaces earlier embeds.
            # A restored answer gets pages again that were saved when it waited.
            self._embeds += [embed for embed in embeds if embed not in self._embeds]
            self._has_new_embeds = True
            self.events.append({"type": "chat:message:embeds", "data": {"embeds": [*self._embeds]}})

    def _save_embeds(self) -> None:
        """Save the pages with the chat: once, because it rewrites the whole chat in Open WebUI's database."""
        if self._has_new_embeds:
            # Without `replace`, Open WebUI adds the saved pages to these.
            self.events.append({"type": "embeds", "data": {"embeds": self._embeds, "replace": True}})


# --- Emission: the changes of an answer, as dicts for Open WebUI. Pure. ---------------------------------------------


class Emitter:
    """Turns the changes of a transcript into updates for Open WebUI.

    Attributes:
        shows_events: Whether to send Open WebUI's own events too: sources, pages of tools, status lines.
        due_at_seconds: When delayed changes are due, in seconds of the monotonic clock; infinity if there are none.
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
        self._newest_words = ""
        self._rewinds_seen = 0

    def updates(self, transcript: Transcript, now_seconds: float, *, final: bool = False) -> list[Json]:
        """Return the updates to yield now; with `final`, all remaining ones of a transcript that has ended."""
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

    def park(self, calls: list[Call]) -> Iterator[Json]:  # noqa: ARG002 - calls wait only where Open WebUI can show it
        """Yield the updates that make Open WebUI ask whether these calls may run, whenever the user comes back."""
        yield from ()

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:
        """Yield the changes of the answer since the last call."""
        raise NotImplementedError

    def _pause_seconds(self, content: list[Json]) -> float:  # noqa: ARG002 - added text is not drawn anew
        """Return the minimum time between these changes and the next ones."""
        return 0.0

    def _status(self, lines: list[StatusLine], now_seconds: float, *, final: bool) -> Iterator[Json]:
        if not lines:
            return
        if not final and now_seconds < self._next_status_at_seconds:
            self.due_at_seconds = min(self.due_at_seconds, self._next_status_at_seconds)
            return
        self._lines_sent += len(lines)
        self._next_status_at_seconds = now_seconds + STATUS_INTERVAL_SECONDS
        for line in select_lines(lines):
            # The lines between two equal ones may have been left out.
            if line.is_transient and line.words == self._newest_words:
                continue
            self._newest_words = line.words
            # Always done: a line that is not done shimmers, for ever if Open WebUI is stopped before the next line.
            data: Json = {"description": line.words, "done": True}
            if line.totals:
                data["callboard"] = vars(line.totals)
            yield {"event": {"type": "status", "data": data}}

    def _see_rewinds(self, transcript: Transcript) -> list[int]:
        """Return the rewinds since the last call."""
        rewinds = transcript.rewinds[self._rewinds_seen :]
        self._rewinds_seen = len(transcript.rewinds)
        return rewinds

    def _chunk(self, text: str = "", **fields: Any) -> Json:
        # Not a plain string, because Open WebUI passes a string that starts with "data:" through unchanged.
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
    """Return the lines to send: the last line, and the first and last of the others that are not transient."""
    *steps, last = lines
    steps = [line for line in steps if not line.is_transient]
    half = LINES_AT_ONCE // 2
    return [*steps[:half], *steps[half:][-half:], last]


class ChunkEmitter(Emitter):
    """For API callers without a saved chat: chunks cannot be changed later, so a group is sent when it has ended."""

    shows_events = False

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._final_pieces = 0  # The number of pieces that can no longer change.
        self._final_chars = 0  # The length of their text.
        self._shown = ""
        self._note = ""

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:
        rewinds = self._see_rewinds(transcript)
        if rewinds:
            self._final_pieces = self._final_chars = 0
        # Final pieces are not rendered again: for a long answer that would block Open WebUI's event loop.
        begin = self._final_chars
        text = ""
        for segment in split_segments(transcript.pieces[self._final_pieces :]):
            is_final = transcript.is_final(segment)
            if segment[0].is_block and not is_final:
                break
            text += "\n" * (segment[0] is not transcript.pieces[0]) + render(segment)
            if is_final:
                self._final_pieces += len(segment)
                self._final_chars = begin + len(text)
        if rewinds and not text.startswith(self._shown):
            self._note += close_markdown(self._shown) + TAKEN_BACK
            self._shown = self._shown[: min(rewinds)]
        added = text[len(self._shown) - begin :]
        if added or (final and self._note):
            yield self._chunk(self._note + added)
            self._shown += added
            self._note = ""


class StreamEmitter(Emitter):
    """For the rendering `details`: events as in OpenAI's Responses API, whose message items change in place.

    Only a changed item is sent again, not the whole answer. As in that API, an item is added empty. Each event has an
    `output_index`, without which pages insert the item before the last one.
    """

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._final_pieces = 0  # The number of pieces that can no longer change.
        self._places: dict[str, int] = {}  # The `output_index` of each item, by id.
        self._sent: dict[str, Json] = {}  # The last version sent of each item, by id.

    def _content(self, transcript: Transcript, *, final: bool) -> Iterator[Json]:  # noqa: ARG002 - all is sent as it comes
        changes: list[Json] = []
        if self._see_rewinds(transcript):
            self._final_pieces = 0
            changes += self._empty_lost_items(transcript)
        is_final = True
        for part in split_segments(transcript.pieces[self._final_pieces :]):
            for item in self._items(part):
                changes += self._changes(item)
            is_final = is_final and transcript.is_final(part)
            if is_final:
                self._final_pieces += len(part)
        if len(changes) > EVENTS_AT_ONCE:
            # One event with all items is drawn faster than many events. Despite its name it does not end the stream.
            items = [self._sent[key] for key in self._places]
            changes = [{"type": "response.completed", "response": {"output": items}}]
        yield from changes

    def park(self, calls: list[Call]) -> Iterator[Json]:
        """Yield two items for each call: its question, and a call without an output.

        In 0.12 and later the second is Open WebUI's pending card. The first keeps the cards apart: in a group, the
        buttons of the last card would stand beside the names of all.
        """
        for call in calls:
            yield self._added(self._message(f"{QUESTION_ID}{call.id}", draw_text(call.asked or call.shown_arguments)))
            yield self._added(make_call_item(call, call.id) | {"name": name_card(call), "status": "pending"})

    def _pause_seconds(self, content: list[Json]) -> float:
        """Return about how long the changes take to be sent and drawn; changes other than added text wait longer."""
        seconds = max(
            sum(len(str(change)) for change in content) / SENT_CHARS_PER_SECOND,
            len(content) * len(self._places) / DRAWN_ITEMS_PER_SECOND,
        )
        for change in content:
            if "delta" not in change and change.get("item", {}).get("type") != "message":
                return max(seconds, UPDATE_INTERVAL_SECONDS)
        return seconds

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        """Yield the items for these pieces."""
        yield self._message(f"msg_{self._id}_{part[0].segment}", render(part))

    def _message(self, key: str, text: str) -> Json:
        content = {"type": "output_text", "text": text}
        return {"type": "message", "id": key, "role": "assistant", "status": "in_progress", "content": [content]}

    def _changes(self, item: Json) -> Iterator[Json]:
        """Yield the events that turn the last version sent of the item into this version."""
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
        """Yield events that empty the items removed by a rewind: browsers keep all items but do not draw empty ones."""
        kept = {item["id"] for part in split_segments(transcript.pieces) for item in self._items(part)}
        for key in self._places:
            if key not in kept:
                yield from self._empty(key)

    def _empty(self, key: str) -> Iterator[Json]:
        yield from self._changes(self._message(key, ""))


class NativeEmitter(StreamEmitter):
    """For the rendering `native`: calls and reasoning as Open WebUI's own items, so that exports have them too.

    Adding an item again replaces it. A call that has ended is sent with its output. Otherwise Open WebUI would run the
    call at the end of the stream and call the pipe again.
    """

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        blocks = [(number, piece) for number, piece in enumerate(part) if isinstance(piece, Thought | Call)]
        if not blocks:
            yield from super()._items(part)
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
            # Outputs last: on the next turn, Open WebUI splits calls with an output between them into two rounds.
            yield from outputs
        if results := draw_results(part):
            # Below all cards, so with more cards it is a new item. Pages do not draw empty items.
            key = f"msg_{self._id}_{part[0].segment}_"
            for earlier in [place for place in self._places if place.startswith(key) and place != f"{key}{len(part)}"]:
                yield self._message(earlier, "")
            yield self._message(f"{key}{len(part)}", results)

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
        # No "summary": Open WebUI's editor shows the summary in place of the content, even if it is empty.
        "content": [{"type": "output_text", "text": thought.shown_text}],
    }
    if thought.is_open:
        return item | {"status": "in_progress"}
    item |= {"status": "completed"}
    return item if thought.seconds is None else item | {"duration": thought.seconds}


def make_call_item(call: Call, key: str) -> Json:
    """Return a call as Open WebUI's own item."""
    arguments = call.shown_arguments
    if arguments.startswith('"'):
        # The unfinished arguments of a call that never started.
        arguments = json.loads(arguments)
    name = call.name
    if not is_release(0, 12, 2):
        # Models get the name of the card, so it begins with the tool's name.
        call = replace(call, title=LABEL.join([name, *call.title.split(LABEL)[1:]]))
    elif not (ACCEPTED_NAME.fullmatch(name) and ACCEPTED_NAME.fullmatch(call.id)):
        # By the label, the filter knows a call that has a name or an id which endpoints refuse.
        name += LABEL
    return {
        "type": "function_call",
        "id": f"fc_{key}",
        "call_id": call.id,
        "name": call.shown_name,
        "provider_function": {"name": name, "arguments": arguments or "{}"},
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
    """Return the status of a call's items; without an output, "completed" shows "Executing", others "Preparing"."""
    return {"preparing": "in_progress", "running": "completed", "done": "completed"}.get(call.state, call.state)


def choose_emitter(rendering: str, page: Page) -> Emitter:
    """Return the emitter for the rendering; an answer without a chat and a message can only get chunks."""
    if not page.metadata.get("chat_id") or not page.metadata.get("message_id"):
        return ChunkEmitter(page.model)
    return NativeEmitter(page.model) if rendering == "native" else StreamEmitter(page.model)


# --- Server client: the only HTTP. ----------------------------------------------------------------------------------


class ServerProblem(Exception):
    """The server cannot be used; the message is for the user and says what to change."""


class TemporaryProblem(ServerProblem):
    """The server is shutting down, or the connection broke before a response: retry."""


class Refusal(ServerProblem):
    """The Callboard server refuses the request, and a retry would not help."""


class NotFound(Refusal):
    """The Callboard server does not know the run or the chat."""


Deliver = Callable[[Json], None]


@dataclass(frozen=True, slots=True)
class LeftAnswer:
    """The part of an answer that the server has stored, after Open WebUI was stopped during the answer.

    Attributes:
        run_id: The run that made the answer.
        rows: The run's messages, as stored with the chat.
        is_logged: Its events can still be read; the server deletes them some time after the run's end.
        is_awaited: A client listens to the run, so it will put the answer into the chat.
        answered: The ids of its questions and requests for tools that have an answer, and are not asked again.
        approved: The ids of those questions whose answer allows a call.
    """

    run_id: str
    rows: list[Json]
    is_logged: bool = False
    is_awaited: bool = False
    answered: list[str] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)

    def find_action(self, call_id: str) -> str:
        """Return the button that the answer to a call's approval corresponds to; "" if the answer is not known yet."""
        for row in self.rows:
            if row.get("tool_call_id") == call_id and row["ended_at"] is not None:
                ending = ENDINGS.get(row["error_code"], FAILED)
                return "reject" if not ending.has_run or row["error_code"] == "cancelled" else "approve"
        return "approve" if f"{APPROVAL}{call_id}" in self.approved else ""


def read_rows(rows: list[Json]) -> Iterator[Json]:
    """Yield events that reproduce the stored messages of a run."""
    yield {"type": "run_start"}
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


# The prefixes of the ids of questions whether a call may run, and of requests for tools; the call's id follows.
APPROVAL = "approve:"
TOOL_REQUEST = "tool:"
USER_TOKEN = "X-OpenWebUI-User-Jwt"  # noqa: S105 - a header


class CallsEnded(Exception):
    """The calls whose ends were awaited have ended; no failure."""


class ServerClient:
    """The requests to the server at `url` for one answer. Every failure is a `ServerProblem`.

    `run_id`: the run that makes the answer; "" until it is known.
    """

    def __init__(self, url: str, key: str, timing: Timing, user: Json | None = None) -> None:
        self.run_id = ""
        self._url = url.strip().rstrip("/")
        self._key = key.strip()
        self._signed_user = user or {}
        # The server shows the run of a user to that user only.
        self._user = {"user_id": str(user["id"])} if user else {}
        self._timing = timing
        self._last_seq = 0
        self._parked: Json | None = None  # The last event so far, if the run was parked with it.

    async def list_models(self) -> list[Json]:
        """Return the agents with their names, descriptions, suggestions and icons."""

        def read(body: Json) -> list[Json]:
            optional = {"description": "", "suggestions": [], "icon": ""}
            return [{**optional, **entry, "name": entry.get("name") or entry["id"]} for entry in body["data"]]

        try:
            async with asyncio.timeout(self._timing.models_seconds):
                return await self._fetch_json("/v1/models", read)
        except TimeoutError as error:
            raise self.problem(CANNOT_REACH) from error

    async def run(self, request: Json, deliver: Deliver) -> None:
        """Start a run and deliver all its events.

        If the connection is lost before the first event, the request is sent again. The server starts the run only
        once, because the request has the run's id.
        """
        self.run_id = str(request["run_id"])
        await self._deliver_all(deliver, request)

    async def deliver_run(self, answer: LeftAnswer, deliver: Deliver) -> None:
        """Deliver all events of a run that was started earlier, or its stored messages if the events are deleted."""
        self.run_id = answer.run_id

        def deliver_unanswered(event: Json) -> None:
            if event.get("request_id") not in answer.answered:
                deliver(event)

        if answer.is_logged:
            await self._deliver_all(deliver_unanswered)
        else:
            for event in read_rows(answer.rows):
                deliver(event)

    async def deliver_calls(
        self, answer: LeftAnswer, call_ids: Iterable[str], tools: "OpenWebUITools", deliver: Deliver
    ) -> None:
        """Deliver the events of a run until these calls have ended. If the user stops it, the run is cancelled.

        Returns after all tools that the server has requested meanwhile: the next reader would run them once more.
        """
        left = set(call_ids)
        served: dict[str, asyncio.Task[None]] = {}

        def deliver_until_end(event: Json) -> None:
            deliver(event)
            # A server that takes the run over sends open requests again.
            if event["type"] == "tool_request" and event["request_id"] not in served:
                served[event["request_id"]] = asyncio.create_task(tools.serve(event, self))
            elif event["type"] in ("tool_call_complete", "tool_call_error"):
                tool = served.get(f"{TOOL_REQUEST}{event['tool_call_id']}")
                # The call has ended without the tool's result, for example because its time is over.
                if tool and event["type"] == "tool_call_error":
                    tool.cancel()
                left.discard(event["tool_call_id"])
                if not left:
                    raise CallsEnded

        reading = asyncio.create_task(self.deliver_run(answer, deliver_until_end))
        try:
            await asyncio.wait([reading])
            await asyncio.gather(*served.values(), return_exceptions=True)
        except asyncio.CancelledError:
            run_in_background(self.cancel_with_retries())
            for task in (reading, *served.values()):
                task.cancel()
            raise
        with suppress(CallsEnded):
            reading.result()

    async def _deliver_all(self, deliver: Deliver, request: Json | None = None) -> None:
        """Deliver the events of the run's stream; if it is cut, open it again.

        A problem of the first try is raised unless it is temporary. Further tries are made for `resume_seconds` since
        the last new event. Meanwhile it delivers `reconnecting` events, which only the pipe has.
        """
        problem = self.problem(LOST)
        try:
            if await self._deliver_until_cut(deliver, request):
                return
        except TemporaryProblem as error:
            problem = error
        while True:
            last_seq = self._last_seq
            for wait_seconds in self._timing.resume_waits():
                if wait_seconds:
                    deliver({"type": "reconnecting"})
                    jitter = random.uniform(-RESUME_JITTER, RESUME_JITTER)  # noqa: S311 - not for cryptography
                    await asyncio.sleep(wait_seconds * (1 + jitter))
                try:
                    if await self._deliver_until_cut(deliver, request):
                        return
                except Refusal as error:
                    raise self.problem(LOST) from error
                except ServerProblem as error:
                    problem = error
                if self._last_seq > last_seq:
                    break  # The time for tries begins anew.
            else:
                raise self.problem(LOST) if self._last_seq else problem

    async def _deliver_until_cut(self, deliver: Deliver, request: Json | None) -> bool:
        """Deliver the events after the last one that was delivered; begin with `request` if there is one.

        Returns True after the run's last event, False if the stream is cut.
        """
        if request and not self._last_seq:
            stream = self._send("POST", "/v1/runs", "event-stream", json=request)
        else:
            path = f"/v1/runs/{self.run_id}/events"
            headers = {"Last-Event-ID": str(self._last_seq)}
            stream = self._send("GET", path, "event-stream", headers=headers, params=self._user)
        try:
            async with stream as response:
                return await self._read(response, deliver)
        except httpx.HTTPError as error:
            log.info("Callboard: the stream was cut after event %d (%s)", self._last_seq, type(error).__name__)
            return False

    async def find_answer(self, chat_id: str, message_id: str) -> LeftAnswer:
        """Return the stored part of the answer to a message; raises `NotFound` if the server has none."""

        def read(body: Json) -> list[Json]:
            rows = [row for row in body["messages"] if row["message_id"] == message_id]
            return [row for row in rows if row["run_id"] == rows[-1]["run_id"]]

        rows = await self._fetch_json(f"/v1/chats/{quote(chat_id, safe='')}/messages", read)
        if not rows:
            raise NotFound(FORGOTTEN)
        self.run_id = str(rows[-1]["run_id"])

        def read_state(run: Json) -> Json:
            given = {name: [*run.get(name, ())] for name in ("answered", "approved")}
            return given | {"is_awaited": bool(run["listened_to"])}

        try:
            state = await self._fetch_json(f"/v1/runs/{self.run_id}", read_state)
        except NotFound:
            return LeftAnswer(self.run_id, rows)
        return LeftAnswer(self.run_id, rows, is_logged=True, **state)

    async def list_waiting(self, chat_id: str) -> dict[str, str]:
        """Return the runs of the calls that wait for approval in the chat, by the calls' ids; of the newest 200."""

        def read(page: Json) -> dict[str, str]:
            return {str(one["tool_call_id"]): str(one["run_id"]) for one in page["approvals"]}

        return await self._fetch_json("/v1/approvals", read, limit="200", chat_id=chat_id)

    async def wait_for_answer(self, page: Page) -> LeftAnswer:
        """Return the stored part of the answer; retries in case the server is being restarted."""
        return await self._retry(lambda: self.find_answer(page.chat_id, page.message_id))

    async def _retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`; repeat it for `resume_seconds` unless the server refuses it."""
        problem = self.problem(LOST)
        for wait_seconds in self._timing.resume_waits():
            await asyncio.sleep(wait_seconds)
            try:
                return await work()
            except Refusal:
                raise
            except ServerProblem as error:
                problem = error
        raise problem

    async def forget_chat(self, chat_id: str) -> None:
        """Delete a chat on the server, if it has the chat."""
        with suppress(NotFound):
            await self._fetch("DELETE", f"/v1/chats/{quote(chat_id, safe='')}", params=self._user)

    async def forget_chats(self, begun_before: float) -> None:
        """Delete the user's chats that began before this time, in Unix seconds, on the server."""
        await self._fetch("DELETE", "/v1/chats", params={**self._user, "begun_before": str(begun_before)})

    async def answer(self, request_id: object, value: object, *, asked: bool = True) -> None:
        """Send the user's answer to the server, None for no answer; `asked` is false if the user could not be asked.

        Retries in case the server is being restarted. If the server refuses the answer, the question is no longer open.
        """
        body = {"request_id": request_id, "value": value} | ({} if asked else {"asked": False})
        path = f"/v1/runs/{self.run_id}/input"
        with suppress(Refusal):
            await self._retry(lambda: self._fetch("POST", path, json=body, params=self._user))

    async def answer_approvals(self, decided: dict[str, bool]) -> None:
        """Approve or refuse calls, by their ids; one that was answered before keeps that answer."""
        for call_id, is_approved in decided.items():
            await self.answer(f"{APPROVAL}{call_id}", is_approved)

    async def fetch_file(self, path: str) -> tuple[str, bytes]:
        """Return the content type and the content of a file that the server holds."""
        return await self._fetch("GET", path, params=self._user)

    async def cancel(self) -> None:
        """Cancel the run; raises `TemporaryProblem` if it may still begin."""
        try:
            await self._fetch("POST", f"/v1/runs/{self.run_id}/cancel", params=self._user)
        except NotFound as error:
            if self._last_seq:
                raise
            # The request for it may wait for a slot or for the database.
            raise TemporaryProblem(str(error)) from error

    async def cancel_with_retries(self) -> None:
        """Cancel the run, if there is one. Retries, because a server that is being restarted would continue it."""
        if self.run_id:
            with suppress(ServerProblem):
                await self._retry(self.cancel)

    async def _fetch(self, method: str, path: str, kind: str = "", **options: Any) -> tuple[str, bytes]:
        """Send a request, and return the content type and the body of the response."""
        try:
            async with self._send(method, path, kind, **options) as response:
                return response.headers.get("content-type", ""), await response.aread()
        except httpx.HTTPError as error:
            raise self.problem(NOT_CALLBOARD) from error

    async def _fetch_json(self, path: str, read: Callable[[Json], T], **query: str) -> T:
        """Return the result of `read` for a JSON response."""
        _, body = await self._fetch("GET", path, "json", params=self._user | query)
        try:
            return read(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self.problem(NOT_CALLBOARD) from error

    async def _read(self, response: httpx.Response, deliver: Deliver) -> bool:
        """Deliver the new events of one stream; return True after the run's last event, False if the stream is cut.

        A run that was parked goes on later, so `parked` is delivered only if the server sends nothing after it.
        """
        decoder = FrameDecoder()
        async for chunk in response.aiter_bytes():
            for frame_id, data in decoder.feed(chunk):
                seq = int(frame_id) if frame_id.isdecimal() else self._last_seq + 1
                if seq <= self._last_seq:
                    continue
                self._last_seq = seq
                event = read_event(data)
                self._parked = event if event and event["type"] == "parked" else None
                if event and not self._parked:
                    deliver(event)
                    if event["type"] in ("done", "error"):
                        return True
        if self._parked:
            deliver(self._parked)
        return self._parked is not None

    @asynccontextmanager
    async def _send(self, method: str, path: str, kind: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yield a successful response before its body is read; raise `ServerProblem` for any other.

        `kind` is part of the required content type.
        """
        if not re.fullmatch(r"[\x21-\x7e]*", self._key):
            # Checked here, because httpx would quote the key in its error message.
            raise self.problem(BAD_KEY)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # A new token for each request, because an answer may take longer than the lifetime of a token.
        if token := sign_user(self._signed_user):
            headers[USER_TOKEN] = token
        timeout = httpx.Timeout(self._timing.read_seconds, connect=self._timing.connect_seconds)
        # Plain HTTP needs no certificates, and must work if SSL_CERT_FILE names a file that is missing.
        context = make_tls_context(verify=not self._url.startswith("http:"))
        async with httpx.AsyncClient(headers=headers, timeout=timeout, verify=context) as http:
            try:
                request = http.build_request(method, self._url + path, **options)
                response = await http.send(request, stream=True)
            except (httpx.ReadError, httpx.RemoteProtocolError, AttributeError, RuntimeError) as error:
                # With uvloop, Open WebUI's event loop, a connection that breaks at once has no socket, and httpx raises
                # AttributeError on None, or RuntimeError because the handler is closed.
                raise TemporaryProblem(str(self.problem(CANNOT_REACH))) from error
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError) as error:
                raise self.problem(CANNOT_REACH) from error
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
                return NotFound(message)
            if error.get("code") == "shutting_down":
                return TemporaryProblem(message)
            # Timeouts and full servers: a later try may succeed.
            is_final = 400 <= status < 500 and status not in (408, 425, 429)
            return Refusal(message) if is_final else ServerProblem(message)
        return self.problem(NOT_CALLBOARD)

    def problem(self, words: str) -> ServerProblem:
        """Return a problem with a text in which `{url}` stands for the server's address."""
        # Without a password in the URL, because users see the message.
        url = re.sub(r"//[^/@]*@", "//", self._url)
        return ServerProblem(words.format(url=url))


@cache
def make_tls_context(*, verify: bool) -> ssl.SSLContext:
    """Return the TLS context of all requests, because httpx would load the certificates for each, which takes 20 ms."""
    return httpx.create_ssl_context(verify=verify)


# --- Open WebUI: its users, its file store and its dialogs. ---------------------------------------------------------


def sign_user(user: Json) -> str:
    """Return a token that proves the user to the server, as Open WebUI signs it; "" if Open WebUI has no secret for it.

    Open WebUI adds such a token to its own requests only, not to requests of functions.
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


@contextmanager
def log_failure(failure: str) -> Iterator[None]:
    """Log any error of Open WebUI, whose versions differ, and continue. The log says "Open WebUI" and `failure`."""
    try:
        yield
    except Exception:
        log.exception("Callboard: Open WebUI %s", failure)


async def list_groups(user_id: str) -> list[str]:
    """Return the names of a user's groups; empty if Open WebUI cannot provide them."""
    with log_failure("did not give a user's groups"):
        from open_webui.models.groups import Groups

        return [str(group.name) for group in await Groups.get_groups_by_member_id(user_id)]
    return []


async def add_entries(function_id: str, agents: list[Json], access: str) -> None:
    """Add each agent without an entry to Open WebUI's models; `access` says who sees it.

    Without an entry, only admins see an agent. Existing entries are not changed, because admins may have edited them.
    """
    with log_failure("took no entries for the agents"):
        from open_webui.models.models import ModelForm, Models
        from open_webui.models.users import Users

        known = {entry.id for entry in await Models.get_base_models()}
        missing = [agent for agent in agents if f"{function_id}.{agent['id']}" not in known]
        grants = await list_grants(access) if missing else None
        if grants is None:
            return
        owner = await Users.get_super_admin_user()
        for agent in missing:
            prompts = [{"content": text, "title": [text, ""]} for text in agent["suggestions"]]
            entry = ModelForm(
                id=f"{function_id}.{agent['id']}",
                name=agent["name"],
                meta={
                    "description": agent["description"],
                    "profile_image_url": agent["icon"] or None,
                    "suggestion_prompts": prompts or None,
                },
                params={},
                access_grants=grants,
            )
            await Models.insert_new_model(entry, owner.id)


async def list_grants(access: str) -> list[Json] | None:
    """Return who may use a model, in Open WebUI's form; None, with a warning, if `access` or its group is unknown."""
    from open_webui.models.groups import Groups

    if access == "admins":
        return []
    who = [("user", "*")]
    if access != "everyone":
        kind, _, name = access.partition(":")
        groups = await Groups.get_groups(filter={}) if kind == "group" else []
        who = [("group", group.id) for group in groups if group.name == name]
        if not who:
            log.warning(
                "Callboard: the agents get no entries: the valve ACCESS is %r: it takes everyone, admins or "
                "group:NAME, of a group there",
                access,
            )
            return None
    return [{"principal_type": kind, "principal_id": id_, "permission": "read"} for kind, id_ in who]


# Types of files whose text Open WebUI's file dialog can show.
TEXT_TYPE = re.compile(r"text/.*|application/(.*\+)?(json|xml|yaml|x-yaml|toml|javascript|sql|x-ndjson|x-sh)\b.*")


def read_preview(kind: str, content: bytes) -> str:
    """Return the text of a file for Open WebUI's file dialog; "" if it is long or not text."""
    if len(content) > PREVIEW_BYTES or not TEXT_TYPE.fullmatch(kind):
        return ""
    return make_storable(content.decode("utf-8", "replace"))


async def store_file(page: Page, name: str, kind: str, content: bytes) -> str:
    """Save a file in Open WebUI's file store for the user, and return its URL; "" after an error."""
    url = ""
    with log_failure("did not keep a file"):
        from open_webui.models.files import Files
        from open_webui.routers.files import UploadFile, upload_file_handler

        file = UploadFile(io.BytesIO(content), filename=name, headers={"content-type": kind})
        user = SimpleNamespace(**page.user)
        stored = await upload_file_handler(page.request, file, metadata={}, process=False, user=user)
        url = f"/api/v1/files/{stored.id}/content"
        if text := read_preview(kind, content):
            # Open WebUI's dialog would show the text only of files that it has indexed.
            await Files.update_file_data_by_id(stored.id, {"content": text})
    return url


async def save_tasks(chat_id: str, tasks: list[Json]) -> None:
    """Save the tasks of a chat, which a page shows after a reload."""
    with log_failure("did not keep the tasks of a chat"):
        from open_webui.models.chats import Chats

        await Chats.update_chat_tasks_by_id(chat_id, tasks)


async def read_file(user: Json, file_id: str) -> bytes:
    """Return the content of a file in Open WebUI's store; b"" if it is not the user's, or after an error.

    The owner is checked because the browser names the file.
    """
    with log_failure("did not give a file"):
        from open_webui.models.files import Files
        from open_webui.storage.provider import Storage

        file = await Files.get_file_by_id(file_id)
        if file.user_id == user["id"]:
            return await asyncio.to_thread(Path(Storage.get_file(file.path)).read_bytes)
    return b""


def read_continued(body: Json) -> str | None:
    """Return the end of the answer that the user continues, which is the last message; None for a new answer."""
    match select_dicts(body.get("messages"))[-1:]:
        case [{"role": "assistant", **message}]:
            return str(message.get("content") or "")
    return None


async def read_message(page: Page) -> Json:
    """Return the message as Open WebUI has stored it; empty if it has not.

    Raises the errors of Open WebUI's database: with an empty message, an answer would be drawn from its start again.
    """
    try:
        from open_webui.models.chats import Chats

        return await Chats.get_message_by_id_and_message_id(page.chat_id, page.message_id) or {}
    except (ImportError, LookupError, TypeError, AttributeError):
        return {}


def read_totals(message: Json) -> Totals:
    """Return the totals of a message so far, from its last status line."""
    kept = [line["callboard"] for line in select_dicts(message.get("statusHistory")) if "callboard" in line]
    try:
        return Totals(kept[-1]["calls"], kept[-1]["seconds"], Counter(kept[-1]["endings"]))
    except (LookupError, TypeError):
        return Totals()  # The status lines were not made by the pipe.


async def attach_files(page: Page, messages: list[Json]) -> None:
    """Add the user's files to their last message, except images and sources, which Open WebUI has already added."""
    places = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if not places:
        return
    place = places[-1]
    sources = select_dicts(page.metadata.get("sources"))
    source_ids = [source["source"].get("id") for source in sources if source.get("source")]
    for file in select_dicts(page.metadata.get("files")):
        kind = str(file.get("content_type") or "application/octet-stream")
        if file.get("type") != "file" or kind.startswith("image/") or file.get("id") in source_ids:
            continue
        content = base64.b64encode(await read_file(page.user, str(file.get("id")))).decode()
        part = {
            "filename": str(file.get("name") or "file"),
            "file_data": f"data:{kind};base64,{content}" if content else "",
        }
        parts = messages[place].get("content")
        if not isinstance(parts, list):
            parts = [{"type": "text", "text": parts}]
        messages[place] = messages[place] | {"content": [*parts, {"type": "file", "file": part}]}


FEATURES = ("web_search", "image_generation", "code_interpreter")  # With a switch at the input.
# The tools whose results are sources, for versions before 0.12, which have no list of them.
CITED_TOOLS = ("fetch_url", "view_file", "view_knowledge_file", "query_knowledge_files", "query_chat_files")


TERMINAL_SKILL = "terminal:"  # The prefix of the ids of skills that Open WebUI does not store.
# Knowledge of a preset or a folder, as Open WebUI lists it in the prompt.
ATTACHED = "<attached_knowledge>"
KNOWLEDGE = re.compile(r'<knowledge type="(?P<type>[^"]*)" id="(?P<id>[^"]*)"(?: name="(?P<name>[^"]*)")?[^>]*/>\n')


class OpenWebUITools:
    """The tools that Open WebUI would give to a model in this request. They run as the user of the request."""

    def __init__(self, page: Page, tools: Json | None, messages: list[Json]) -> None:
        params = page.metadata.get("params") or {}
        # Open WebUI has then run the tools and features itself, and the prompt has their results.
        self._is_legacy = params.get("function_calling") == "legacy"
        self._tools: dict[str, Json] = {
            name: tool
            for name, tool in (tools or {}).items()
            if TOOL_NAME.fullmatch(name) and isinstance(tool.get("spec"), dict)
        }
        # Calling a tool's function bypasses Open WebUI's own approval, so the server asks instead.
        self._asks_first = params.get("tool_approval_mode") not in (None, "", "full")
        self._page = page
        self._messages = messages
        self._skill_ids: list[str] = page.metadata.get("skill_ids") or []

    async def leave_out_unshared(self) -> list[str]:
        """Leave out the skills and the knowledge of a preset that the user may not see, and return their names.

        Open WebUI lists such knowledge in the prompt, and its tools find nothing in it.
        """
        if self._is_legacy:
            return []
        names: list[str] = []
        with log_failure("did not say which skills a user may see"):
            if self._skill_ids:
                from open_webui.models.skills import Skills

                found = await Skills.get_skills(user_id=str(self._page.user["id"]), ids=self._skill_ids)
                seen = {skill.id for skill in found}
                hidden = [one for one in self._skill_ids if one not in seen and not one.startswith(TERMINAL_SKILL)]
                self._skill_ids = [one for one in self._skill_ids if one not in hidden]
                names += [f"skill {one}" for one in hidden]
        with log_failure("did not say which knowledge a user may read"):
            for place, message in enumerate(self._messages):
                prompt = message.get("content") if message.get("role") == "system" else None
                if isinstance(prompt, str) and ATTACHED in prompt:
                    prompt, hidden = await self._leave_out_knowledge(prompt)
                    self._messages[place] = message | {"content": prompt}
                    names += [f"knowledge {one}" for one in hidden]
        return names

    async def _leave_out_knowledge(self, prompt: str) -> tuple[str, list[str]]:
        """Return the prompt without the knowledge that the user may not read, and the names of that knowledge."""
        from open_webui.utils.access_control.files import get_accessible_folder_files

        user = SimpleNamespace(**self._page.user)
        hidden = []
        for tag in KNOWLEDGE.finditer(prompt):
            entry = {name: html.unescape(value) for name, value in tag.groupdict("").items()}
            if not await get_accessible_folder_files([entry], user):
                prompt = prompt.replace(tag[0], "")
                hidden.append(entry["name"] or entry["id"])
        return prompt.replace(f"{ATTACHED}\n</attached_knowledge>", ""), hidden

    def describe(self) -> Json:
        """Return the fields of a run's request: the tools, and the features that the user or the preset switched on."""
        if self._is_legacy:
            return {}
        switched = self._page.metadata.get("features") or {}
        features = [name for name in FEATURES if switched.get(name)]
        # Open WebUI sends it as on also for users who have not decided: that would be eight tools in every request.
        settings = (self._page.user.get("settings") or {}).get("ui") or {}
        if switched.get("memory") and settings.get("memory") is True:
            features.append("memory")
        if self._skill_ids:
            features.append("skills")
        tools = [self._describe(name, tool) for name, tool in self._tools.items()][:MAX_TOOLS]
        fields = {"openwebui_tools": tools, "openwebui_features": features}
        return {name: values for name, values in fields.items() if values}

    def _describe(self, name: str, tool: Json) -> Json:
        parameters = tool["spec"].get("parameters")
        is_builtin = tool.get("type") == "builtin"
        # MCP servers and tools in the browser have no `tool_id`.
        tool_id = tool.get("tool_id") or (tool.get("server") or {}).get("url") or tool.get("type") or ""
        return {
            "name": name,
            "id": str(tool_id)[:MAX_TOOL_ID_CHARS],
            "description": str(tool["spec"].get("description") or ""),
            "parameters": json.loads(json.dumps(parameters, default=str)) if isinstance(parameters, dict) else {},
            "is_builtin": is_builtin,
            # This tool is itself a question to the user.
            "asks_first": self._asks_first and not (is_builtin and name == "ask_user"),
        }

    async def serve(self, request: Json, client: "ServerClient") -> None:
        """Run the tool that the server requests, and send it the result; None if the tool did not end in time."""
        value = None
        with suppress(TimeoutError):
            async with asyncio.timeout(request.get("timeout_seconds")):
                value = await self.run(request["name"], request["arguments"])
        await client.answer(request["request_id"], value)

    async def run(self, name: str, arguments: Json) -> Json:
        """Run a tool, and return its result or its error in the server's form."""
        try:
            tool = self._tools[name]
            if tool.get("type") != "mcp":
                # As Open WebUI does: MCP servers check their own arguments.
                known = (tool["spec"].get("parameters") or {}).get("properties") or {}
                arguments = {key: value for key, value in arguments.items() if key in known}
            result = await self._call(name, tool, arguments)
        except Exception as error:
            # Anything may be raised by a tool of the workspace.
            log.warning("Callboard: the tool %s of Open WebUI failed", name, exc_info=True)
            return {"error": f"{type(error).__name__}: {error}"[:NOTICE_CHARS]}
        return await self._read_result(name, tool, arguments, result)

    async def _call(self, name: str, tool: Json, arguments: Json) -> object:
        if not tool.get("direct"):
            from open_webui.utils.tools import get_updated_tool_function

            context = {"__messages__": self._messages, "__files__": self._page.metadata.get("files") or []}
            function = await get_updated_tool_function(function=tool["callable"], extra_params=context)
            return await function(**arguments)
        if not self._page.ask_user:
            raise RuntimeError("this tool runs in the user's browser, and no page is open")
        call = {
            "id": str(uuid.uuid4()),
            "name": name,
            "params": arguments,
            "server": tool.get("server", {}),
            "session_id": self._page.session_id,
        }
        return await self._page.ask_user({"type": "execute:tool", "data": call})

    async def _read_result(self, name: str, tool: Json, arguments: Json, result: object) -> Json:
        """Return a tool's result as Open WebUI reads it: text for the model, files, pages and sources.

        These functions of Open WebUI are private. If one is missing or fails, the result says what could not be read:
        the tool has run, so its result counts.
        """
        lost: list[str] = []
        text, files, embeds, sources = write_plainly(result), [], [], []
        with note_failure(lost, "its files and pages"):
            from open_webui.utils import middleware

            text, files, embeds = await middleware.process_tool_result(
                self._page.request,
                name,
                result,
                tool.get("type", ""),
                bool(tool.get("direct")),
                self._page.metadata,
                SimpleNamespace(**self._page.user),
            )
        text = str(text or "")
        if (error := read_tool_error(text)) is not None:
            return {"error": error[:NOTICE_CHARS]}
        if tool.get("type") == "builtin":
            with note_failure(lost, "its sources"):
                from open_webui.utils import middleware

                if name in getattr(middleware, "CITATION_TOOL_NAMES", CITED_TOOLS):
                    read_sources = middleware.get_citation_source_from_tool_result
                    sources = read_sources(name, arguments, text, tool.get("tool_id", ""))
        kept: list[Json] = []
        with note_failure(lost, "its files"):
            kept += [await self._keep_file(name, file) for file in select_dicts(files) if file.get("url")]
        if len(text) > TOOL_RESULT_CHARS:
            text = f"{text[:TOOL_RESULT_CHARS]}\n… [{len(text) - TOOL_RESULT_CHARS:,} more characters]"
        if lost:
            text += f"\n\n{NOT_READ.format(parts=' and '.join(lost))}"
        return {
            "text": make_storable(text),
            "files": kept,
            "embeds": [embed for embed in embeds or () if isinstance(embed, str)],
            "sources": select_dicts(sources),
        }

    async def _keep_file(self, name: str, file: Json) -> Json:
        """Return the file with an address: one inside a result is moved to Open WebUI's file store."""
        head, comma, content = str(file["url"]).partition(";base64,")
        if not comma or not head.startswith("data:"):
            return file
        kind = head.removeprefix("data:")
        name = f"{name}.{kind.partition('/')[2]}"
        if not (url := await store_file(self._page, name, kind, base64.b64decode(content))):
            raise OSError("the file was not stored")
        return file | {"url": url}


@contextmanager
def note_failure(lost: list[str], what: str) -> Iterator[None]:
    """Log any error of Open WebUI, add `what` and the kind of the error to `lost`, and continue."""
    try:
        yield
    except Exception as error:
        log.exception("Callboard: Open WebUI did not read %s of a tool's result", what)
        lost.append(f"{what} ({type(error).__name__})")


def write_plainly(result: object) -> str:
    """Return a tool's result as text, without Open WebUI."""
    with suppress(TypeError, ValueError, RecursionError):
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return str(result)


def read_tool_error(text: str) -> str | None:
    """Return the message of a result that is nothing but an error; None for any other result."""
    with suppress(ValueError, RecursionError):
        result = json.loads(text)
        if isinstance(result, dict) and result.keys() == {"error"}:
            return str(result["error"])
    return None


# Approvals that wait. Open WebUI 0.12 and later keeps a pending card for a call of which a pipe sent no output, also
# over its restarts. After "Allow" it looks the tool up again, runs it, and calls the pipe for the rest of the answer.


def is_card(item: Json) -> bool:
    """Return whether the item of a message is a pending card, or was."""
    return item.get("type") == "function_call" and item["id"] == f"fc_{item['call_id']}"


QUESTION_ID = "msg_question_"  # Begins the id of the item above a pending card.


def is_question(item: Json) -> bool:
    """Return whether the item of a message is the question above a pending card."""
    return str(item.get("id")).startswith(QUESTION_ID)


def list_newest_cards(message: Json) -> list[Json]:
    """Return the cards that the answer has waited for last: neighbouring items, whose outputs come after all of them.

    The answer went on after earlier cards, so everything until the newest ones is shown.
    """
    items = select_dicts(message.get("output"))
    groups = groupby(items, key=lambda item: is_card(item) or is_question(item))
    newest = [[*filter(is_card, group)] for is_group, group in groups if is_group]
    return newest[-1] if newest else []


def list_decided(cards: list[Json]) -> dict[str, bool]:
    """Return for each card that the user has answered whether its call may run, by the call's id."""
    answered = [card for card in cards if card.get("approved") or card.get("status") == "rejected"]
    return {str(card["call_id"]): card.get("status") != "rejected" for card in answered}


def select_of_run(decided: dict[str, bool], answer: LeftAnswer) -> dict[str, bool]:
    """Return the answers for calls of this run; all if it has none of them.

    In a message that was continued, a stopped card of an earlier run may be next to the newest cards.
    """
    of_run = {row.get("tool_call_id") for row in answer.rows}
    return {call_id: is_allowed for call_id, is_allowed in decided.items() if call_id in of_run} or decided


BREAK_AFTER = re.compile(r"[@./_-]")


def name_card(call: Call) -> str:
    """Return the name of a pending card. Its last character, without width, is in the name of no real tool.

    On a phone, Open WebUI cuts a name at a place where a line may break: the argument gets more of these.
    """
    name: str = make_call_item(replace(call, label=""), "")["name"]
    title, label, about = name.partition(LABEL)
    return title + label + BREAK_AFTER.sub("\\g<0>\u200b", about) + "\u200b"


def write_ends(items: list[Json], calls: dict[str, Call], decided: Iterable[str], *, is_over: bool) -> list[Json]:
    """Return the items of a message with the ends of the calls on their cards.

    The questions of the calls in `decided` go. `is_over`: none waits, so no item has to keep the cards apart.
    """
    written = []
    for item in items:
        if is_question(item):
            if is_over:
                continue
            if item["id"].removeprefix(QUESTION_ID) in decided:
                # An empty item would not keep cards apart.
                item = item | {"content": [{"type": "output_text", "text": QUESTION}]}
        call = calls.get(item.get("call_id", ""))
        if not call or call.is_open:
            pass
        elif is_card(item):
            is_late = (item.get("status") == "rejected") != (call.state == "rejected")
            title = call.title or item["name"].replace("\u200b", "")
            call = replace(call, title=title, mark=call.mark or ANSWERED_ELSEWHERE * is_late)
            made = make_call_item(call, "")
            item = item | {name: made[name] for name in ("name", "status")} | {"approved": call.state != "rejected"}
        elif item.get("type") == "function_call_output":
            made = make_output_item(call, "")
            item = item | {name: made[name] for name in ("status", "output")}
        written.append(item)
    return written


TOOL_NOT_FOUND = re.compile(r'Error: Tool "[^"]*" not found\.')


def list_without_tool(message: Json) -> list[str]:
    """Return the ids of the calls whose tools Open WebUI has not found."""
    outputs = [item for item in select_dicts(message.get("output")) if item.get("type") == "function_call_output"]
    return [str(item["call_id"]) for item in outputs if TOOL_NOT_FOUND.fullmatch(str(item["output"][0].get("text")))]


async def write_cards(page: Page, calls: dict[str, Call], decided: Iterable[str], *, is_over: bool) -> None:
    """Write the ends of calls onto their cards, in the saved message and on the pages that show it."""
    with log_failure("did not change the cards of answered calls"):
        from open_webui.models.chats import Chats
        from open_webui.socket.main import get_event_emitter

        async with Chats.edit_message_output(page.chat_id, page.message_id) as message:
            message["output"] = output = write_ends(message["output"], calls, decided, is_over=is_over)
        place = {"user_id": page.user.get("id"), "chat_id": page.chat_id, "message_id": page.message_id}
        emit = await get_event_emitter(place, update_db=False)
        await emit({"type": "chat:completion", "data": {"output": output}})


def offer_tools(metadata: Json, names: Iterable[str], run: Callable[[], Awaitable[str]]) -> None:
    """Add tools to those that Open WebUI finds for this answer; it asks about their calls, and then runs `run`."""
    tools = metadata.setdefault("tools", {})
    for name in names:
        spec = {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}}
        tools[name] = {"tool_id": "callboard", "type": "function", "direct": False, "spec": spec, "callable": run}
    metadata.setdefault("params", {})["tool_approval_mode"] = "ask"


# Events that an answer which goes on needs also from before.
NOT_SHOWN = ("source", "plan", "run_start", "reconnecting", "parked", "done", "error")


def skip_shown(deliver: Deliver, decided: Iterable[str], hidden: list[str]) -> Deliver:
    """Return a function that delivers the events after the ends of the calls that were decided.

    Of the earlier events it delivers those that are not shown yet: sources, the ends of these calls as `card_end`, and
    the calls in `hidden` with all their events.
    """
    left = set(decided)
    starts: dict[str, Json] = {}

    def deliver_rest(event: Json) -> None:
        kind = event["type"]
        is_shown = bool(left) and event.get("tool_call_id") not in hidden
        if kind == "tool_call_start":
            starts[event["tool_call_id"]] = event
        if kind in ("tool_call_complete", "tool_call_error") and event["tool_call_id"] in left:
            left.discard(event["tool_call_id"])
            if is_shown:
                deliver(event | starts.get(event["tool_call_id"], {}) | {"type": "card_end"})
        if not is_shown or kind in NOT_SHOWN:
            deliver(event)

    return deliver_rest


# What Open WebUI draws as it is, unless more than a letter begins the line. It makes a link of "www.".
PROSE = re.compile(r"(?i)(?!.*www\.)[^\W\d_](?:[^\W_]|[ ,;?!'’\"“”.:()%€@-])*")
NAMED_LINE = re.compile(r"([^\W_](?:[\w-]*[^\W_])?:)(?: |$)")


def draw_text(text: str) -> str:
    """Return Markdown that Open WebUI draws as this text, with its line breaks and indents; names of arguments bold."""
    return "  \n".join(map(draw_line, show_invisible(text).split("\n")))


def draw_said(text: str) -> str:
    """Return a message of the user as a quotation; the server finds the message by the visible characters."""
    visible = "".join(char if char.isprintable() or char == "\n" else " " for char in make_storable(text))
    return SAID + draw_text(visible).replace("\n", "\n> ")


def draw_line(line: str) -> str:
    """Return a line as Markdown: prose as it is, any other as code, which is not read as Markdown."""
    named = NAMED_LINE.match(line)
    # Open WebUI draws a space between a text and bold text, so the mark is not before the bold text.
    name = f"**{QUESTION}{named[1]}** " if named else QUESTION
    rest = line[named.end() :] if named else line
    words = rest.lstrip(" ")
    indent = "\xa0" * (len(rest) - len(words))
    if words and not PROSE.fullmatch(words):
        fence = "`" * (max([0, *map(len, re.findall("`+", words))]) + 1)
        # Open WebUI finds tags, variables and citations in code too.
        words = re.sub(r"[<{[]", "\\g<0>\u2060", words.replace("  ", "\xa0\xa0"))
        words = f"{fence} {words} {fence}"
    return name + indent + words


def show_invisible(text: str) -> str:
    """Return the text with invisible characters, and those that change its direction, as escapes."""
    return "".join(char if char.isprintable() or char in "\n\u3000\xa0" else ascii(char)[1:-1] for char in text)


def make_visible(text: str) -> str:
    """Return the text as HTML, with invisible characters as escapes."""
    return html.escape(show_invisible(text))


def make_title(label: str) -> str:
    """Return the label of a call as the title of its card: one line without invisible characters."""
    return show_invisible(CONTROL.sub(" ", make_storable(label)))


def show_values(value: object) -> object:
    """Return a JSON value with `show_invisible` applied to its texts."""
    match value:
        case str():
            return show_invisible(value)
        case dict():
            return {show_invisible(str(name)): show_values(member) for name, member in value.items()}
        case list():
            return [show_values(member) for member in value]
    return value


def make_dialog(question: Json, agent_name: str) -> Json:
    """Return the event that opens a plain dialog, for passwords and versions without forms.

    It renders Markdown and then HTML.
    """
    name = make_visible(CONTROL.sub(" ", agent_name))
    parts = [f'<p style="margin: 0 0 0.5em"><b>{name}</b> asks</p>']
    if message := make_visible(question["message"]):
        if is_approval(question):
            # Bold, so that a wrapped line of a value cannot be taken for another argument.
            message = ARGUMENT_NAME.sub(r"<b>\g<0></b>", message)
        style = "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 50vh; overflow: auto"
        parts.append(f'<pre style="{style}">{message}</pre>')
    if is_approval(question):
        parts.append(f'<p style="margin: 0.5em 0 0">{IF_DECLINED}</p>')
    return {
        "type": "confirmation" if question["kind"] == "confirmation" else "input",
        "data": {
            "title": question["title"],
            "placeholder": question["placeholder"],
            # For Markdown, each part is an HTML block that ends at the empty line.
            "message": "\n\n".join(parts),
            "type": question["kind"],
        },
    }


def make_form(question: Json, agent_name: str) -> Json:
    """Return the event that opens Open WebUI's form for the question; it draws every text as it is."""
    texts = [question[name].replace(MARK, ascii(MARK)[1:-1]) for name in ("title", "message", "placeholder")]
    if is_approval(question):
        # Otherwise a wrapped line of a value could be taken for another argument.
        texts[1] = ARGUMENT_NAME.sub(rf"{MARK} \g<0>", texts[1])
    return {
        "type": "request:elicitation",
        "data": {
            "mode": "url" if question.get("url") else "form",
            "server_name": show_invisible(CONTROL.sub(" ", f"{agent_name} asks")),
            "message": show_invisible("\n\n".join(filter(None, texts))),
            "requestedSchema": show_values(make_schema(question)),
            "url": question.get("url", ""),
            "timeout_ms": FORM_TIMEOUT_MS,
        },
    }


def make_schema(question: Json) -> Json:
    """Return the schema of the question's form; a text or a choice is a form with the fields `answer` and `other`."""
    if is_approval(question):
        return make_approval_schema(question)
    if question["kind"] != "input":
        return question.get("schema") or {}
    fields: Json = {"answer": {"type": "string", "title": "Answer"}}
    if question.get("choices"):
        fields["answer"]["enum"] = question["choices"]
    if question.get("other"):
        fields["other"] = {"type": "string", "title": OTHER_ANSWER}
    has_to_choose = question.get("choices") and not question.get("other")
    return {"type": "object", "properties": fields, "required": ["answer"] if has_to_choose else []}


def make_approval_schema(question: Json) -> Json:
    """Return the form for the approval of a call: the decision, the arguments that can be changed, and words."""
    decisions = [ONCE, ALWAYS] if question.get("remember") else [ONCE]
    changes = question.get("schema") or {}
    fields: Json = {"answer": {"type": "string", "title": "Decision", "enum": decisions, "default": ONCE}}
    for name, schema in changes.get("properties", {}).items():
        fields[ARGUMENT + name] = schema | {"title": f"Change “{schema.get('title') or name}”"}
    fields["words"] = {"type": "string", "title": WORDS, "description": IF_WORDS}
    required = ["answer", *(ARGUMENT + name for name in changes.get("required", []))]
    return {"type": "object", "properties": fields, "required": required}


def read_approval(question: Json, content: object) -> bool | str | Json:
    """Return the decision of an approval's form: with words, with the arguments if they can be changed, or alone."""
    if not isinstance(content, dict):
        return False
    if words := str(content.get("words") or "").strip():
        return {"words": words}
    if content.get("answer") not in (ONCE, ALWAYS):
        return False
    is_always = content["answer"] == ALWAYS
    if fields := (question.get("schema") or {}).get("properties"):
        return {"arguments": {name: content.get(ARGUMENT + name) for name in fields}, "always": is_always}
    return "always" if is_always else True


def list_field_questions(question: Json) -> Iterator[tuple[str, Json]]:
    """Yield the name and a question for each field of a form, for versions of Open WebUI that have no forms."""
    schema = make_schema(question)
    for name, field_ in schema.get("properties", {}).items():
        options = field_.get("items") or field_
        titles = [str(option.get("title")) for option in options.get("oneOf") or options.get("anyOf") or []]
        hints = [str(field_[key]) for key in ("description", "format") if field_.get(key)]
        if field_.get("type") == "boolean":
            hints.append("Yes or no")
        if name not in schema.get("required", ()):
            hints.append(IF_EMPTY)
        default = field_.get("default", "")
        yield (
            name,
            {
                "kind": "input",
                "title": field_.get("title") or name,
                "message": "\n".join([question["message"], *hints, *list_choices(titles)]).strip(),
                "placeholder": "" if isinstance(default, (bool, list)) else str(default),
                "tool_call_id": question["tool_call_id"],
            },
        )


def list_choices(choices: Iterable[str]) -> list[str]:
    """Return the choices as numbered lines, and how to choose; the server understands numbers."""
    lines = [f"{number}. {choice}" for number, choice in enumerate(choices, 1)]
    return [*lines, BY_NUMBER] if lines else []


# --- AnswerStream: one answer, from its first event to its last. -----------------------------------------------------

# The event loop keeps only weak references to tasks.
background_tasks: set[asyncio.Task[None]] = set()


def run_in_background(work: Coroutine[Any, Any, None]) -> None:
    """Start the work as a task."""
    task = asyncio.create_task(work)
    background_tasks.add(task)
    task.add_done_callback(background_tasks.discard)


def read_answer(question: Json, answer: object) -> bool | str | Json | None:
    """Return a dialog's result in the server's form; None if it is not an answer, for example `{"error": …}`."""
    if isinstance(answer, dict):
        return read_form_answer(question, answer)
    if question.get("kind") == "form":
        return False if answer is False else None
    if question.get("kind") == "confirmation":
        return answer if isinstance(answer, bool) else None
    return answer if isinstance(answer, str) else None


def read_form_answer(question: Json, answer: Json) -> bool | str | Json | None:
    """Return the result of a form: its values, False if the user declines, None if they close it."""
    content = answer.get("content")
    is_call = is_approval(question)
    match answer.get("action"), question["kind"]:
        case "accept", "confirmation":
            return read_approval(question, content) if is_call else True
        case "accept", _ if isinstance(content, dict):
            is_text = question["kind"] == "input"
            return str(content.get("other") or content.get("answer") or "") if is_text else content
        case "decline", "confirmation" | "form":
            return False
        case "cancel", "confirmation" if not question.get("url"):
            # Closing refuses, as in the plain dialog.
            return False
    return None


def is_unanswered(answer: object) -> bool:
    """Return whether Open WebUI ended a dialog, and not the user: the page was closed, or shows another chat."""
    return isinstance(answer, dict) and ("error" in answer or answer.get("status") == "cancelled")


def is_gone(answer: object) -> bool:
    """Return whether there is no page. A dialog that timed out may be opened again."""
    return isinstance(answer, dict) and "error" in answer and "timed out" not in str(answer["error"])


def spell_out(question: Json) -> Json:
    """Return the question with its choices or its address in its message, for a dialog without forms."""
    lines = list_choices(question.get("choices", ()))
    if question.get("url"):
        lines = [OPEN_URL, question["url"]]
    return question | {"message": "\n".join([question["message"], "", *lines]).strip()} if lines else question


# The pages of a user, by the ids of their sessions. In 0.12.4, `SESSION_POOL` has the chats that each page shows.


def list_sessions(page: Page) -> list[str]:
    """Return the sessions of the user's pages that show the chat."""
    from open_webui.socket.main import SESSION_POOL

    mine = {one: session for one, session in [*SESSION_POOL.items()] if session.get("id") == page.user.get("id")}
    if not is_release(0, 12):
        # It is unknown which chats pages show. They ignore dialogs of other chats.
        return [page.session_id] if page.session_id in mine else [*mine]
    return [one for one, session in mine.items() if page.chat_id in session.get("chat_ids", ())]


async def ask_session(page: Page, session_id: str, event: Json) -> object:
    """Open a dialog in one page, and return Open WebUI's result."""
    from open_webui.socket.main import get_event_call

    call = await get_event_call(page.metadata | {"session_id": session_id})
    # With a session in its data, the dialog of a closed page does not move to another page, which has one already.
    return await call(event | {"data": event["data"] | {"session_id": session_id}})


async def call_person(page: Page, title: str) -> None:
    """Show in the user's pages and in their list of chats that this chat waits for them, unless a page shows it."""
    with log_failure("did not show that a chat waits for its user"):
        if not is_release(0, 12) or bool(await asyncio.to_thread(list_sessions, page)):
            return
        from open_webui.models.chats import Chats
        from open_webui.socket.main import get_event_emitter

        user_id = str(page.user["id"])
        await Chats.mark_chat_unread_by_id(page.chat_id, user_id)
        # A message that does not exist: only pages with other chats handle the event. They draw the title as it is.
        place = {"user_id": user_id, "chat_id": page.chat_id, "message_id": uuid.uuid4().hex}
        emit = await get_event_emitter(place, update_db=False)
        await emit({"type": "chat:list", "data": {}})
        toast = {"done": True, "title": show_invisible(title), "content": WAITS}
        await emit({"type": "chat:completion", "data": toast})


@dataclass(slots=True)
class Reply:
    """The answer to a question, for the server; `is_asked`: a user was shown the question."""

    is_asked: bool = False
    value: bool | str | Json | None = None


class Dialogs:
    """Asks the questions of one answer, one after another, in every page of the user that shows the chat."""

    def __init__(self, page: Page, agent_name: str, turn: asyncio.Lock, page_seconds: float) -> None:
        """Prepare to ask; `page_seconds` is the time until a new chat's page is ready.

        `turn` is the lock of the user's chat, because a second plain dialog in a page would replace the first one.
        """
        self.agent_name = agent_name
        self._page = page
        self._ready_at_seconds = time.monotonic() + page_seconds
        self._turn = turn
        self._is_new = bool(page.session_id)  # The page of the request may not have joined its new chat yet.
        self._has_called = False

    async def ask(self, question: Json) -> Reply:
        """Return the user's reply. An approval that can wait is asked only while a page shows the chat."""
        reply = Reply()
        if self._page.ask_user is None:
            return reply
        try:
            async with asyncio.timeout(question.get("timeout_seconds")), self._turn:
                # The page of a new chat ignores events until it knows the chat's id (before 0.12).
                await asyncio.sleep(self._ready_at_seconds - time.monotonic())
                await self._ask_pages(question, reply)
        except TimeoutError:
            log.info("Callboard: the user gave no answer in time")
        except Exception as error:
            log.warning("Callboard: the user gave no answer (%s)", type(error).__name__, exc_info=True)
        return reply

    async def _ask_pages(self, question: Json, reply: Reply) -> None:
        """Ask in each page, also in those that open the chat later, until the first answer."""
        asking: dict[str, asyncio.Task[object]] = {}
        try:
            while await self._ask_new_pages(question, asking):
                if not asking:
                    continue
                done, _ = await asyncio.wait(
                    asking.values(), timeout=PAGE_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                reply.is_asked = reply.is_asked or not done
                for session_id in [one for one, task in asking.items() if task in done]:
                    answer = asking.pop(session_id).result()
                    if not is_unanswered(answer):
                        reply.value, reply.is_asked = read_answer(question, answer), True
                        return
                    if not session_id and is_gone(answer):
                        return
                    self._is_new = self._is_new and session_id != self._page.session_id
                if done:
                    # Open WebUI knows a moment later that a page has left the chat.
                    await asyncio.sleep(PAGE_POLL_SECONDS)
        finally:
            for task in asking.values():
                task.cancel()

    async def _ask_new_pages(self, question: Json, asking: dict[str, asyncio.Task[object]]) -> bool:
        """Ask in the pages that are not in `asking`; return False if the call waits because there is no page."""
        pages = await self._list_pages()
        for session_id in asking.keys() - pages.keys():
            # A plain dialog would stay open in a page that has left the chat, and never be answered.
            asking.pop(session_id).cancel()
        for session_id, ask in pages.items():
            if session_id not in asking:
                asking[session_id] = asyncio.create_task(self._open(question, ask))
        if asking:
            return True
        if question.get("can_wait"):
            return False
        if not self._has_called:
            self._has_called = True
            await call_person(self._page, f"{self.agent_name} asks: {question['title']}")
        await asyncio.sleep(PAGE_POLL_SECONDS)
        return True

    async def _list_pages(self) -> dict[str, AskUser]:
        """Return functions that ask in the pages, by session; "" is the page of a chat that is not saved."""
        assert self._page.ask_user
        if self._page.is_saved:
            with suppress(ImportError):
                sessions = await asyncio.to_thread(list_sessions, self._page)
                if self._page.session_id in sessions:
                    self._is_new = False
                elif self._is_new:
                    sessions.append(self._page.session_id)
                return {one: partial(ask_session, self._page, one) for one in sessions}
        return {"": self._page.ask_user}

    async def _open(self, question: Json, ask: AskUser) -> object:
        """Open the question's dialog in one page, and return Open WebUI's result."""
        if is_release(0, 12) and question["kind"] != "password":
            return await ask(make_form(question, self.agent_name))
        if question["kind"] != "form":
            return await ask(make_dialog(spell_out(question), self.agent_name))
        values: Json = {}
        for name, asked in list_field_questions(question):
            answer = await ask(make_dialog(asked, self.agent_name))
            if answer is False or isinstance(answer, dict):
                return answer
            values[name] = answer
        return {"action": "accept", "content": values}


async def never_run() -> str:
    """Stand for the tool of a call that waits: Open WebUI looks the tool up again after the approval."""
    return NOT_APPROVED


class AnswerStream:
    """Streams one answer: reads the server's events, asks the user, and cancels the run if the user stops it."""

    def __init__(
        self,
        page: Page,
        client: ServerClient,
        read: Callable[[Deliver], Coroutine[Any, Any, None]],
        emitter: Emitter,
        transcript: Transcript,
        dialogs: Dialogs,
        tools: OpenWebUITools | None,
    ) -> None:
        """Prepare an answer whose events `read` delivers.

        `tools` is None for an answer that is restored: the tools of its request were lost with the old process.
        """
        self.transcript = transcript
        self._page = page
        self._client = client
        self._read = read
        self._emitter = emitter
        self._dialogs = dialogs
        self._tools = tools
        self._saved_tasks: list[Json] | None = None
        self._is_disconnected = False
        self._requests: dict[str, asyncio.Task[None]] = {}  # The server's questions and requests for tools, by id.
        self._questions: dict[str, Json] = {}

    async def stream(self) -> AsyncGenerator[Json, None]:
        """Yield the updates of the answer for Open WebUI. If the user stops it, the last updates close every block.

        If Open WebUI takes no more updates, the blocks are closed in the message that it has saved.
        """
        open_webui = asyncio.current_task()
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(queue.put_nowait))
        # None wakes the loop when the reader has ended or failed.
        reader.add_done_callback(lambda _: queue.put_nowait(None))
        is_sent = False
        try:
            try:
                async for update in self._follow(reader, queue):
                    yield update
            except asyncio.CancelledError:
                self._stop(reader, queue)
                for update in self._last_updates():
                    yield update
                is_sent = True
                raise
            except ServerProblem as problem:
                log.warning("Callboard: %s", problem)
                # Open WebUI 0.11 loses an answer that ends before its page has received the start.
                await asyncio.sleep(0 if self.transcript.pieces else UPDATE_INTERVAL_SECONDS)
                self.transcript.close("the connection was lost", str(problem))
            except Exception:
                log.exception("Callboard: the answer failed")
                self._disconnect(reader, cancels_run=True)
                self.transcript.close("the pipe failed", PIPE_FAILED)
            for update in self._last_updates():
                yield update
            is_sent = True
        finally:
            if not is_sent:
                self._stop(reader, queue)
                if open_webui and self._page.is_saved:
                    run_in_background(self._mend_message(open_webui))
            self._disconnect(reader, cancels_run=False)
            run_in_background(self._save_new_tasks())
            if parked := [call.id for call in self.transcript.parked]:
                titles = [one["title"] for one in self._questions.values() if one.get("tool_call_id") in parked]
                run_in_background(call_person(self._page, f"{self._dialogs.agent_name}: {(titles or [WAITS])[0]}"))

    async def _follow(self, reader: asyncio.Task[None], queue: asyncio.Queue[Json | None]) -> AsyncIterator[Json]:
        """Yield the updates for the events in the queue until the answer has ended; raises the reader's error."""
        while not self.transcript.ended:
            event = await self._wait(queue)
            if event:
                try:
                    await self._handle(event)
                finally:
                    self.transcript.apply(event)
                    self._close_answered()
            elif reader.done():
                reader.result()
            if queue.empty():
                await self._save_new_tasks()
                for update in self._emitter.updates(self.transcript, time.monotonic()):
                    yield update

    async def _wait(self, queue: asyncio.Queue[Json | None]) -> Json | None:
        """Return the next event; None if the reader has ended, or a delayed change is due first."""
        due_at_seconds = self._emitter.due_at_seconds
        seconds = None if due_at_seconds == math.inf else due_at_seconds - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await queue.get()
        return None

    def _stop(self, reader: asyncio.Task[None], queue: asyncio.Queue[Json | None]) -> None:
        """Cancel the run, and close the answer after the events that have arrived: they say which calls have ended."""
        self._disconnect(reader, cancels_run=True)
        while not queue.empty():
            event = queue.get_nowait()
            # A stopped answer no longer waits for approvals.
            if event and event["type"] != "parked":
                self.transcript.apply(event | {"files": []})
        self.transcript.close(STOPPED_BY_USER, how="stopped")

    async def _mend_message(self, open_webui: asyncio.Task[Any]) -> None:
        """Show the end of an answer that was stopped while Open WebUI was busy: close the blocks of its saved message.

        `open_webui`: the task in which Open WebUI saves the message as it was.
        """
        await asyncio.wait({open_webui})
        with log_failure("did not get the end of an answer that was stopped"):
            from open_webui.models.chats import Chats
            from open_webui.socket.main import get_event_emitter

            emit = await get_event_emitter(self._page.metadata)
            for update in self._last_updates():
                if "event" in update:
                    await emit(update["event"])
            if change := close_blocks(await read_message(self._page), self.transcript.pieces):
                place = self._page.chat_id, self._page.message_id
                await Chats.upsert_message_to_chat_by_id_and_message_id(*place, change)
                await emit({"type": "chat:completion", "data": change})

    def _last_updates(self) -> Iterator[Json]:
        """Yield the last updates of an answer that has ended, or that waits for approvals from now on."""
        yield from self._emitter.updates(self.transcript, time.monotonic(), final=True)
        if parked := self.transcript.parked:
            offer_tools(self._page.metadata, map(name_card, parked), never_run)
            yield from self._emitter.park(parked)

    async def text(self) -> str:
        """Return the whole answer when it has ended."""
        await self._finish()
        return self.transcript.render()

    async def plain_text(self) -> str:
        """Return the model's text alone; "" if the answer has failed."""
        await self._finish()
        if self.transcript.has_failed:
            return ""
        texts = [piece.render() for piece in self.transcript.pieces if isinstance(piece, Text)]
        return "".join(texts)

    async def _finish(self) -> None:
        async for _ in self.stream():
            pass

    async def _handle(self, event: Json) -> None:
        """Do what an event asks of the pipe: answer a request, stop a tool, or store the files of a call."""
        match event["type"]:
            case "input_request" | "tool_request":
                # A server that takes the run over sends open requests again.
                request_id = str(event["request_id"])
                if request_id not in self._requests:
                    if event["type"] == "input_request":
                        self._questions[request_id] = event
                    self._requests[request_id] = asyncio.create_task(self._answer(event))
            case "tool_call_error":
                # The call has ended without the tool's result, for example because its time is over.
                if tool := self._requests.get(f"{TOOL_REQUEST}{event.get('tool_call_id')}"):
                    tool.cancel()
            case "tool_call_complete" | "card_end":
                # Removed first: if the user stops the answer meanwhile, the call is shown without its files.
                files = select_dicts(event.pop("files", None))
                event["files"] = [await self._store_file(file) for file in files]

    async def _store_file(self, file: Json) -> Json:
        """Return the file with a URL for browsers: files on the server are copied into Open WebUI's store."""
        url = str(file.get("url"))
        if not re.fullmatch(rf"/v1/runs/{self._client.run_id}/files/[\w-]+", url):
            return file
        file = file | {"callboard_path": url}
        if self.transcript.chips and (stored := self.transcript.chips.find(url)):
            return file | {"url": stored}
        try:
            kind, content = await self._client.fetch_file(url)
        except ServerProblem as problem:
            log.warning("Callboard: a file of a tool is lost: %s", problem)
            return file
        return file | {"url": await store_file(self._page, str(file.get("name") or "file"), kind, content)}

    async def _answer(self, request: Json) -> None:
        """Ask the user, or run a tool, and send the answer to the server."""
        # If the server cannot be reached, the reader ends the answer with the reason.
        with suppress(ServerProblem):
            if request["type"] == "input_request":
                reply = await self._dialogs.ask(request)
                await self._client.answer(request["request_id"], reply.value, asked=reply.is_asked)
            elif self._tools:
                await self._tools.serve(request, self._client)
            else:
                await self._client.answer(request["request_id"], None, asked=False)

    def _close_answered(self) -> None:
        """Close the dialogs of questions that were answered elsewhere, or whose calls have ended."""
        for request_id, question in [*self._questions.items()]:
            if not self.transcript.is_waiting(question):
                del self._questions[request_id]
                # Not kept: a server that takes the run over may send an open question again.
                self._requests.pop(request_id).cancel()

    def _disconnect(self, reader: asyncio.Task[None], *, cancels_run: bool) -> None:
        """End the connection, and the run too if `cancels_run`. Works in the background, because it must not await."""
        if self._is_disconnected:
            return
        self._is_disconnected = True
        for request in self._requests.values():
            request.cancel()
        run_in_background(self._end_reader(reader, cancels_run=cancels_run))

    async def _end_reader(self, reader: asyncio.Task[None], *, cancels_run: bool) -> None:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        if cancels_run:
            await self._client.cancel_with_retries()

    async def _save_new_tasks(self) -> None:
        """Save the tasks if they have changed since the last call."""
        tasks = self.transcript.tasks
        if tasks is not None and tasks != self._saved_tasks:
            self._saved_tasks = tasks
            await save_tasks(self._page.chat_id, tasks)


# --- Pipe: the class that Open WebUI calls. -------------------------------------------------------------------------


def build_request(body: Json, page: Page, groups: list[str], task: str | None) -> Json:
    """Return the body of `POST /v1/runs`.

    Temporary chats and channels get no chat id, so the server does not store them. A channel has no single user.
    """
    user = page.user
    known: Json = {}
    if user.get("id"):
        known = {name: str(user[name]) for name in ("id", "name", "email", "role") if user.get(name)}
        known["groups"] = groups
    return {
        "agent": page.agent_id,
        "chat_id": page.chat_id if page.is_saved else None,
        "message_id": page.metadata.get("message_id") or None,
        "user": known or None,
        "messages": select_dicts(body.get("messages")),
        "task": str(task) if task else None,
        "options": {name: body[name] for name in body if name not in NOT_PARAMETERS and body[name] is not None},
        "run_id": uuid.uuid4().hex,
    }


# The id of this function is in the name of its module, to which Open WebUI 0.12 adds a number.
FUNCTION_ID = re.sub(r"^function_|_[0-9a-f]{32}$", "", __name__)


def make_inspector_line(url: str, request: Json) -> str:
    """Return the status line with the address of the run's page in the inspector.

    It is plain text, because Open WebUI sends the address of a link in a status line to Google to get an icon.
    """
    place = {"id": request["run_id"], **({"chat": request["chat_id"]} if request["chat_id"] else {})}
    return f"Inspector: {url.rstrip('/')}/run?{urlencode(place)}"


class Pipe:
    """The class that Open WebUI loads. One object serves all users, so it keeps no state of a request."""

    class Valves(BaseModel):
        """Settings of an admin."""

        CALLBOARD_URL: str = Field(
            default="http://127.0.0.1:8700",
            description="The address of the Callboard server.",
        )
        CALLBOARD_API_KEY: str = Field(
            default="",
            description="The server's API key, if it has one.",
            json_schema_extra={"input": {"type": "password"}},
        )
        RESULT_CHARS: int = Field(
            default=10_000,
            ge=0,
            description="The number of characters at which results are cut for display.",
        )
        RENDERING: Literal["details", "native"] = Field(
            default="details",
            description="How tool calls are drawn.",
        )
        ACCESS: str = Field(
            default="",
            description="Who sees agents that Open WebUI has no entry for yet: everyone, admins or group:NAME.",
        )
        RECALL: bool = Field(
            default=True,
            description="Whether agents get what they remember about a user from earlier chats.",
        )
        INSPECTOR_URL: str = Field(
            default="",
            description="The inspector's address in an admin's browser. If set, admins see the address of each run.",
        )

    def __init__(self) -> None:
        self.valves = self.Valves()
        self.timing = Timing()
        self._agents: list[Json] = []
        self._adding = asyncio.Lock()
        self._turns: WeakValueDictionary[tuple[object, str], asyncio.Lock] = WeakValueDictionary()

    async def pipes(self) -> list[Json]:
        """Return the agents for the model list; if the server cannot be used, the last known and an error entry."""
        client = self._connect()
        problems = []
        try:
            # Kept for the time of a restart: without them, Open WebUI would switch open chats to another model.
            self._agents = await client.list_models()
        except ServerProblem as problem:
            log.warning("Callboard: %s", problem)
            valve = "CALLBOARD_API_KEY" if "CALLBOARD_API_KEY" in str(problem) else "CALLBOARD_URL"
            name = f"Callboard: {str(problem).partition('. ')[0]} (valve {valve})"
            problems.append({"id": "unreachable", "name": name})
        if self.valves.ACCESS:
            # With a lock, because pages request the list at the same time, and an entry must be added once.
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
        __tools__: Json | None = None,
    ) -> str | AsyncGenerator[Json, None]:
        """Return one answer: a stream, or a `str` if Open WebUI asks for no stream or runs a background task."""
        try:
            if not is_release(*OLDEST):
                return "" if __task__ else NOTICE + TOO_OLD.format(version=VERSION)
            asker = None if __task__ else __event_call__
            page = Page(str(body.get("model", "")), __user__ or {}, __metadata__ or {}, __request__, asker)
            is_streamed = bool(body.get("stream")) and not __task__
            # Open WebUI can ask later about a call of this answer.
            can_wait = is_streamed and page.is_saved and bool(page.message_id) and is_release(0, 12)
            if can_wait and page.metadata.get("tool_approval_resume"):
                return self._go_on(page, await read_message(page), __tools__).stream()
            groups = await list_groups(str(page.user["id"])) if page.user.get("id") else []
            request = build_request(body, page, groups, __task__)
            if can_wait:
                request["approvals_wait"] = True
            if not self.valves.RECALL:
                request["recall"] = False
            tools = None
            unshared: list[str] = []
            if not __task__:
                await attach_files(page, request["messages"])
                tools = OpenWebUITools(page, __tools__, request["messages"])
                unshared = await tools.leave_out_unshared()
                request |= tools.describe()
            before = read_continued(body)
            begun = {} if before is None else await read_message(page)
            sources = [*select_dicts(begun.get("sources")), *select_dicts(page.metadata.get("sources"))]
            begun = begun | {"sources": sources}
            client = self._connect(request["user"])
            read = partial(client.run, request)
            run = self._make_run(page, client, read, begun, tools, is_streamed=is_streamed, before=before or "")
            run.transcript.activity.unshared = unshared
            if self.valves.INSPECTOR_URL and page.user.get("role") == "admin":
                run.transcript.activity.address = make_inspector_line(self.valves.INSPECTOR_URL, request)
            if is_streamed:
                return run.stream()
            return await run.plain_text() if __task__ else await run.text()
        except Exception:
            log.exception("Callboard: the request could not be made")
            return "" if __task__ else NOTICE + PIPE_FAILED

    # For the function in `callboard_events.py`. An admin may update either file first, so keep these names.

    async def find_answer(self, user_id: str, chat_id: str, message_id: str) -> LeftAnswer | None:
        """Return the stored part of the answer to a message; None while the server cannot be used."""
        try:
            return await self._connect({"id": user_id}).find_answer(chat_id, message_id)
        except NotFound:
            return LeftAnswer("", [])
        except ServerProblem as problem:
            log.info("Callboard: an answer cannot be looked for: %s", problem)
            return None

    async def find_actions(self, user_id: str, chat_id: str, message_id: str, output: list[Json]) -> dict[str, str]:
        """Return the buttons of pending cards, "approve" or "reject", whose calls were answered in another place.

        The server is sent the cards that the user has denied, which Open WebUI tells nobody while others are pending.
        """
        client = self._connect({"id": user_id})
        cards = [item for item in output if is_card(item) and not item.get("approved")]
        try:
            waiting = await client.list_waiting(chat_id)
            for card in cards:
                if card.get("status") == "rejected" and (run_id := waiting.get(card["call_id"])):
                    client.run_id = run_id
                    await client.answer_approvals({card["call_id"]: False})
            pending = [str(card["call_id"]) for card in cards if card.get("status") == "pending"]
            if waiting.keys() >= {*pending}:
                return {}
            answer = await client.find_answer(chat_id, message_id)
        except ServerProblem as problem:
            # At every look, so not for the usual log.
            log.debug("Callboard: it is not known whether calls still wait: %s", problem)
            return {}
        actions = {call_id: answer.find_action(call_id) for call_id in pending if call_id not in waiting}
        return {call_id: action for call_id, action in actions.items() if action}

    def restore(
        self,
        answer: LeftAnswer | None,
        user: Json,
        metadata: Json,
        model: str,
        request: object,
        ask_user: AskUser,
    ) -> AsyncGenerator[Json, None]:
        """Stream an answer again from its start, after Open WebUI was stopped during it; a notice if it is lost.

        Args:
            answer: The last result of `find_answer`; None if the server could not be used.
            user: The user of the chat.
            metadata: The message's ids, its `sources`, `files` and `embeds`.
            model: The id of the message's model.
            request: A request of Open WebUI, for its file store.
            ask_user: Asks the user a question of the agent.
        """
        client = self._connect(user)

        async def read(deliver: Deliver) -> None:
            if answer and answer.run_id:
                await client.deliver_run(answer, deliver)
            else:
                deliver({"type": "run_start"})
                raise client.problem(FORGOTTEN if answer else STAYED_AWAY)

        page = Page(model, user, metadata, request, ask_user)
        return self._make_run(page, client, read, metadata, is_late=True).stream()

    def _make_run(
        self,
        page: Page,
        client: ServerClient,
        read: Callable[[Deliver], Coroutine[Any, Any, None]],
        begun: Json,
        tools: OpenWebUITools | None = None,
        *,
        is_streamed: bool = True,
        is_late: bool = False,
        before: str = "",
    ) -> AnswerStream:
        """Prepare an answer whose events `read` delivers; `begun` is its message so far, as Open WebUI stores it."""
        emitter = choose_emitter(self.valves.RENDERING, page) if is_streamed else ChunkEmitter(page.model)
        # Members of a channel cannot open a file of one user.
        has_chips = emitter.shows_events and not page.is_channel
        transcript = Transcript(
            self.valves.RESULT_CHARS,
            begun.get("sources"),
            totals=read_totals(begun),
            chips=FileChips(begun.get("files"), is_temporary=page.is_temporary) if has_chips else None,
            embeds=begun.get("embeds"),
            has_panel=emitter.shows_events and page.is_saved,
            has_sources=emitter.shows_events,
            is_late=is_late,
            before=before,
        )
        # The agent's id before the server's list has been read. Its name is not from Open WebUI's `metadata["model"]`,
        # which is always the first model of a chat with several models.
        names = {agent["id"]: agent["name"] for agent in self._agents}
        agent_name = names.get(page.agent_id, page.agent_id)
        # With the user, because users may share a chat, and the browser chooses the ids of sessions.
        turn = self._turns.setdefault((page.user.get("id"), page.chat_id or page.session_id), asyncio.Lock())
        dialogs = Dialogs(page, agent_name, turn, self.timing.page_seconds)
        return AnswerStream(page, client, read, emitter, transcript, dialogs, tools)

    def _go_on(self, page: Page, message: Json, tools: Json | None) -> AnswerStream:
        """Prepare the rest of an answer whose calls the user has approved or refused on Open WebUI's pending cards."""
        client = self._connect(page.user)
        cards = list_newest_cards(message)
        without_tool = list_without_tool(message)
        hidden = [str(card["call_id"]) for card in cards if card["call_id"] in without_tool]
        decided = list_decided(cards)

        async def read(deliver: Deliver) -> None:
            answer = await client.wait_for_answer(page)
            answers = select_of_run(decided, answer)
            await client.answer_approvals(answers)
            if hidden:
                deliver({"type": "notice", "content": NO_FILTER})
            await client.deliver_run(answer, skip_shown(deliver, answers, hidden))

        run = self._make_run(page, client, read, message, OpenWebUITools(page, tools, []))
        run.transcript.activity.totals.calls -= len(hidden)  # They are counted once more.
        run.transcript.activity.is_after_wait = True
        return run

    # For the function in `callboard_filter.py`.

    async def offer_approved(
        self, user: Json, metadata: Json, request: object = None, ask_user: AskUser | None = None
    ) -> None:
        """Prepare what follows an answer on a pending card.

        Let Open WebUI find the tools of the cards that are left. Send the other answers to the server, and write onto
        their cards how the calls have ended.
        """
        page = Page("", user, metadata, request, ask_user)
        tools = OpenWebUITools(page, metadata.get("tools"), [])

        async def run() -> str:
            # Open WebUI names only the tool, but runs one call of a message at a time.
            for card in list_newest_cards(await read_message(page)):
                if card.get("status") == "in_progress" and card.get("approved") is True:
                    return await self._run_approved(page, tools, str(card["call_id"]))
            return NOT_APPROVED

        message = await read_message(page)
        items = select_dicts(message.get("output"))
        ended = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
        cards = list_newest_cards(message)
        left = [str(card["name"]) for card in cards if card["call_id"] not in ended and card["status"] != "rejected"]
        # The approval mode that this sets keeps Open WebUI from running the other cards too.
        offer_tools(metadata, left, run)
        if decided := list_decided(cards):
            calls: dict[str, Call] = {}
            try:
                if known := {one: decided[one] for one in decided if one in ended}:
                    calls = await self._find_ends(page, tools, known)
            except ServerProblem as problem:
                log.warning("Callboard: the ends of answered calls are unknown: %s", problem)
            await write_cards(page, calls, decided, is_over=not left)

    async def _find_ends(self, page: Page, tools: OpenWebUITools, decided: dict[str, bool]) -> dict[str, Call]:
        """Send answers to the server, and return the calls of its run, by their ids.

        Calls that can go on are awaited: a message of Open WebUI is changed best before its answer goes on.
        """
        transcript = Transcript(self.valves.RESULT_CHARS)
        client = self._connect(page.user)
        answer = await client.wait_for_answer(page)
        decided = select_of_run(decided, answer)
        await client.answer_approvals(decided)
        await client.deliver_calls(answer, decided, tools, transcript.apply)
        return {call_id: call for call_id in decided if (call := transcript.find_call(call_id))}

    async def _run_approved(self, page: Page, tools: OpenWebUITools, call_id: str) -> str:
        """Let the server run a call that the user has approved, and return its result or error as text."""
        try:
            call = (await self._find_ends(page, tools, {call_id: True})).get(call_id)
        except ServerProblem as problem:
            log.warning("Callboard: an approved call could not be run: %s", problem)
            return f"{APPROVAL_LOST}{problem}"
        if call is None:
            return f"{APPROVAL_LOST}{FORGOTTEN}"
        if call.is_open:
            # A framework that has asked about several calls at once runs them after the last answer.
            return RUNS_LATER
        # Without this word, Open WebUI draws a check mark.
        is_named = call.state == "done" or call.result.lower().startswith("error:")
        return call.result if is_named else f"Error: {call.result}"

    async def cancel_waiting(self, user_id: str, chat_id: str, message_id: str) -> None:
        """Cancel the run of a message whose pending card the user has stopped."""
        try:
            client = self._connect({"id": user_id})
            await client.find_answer(chat_id, message_id)
            await client.cancel()
        except ServerProblem as problem:
            log.warning("Callboard: a call that was stopped still waits for approval on the server: %s", problem)

    async def forget_chat(self, user_id: str, chat_id: str) -> bool:
        """Delete a chat of the user on the server; return whether it succeeded."""
        return await self._forget(self._connect({"id": user_id}).forget_chat(chat_id))

    async def forget_chats(self, user_id: str, begun_before: float) -> bool:
        """Delete the user's chats that began before this time, in Unix seconds; return whether it succeeded."""
        return await self._forget(self._connect({"id": user_id}).forget_chats(begun_before))

    async def _forget(self, forgetting: Awaitable[None]) -> bool:
        try:
            await forgetting
        except ServerProblem as problem:
            log.warning("Callboard: chats that were deleted in Open WebUI are still on the server: %s", problem)
            return False
        return True

    def _connect(self, user: Json | None = None) -> ServerClient:
        return ServerClient(self.valves.CALLBOARD_URL, self.valves.CALLBOARD_API_KEY, self.timing, user)
