"""One answer of the model, and how a turn ends with it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard._formats import ClaimId, Reader
from callboard.agents.notices import (
    CUT_OFF,
    FILTERED,
    LIMIT_REACHED,
    NOTHING_SAID,
    PICTURE_TOOL,
    REFUSED,
    SHOWN_TO_USER,
)
from callboard.calls import ToolCall
from callboard.errors import ModelAborted, ModelMalformedCall
from callboard.models import (
    KNOWN_REASONS,
    Finish,
    MessageDetails,
    ModelDelta,
    PictureDelta,
    RefusalDelta,
    TokenUsage,
    merge_details,
)
from callboard_protocol import Event, FinishReason, Message, ToolCallComplete, ToolCallStart

MAX_QUOTED_CHARS = 500
"""The longest quotation of an endpoint's message."""

_ENDINGS: dict[str | None, tuple[FinishReason, str]] = {
    "length": ("length", CUT_OFF),
    "content_filter": ("content_filter", FILTERED),
    "refusal": ("refusal", REFUSED),
}
"""The finish reasons that are not `stop`, by the endpoint's reason, each with the text for an answer without text."""


@dataclass(slots=True)
class Answer:
    """One answer of the model, filled as its stream is read. `details` are the fields of `MessageDetails`."""

    reader: Reader
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    finish: Finish = field(default_factory=lambda: Finish(None))
    usage: TokenUsage | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def take(self, delta: ModelDelta) -> None:
        """Add a piece of the model's stream that is not text; `reader` reads the text and the calls."""
        match delta:
            case Finish():
                self.finish = delta
            case RefusalDelta():
                self.refusal.append(delta.text)
            case PictureDelta():
                self.pictures.append(delta.url)
            case TokenUsage():
                # Some endpoints send the total so far with every chunk: the last one counts.
                self.usage = delta
            case MessageDetails(fields=fields) if delta.is_whole:
                self.details = {**self.details, **fields}
            case MessageDetails(fields=fields):
                self.details = merge_details(self.details, fields)
            case _:
                pass

    @property
    def reason(self) -> str | None:
        """Why the answer ended, in the endpoint's word; `refusal` if there is text of a refusal."""
        is_refused = self.refusal and self.finish.reason != "content_filter"
        return "refusal" if is_refused else self.finish.reason

    @property
    def is_malformed(self) -> bool:
        """Whether the endpoint could not read a call that the model wrote."""
        return self.finish.reason == "malformed_function_call"

    def calls(self) -> list[ToolCall]:
        """Return the calls to run; none if the answer was filtered or is a refusal."""
        return [] if self.reason in ("content_filter", "refusal") else self.reader.calls()

    def raise_for_failure(self) -> None:
        """Raise `ModelMalformedCall` or `ModelAborted` if the endpoint ended the answer with such an error."""
        message = " ".join([self.finish.word, *"".join(self.refusal).split()]).strip()[:MAX_QUOTED_CHARS]
        quoted = f" ({message})" if message else ""
        if self.is_malformed:
            raise ModelMalformedCall(
                f"The model wrote a tool call that its endpoint could not read, twice{quoted}. "
                "Ask again, or put it in other words."
            )
        if self.finish.reason == "error":
            raise ModelAborted(
                f"The model's endpoint gave the answer up with an error{quoted}. "
                "What came until then is all there is: ask again, and look at its log if it happens often."
            )

    def closing_events(self, claim_id: ClaimId) -> Iterator[Event]:
        """Yield the last events of the answer: the text of a refusal, and each picture as a call that has ended."""
        if words := "".join(self.refusal):
            if "".join(self.text).strip():
                yield Message(content="\n\n")
            self.text.append(words)
            yield Message(content=words, refusal=True)
        for url in self.pictures:
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
        elif word := self.finish.word or (self.reason not in KNOWN_REASONS and self.reason):
            notice = f"{notice} The endpoint's reason: {word}."
        return reason, "" if self.pictures or "".join(self.text).strip() else notice
