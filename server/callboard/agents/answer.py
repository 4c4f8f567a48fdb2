"""Reads one answer of the model from its stream: makes its events, its calls and the finish reason. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from callboard._formats import ArgumentsPiece, ClaimId, Piece, Reader, ReasoningPiece, TextPiece, resolve_tool_name
from callboard._formats.repeated_thoughts import RepeatedThoughts
from callboard.agents.notices import (
    CUT_OFF,
    FILTERED,
    LIMIT_REACHED,
    NOTHING_SAID,
    PICTURE_TOOL,
    REFUSED,
    SHOWN_TO_USER,
)
from callboard.calls import Tool, ToolCall
from callboard.calls.tool import ClientTool
from callboard.errors import ModelAborted, ModelMalformedCall
from callboard.models import (
    Finish,
    MessageDetails,
    ModelDelta,
    PictureDelta,
    ReasoningDelta,
    RefusalDelta,
    TokenUsage,
)
from callboard.models.chunks import KNOWN_REASONS, merge_details
from callboard_protocol import (
    Event,
    FinishReason,
    Message,
    Reasoning,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallStart,
)

MAX_QUOTED_CHARS = 500
"""The longest quotation of an endpoint's message."""

_ENDINGS: dict[str | None, tuple[FinishReason, str]] = {
    "length": ("length", CUT_OFF),
    "content_filter": ("content_filter", FILTERED),
    "refusal": ("refusal", REFUSED),
}
"""The finish reasons that are not `stop`, by the endpoint's reason, each with the text for an answer without text."""


class ModelAnswer:
    """One answer of the model, filled as its stream is read.

    Half-written arguments are events for at most `max_calls` calls. `details` are the fields of `MessageDetails`.
    """

    def __init__(self, reader: Reader, tools: Sequence[Tool], max_calls: int) -> None:
        # Not a list of pieces, because a token takes ten times the memory of its characters.
        self._text = StringIO()
        self.usage: TokenUsage | None = None
        self.details: Mapping[str, Any] = {}
        self.calls: list[ToolCall] = []
        """The calls in the answer, set by `finish`."""
        self._finish = Finish(None)
        self._refusal: list[str] = []
        self._pictures: list[str] = []
        self._reader = reader
        self._thoughts = RepeatedThoughts()
        self._known = [tool.name for tool in tools]
        # The call of a client's function has no start event, and half-written arguments cannot be searched for secrets.
        self._streamed = {tool.name for tool in tools if not (isinstance(tool, ClientTool) or tool.secret_arguments)}
        self._shown_calls: set[str] = set()
        self._max_calls = max_calls

    def feed(self, delta: ModelDelta) -> list[Event]:
        """Add a piece of the model's stream, and return the events that can be shown now."""
        match delta:
            case Finish():
                self._finish = delta
            case RefusalDelta():
                self._refusal.append(delta.text)
            case PictureDelta():
                self._pictures.append(delta.url)
            case TokenUsage():
                # Some endpoints send the total so far with every chunk: the last one counts.
                self.usage = delta
            case MessageDetails(fields=fields) if delta.is_whole:
                self.details = {**self.details, **fields}
            case MessageDetails(fields=fields):
                self.details = merge_details(self.details, fields)
            case _:
                pass
        return self._show(self._reader.feed(delta), "field" if isinstance(delta, ReasoningDelta) else "text")

    def finish(self) -> list[Event]:
        """Return the events that were held back until the end of the stream."""
        events = self._show(self._reader.finish(), "text")
        self.calls = self._reader.calls()
        return events

    def _show(self, pieces: Sequence[Piece], source: str) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case TextPiece():
                    self._text.write(piece.text)
                    events.append(Message(content=piece.text))
                case ReasoningPiece():
                    if thought := self._thoughts.add(piece.text, source):
                        events.append(Reasoning(content=thought))
                case ArgumentsPiece(call_id=call_id, name=name):
                    # Calls that will not run are not shown: those of unknown tools and those over the maximum.
                    is_shown = resolve_tool_name(name, self._known) in self._streamed
                    if is_shown and (call_id in self._shown_calls or len(self._shown_calls) < self._max_calls):
                        self._shown_calls.add(call_id)
                        events.append(ToolCallArgsDelta(tool_call_id=call_id, tool_name=name, delta=piece.text))
        return events

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text.getvalue()

    @property
    def reason(self) -> str | None:
        """Why the answer ended, in the endpoint's word; `refusal` if there is text of a refusal."""
        is_refused = self._refusal and self._finish.reason != "content_filter"
        return "refusal" if is_refused else self._finish.reason

    @property
    def is_malformed(self) -> bool:
        """Whether the answer ended because the endpoint could not read a call that the model wrote."""
        return self._finish.reason == "malformed_function_call"

    def closing_events(self, claim_id: ClaimId) -> Iterator[Event]:
        """Yield the last events of the answer: the text of a refusal, and each picture as a call that has ended.

        Raises `ModelMalformedCall` or `ModelAborted` instead if the endpoint ended the answer with such an error.
        """
        message = " ".join([self._finish.word, *"".join(self._refusal).split()]).strip()[:MAX_QUOTED_CHARS]
        quoted = f" ({message})" if message else ""
        if self.is_malformed:
            raise ModelMalformedCall(
                f"The model twice wrote a tool call that its endpoint could not read{quoted}. "
                "Ask again, or put it in other words."
            )
        if self._finish.reason == "error":
            raise ModelAborted(
                f"The model's endpoint ended the answer with an error{quoted}, so the answer is incomplete. "
                "Ask again. If this happens often, look at the endpoint's log."
            )
        if words := "".join(self._refusal):
            if self.text.strip():
                yield Message(content="\n\n")
            self._text.write(words)
            yield Message(content=words, refusal=True)
        for url in self._pictures:
            call_id = claim_id("")
            yield ToolCallStart(tool_call_id=call_id, tool_name=PICTURE_TOOL)
            yield ToolCallComplete(
                tool_call_id=call_id,
                tool_name=PICTURE_TOOL,
                result=SHOWN_TO_USER,
                result_chars=len(SHOWN_TO_USER),
                files=({"type": "image", "url": url},),
            )

    def conclude(self, *, is_over_limit: bool = False) -> tuple[FinishReason, str]:
        """Return the finish reason of a turn that ends with this answer, and a notice if the answer has no text."""
        reason, notice = _ENDINGS.get(self.reason, ("stop", NOTHING_SAID))
        if is_over_limit:
            reason, notice = "max_turns", LIMIT_REACHED
        elif word := self._finish.word or (self.reason not in KNOWN_REASONS and self.reason):
            notice = f"{notice} The endpoint's reason: {word}."
        return reason, "" if self._pictures or self.text.strip() else notice
