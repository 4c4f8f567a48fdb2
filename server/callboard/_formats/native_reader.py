"""The reader that puts native tool calls together as endpoints stream them.

https://platform.openai.com/docs/guides/function-calling#streaming says how the pieces of
a call are told apart (by `index`); endpoints that call themselves compatible leave it
out, give every call 0, count from 1, repeat the name or invent an id for each piece, send the
arguments first, `{}` before them, or every call again in a whole message. The accumulator here
is for what they send.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from callboard._formats.format import ArgumentsPiece, ClaimId, Piece
from callboard.calls import MAX_NAME_CHARS, ToolCall
from callboard.models import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta, merge_details
from callboard_formats import ReasoningPiece, TextPiece

# https://github.com/BerriAI/litellm/issues/4537: LiteLLM sends `{}` before the arguments of some models.
_EMPTY_OBJECT_BEFORE = re.compile(r"\s*\{\s*\}\s*(?=\{)")


class NativeReader:
    """A reader that puts streamed tool calls together. Text and reasoning pass through as they come.

    A call's id is claimed once, when its first argument text is shown or at the end.
    """

    def __init__(self, claim_id: ClaimId) -> None:
        self._claim_id = claim_id
        self._calls: list[_Call] = []
        # By index and given id: the last call to begin that has both, either (the other None) or neither.
        self._latest: dict[tuple[int | str | None, str | None], _Call] = {}
        # Those that were there before the whole message, and that it has not repeated yet.
        self._unrepeated: list[_Call] = []

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what `delta` adds; arguments are shown from when their call has a name."""
        match delta:
            case TextDelta():
                return [TextPiece(delta.text)]
            case ReasoningDelta():
                return [ReasoningPiece(delta.text)]
            case ToolCallDelta():
                return self._tool_call(delta)
            case _:
                return []

    def finish(self) -> list[Piece]:
        """Return the arguments of calls that never got a name."""
        return [piece for call in self._calls for piece in self._show(call)]

    def calls(self) -> list[ToolCall]:
        """Return every call that has a name or arguments, in the order they began."""
        return [
            ToolCall(self._id(call), call.name, call.arguments, provider_id=call.given_id, details=call.details)
            for call in self._calls
            if call.name or call.arguments
        ]

    def _tool_call(self, delta: ToolCallDelta) -> list[Piece]:
        if not (delta.id or delta.name or delta.arguments or delta.details):
            return []
        if delta.is_whole:
            return self._whole_call(delta)
        known = self._latest.get((None, delta.id)) if delta.id else None
        if known and known.is_repeated_by(delta):
            known.details |= delta.details
            return []
        call = self._match(delta)
        if call is None:
            call = self._begin(delta.index)
        had_id = bool(call.given_id)
        call.take(delta)
        if call.given_id and not had_id:
            self._latest[None, call.given_id] = call
            self._latest[call.index, call.given_id] = call
        return self._show(call) if call.name else []

    def _whole_call(self, delta: ToolCallDelta) -> list[Piece]:
        """Take a call of a whole message: it is new unless it was streamed before."""
        if delta.index == 0:
            self._unrepeated = list(self._calls)
        alike = [call for call in self._unrepeated if not call.name or call.name == delta.name]
        call = (
            next((one for one in alike if one.given_id and one.given_id == delta.id), None)
            or next((one for one in alike if _read(one.arguments) == _read(delta.arguments or "")), None)
            or next((one for one in alike if one.is_unfinished()), None)
        )
        if call is None:
            call = self._begin(delta.index)
            call.take(delta)
        else:
            self._unrepeated.remove(call)
            call.complete(delta)
        return self._show(call)

    def _begin(self, index: int | str | None) -> "_Call":
        call = _Call(index)
        self._calls.append(call)
        self._latest[None, None] = call
        self._latest[index, None] = call
        return call

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


@dataclass(slots=True, eq=False)
class _Call:
    """A call while it is being written."""

    index: int | str | None
    given_id: str = ""
    claimed_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    shown: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        return _EMPTY_OBJECT_BEFORE.sub("", "".join(self.pieces), count=1)

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
        is_other = self.name not in ("", delta.name)
        # Of one id it may be all the same: its arguments came before its name, or were an empty object so far.
        is_same = bool(self.given_id) and delta.id == self.given_id and (not self.name or not _read(self.arguments))
        return is_other or (restarts and _is_object(self.arguments) and not is_same)

    def is_repeated_by(self, delta: ToolCallDelta) -> bool:
        """Return whether `delta`, which has its id, is all of this call once more."""
        written = delta.arguments or ""
        return delta.name == self.name and _is_object(written) and _read(written) == _read(self.arguments)

    def is_unfinished(self) -> bool:
        """Return whether its arguments are empty, or no object yet."""
        return not _read(self.arguments) or not _is_object(self.arguments)

    def complete(self, whole: ToolCallDelta) -> None:
        """Take what a whole message adds to this call."""
        self.name = self.name or whole.name or ""
        self.given_id = self.given_id or whole.id or ""
        self.details |= whole.details
        known = self.arguments
        written = whole.arguments or ""
        if not written or not self.is_unfinished():
            return
        if written.startswith(known):
            self.pieces.append(written[len(known) :])
        else:
            # What was shown of it so far was wrong.
            self.pieces = [written]
            self.shown = 1


def _read(arguments: str) -> object:
    """Return the object that the text is, an empty one for no text, or the text where it is none."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _is_object(text: str) -> bool:
    return bool(text.strip()) and _read(text) != text
