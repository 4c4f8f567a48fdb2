"""One answer of the model: what came of it, and how a turn ends with it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard._formats import ClaimId, Reader
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

LIMIT_REACHED = "I have used up the tool calls of this turn before I could finish. Ask me to go on, and I will."
CUT_OFF = "My answer was cut off before it began: the model used up the tokens it may write."
NOTHING_SAID = "The model ended its turn without an answer. Ask again, or put it in other words."
FILTERED = "The content filter of the model's endpoint kept the answer back. Put the question in other words."
REFUSED = "The model refused to answer, and gave no reason."
SHOWN = "It is shown to the user."
"""The words that the next turn is told of a picture that the model gave."""
PICTURE_TOOL = "image_generation"
"""The name of the call as which a picture of the model is shown."""
MAX_SAID_CHARS = 500
"""The most that is quoted of an endpoint's words."""

_ENDINGS: dict[str | None, tuple[FinishReason, str]] = {
    "length": ("length", CUT_OFF),
    "content_filter": ("content_filter", FILTERED),
    "refusal": ("refusal", REFUSED),
}
"""The endings that are not `stop`, by the endpoint's reason, each with what is said where there is no text."""


@dataclass(slots=True)
class Answer:
    """One answer of the model, filled while it comes."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    finish: Finish = field(default_factory=lambda: Finish(None))
    usage: TokenUsage | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the model sent beside the answer, as `MessageDetails` has it."""
    reader: Reader = field(init=False)

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
        """The endpoint's reason for the end; words of refusal are one, whatever is said beside them."""
        is_said = self.refusal and self.finish.reason != "content_filter"
        return "refusal" if is_said else self.finish.reason

    @property
    def is_malformed(self) -> bool:
        """Whether the endpoint could not read the call that its model wrote."""
        return self.finish.reason == "malformed_function_call"

    def clear(self) -> None:
        """Forget the answer: the model is asked again."""
        self.text.clear()
        self.refusal.clear()
        self.pictures.clear()
        self.finish = Finish(None)
        self.usage = None
        self.details = {}

    def calls(self) -> list[ToolCall]:
        """Return the calls to run: none of an answer that was cut by a filter or taken back by its model."""
        return [] if self.reason in ("content_filter", "refusal") else self.reader.calls()

    def raise_for_failure(self) -> None:
        """Raise `ModelMalformedCall` or `ModelAborted` for an answer that its endpoint gave up."""
        said = " ".join([self.finish.word, *"".join(self.refusal).split()]).strip()[:MAX_SAID_CHARS]
        quoted = f" ({said})" if said else ""
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
        """Yield what is told once the answer has ended: the words of a refusal, and pictures as calls that are over."""
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
                result=SHOWN,
                result_chars=len(SHOWN),
                files=({"type": "image", "url": url},),
            )

    def conclude(self, *, is_over_limit: bool = False) -> tuple[FinishReason, str]:
        """Return why a turn ends with this answer, and what is said in the place of a text that is missing."""
        reason, notice = _ENDINGS.get(self.reason, ("stop", NOTHING_SAID))
        if is_over_limit:
            reason, notice = "max_turns", LIMIT_REACHED
        elif word := self.finish.word or (self.reason not in KNOWN_REASONS and self.reason):
            notice = f"{notice} The endpoint's reason: {word}."
        return reason, "" if self.pictures or "".join(self.text).strip() else notice
