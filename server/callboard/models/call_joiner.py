"""Joins the pieces of native tool calls that endpoints stream.

By https://platform.openai.com/docs/guides/function-calling#streaming each piece names its call by `index`. Endpoints
that call themselves compatible leave the index out, give every call 0, count from 1, repeat the name or invent an id
for each piece, send the arguments before the name, send `{}` before the arguments, send all arguments so far in each
piece, or send every call again in a whole message. `CallJoiner` accepts all of these.
"""

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from callboard.models.chunks import merge_details
from callboard.models.model import ToolCallDelta

MAX_NAME_CHARS = 256
"""Pieces are not added to a longer name, which no tool has; `ToolCall` cuts it."""

# https://github.com/BerriAI/litellm/issues/4537: LiteLLM sends `{}` before the arguments of some models.
_EMPTY_OBJECT_BEFORE = re.compile(r"\s*\{\s*\}\s*(?=\{)")


class CallJoiner:
    """Joins the pieces of the calls of one answer. `calls` has the calls so far, in the order they began."""

    def __init__(self) -> None:
        self.calls: list[JoinedCall] = []
        # The last call to begin, by index and given id; by one of them, with None for the other; and by neither.
        self._latest: dict[tuple[int | str | None, str | None], JoinedCall] = {}
        # The calls from before the whole message that it has not repeated yet.
        self._unrepeated: list[JoinedCall] = []

    def add(self, delta: ToolCallDelta) -> "JoinedCall | None":
        """Add a piece, and return its call; None if the piece is empty or only repeats a call."""
        if not (delta.id or delta.name or delta.arguments or delta.details):
            return None
        if delta.is_whole:
            return self._add_whole(delta)
        known = self._latest.get((None, delta.id)) if delta.id else None
        if known and known.is_repeated_by(delta):
            known.details |= delta.details
            return None
        call = self._match(delta)
        if call is None:
            call = self._begin(delta.index)
        had_id = bool(call.given_id)
        call.take(delta)
        if call.given_id and not had_id:
            self._latest[None, call.given_id] = call
            self._latest[call.index, call.given_id] = call
        return call

    def _add_whole(self, delta: ToolCallDelta) -> "JoinedCall":
        """Add a call of a whole message, unless it was streamed before."""
        if delta.index == 0:
            self._unrepeated = list(self.calls)
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
        return call

    def _begin(self, index: int | str | None) -> "JoinedCall":
        call = JoinedCall(index)
        self.calls.append(call)
        self._latest[None, None] = call
        self._latest[index, None] = call
        return call

    def _match(self, delta: ToolCallDelta) -> "JoinedCall | None":
        """Return the call that `delta` continues; None if it begins a new one."""
        with_its_id = self._latest.get((delta.index, delta.id)) if delta.id else None
        if with_its_id and not with_its_id.ended_before(delta):
            return with_its_id
        if with_its_index := self._latest.get((delta.index, None)):
            return None if with_its_index.ended_before(delta) else with_its_index
        # No call begins without a name and an id, so the piece continues the last call, whatever its index.
        return self.calls[-1] if self.calls and not delta.name and not delta.id else None


@dataclass(slots=True, eq=False)
class JoinedCall:
    """A call that is still being streamed; `given_id` is the endpoint's id, empty if it gave none.

    `shown` is for a reader that shows the arguments while they are streamed: the number of `pieces` that it has shown.
    """

    index: int | str | None
    given_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    shown: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        joined = _EMPTY_OBJECT_BEFORE.sub("", "".join(self.pieces), count=1)
        # Some endpoints repeat all arguments so far in each piece: https://github.com/vercel/ai/pull/15888
        is_cumulative = len(self.pieces) > 1 and all(after.startswith(one) for one, after in pairwise(self.pieces))
        return self.pieces[-1] if is_cumulative and _is_object(self.pieces[-1]) and not _is_object(joined) else joined

    def take(self, delta: ToolCallDelta) -> None:
        """Add a piece."""
        self.given_id = self.given_id or delta.id or ""
        self.details = merge_details(self.details, delta.details)
        if delta.arguments:
            self.pieces.append(delta.arguments)
        if not delta.name or delta.name == self.name or len(self.name) > MAX_NAME_CHARS:
            return
        # Endpoints repeat the name, send a longer beginning of it each time, or send it in pieces.
        self.name = delta.name if delta.name.startswith(self.name) else self.name + delta.name

    def ended_before(self, delta: ToolCallDelta) -> bool:
        """Return whether `delta` begins another call although it has this call's index or id."""
        if not delta.name:
            # Every call has a name. Without a name, even a new id was only invented for this piece.
            return False
        restarts = (delta.arguments or "").lstrip().startswith("{")
        if delta.id and self.given_id and delta.id != self.given_id:
            return delta.name != self.name or restarts or not self.pieces or _is_object(self.arguments)
        if not self.pieces:
            return False
        is_other = self.name not in ("", delta.name)
        # It can still be the same call if the id is equal: the arguments came before the name, or were `{}` so far.
        is_same = bool(self.given_id) and delta.id == self.given_id and (not self.name or not _read(self.arguments))
        return is_other or (restarts and _is_object(self.arguments) and not is_same)

    def is_repeated_by(self, delta: ToolCallDelta) -> bool:
        """Return whether `delta`, which has this call's id, repeats the whole call."""
        written = delta.arguments or ""
        return delta.name == self.name and _is_object(written) and _read(written) == _read(self.arguments)

    def is_unfinished(self) -> bool:
        """Return whether the arguments are empty or not yet a complete object."""
        return not _read(self.arguments) or not _is_object(self.arguments)

    def complete(self, whole: ToolCallDelta) -> None:
        """Add the parts of a whole message that this call lacks."""
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
            # The pieces shown so far were wrong. They cannot be taken back, so the rest is not shown.
            self.pieces = [written]
            self.shown = 1


def _read(arguments: str) -> object:
    """Return the JSON object that the text is; {} for empty text; the text itself if it is no object."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _is_object(text: str) -> bool:
    return bool(text.strip()) and _read(text) != text
