"""Reads native tool calls from the pieces that endpoints stream, and shows their arguments while they arrive."""

from callboard._formats.pieces import ArgumentsPiece, ClaimId, Piece
from callboard.calls import ToolCall
from callboard.models import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard.models.call_joiner import CallJoiner, JoinedCall
from callboard_formats import ReasoningPiece, TextPiece


class NativeReader:
    """Reads native calls of one answer. Text and reasoning pass through unchanged.

    A call's id is claimed once: when the first piece of its arguments is shown, or at the end.
    """

    def __init__(self, claim_id: ClaimId) -> None:
        self._claim_id = claim_id
        self._joiner = CallJoiner()
        self._claimed_ids: dict[JoinedCall, str] = {}

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return the pieces that `delta` adds. Arguments are shown as soon as their call has a name."""
        match delta:
            case TextDelta():
                return [TextPiece(delta.text)]
            case ReasoningDelta():
                return [ReasoningPiece(delta.text)]
            case ToolCallDelta():
                call = self._joiner.add(delta)
                return self._show(call) if call and (call.name or delta.is_whole) else []
            case _:
                return []

    def finish(self) -> list[Piece]:
        """Return the arguments of calls that have no name."""
        return [piece for call in self._joiner.calls for piece in self._show(call)]

    def calls(self) -> list[ToolCall]:
        """Return the calls that have a name or arguments, in the order they began."""
        return [
            ToolCall(self._id(call), call.name, call.arguments, provider_id=call.given_id, details=call.details)
            for call in self._joiner.calls
            if call.name or call.arguments
        ]

    def _show(self, call: JoinedCall) -> list[Piece]:
        text = "".join(call.pieces[call.shown :])
        call.shown = len(call.pieces)
        return [ArgumentsPiece(self._id(call), call.name, text)] if text else []

    def _id(self, call: JoinedCall) -> str:
        if call not in self._claimed_ids:
            self._claimed_ids[call] = self._claim_id(call.given_id)
        return self._claimed_ids[call]
