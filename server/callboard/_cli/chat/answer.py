"""An answer as a terminal shows it: pieces of text, thoughts and notes, and a card for each call.

Pure: it takes the protocol's events in, one after another. It draws nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from callboard._cli.chat.files import describe_file
from callboard._text import cut_note
from callboard_protocol import (
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
    "max_turns": "The agent was stopped: it used all the turns that it may take for one answer.",
    "cancelled": "Stopped.",
}

LOST_CODE = "connection_lost"
"""The code of an end that is none of the server's."""


@dataclass(slots=True, eq=False)
class Words:
    """A text that comes in parts."""

    kind: Literal["text", "thought", "note", "problem"]
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self.parts)


@dataclass(slots=True, eq=False)
class Card:
    """A tool call: `draft` is what the model has written of its arguments, `steps` what the tool has reported."""

    call_id: str
    name: str = "tool"
    state: Literal["preparing", "running", "done", "failed", "ended"] = "preparing"
    ending: str = ""
    """How it ended without a result that is no failure: "declined", "stopped"."""
    draft: list[str] = field(default_factory=list)
    arguments: object = ""
    steps: list[ToolStatusData] = field(default_factory=list)
    is_waiting: bool = False
    result: str = ""
    files: list[str] = field(default_factory=list)
    began_at_seconds: float = 0.0
    took_seconds: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in ("preparing", "running")


Piece = Words | Card


class Answer:
    """One answer, from its first event to its last; `server_url` is where the server's own paths are to be found."""

    def __init__(self, server_url: str = "") -> None:
        self._server_url = server_url
        self.files: list[Mapping[str, object]] = []
        """The files of all calls."""
        self.pieces: list[Piece] = []
        self.cards: dict[str, Card] = {}
        self.sources: dict[str, str] = {}
        """The lines of the sources, by their numbers."""
        self.status = ""
        """What the run does, where it says so."""
        self.usage: Usage | None = None
        self.ending: Done | Error | None = None
        self.rewinds = 0
        self.kept = 0
        """So many pieces no rewind takes back, but for parts at the end of the last one."""
        self._kept_parts = 0
        self._is_closed = False

    @property
    def text(self) -> str:
        """What the agent said, without its thoughts."""
        said = [piece.text for piece in self.pieces if isinstance(piece, Words) and piece.kind == "text"]
        return "\n\n".join(text.strip() for text in said)

    def apply(self, event: Event, now_seconds: float) -> None:
        """Change the answer as the event says."""
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
                # The question stands below the text so far, and what follows below the answer.
                self._is_closed = True
                if card := self.cards.get(event.tool_call_id or ""):
                    card.is_waiting = True
            case Source():
                self._cite(event)
            case Usage():
                self.usage = event
            case Done() | Error():
                self._end(event)
            case _:
                self._apply_to_call(event, now_seconds)

    def _apply_to_call(self, event: Event, now_seconds: float) -> None:
        match event:
            case ToolCallArgsDelta():
                card = self._card(event.tool_call_id, event.tool_name)
                card.draft.append(event.delta)
            case ToolCallStart():
                card = self._card(event.tool_call_id, event.tool_name)
                card.state = "running"
                card.arguments = event.tool_args
                card.began_at_seconds = now_seconds
                self._mark()
            case ToolStatus():
                self._report(event)
            case ToolCallComplete():
                chars = event.result_chars if event.truncated else 0
                note = cut_note(event.result, max(chars, len(event.result)))
                self._end_call(event, "done", f"{note} {event.result_url or ''}".rstrip(), now_seconds)
            case ToolCallError():
                ending = find_ending(event.code)
                state: Literal["failed", "ended"] = "failed" if ending.is_failure else "ended"
                self._end_call(event, state, ending.words or event.error, now_seconds)
                self.cards[event.tool_call_id].ending = ending.label
                if not ending.has_run:
                    self.cards[event.tool_call_id].took_seconds = None
            case _:
                pass

    def lose(self, problem: str, now_seconds: float) -> None:
        """End the answer where it is: the rest cannot be had."""
        self.apply(Error(message=problem, code=LOST_CODE), now_seconds)

    def is_awaited(self, question: InputRequest) -> bool:
        """Return whether an answer to the question may still be given: its call, if it has one, has not ended."""
        card = self.cards.get(question.tool_call_id or "")
        return self.ending is None and (card is None or card.is_open)

    def _add(self, kind: Literal["text", "thought"], part: str) -> None:
        last = self.pieces[-1] if self.pieces else None
        if not isinstance(last, Words) or last.kind != kind or self._is_closed:
            # White space between two calls would only tear them apart.
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

    def _card(self, call_id: str, name: str) -> Card:
        if call_id not in self.cards:
            self.cards[call_id] = Card(call_id)
            self._append(self.cards[call_id])
        card = self.cards[call_id]
        card.name = name or card.name
        return card

    def _mark(self) -> None:
        self.kept = len(self.pieces)
        last = self.pieces[-1]
        self._kept_parts = len(last.parts) if isinstance(last, Words) else 0

    def _rewind(self) -> None:
        for gone in self.pieces[self.kept :]:
            if isinstance(gone, Card):
                del self.cards[gone.call_id]
        del self.pieces[self.kept :]
        if self.pieces and isinstance(last := self.pieces[-1], Words):
            del last.parts[self._kept_parts :]
        # Nothing joins what stood there before.
        self._is_closed = True
        self.rewinds += 1

    def _report(self, event: ToolStatus) -> None:
        card = self.cards.get(event.tool_call_id)
        if card and card.is_open:
            card.steps.append(event.data)
            card.is_waiting = False

    def _end_call(
        self,
        event: ToolCallComplete | ToolCallError,
        state: Literal["done", "failed", "ended"],
        result: str,
        now_seconds: float,
    ) -> None:
        card = self._card(event.tool_call_id, event.tool_name)
        card.state = state
        card.result = result
        if isinstance(event, ToolCallComplete):
            self.files += event.files
            card.files = [describe_file(file, self._server_url) for file in event.files]
            card.files += ["a page, which Open WebUI shows"] * len(event.embeds)
        if event.duration_ms is not None:
            card.took_seconds = event.duration_ms / 1000
        elif card.began_at_seconds:
            card.took_seconds = now_seconds - card.began_at_seconds
        self._mark()

    def _cite(self, event: Source) -> None:
        name = event.source.get("name") or event.source.get("url")
        for about in event.metadata or ({},):
            number = about.get("source_number", len(self.sources) + 1)
            url = about.get("source") or event.source.get("url") or ""
            self.sources[str(number)] = f"{about.get('name') or name}  {url}"

    def _end(self, event: Done | Error) -> None:
        for card in self.cards.values():
            if card.is_open:
                card.state = "failed"
                card.result = "no result arrived"
        if isinstance(event, Error):
            self._append(Words("problem", [event.message]))
        elif note := FINISH_NOTES.get(event.finish_reason):
            self._append(Words("note", [note]))
        self.ending = event


def is_from_text(card: Card) -> bool:
    """Return whether the call was read from the model's text, where nobody asked for calls."""
    return any(step.status == FROM_TEXT_STATUS for step in card.steps)


def write_arguments(card: Card) -> str:
    """Return a call's arguments on one line: `city="Oslo", days=2`."""
    if isinstance(card.arguments, dict):
        return ", ".join(f"{name}={_to_json(value)}" for name, value in card.arguments.items())
    return str(card.arguments) or "".join(card.draft)


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
