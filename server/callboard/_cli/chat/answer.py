"""The model of an answer for displays: texts, thoughts, notes and calls, in their order. It prints nothing."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from callboard._cli.chat.files import describe_file
from callboard._text import cut_note
from callboard_protocol import (
    FAILED,
    FROM_TEXT_STATUS,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    Usage,
    find_ending,
)

FINISH_NOTES = {
    "length": "The answer was cut at the model's length limit.",
    "content_filter": "The answer was cut by the content filter of the model's endpoint.",
    "refusal": "The model refused to answer.",
    "max_turns": "The agent was stopped: it reached its limit of turns for one answer.",
    "cancelled": "Stopped.",
}

LOST_CODE = "connection_lost"
"""Code of the client's own error: the rest of the answer cannot be read."""


@dataclass(slots=True, eq=False)
class Words:
    """A text that arrives in parts."""

    kind: Literal["text", "thought", "note", "problem"]
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self.parts)


@dataclass(slots=True, eq=False)
class Call:
    """A tool call.

    `sign` is the mark of its end (✓, ✗ or –) and empty before. `draft` has the parts of its arguments so far.
    `ending` is a word for an end without a result that is not a failure: "declined", "stopped".
    """

    name: str = "tool"
    sign: str = ""
    ending: str = ""
    draft: list[str] = field(default_factory=list)
    arguments: Mapping[str, object] | str = ""
    steps: list[ToolStatusData] = field(default_factory=list)
    is_waiting: bool = False
    result: str = ""
    files: list[str] = field(default_factory=list)
    began_at_seconds: float | None = None
    took: str = ""

    @property
    def title(self) -> str:
        """The tool's name, a mark if the call was read from the model's text, and the word for its end."""
        is_from_text = any(step.status == FROM_TEXT_STATUS for step in self.steps)
        return " · ".join(filter(None, (self.name, "from text" if is_from_text else "", self.ending)))

    @property
    def arguments_line(self) -> str:
        """The arguments on one line: `city="Oslo", days=2`."""
        if isinstance(self.arguments, str):
            return self.arguments or "".join(self.draft)
        values = {name: json.dumps(value, ensure_ascii=False) for name, value in self.arguments.items()}
        return ", ".join(f"{name}={value}" for name, value in values.items())

    @property
    def arguments_block(self) -> str:
        """The arguments as JSON on several lines."""
        if isinstance(self.arguments, str):
            return self.arguments_line
        return json.dumps(self.arguments, ensure_ascii=False, indent=2)


Piece = Words | Call


class Answer:
    """One answer, built from its events; `server_url` is the base of relative URLs in them."""

    def __init__(self, server_url: str = "") -> None:
        self._server_url = server_url
        self._began_at_seconds = time.monotonic()
        self.files: list[Mapping[str, object]] = []
        """The files of all calls."""
        self.pieces: list[Piece] = []
        self.calls: dict[str, Call] = {}
        self.sources: dict[str, str] = {}
        """Name and URL of each source, by its number."""
        self.status = ""
        self.ending: Done | Error | None = None
        self._total_tokens = 0
        # A rewind keeps this many pieces, and this many parts of the last of them.
        self._kept = 0
        self._kept_parts = 0
        self._is_closed = False

    @property
    def text(self) -> str:
        """The text of the answer, without thoughts."""
        texts = [piece.text for piece in self.pieces if isinstance(piece, Words) and piece.kind == "text"]
        return "\n\n".join(text.strip() for text in texts)

    @property
    def summary(self) -> str:
        """Calls, time and tokens of the answer: `2 calls, 4 s, 300 tokens`."""
        count = len(self.calls)
        calls = ["1 call" if count == 1 else f"{count} calls"] if count else []
        tokens = [f"{self._total_tokens:,} tokens"] if self._total_tokens else []
        return ", ".join([*calls, format_seconds(time.monotonic() - self._began_at_seconds), *tokens])

    def is_final(self, place: int) -> bool:
        """Return whether the piece can no longer be removed by a rewind or continued; a call may still end."""
        if self.ending:
            return True
        may_go_on = place == self._kept - 1 and isinstance(self.pieces[place], Words)
        return place < self._kept and not may_go_on

    def is_open(self, question: InputRequest) -> bool:
        """Return whether the question can still be answered: neither the run nor the question's call has ended."""
        call = self.calls.get(question.tool_call_id or "")
        return self.ending is None and (call is None or not call.sign)

    def apply(self, event: Event) -> None:
        """Update the answer by an event."""
        match event:
            case Message():
                self._add("text", event.content)
            case Reasoning():
                self._add("thought", event.content)
            case Status():
                self.status = event.content
            case Rewind():
                self._rewind()
            case InputRequest():
                # The question stands below the text so far, so later text is a new piece.
                self._is_closed = True
                if call := self.calls.get(event.tool_call_id or ""):
                    call.is_waiting = True
            case Source():
                self._cite(event)
            case Usage():
                self._total_tokens = event.total_tokens
            case Done() | Error():
                self._end(event)
            case _:
                self._apply_to_call(event)

    def _apply_to_call(self, event: Event) -> None:
        match event:
            case ToolCallArgsDelta():
                self._find_call(event.tool_call_id, event.tool_name).draft.append(event.delta)
            case ToolCallStart():
                call = self._find_call(event.tool_call_id, event.tool_name)
                call.arguments = event.tool_args
                call.began_at_seconds = time.monotonic()
                self._keep_pieces()
            case ToolStatus() if reporting := self.calls.get(event.tool_call_id):
                reporting.steps.append(event.data)
                reporting.is_waiting = False
            case ToolCallComplete():
                self._end_call(event, "✓", _cut_result(event))
                self.files += event.files
                files = [describe_file(file, self._server_url) for file in event.files]
                pages = ["a page, which Open WebUI shows"] * len(event.embeds)
                self.calls[event.tool_call_id].files = [*files, *pages]
            case ToolCallError():
                ending = find_ending(event.code)
                sign = "✗" if ending.is_failure else "–"
                self._end_call(event, sign, ending.words or event.error, has_run=ending.has_run)
                self.calls[event.tool_call_id].ending = "" if ending is FAILED else ending.label
            case _:
                pass

    def _add(self, kind: Literal["text", "thought"], part: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Words) or last.kind != kind or self._is_closed:
            # A piece does not begin with white space, so white space between two calls makes no piece.
            part = part.lstrip()
            if not part:
                return
            last = Words(kind)
            self._append(last)
        last.parts.append(part)

    def _append(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.status = ""
        self._is_closed = False

    def _find_call(self, call_id: str, name: str) -> Call:
        if call_id not in self.calls:
            self.calls[call_id] = Call()
            self._append(self.calls[call_id])
        call = self.calls[call_id]
        call.name = name or call.name
        return call

    def _keep_pieces(self) -> None:
        self._kept = len(self.pieces)
        last = self.pieces[-1]
        self._kept_parts = len(last.parts) if isinstance(last, Words) else 0

    def _rewind(self) -> None:
        del self.pieces[self._kept :]
        self.calls = {call_id: call for call_id, call in self.calls.items() if call in self.pieces}
        if self.pieces and isinstance(last := self.pieces[-1], Words):
            del last.parts[self._kept_parts :]
        self._is_closed = True

    def _end_call(
        self, event: ToolCallComplete | ToolCallError, sign: str, result: str, *, has_run: bool = True
    ) -> None:
        call = self._find_call(event.tool_call_id, event.tool_name)
        call.sign = sign
        call.result = result
        if event.duration_ms is not None and has_run:
            call.took = format_seconds(event.duration_ms / 1000)
        self._keep_pieces()

    def _cite(self, event: Source) -> None:
        name = event.source.get("name") or event.source.get("url")
        for about in event.metadata or ({},):
            number = about.get("source_number", len(self.sources) + 1)
            url = about.get("source") or event.source.get("url") or ""
            self.sources[str(number)] = f"{about.get('name') or name}  {url}"

    def _end(self, event: Done | Error) -> None:
        for call in self.calls.values():
            if not call.sign:
                call.sign = "✗"
                call.result = "no result arrived"
        if isinstance(event, Error):
            self._append(Words("problem", [event.message]))
        elif note := FINISH_NOTES.get(event.finish_reason):
            self._append(Words("note", [note]))
        self.ending = event


def _cut_result(event: ToolCallComplete) -> str:
    chars = event.result_chars if event.truncated else 0
    return f"{cut_note(event.result, max(chars, len(event.result)))} {event.result_url or ''}".rstrip()


def format_seconds(seconds: float) -> str:
    """Return a duration in words: `4 s`, `under 1 s`."""
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def format_step(step: ToolStatusData) -> str:
    """Return a step in words: `40% Painting`."""
    percent = "" if step.progress is None else f"{step.progress:.0f}% "
    return f"{percent}{step.message}".strip()
