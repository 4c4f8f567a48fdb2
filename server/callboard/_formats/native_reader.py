"""The reader that puts native tool calls together as endpoints stream them.

https://platform.openai.com/docs/guides/function-calling#streaming says how the pieces of
a call are told apart (by `index`); endpoints that call themselves compatible leave it
out, give every call 0, count from 1, repeat the name or invent an id for each piece. The
accumulator here is for what they send.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from callboard._formats.format import MAX_NAME_CHARS, ArgumentsPiece, ClaimId, Piece, RequestedCall
from callboard.models import (
    Finish,
    MessageDetails,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    merge_details,
)
from callboard_formats import ReasoningPiece, TextPiece


class NativeReader:
    """A reader that puts streamed tool calls together. Text and reasoning pass through as they come.

    A call's id is claimed once, when its first argument text is shown or at the end.
    """

    def __init__(self, claim_id: ClaimId) -> None:
        self._claim_id = claim_id
        self._calls: list[_Call] = []
        # By index and given id: the last call to begin that has both, either (the other None) or neither.
        self._latest: dict[tuple[int | None, str | None], _Call] = {}

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what `delta` adds; arguments are shown from when their call has a name."""
        match delta:
            case TextDelta():
                return [TextPiece(delta.text)]
            case ReasoningDelta():
                return [ReasoningPiece(delta.text)]
            case ToolCallDelta():
                return self._tool_call(delta)
            case MessageDetails() | TokenUsage() | Finish():
                return []

    def finish(self) -> list[Piece]:
        """Return the arguments of calls that never got a name."""
        return [piece for call in self._calls for piece in self._show(call)]

    def calls(self) -> list[RequestedCall]:
        """Return every call that has a name or arguments, in the order they began."""
        return [
            RequestedCall(self._id(call), call.name, call.arguments, provider_id=call.given_id, details=call.details)
            for call in self._calls
            if call.name or call.arguments
        ]

    def _tool_call(self, delta: ToolCallDelta) -> list[Piece]:
        if not (delta.id or delta.name or delta.arguments):
            return []
        call = self._match(delta)
        if call is None:
            call = _Call(delta.index)
            self._calls.append(call)
            self._latest[None, None] = call
            self._latest[call.index, None] = call
        had_id = bool(call.given_id)
        call.take(delta)
        if call.given_id and not had_id:
            self._latest[None, call.given_id] = call
            self._latest[call.index, call.given_id] = call
        return self._show(call) if call.name else []

    def _match(self, delta: ToolCallDelta) -> "_Call | None":
        """Return the call that `delta` continues; None where it begins another."""
        with_its_id = self._latest.get((delta.index, delta.id)) if delta.id else None
        if with_its_id and not with_its_id.ended_before(delta):
            return with_its_id
        if with_its_index := self._latest.get((delta.index, None)):
            return None if with_its_index.ended_before(delta) else with_its_index
        # Neither name nor id: no call begins like that, whatever its index says.
        return self._calls[-1] if self._calls and not delta.name and not delta.id else None

    def _show(self, call: "_Call") -> list[Piece]:
        text = "".join(call.pieces[call.shown :])
        call.shown = len(call.pieces)
        return [ArgumentsPiece(self._id(call), call.name, text)] if text else []

    def _id(self, call: "_Call") -> str:
        if not call.claimed_id:
            call.claimed_id = self._claim_id(call.given_id)
        return call.claimed_id


@dataclass(slots=True)
class _Call:
    """A call while it is being written."""

    index: int | None
    given_id: str = ""
    claimed_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    shown: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def take(self, delta: ToolCallDelta) -> None:
        self.given_id = self.given_id or delta.id or ""
        self.details = merge_details(self.details, delta.details)
        if delta.arguments:
            self.pieces.append(delta.arguments)
        if not delta.name or delta.name == self.name or len(self.name) > MAX_NAME_CHARS:
            return
        # Sent again in full, longer each time, or in pieces: all three are met.
        self.name = delta.name if delta.name.startswith(self.name) else self.name + delta.name

    def ended_before(self, delta: ToolCallDelta) -> bool:
        """Return whether `delta` belongs to a next call, though it has this one's index or id."""
        if not delta.name:
            # Every call brings its name: without one even a new id is an invention for this piece.
            return False
        restarts = (delta.arguments or "").lstrip().startswith("{")
        if delta.id and self.given_id and delta.id != self.given_id:
            return delta.name != self.name or restarts or not self.pieces or _is_object(self.arguments)
        if not self.pieces:
            return False
        return delta.name != self.name or (restarts and _is_object(self.arguments))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
