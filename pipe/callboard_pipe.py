"""
title: Callboard
author: Callboard
version: 0.1.0
license: MIT
description: Every tool call of an agent: live, in place, and remembered. Needs a Callboard server (callboard serve).
required_open_webui_version: 0.6.43
"""

# ruff: noqa: D102, D106 - what small members do is told by their class
import asyncio
import base64
import html
import inspect
import io
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, takewhile
from math import inf
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field

try:
    from open_webui.env import VERSION
except ImportError:
    VERSION = ""

log = logging.getLogger("callboard.pipe")
Json = dict[str, Any]
_BACKGROUND: set[asyncio.Task[None]] = set()  # The event loop itself keeps no hold of its tasks.

# A change in place is sent anew, and the page redraws every item: the more, the slower. Events rewrite the whole chat.
UPDATE_INTERVAL_SECONDS, SENT_CHARS_PER_SECOND, DRAWN_ITEMS_PER_SECOND = 0.1, 400_000, 4_000
REPLACE_INTERVAL_SECONDS, STATUS_INTERVAL_SECONDS, LINES_AT_ONCE, MAX_LINES = 0.25, 1.0, 8, 200
CONNECT_SECONDS, MODELS_SECONDS, PAGE_SECONDS = 5.0, 3.0, 1.0
READ_SECONDS = 60.0  # The server pings every 15 s; four missed pings are a dead connection.
LABEL_CHARS, NOTICE_CHARS, CUT_LINE_CHARS, ITEM_CHARS, EVENTS_AT_ONCE = 80, 1000, 40, 20_000, 4

OPTIONS = ("temperature", "top_p", "max_tokens", "seed", "stop")
NOTICE = "> **Callboard:** "
TAKEN_BACK = "\n\n> The answer begins anew: what stands above since the last tool call is taken back.\n\n"
FROM_TEXT = "from text"  # What the card of a call says that the server read from the model's text.
THINKING, ANSWERING = "Thinking…", "Answering…"  # Shown while nothing else is; they leave no line behind.
MAY_GO_ON = ". Its tool was told to stop; it runs in a thread, which nobody can end, and may go on for a while."
FINISH_NOTICES = {
    "length": "The answer was cut at the model's length limit.",
    "max_turns": "The agent was stopped: it used all the turns that it may take for one answer.",
    "cancelled": "Stopped.",
}
PIPE_FAILED = "The pipe failed; the reason is in Open WebUI's log."
CANNOT_REACH = "Cannot reach the Callboard server at {url}. Is it running (callboard serve)? The address is the valve CALLBOARD_URL."  # noqa: E501 - one message
NOT_CALLBOARD = "What answers at {url} does not look like a Callboard server. The address is the valve CALLBOARD_URL."
BAD_KEY = "The key cannot be sent. It is the valve CALLBOARD_API_KEY, and holds characters that do not belong there."
LOST = "The connection to the Callboard server at {url} was lost and the answer could not be resumed: the server was restarted, cannot be reached, or no longer has the run's log."  # noqa: E501 - one message


# --- Server-sent events: bytes to events. Pure. ---------------------------------------------------------------------
# The line ends of https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream, and no
# others: str.splitlines() would cut JSON at U+2028 or U+0085.
_LINE_END, _FRAME_END = re.compile(rb"\r\n|\r|\n"), re.compile(rb"\r\n\r\n|\r\r|\n\n")


class FrameDecoder:
    """Reads a stream of bytes, cut at any place, into frames: the last id seen, and the data."""

    def __init__(self) -> None:
        self._rest, self._id = b"", ""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        *frames, self._rest = _FRAME_END.split(self._rest + chunk)
        for frame in frames:
            fields = [line.decode("utf-8", "replace").partition(":") for line in _LINE_END.split(frame)]
            self._id = next((value.removeprefix(" ") for name, _, value in fields if name == "id"), self._id)
            if data := [value.removeprefix(" ") for name, _, value in fields if name == "data"]:
                yield self._id, "\n".join(data)


def read_event(data: str) -> Json | None:
    """The event in a frame's data; None, and a line in the log, where it is not a JSON object with a `type`."""
    with suppress(ValueError, RecursionError):
        event = json.loads(data)
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            return event
    log.warning("Callboard: skipped a frame that cannot be read: %.80r", data)
    return None


def _dicts(values: object) -> list[Json]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


# --- Rendering: events to the text of the answer. Pure. -------------------------------------------------------------
_FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(`{3,}(?=[^`]*$)|~{3,})")
_HTML_BLOCK = re.compile(r"(?i) {0,3}<(?:(script|pre|style|textarea)(?=[\s>]|$)|(!--|\?|!\[CDATA\[|![A-Z]))")
_HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}
BLOCKS = ("thought", "call")
# Plain <details> is HTML; with attributes it may be a block that Open WebUI draws itself. With an invisible space it
# is no tag, and reads as it should in code too, where no entity would be decoded.
_UNSAFE, GUARDED = re.compile("<details(?!>)"), "<\u200bdetails"
_CITATION = re.compile(r"(?i)[\[【]sources? ?\d{1,9}(?:[,;] ?(?:source ?)?\d{1,9})*[\]】]")
_HELD = re.compile(r"(?i)(?:<d?e?t?a?i?l?s?|[\[【][source\d ,;]{0,200})\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def closing(text: str) -> str:
    """What closes a code fence, or HTML that ends at a terminator (CommonMark 4.6, 1-5), and would swallow a block."""
    end = ""
    for line in text.split("\n"):
        marker = end.lstrip(" ")
        if marker[:1] in ("`", "~") and marker:
            end = "" if line.strip().startswith(marker) and not line.strip().strip(marker[0]) else end
        elif end:
            end = "" if end in line.lower() else end
        elif fence := _FENCE.match(line):
            end = " " * len(fence[1]) + fence[2]
        elif block := _HTML_BLOCK.match(line):
            end = f"</{block[1]}>".lower() if block[1] else _HTML_ENDS.get(block[2].lower(), ">")
            # `<!-->` is a whole comment: its end may share the dashes.
            end = "" if end in line[block.end() - 2 * (block[2] == "!--") :].lower() else end
    return end and "\n" * (not text.endswith("\n")) + end


@dataclass(slots=True)
class Piece:
    """What an answer is made of: text, a notice of the pipe's own, a thought (the model's reasoning), or a tool call.

    A run of calls and thoughts is one `segment`, as is each text and notice; segments of `ITEM_CHARS` are an `item`.
    `text` is what is shown, or came back from the call; `arguments` are JSON text. A call's card says `shown_name`:
    behind the name the `mark` that it keeps, and the `label` that changes while it runs.
    """

    kind: Literal["text", "notice", "thought", "call"]
    text: str = ""
    is_open: bool = False
    segment: int = 0
    item: int = 0
    held: str = ""
    began_at_seconds: float = 0.0
    seconds: int = 0
    id: str = ""
    name: str = "tool"
    mark: str = ""
    label: str = ""
    state: Literal["preparing", "running", "done", "failed"] = "preparing"
    arguments: str = "{}"
    files: list[Json] = field(default_factory=list)
    round: str = "0"
    stoppable: bool = True

    @property
    def shown_name(self) -> str:
        return " · ".join(part for part in (self.name, self.mark, self.label) if part)


class Activity:
    """What a run is doing, as lines for Open WebUI's status history: its steps in their order, at its end what it took.

    A line is what it says, whether it is done, and whether it only passes: such a line is shown while it is the last.
    A call's steps are its reports with new words; how far each is stands on its card. There is none before `run_start`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.lines = list[tuple[str, bool, bool]]()
        self._clock, self._began_at_seconds, self._said = clock, inf, ""
        self._open, self._calls, self._failed = dict[str, tuple[str, str]](), 0, 0

    def see(self, event: Json) -> None:
        kind, call_id = event["type"], str(event.get("tool_call_id"))
        if kind == "run_start":
            self._began_at_seconds = self._clock()
        if self._began_at_seconds == inf:
            return
        match kind:
            case "run_start":
                self._add(THINKING, passes=True)
            case "message" if event["content"].strip():
                self._add(ANSWERING, passes=True)
            case "status":
                self._said = str(event["content"]) if event.get("done") is True else ""
                self._add(str(event["content"]), done=event.get("done") is True)
            case _:
                self._step(kind, call_id, event)

    def _step(self, kind: str, call_id: str, event: Json) -> None:
        name, words = self._open.get(call_id, ("", ""))
        match kind:
            case "tool_call_start" if not name:
                name, self._calls = str(event.get("tool_name") or "tool"), self._calls + 1
                self._open[call_id] = name, ""
                self._add(f"Running {name}")
            case "tool:status" if name:
                said = str(event["data"].get("message") or "").strip()
                self._open[call_id] = name, said or words
                if said not in ("", words):
                    self._add(f"{name}: {said}")
            case "tool_call_complete" | "tool_call_error" if name:
                del self._open[call_id]
                self._failed += kind == "tool_call_error"
                ms = event.get("duration_ms")
                took = f" after {_seconds(ms / 1000)}" if isinstance(ms, int) else ""
                self._add(f"{name}: {'failed' if kind == 'tool_call_error' else 'done'}{took}")
                if not self._open:
                    self._add(THINKING, passes=True)

    def close(self, how: str = "") -> None:
        """The last line; calls that are open by now have failed. An agent's own last word stays to be read."""
        if self._began_at_seconds == inf:
            return
        self._failed += len(self._open)
        calls = f"{self._calls} call{'s' * (self._calls != 1)}" if self._calls else ""
        failed = f"{self._failed} failed" if self._failed else ""
        took = ", ".join(filter(None, (how, calls, failed, _seconds(self._clock() - self._began_at_seconds))))
        self.lines.append((f"{self._said} · {took}" if self._said else took, True, False))

    def _add(self, words: str, *, done: bool = False, passes: bool = False) -> None:
        line = (_CONTROL.sub(" ", words)[:NOTICE_CHARS], done, passes)
        if len(self.lines) < MAX_LINES and [line] != self.lines[-1:]:
            self.lines.append(line)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def _escape(text: str) -> str:
    # Open WebUI substitutes {{user}} and the like everywhere in a message.
    return html.escape(text).replace("{{", "&#123;&#123;")


def _plain(text: str) -> str:
    # A running call's label is drawn as Markdown by 0.6-0.10: no tags, no images, no links.
    return _escape(_CONTROL.sub(" ", text).replace("<", "‹").replace(">", "›").replace("](", "] ("))


def _block(piece: Piece) -> str:
    """In the form that 0.6 to 0.12 parse; `round` is for the way back, `math` ends 0.9's look for formulas."""
    done = "false" if piece.is_open else "true"
    if piece.kind == "thought":
        lines = _escape("\n".join(f"> {line}" for line in piece.text.splitlines()))
        seconds = "" if piece.is_open else f' duration="{piece.seconds}"'
        return f'<details type="reasoning" done="{done}"{seconds}>\n<summary>Thought</summary>\n{lines}\n</details>'
    # JSON is ASCII on one line: a raw line end or U+2028 would lose an attribute, a raw `>` the whole block.
    # "completed" beside done="false" reads "Executing" everywhere; nothing reads "Preparing".
    status = {"running": ' status="completed"', "failed": ' status="failed"'}.get(piece.state, "")
    result = "" if piece.is_open else f' result="{_escape(json.dumps(piece.text))}"'
    files = f' files="{_escape(json.dumps(piece.files))}"' if piece.files else ""
    return (
        f'<details type="tool_calls" done="{done}"{status} id="{_plain(piece.id)}"'
        f' name="{_plain(piece.shown_name)}" arguments="{_escape(piece.arguments)}"{result}{files}'
        f' round="{piece.round}" math=" $$">\n<summary>Tool Executed</summary>\n</details>'
    )


def parts(pieces: list[Piece], number: Callable[[Piece], int] = attrgetter("segment")) -> list[list[Piece]]:  # noqa: D103 - see Piece
    return [[*part] for _, part in groupby(pieces, key=number)]


def render(pieces: list[Piece]) -> str:
    """The text of whole segments. Blocks begin with the blank line that they need."""
    return "\n".join(
        "".join(f"\n{_block(piece)}" for piece in part) + "\n" if part[0].kind in BLOCKS else part[0].text
        for part in parts(pieces)
    )


class Transcript:
    """The answer so far: what the events of one run amount to; `render` is the whole content.

    The model's text is not trusted: it can neither fake a block nor break one, and as a tail that may yet do so is held
    back, it only grows, but for `rewinds`: of each, how many characters it left. What cannot be read is logged and
    survived, as are ends without starts. Beside the text there are `events` (Open WebUI's own), the `activity` and
    `usage`; `found` are sources that are on the message already.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, result_chars: int = 10_000, found: object = None) -> None:
        self.pieces, self.ended = list[Piece](), False
        self.events, self.usage, self.activity = list[Json](), Json(), Activity(lambda: self.clock())
        self.rewinds = list[int]()
        self._result_chars, self._calls = result_chars, dict[str, Piece]()
        self._space, self._embeds, self._places, self._numbers = "", list[str](), dict[str, int](), dict[str, int]()
        for source in _dicts(found):
            self._cite(source)
        self._numbers.clear()
        self._last_segment, self._is_rewound = 0, False
        self._mark()

    def is_settled(self, segment: list[Piece]) -> bool:
        """Whether nothing in the segment will change any more."""
        is_followed = self.ended or segment[-1] is not self.pieces[-1]
        return is_followed and not any(piece.is_open for piece in segment)

    def render(self) -> str:
        return render(self.pieces)

    def apply(self, event: Json) -> None:
        try:
            if not self.ended:
                self._apply(event)
                self.activity.see(event)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("Callboard: skipped an event that cannot be read: %s (%r)", event["type"], error)

    def _apply(self, event: Json) -> None:
        kind, call = event["type"], self._calls.get(str(event.get("tool_call_id")))
        match kind:
            case "message":
                self._say(_storable(event["content"]))
            case "reasoning":
                self._think(_storable(event["content"]))
            case "tool_call_args_delta" | "tool_call_start" | "tool_call_complete" | "tool_call_error":
                self._step(event)
            case "rewind":
                self._rewind()
            case "tool:status" | "input_request" if call and call.is_open:
                _relabel(call, event)
            case "source":
                self.events.append({"type": "source", "data": self._cite(event)})
            case "usage":
                self.usage = {key: value for key, value in event.items() if isinstance(value, int)}
            case "done" | "error":
                reason = str(event.get("finish_reason") or event.get("message") or "The run failed.")
                how = "failed" if kind == "error" else "stopped" if reason == "cancelled" else ""
                self.close("no result arrived", FINISH_NOTICES.get(reason, "") if kind == "done" else reason, how)

    def close(self, reason: str, notice: str = "", how: str = "failed") -> None:
        """Ends the answer. Calls that are still open are shown as failed, for this reason; idempotent."""
        self._finish()
        for call in self._calls.values():
            if call.is_open:
                # Nobody can wait here for what the server will find.
                goes_on = MAY_GO_ON if how == "stopped" and call.state == "running" and not call.stoppable else ""
                self._end(call, "failed", f"Error: {reason}{goes_on}")
        if self._embeds and not self.ended:
            # This name is kept with the chat: once, for it adds to what is there.
            self.events.append({"type": "embeds", "data": {"embeds": self._embeds}})
        if notice:
            self._notify(notice)
        if not self.ended:
            self.activity.close(how)
        self.ended = True

    def _finish(self) -> Piece:
        """What the answer ends in; a text or a thought ends with it."""
        last = self.pieces[-1] if self.pieces else Piece("notice")
        if last.kind == "text" and last.is_open:
            last.text += self._safe(last.held)
            last.held, last.is_open = closing(last.text), False
            last.text += last.held
        elif last.kind == "thought" and last.is_open:
            last.seconds, last.is_open = round(self.clock() - last.began_at_seconds), False
        return last

    def _put(self, piece: Piece) -> Piece:
        last = self._finish()
        item = [*takewhile(lambda other: other.item == last.item, reversed(self.pieces))]
        group = takewhile(lambda other: other.segment == last.segment, item)
        # A change re-emits its item, so what a call costs must not grow with the calls before it.
        is_full = len(render(item)) >= ITEM_CHARS and not any(other.is_open for other in group)
        # After a rewind nothing joins what was there: its place may have been that of a piece that is gone.
        is_new = is_full or self._is_rewound or not (piece.kind in BLOCKS and last.kind in BLOCKS)
        self._last_segment, self._is_rewound = self._last_segment + is_new, False
        piece.segment, piece.item = self._last_segment, last.item + is_full
        self.pieces.append(piece)
        self._space = ""
        return piece

    def _mark(self) -> None:
        """Remembers how far the answer is: no rewind goes further back."""
        self._count = len(self.pieces)
        self._end_of_kept = replace(self.pieces[-1]) if self.pieces else Piece("notice")

    def _rewind(self) -> None:
        """Takes back what was said since the mark, and calls that have not started."""
        for gone in self.pieces[self._count :]:
            self._calls.pop(gone.id, None)
        del self.pieces[self._count :]
        if self._end_of_kept.kind in ("text", "thought"):
            self.pieces[-1] = replace(self._end_of_kept)
        self._space, self._is_rewound = "", True
        self.rewinds.append(len(self.render()))

    def _notify(self, message: str, url: str = "") -> None:
        # One line, and no markup: messages quote whatever failed.
        plain = _CONTROL.sub(" ", message).strip()[:NOTICE_CHARS].replace("<", "&lt;").replace("](", "] (")
        address = f"]({quote(url, safe=':/?#@!$&*+,;=%~')})"
        self._put(Piece("notice", f"\n{NOTICE}{'[' * bool(url)}{plain}{address * bool(url)}\n"))

    def _say(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else Piece("notice")
        if last.kind != "text":
            # Blank text between two calls would only tear their group apart.
            text = self._space = self._space + text
            if not text.strip():
                return
            last = self._put(Piece("text", is_open=True))
        text = last.held + text
        end = held.start() if (held := _HELD.search(text)) else len(text)
        last.text, last.held = last.text + self._safe(text[:end]), text[end:]

    def _safe(self, text: str) -> str:
        """Guarded, and with `[k#sourceN]` for `[sourceN]`: it is drawn as `[k]`, and read back as N."""

        def link(citation: re.Match[str]) -> str:
            numbers = re.findall(r"\d+", citation[0])
            known = [f"{self._numbers[number]}#source{number}" for number in numbers if number in self._numbers]
            return f"[{', '.join(known)}]" if len(known) == len(numbers) else citation[0]

        return _CITATION.sub(link, _UNSAFE.sub(GUARDED, text))

    def _cite(self, event: Json) -> Json:
        """A source as Open WebUI takes it: it draws `[k]` as the k-th of a message, agents count over all turns."""
        source, abouts = event["source"], _dicts(event.get("metadata")) or [Json()]
        for index, about in enumerate(abouts):
            key = str(about.get("source") or source.get("id") or source.get("url") or source.get("name"))
            place = self._places.setdefault(key, len(self._places) + 1)
            self._numbers[str(about.get("source_number", place))] = place
            abouts[index] = about | {"source": key}
        documents = [str(text) for text in event.get("document") or ()] + [""] * len(abouts)
        return {"source": source, "document": documents[: len(abouts)], "metadata": abouts}

    def _think(self, text: str) -> None:
        last = self.pieces[-1] if self.pieces else Piece("notice")
        if last.kind != "thought" and text.strip():
            last = self._put(Piece("thought", is_open=True, began_at_seconds=self.clock()))
        if last.kind == "thought":
            last.text = _UNSAFE.sub(GUARDED, last.text + text)

    def _step(self, event: Json) -> None:
        call_id = _storable(event["tool_call_id"])
        if call_id not in self._calls:
            self._calls[call_id] = self._put(Piece("call", is_open=True, id=call_id))
        call = self._calls[call_id]
        if not call.is_open:
            return
        if call.state == "preparing":
            call.name = _storable(event.get("tool_name") or call.name)
        match event["type"]:
            case "tool_call_args_delta":
                call.held += _storable(event["delta"])
            case "tool_call_start" if call.state == "preparing":
                call.state, call.arguments, call.label = "running", json.dumps(event.get("tool_args", {})), ""
                call.stoppable = event.get("stoppable") is not False
                call.round = str(event["round_index"]) if isinstance(event.get("round_index"), int) else "0"
            case "tool_call_complete":
                result, chars, url = event.get("result", ""), event.get("result_chars"), event.get("result_url")
                chars = chars if event.get("truncated") is True and isinstance(chars, int) else 0
                text = result if isinstance(result, str) else json.dumps(result)
                self._end(call, "done", text, chars, f": {url}" if isinstance(url, str) else "")
                self._attach(call, event)
            case "tool_call_error":
                error = str(event.get("error") or "the tool failed")
                self._end(call, "failed", error if error.lower().startswith("error:") else f"Error: {error}")
        if event["type"] != "tool_call_args_delta":
            self._mark()

    def _end(self, call: Piece, state: Literal["done", "failed"], result: str, chars: int = 0, link: str = "") -> None:
        if call.state == "preparing" and call.held:
            # It never started, so what the model wrote is all there is.
            call.arguments = json.dumps(call.held)
        chars = max(chars, len(result))
        if chars > self._result_chars:
            # The line counts too: Open WebUI hides what is beyond its own 10,000 characters behind a button.
            shown = result[: max(0, self._result_chars - CUT_LINE_CHARS - len(link))]
            result = f"{shown}\n… [{chars - len(shown):,} more characters{link}]"
        call.text, call.state, call.is_open, call.label = result, state, False, ""

    def _attach(self, call: Piece, event: Json) -> None:
        """Images are drawn under their call, other files are links below it, pages are frames of the message."""
        for file in _dicts(event.get("files")):
            url, name = str(file.get("url") or ""), str(file.get("name") or "file")
            if file.get("type") == "image" and url.startswith(("data:image/", "/api/")):
                call.files.append({"type": "image", "url": url})
            elif url.startswith(("https://", "http://", "/api/")):
                self._notify(name.translate({91: "(", 93: ")"}), url)
            else:
                self._notify(f"The file {name} could not be kept: Open WebUI's log has the reason.")
        if embeds := [embed for embed in event.get("embeds") or () if isinstance(embed, str)]:
            # In the block's own attribute they would hide its input and output. This name replaces what it showed.
            self._embeds += embeds
            self.events.append({"type": "chat:message:embeds", "data": {"embeds": [*self._embeds]}})


def _storable(text: str) -> str:
    # PostgreSQL refuses NUL in JSON, UTF-8 refuses lone surrogates: either would lose the whole answer.
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _relabel(call: Piece, event: Json) -> None:
    if event["type"] == "input_request":
        call.label = f"waiting for {'approval' if event.get('kind') == 'confirmation' else 'you'}"
    elif call.state == "running" and event["data"].get("status") == "from_text":
        call.mark = FROM_TEXT
    elif call.state == "running":
        call.label = _label(event["data"])


def _label(data: Json) -> str:
    progress = data.get("progress")
    percent = f"{progress:.0f}% " if isinstance(progress, (int, float)) and 0 <= progress <= 100 else ""
    return (percent + str(data.get("message") or "").strip()[:LABEL_CHARS]).strip()


# --- Emission: a transcript's changes as dicts for Open WebUI. Pure. ------------------------------------------------
class Emitter:
    """Hands a transcript's changes over; some wait until `due_at_seconds`. `live`: Open WebUI's events are shown too.

    This one is for API callers without a saved chat: nothing can be taken back, so a group is sent once all have ended.
    """

    live = False

    def __init__(self, model: str = "") -> None:
        self.due_at_seconds, self._model, self._id = inf, model, uuid.uuid4().hex
        self._beat_at_seconds, self._status_at_seconds = 0.0, 0.0
        self._events, self._shown, self._lines = 0, "", 0
        self._rewinds, self._note = 0, ""

    def updates(self, transcript: Transcript, now_seconds: float, *, final: bool = False) -> list[Json]:
        """What to yield now; with `final` all that is left of a transcript that has ended."""
        is_due = final or now_seconds >= self._beat_at_seconds
        self.due_at_seconds = inf if is_due else self._beat_at_seconds
        updates = [*self._content(transcript, now_seconds, final=final)] if is_due else []
        if self.live:
            updates += [{"event": event} for event in transcript.events[self._events :]]
            self._events = len(transcript.events)
            lines = transcript.activity.lines[self._lines :]
            if lines and not final and now_seconds < self._status_at_seconds:
                self.due_at_seconds = min(self.due_at_seconds, self._status_at_seconds)
            elif lines:
                self._lines, self._status_at_seconds = self._lines + len(lines), now_seconds + STATUS_INTERVAL_SECONDS
                updates += [{"event": {"type": "status", "data": line}} for line in _told(lines)]
        return updates + ([self._chunk(usage=transcript.usage)] if final and transcript.usage else [])

    def _content(self, transcript: Transcript, now_seconds: float, *, final: bool) -> Iterator[Json]:  # noqa: ARG002 - others
        segments = parts(transcript.pieces)
        final_ones = takewhile(lambda part: part[0].kind not in BLOCKS or transcript.is_settled(part), segments)
        text = render([*chain(*final_ones)])
        if (kept := transcript.rewinds[self._rewinds :]) and not text.startswith(self._shown):
            self._note += closing(self._shown) + TAKEN_BACK
            self._shown = self._shown[: min(kept)]
        self._rewinds = len(transcript.rewinds)
        added = text[len(self._shown) :]
        if added or (final and self._note):
            yield self._chunk(self._note + added)
            self._shown, self._note = text, ""

    def _chunk(self, text: str = "", **fields: Any) -> Json:
        # Never a plain string: Open WebUI passes one that begins with "data:" through as it is.
        choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}] if text else []
        chunk = {"id": f"chatcmpl-{self._id}", "object": "chat.completion.chunk", "created": int(time.time())}
        return chunk | {"model": self._model, "choices": choices} | fields


def _told(lines: list[tuple[str, bool, bool]]) -> Iterator[Json]:
    """New lines as Open WebUI's status data, without what has passed by now, and without the middle of too many."""
    steps, half = [line for line in lines[:-1] if not line[2]], LINES_AT_ONCE // 2
    for words, _, _ in [*steps[:half], *steps[half:][-half:], lines[-1]]:
        # One that is not done shimmers, and for ever where Open WebUI is stopped before the next.
        yield {"description": words, "done": True}


class EventEmitter(Emitter):
    """For Open WebUI 0.6 and 0.7: `replace` events, and the whole text as a chunk at the end, for events get lost."""

    live = True

    def _content(self, transcript: Transcript, now_seconds: float, *, final: bool) -> Iterator[Json]:
        content = transcript.render()
        if final and content:
            yield self._chunk(content)
        elif content != self._shown:
            self._shown, self._beat_at_seconds = content, now_seconds + REPLACE_INTERVAL_SECONDS
            yield {"event": {"type": "replace", "data": {"content": content}}}


class StreamEmitter(Emitter):
    """For Open WebUI 0.11.1 and later: Responses-style dicts, message items whose text changes in place.

    An item is opened empty (0.9.6 draws text inside `added` late) and always carries its `output_index` (0.11.1 and
    later insert it before the last one else). A change costs its item, not the whole answer.
    """

    live = True
    part_number: Callable[[Piece], int] = attrgetter("item")

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._settled, self._places, self._sent = 0, dict[str, int](), dict[str, Any]()

    def _content(self, transcript: Transcript, now_seconds: float, *, final: bool) -> Iterator[Json]:  # noqa: ARG002 - sends all
        changes, in_row = list[Json](), True
        if self._rewinds != len(transcript.rewinds):
            self._rewinds, self._settled = len(transcript.rewinds), 0
            changes += self._emptied(transcript)
        for part in parts(transcript.pieces[self._settled :], self.part_number):
            for item in self._items(part):
                changes += self._changes(item)
            in_row = in_row and transcript.is_settled(part)
            self._settled += len(part) * in_row
        if len(changes) > EVENTS_AT_ONCE:
            # Many are drawn at once by this one with all items. Whatever its name, it ends nothing.
            items = [self._sent[key] for key in self._places]
            changes = [{"type": "response.completed", "response": {"output": items}}]
        chars, drawn = self._chars(changes), len(changes) * len(self._places)
        is_growth = all("delta" in change or change.get("item", {}).get("type") == "message" for change in changes)
        seconds = max(chars / SENT_CHARS_PER_SECOND, drawn / DRAWN_ITEMS_PER_SECOND)
        self._beat_at_seconds = now_seconds + max(seconds, 0 if is_growth else UPDATE_INTERVAL_SECONDS)
        yield from changes

    def _chars(self, changes: list[Json]) -> int:
        return sum(len(str(change)) for change in changes)

    def _emptied(self, transcript: Transcript) -> list[Json]:
        """What becomes of the items that a rewind took back: the browser forgets no item, but draws no empty one."""
        there = {item["id"] for part in parts(transcript.pieces, self.part_number) for item in self._items(part)}
        return [change for key in self._places if key not in there for change in self._empty(key)]

    def _empty(self, key: str) -> Iterator[Json]:
        return self._changes(self._message(key, ""))

    def _message(self, key: str, text: str) -> Json:
        content = {"type": "output_text", "text": text}
        return {"type": "message", "id": key, "role": "assistant", "status": "in_progress", "content": [content]}

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        yield self._message(f"msg_{self._id}_{self.part_number(part[0])}", render(part))

    def _changes(self, item: Json) -> Iterator[Json]:
        key, text = item["id"], item["content"][0]["text"]
        shown = self._sent[key]["content"][0]["text"] if key in self._sent else ""
        self._sent[key] = item
        if text and key not in self._places:
            yield self._added(self._message(key, ""))
        if text != shown:
            where = {"item_id": key, "output_index": self._places[key], "content_index": 0}
            is_longer = text.startswith(shown)
            change = {"delta": text[len(shown) :]} if is_longer else {"text": text}
            yield {"type": f"response.output_text.{'delta' if is_longer else 'done'}", **where, **change}

    def _added(self, item: Json) -> Json:
        place = self._places.setdefault(item["id"], len(self._places))
        return {"type": "response.output_item.added", "output_index": place, "item": item}


class WholeEmitter(StreamEmitter):
    """For Open WebUI 0.8.0 to 0.11.0, which hand the page the whole answer with every change: one item is enough."""

    part_number = staticmethod(lambda _: 0)

    def _chars(self, changes: list[Json]) -> int:
        texts: list[str] = [item["content"][0]["text"] for item in self._sent.values()]
        # At each paragraph their Markdown readers look through all that follows.
        return len(changes) * sum(len(text) * (1 + text.count("\n\n") // 50) for text in texts)


class NativeEmitter(StreamEmitter):
    """For Open WebUI 0.11.4 and later: calls and reasoning as its own items, so that exports and later turns have them.

    An item that is added again is replaced. A call that ends gets its output with it: one that has none at the end of
    the stream would be run by Open WebUI, and the pipe called again.
    """

    part_number = attrgetter("segment")

    def _empty(self, key: str) -> Iterator[Json]:
        self._sent[key] = self._message(key, "")
        yield self._added(self._sent[key])

    def _items(self, part: list[Piece]) -> Iterator[Json]:
        if part[0].kind not in BLOCKS:
            yield from super()._items(part)
        blocks = [(number, piece) for number, piece in enumerate(part) if piece.kind in BLOCKS]
        for _, round_ in groupby(blocks, key=lambda block: block[1].round):
            keys = f"{self._id}_{part[0].segment}_"
            items = [item for number, piece in round_ for item in native_items(piece, f"{keys}{number}")]
            # Outputs last: on the next turn, calls with an output in between are told as two rounds.
            yield from sorted(items, key=lambda item: str(item["type"]) == "function_call_output")

    def _changes(self, item: Json) -> Iterator[Json]:
        if item["type"] == "message":
            yield from super()._changes(item)
        elif self._sent.get(item["id"]) != item:
            self._sent[item["id"]] = item
            yield self._added(item)


def native_items(piece: Piece, key: str) -> Iterator[Json]:
    """A thought or a call as Open WebUI's own items."""
    if piece.kind == "thought":
        state = {"status": "in_progress"} if piece.is_open else {"status": "completed", "duration": piece.seconds}
        content = [{"type": "output_text", "text": piece.text}]
        yield {"type": "reasoning", "id": f"rs_{key}", "summary": [], "content": content, **state}
        return
    # "completed" without an output reads "Executing", "in_progress" reads "Preparing".
    status = {"preparing": "in_progress", "failed": "failed"}.get(piece.state, "completed")
    call = {"type": "function_call", "id": f"fc_{key}", "call_id": piece.id, "name": piece.shown_name}
    arguments = json.loads(piece.arguments) if piece.arguments.startswith(chr(34)) else piece.arguments
    yield call | {"arguments": arguments, "status": status}
    if not piece.is_open:
        output = {"output": [{"type": "input_text", "text": piece.text}], "files": piece.files}
        yield {"type": "function_call_output", "id": f"fco_{key}", "call_id": piece.id, "status": status, **output}


def choose_emitter(version: str, rendering: str, model: str, metadata: Json) -> Emitter:
    """The emitter that this Open WebUI understands; an unknown version is taken for the newest."""
    # What Open WebUI's own stream handler looks at are the ids: chat and message, before 0.9 the session too.
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    release = numbers if any(numbers) else [99]
    needed = ("chat_id", "message_id") if release >= [0, 9] else ("chat_id", "message_id", "session_id")
    watched = all(metadata.get(name) for name in needed)
    if rendering == "native" and watched and release >= [0, 11, 4]:
        return NativeEmitter(model)
    if rendering == "native":
        log.info("Callboard: drawn as details: RENDERING native needs a saved chat in Open WebUI 0.11.4 or later")
    details = StreamEmitter if release >= [0, 11, 1] else WholeEmitter if release >= [0, 8] else EventEmitter
    return details(model) if watched else Emitter(model)


# --- The server: the only I/O. --------------------------------------------------------------------------------------
class _ServerProblem(Exception):
    """The server cannot be used; the message is for a person and names what to change."""


class _Client:
    """One request's connection to the server at `url`. Every failure is a `_ServerProblem`."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url.strip().rstrip("/"), key.strip()
        self._last_seq = 0
        # A run that was started for a user is that user's alone.
        self.asker = dict[str, str]()

    async def models(self) -> list[Json]:
        try:
            async with asyncio.timeout(MODELS_SECONDS):
                entries = json.loads((await self.fetch("GET", "/v1/models", "json"))[1])["data"]
            return [{"id": str(entry["id"]), "name": str(entry.get("name") or entry["id"])} for entry in entries]
        except (TimeoutError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._problem(CANNOT_REACH if isinstance(error, TimeoutError) else NOT_CALLBOARD) from error

    async def fetch(self, method: str, path: str, kind: str = "", **options: Any) -> tuple[str, bytes]:
        """A whole answer: its content type and its body."""
        try:
            async with self._send(method, path, kind, **options) as response:
                return response.headers.get("content-type", ""), await response.aread()
        except httpx.HTTPError as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def run(self, request: Json, deliver: Callable[[Json], None]) -> None:
        """Delivers the run's events up to the last; a stream that is cut is resumed as long as that brings new ones."""
        self.asker = {"user_id": request["user"]["id"]} if request["user"] else {}
        resumed, sending = False, self._send("POST", "/v1/runs", "event-stream", json=request)
        while True:
            before = self._last_seq
            try:
                async with sending as response:
                    if await self._read(response, deliver):
                        return
            except (httpx.HTTPError, _ServerProblem) as error:
                if isinstance(error, _ServerProblem) and not resumed:
                    raise
                log.info("Callboard: the stream was cut after event %d (%s)", before, type(error).__name__)
            if resumed and self._last_seq == before:
                raise self._problem(LOST)
            resumed, headers = True, {"Last-Event-ID": str(self._last_seq)}
            path = f"/v1/runs/{request['run_id']}/events"
            sending = self._send("GET", path, "event-stream", headers=headers, params=self.asker)

    async def leave(self, reader: asyncio.Task[None], cancel_run_id: str | None) -> None:
        """Ends the connection; with `cancel_run_id` the run too."""
        with suppress(_ServerProblem, TimeoutError):
            if cancel_run_id:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self.fetch("POST", f"/v1/runs/{cancel_run_id}/cancel", params=self.asker)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, response: httpx.Response, deliver: Callable[[Json], None]) -> bool:
        decoder = FrameDecoder()
        async for chunk in response.aiter_bytes():
            for frame_id, data in decoder.feed(chunk):
                seq = int(frame_id) if frame_id.isdecimal() and len(frame_id) < 18 else self._last_seq + 1
                if seq > self._last_seq:
                    self._last_seq = seq
                    if event := read_event(data):
                        deliver(event)
                        if event["type"] in ("done", "error"):
                            return True
        return False

    @asynccontextmanager
    async def _send(self, method: str, path: str, kind: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yields an accepted answer of that kind, its body unread; everything else is a problem."""
        if not re.fullmatch(r"[\x21-\x7e]*", self._key):
            # httpx would quote the key in its own message.
            raise self._problem(BAD_KEY)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # To load the certificates costs 20 ms, which plain HTTP can do without.
        timeout, verify = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS), not self._url.startswith("http:")
        async with httpx.AsyncClient(headers=headers, timeout=timeout, verify=verify) as http:
            try:
                response = await http.send(http.build_request(method, self._url + path, **options), stream=True)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError) as error:
                raise self._problem(CANNOT_REACH) from error
            if not response.is_success or kind not in response.headers.get("content-type", ""):
                raise self._refusal(await response.aread())
            yield response

    def _refusal(self, body: bytes) -> _ServerProblem:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            return _ServerProblem(str(json.loads(body)["error"]["message"]).replace(self._key or "\0", "***"))
        return self._problem(NOT_CALLBOARD)

    def _problem(self, words: str) -> _ServerProblem:
        # What people are shown has no password in it.
        return _ServerProblem(words.format(url=re.sub(r"//[^/@]*@", "//", self._url)))


# --- The pipe, and what it asks of Open WebUI: its file store, its dialogs. -----------------------------------------
async def keep(request: object, user: Json, name: str, kind: str, content: bytes) -> str:
    """The address of a file that is put into Open WebUI's own store; "" where it cannot be."""
    try:
        from open_webui.routers.files import UploadFile, upload_file_handler

        file = UploadFile(io.BytesIO(content), filename=name, headers={"content-type": kind})
        kept = upload_file_handler(request, file, metadata={}, process=False, user=SimpleNamespace(**user))
        # Open WebUI's own functions are async in some versions only.
        kept = await kept if inspect.isawaitable(kept) else kept
    except Exception:
        log.exception("Callboard: Open WebUI did not keep a file")
        return ""
    return f"/api/v1/files/{kept.id}/content"


async def read(user: Json, file_id: str) -> bytes:
    """One of the user's own files in Open WebUI's store: it is the browser that says which. b"" where it cannot be."""
    try:
        from open_webui.models.files import Files
        from open_webui.storage.provider import Storage

        file = Files.get_file_by_id(file_id)
        file = await file if inspect.isawaitable(file) else file
        path = Storage.get_file(file.path) if file.user_id == user["id"] else ""
        return await asyncio.to_thread(Path(path).read_bytes)
    except Exception:
        log.exception("Callboard: Open WebUI did not give a file")
        return b""


async def attach(user: Json, metadata: Json, messages: list[Json]) -> None:
    """Adds the user's files to their last message. Images are there, and so is what Open WebUI made a source of."""
    told = [source["source"].get("id") for source in _dicts(metadata.get("sources")) if source.get("source")]
    at = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    for file in _dicts(metadata.get("files")) if at >= 0 else ():
        kind, name = str(file.get("content_type") or "application/octet-stream"), str(file.get("name") or "file")
        if file.get("type") == "file" and not kind.startswith("image/") and file.get("id") not in told:
            content = base64.b64encode(await read(user, str(file.get("id")))).decode()
            part = {"filename": name, "file_data": content and f"data:{kind};base64,{content}"}
            said = said if isinstance(said := messages[at].get("content"), list) else [{"type": "text", "text": said}]
            messages[at] = messages[at] | {"content": [*said, {"type": "file", "file": part}]}


def dialog(question: Json) -> Json:
    """The question for Open WebUI's dialogs, to the letter: they read Markdown. What cannot be seen has its number."""
    kind, message = question.get("kind"), str(question.get("message") or "")
    seen = "".join(c if c.isprintable() or c in "\n\u3000\xa0" else ascii(c)[1:-1] for c in message)
    style = "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 50vh; overflow: auto"
    data = {name: str(question.get(name) or "") for name in ("title", "placeholder")}
    data |= {"message": f'<pre style="{style}">{html.escape(seen)}</pre>' if seen else "", "type": str(kind)}
    return {"type": "confirmation" if kind == "confirmation" else "input", "data": data}


class Run:
    """One answer, first event to last: reads the server, draws, asks, and ends the run when the user stops it."""

    def __init__(self, client: _Client, request: Json, emitter: Emitter, transcript: Transcript) -> None:
        self._client, self._request, self._emitter, self._transcript = client, request, emitter, transcript
        self._left, self._run_id, self._began_at_seconds = False, str(request["run_id"]), time.monotonic()
        self._asking, self._questions = asyncio.Lock(), list[asyncio.Task[None]]()
        self.store: tuple[object, Json] = (None, {})
        self.ask: Callable[[Json], Awaitable[object]] | None = None

    async def stream(self) -> AsyncGenerator[Json, None]:
        """The answer as Open WebUI's stream takes it. On stop, one last update with every block closed."""
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        reader = asyncio.create_task(self._client.run(self._request, queue.put_nowait))
        # None wakes the loop when the reader is over, whichever way.
        reader.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while not self._transcript.ended:
                for event in await self._arrived(queue):
                    if event is None:
                        reader.result()
                    else:
                        self._transcript.apply(event)
                for update in self._emitter.updates(self._transcript, time.monotonic()):
                    yield update
        except asyncio.CancelledError:
            self._leave(reader)
            self._transcript.close("stopped by the user", how="stopped")
            for update in self._emitter.updates(self._transcript, time.monotonic(), final=True):
                yield update
            raise
        except _ServerProblem as problem:
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

    async def text(self, *, plain: bool = False) -> str:
        """The whole answer at once; with `plain` the bare text of an answer that is whole, else ""."""
        _ = [update async for update in self.stream()]
        pieces = self._transcript.pieces
        whole = not any(piece.kind == "notice" for piece in pieces)
        bare = "".join(piece.text.replace(GUARDED, "<details") for piece in pieces if whole and piece.kind == "text")
        return bare if plain else self._transcript.render()

    async def _placed(self, file: Json) -> Json:
        """The file with an address that a browser can open: what the server holds goes to Open WebUI's own store."""
        if not re.fullmatch(rf"/v1/runs/{self._run_id}/files/[\w-]+", url := str(file.get("url"))):
            return file
        try:
            kind, content = await self._client.fetch("GET", url, params=self._client.asker)
        except _ServerProblem as problem:
            log.warning("Callboard: a file of a tool is lost: %s", problem)
            return file
        return file | {"url": await keep(*self.store, str(file.get("name") or "file"), kind, content)}

    async def _ask(self, question: Json) -> None:
        """Asks the user, after whom else is asked already, and tells the server."""
        given, seconds = None, question.get("timeout_seconds")
        try:
            async with asyncio.timeout(seconds if isinstance(seconds, (int, float)) else None), self._asking:
                # The page of a new chat drops what comes before it knows the chat's id (0.9 to 0.11).
                await asyncio.sleep(self._began_at_seconds + PAGE_SECONDS - time.monotonic() if self.ask else 0)
                given = await self.ask(dialog(question)) if self.ask else None
        except Exception as error:
            log.warning("Callboard: the user gave no answer (%s)", type(error).__name__, exc_info=True)
        # Where the server does not take it, the call has ended in the meantime.
        with suppress(_ServerProblem):
            # {"error": …} is a tab that is gone; True is an empty text in 0.8 and 0.9.
            text = given if isinstance(given, str) else "" if given is True else None
            value = given is True if question.get("kind") == "confirmation" else text
            said = {"request_id": question.get("request_id"), "value": value}
            path = f"/v1/runs/{self._run_id}/input"
            await self._client.fetch("POST", path, json=said, params=self._client.asker)

    async def _arrived(self, queue: asyncio.Queue[Json | None]) -> list[Json | None]:
        """All that has arrived, its questions asked; nothing where a change that waits for its beat is due first."""
        arrived, due = list[Json | None](), self._emitter.due_at_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due == inf else due - time.monotonic()):
                arrived.append(await queue.get())
        while not queue.empty():
            arrived.append(queue.get_nowait())
        for event in arrived:
            if event and event["type"] == "input_request":
                self._questions.append(asyncio.create_task(self._ask(event)))
            elif event and event["type"] == "tool_call_complete":
                event["files"] = [await self._placed(file) for file in _dicts(event.get("files"))]
        return arrived

    def _leave(self, reader: asyncio.Task[None]) -> None:
        """Ends the connection in the background, and the run where it has not ended: nothing may be awaited here."""
        if self._left:
            return
        self._left = True
        for question in self._questions:
            question.cancel()
        task = asyncio.create_task(self._client.leave(reader, None if self._transcript.ended else self._run_id))
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)


def build_request(body: Json, user: Json, metadata: Json, task: str | None) -> Json:
    """The body of `POST /v1/runs`. Temporary chats are not kept, nor are channels, which belong to no one user."""
    known = {name: str(user[name]) for name in ("id", "name", "email", "role") if user.get("id") and user.get(name)}
    model, chat_id = str(body.get("model", "")), str(metadata.get("chat_id") or "")
    return {
        "agent": model.partition(".")[2] or model,
        "chat_id": None if chat_id.startswith(("local:", "temporary:", "channel:")) else chat_id or None,
        "message_id": metadata.get("message_id") or None,
        "user": known or None,
        "messages": _dicts(body.get("messages")),
        "task": str(task) if task else None,
        "options": {name: body[name] for name in OPTIONS if body.get(name) is not None},
        "run_id": uuid.uuid4().hex,
    }


class Pipe:
    """What Open WebUI loads: one object for all users, so it holds nothing of a request."""

    class Valves(BaseModel):
        CALLBOARD_URL: str = Field(default="http://127.0.0.1:8700", description="Where the Callboard server listens.")
        CALLBOARD_API_KEY: str = Field(
            default="", description="The server's key, if any.", json_schema_extra={"input": {"type": "password"}}
        )
        RESULT_CHARS: int = Field(default=10_000, ge=0, description="Where results are cut for display, in characters.")
        RENDERING: Literal["details", "native"] = Field(default="details", description="How tool calls are drawn.")
        RECALL: bool = Field(default=True, description="What agents know of a user from earlier chats is told to them.")

    def __init__(self) -> None:
        self.valves, self._agents = self.Valves(), list[Json]()

    async def pipes(self) -> list[Json]:
        """The agents for the model list; those last known, and what is wrong, where the server cannot be used."""
        client, wrong = _Client(self.valves.CALLBOARD_URL, self.valves.CALLBOARD_API_KEY), list[Json]()
        try:
            # Kept, or Open WebUI would take the chats of a server that is being restarted to another model.
            self._agents = await client.models()
        except _ServerProblem as problem:
            log.warning("Callboard: %s", problem)
            valve = "CALLBOARD_API_KEY" if "CALLBOARD_API_KEY" in str(problem) else "CALLBOARD_URL"
            wrong = [{"id": "unreachable", "name": f"Callboard: {str(problem).partition('. ')[0]} (valve {valve})"}]
        return self._agents + wrong

    async def pipe(
        self,
        body: Json,
        __user__: Json | None = None,
        __metadata__: Json | None = None,
        __task__: str | None = None,
        __event_call__: Callable[[Json], Awaitable[object]] | None = None,
        __request__: object = None,
    ) -> str | AsyncGenerator[Json, None]:
        """One answer: a stream of dicts, or a `str` where Open WebUI wants no stream or a background task's text."""
        try:
            valves, metadata, user = self.valves, __metadata__ or {}, __user__ or {}
            request, model = build_request(body, user, metadata, __task__), str(body.get("model", ""))
            request |= {} if valves.RECALL else {"recall": False}
            streamed = bool(body.get("stream")) and not __task__
            emitter = choose_emitter(VERSION, valves.RENDERING, model, metadata) if streamed else Emitter(model)
            transcript = Transcript(valves.RESULT_CHARS, metadata.get("sources"))
            run = Run(_Client(valves.CALLBOARD_URL, valves.CALLBOARD_API_KEY), request, emitter, transcript)
            run.ask, run.store = None if __task__ else __event_call__, (__request__, user)
            await attach(user, metadata, request["messages"])
            return run.stream() if streamed else await run.text(plain=bool(__task__))
        except Exception:
            log.exception("Callboard: the request could not be made")
            return "" if __task__ else NOTICE + PIPE_FAILED
