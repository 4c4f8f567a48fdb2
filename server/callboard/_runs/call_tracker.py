"""The tool calls of one run: under which ids, which are open, in which round and place.

An agent's ids may repeat, be empty or be those of an earlier turn: `source_id` is such a one, `tool_call_id` the one
that events, the store and the model have in its stead.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from callboard._call_ids import new_call_id

MAX_ID_CHARS = 512


class CallIds:
    """The ids that a chat has seen; shared by the runs of that chat which are live at one time."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = set(seen)
        self._are_known = True

    def add(self, seen: Iterable[str]) -> None:
        """Add ids that the store knows."""
        self._seen.update(seen)

    def distrust(self) -> None:
        """Make every id a new one from here on: not all that the chat has seen is known."""
        self._are_known = False

    def claim(self, candidate: str) -> str:
        """Return `candidate` where nobody has it yet, else a new id."""
        usable = self._are_known and candidate.isprintable() and candidate.strip() and len(candidate) <= MAX_ID_CHARS
        call_id = candidate if usable and candidate not in self._seen else self._make()
        self._seen.add(call_id)
        return call_id

    def _make(self) -> str:
        while (call_id := new_call_id()) in self._seen:
            pass
        return call_id


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has started; `started_at` is in seconds of the monotonic clock.

    `parent_call_id` is the call that started the agent that makes this one; empty: none. `is_inside`: the parent was
    open when this one started, so the two are in one round.
    """

    tool_call_id: str
    source_id: str
    tool_name: str
    parent_call_id: str = ""
    is_inside: bool = False
    started_at: float = field(default_factory=time.monotonic)

    @property
    def age_ms(self) -> int:
        """Return for how long it has been running."""
        return round((time.monotonic() - self.started_at) * 1000)


class CallTracker:
    """Follows each call from its first argument to its end; iterates over the open ones."""

    def __init__(self, ids: CallIds, first_round: int = 0) -> None:
        self._ids = ids
        self._claimed: set[str] = set()
        self._announced: dict[str, str] = {}
        self._open: dict[str, OpenCall] = {}
        self._ended: set[str] = set()
        self._round_index = first_round - 1
        self._sequence_index = 0
        self._is_round_open = False
        self._restored: set[str] = set()

    def restore(self, open_calls: Mapping[str, str]) -> None:
        """Know of calls that are open since before: names of tools by their ids, by which the agent calls them too."""
        for call_id, name in open_calls.items():
            self._open[call_id] = OpenCall(call_id, call_id, name)
            self._restored.add(call_id)

    def take_restored(self, source_id: str) -> OpenCall | None:
        """Return a call that was open before and is started again, once."""
        if source_id not in self._restored:
            return None
        self._restored.discard(source_id)
        return self._open.get(source_id)

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(tuple(self._open.values()))

    def claim(self, candidate: str) -> str:
        """Return a new id for a call that the agent is about to start; the agent calls it so too."""
        call_id = self._ids.claim(candidate)
        self._claimed.add(call_id)
        return call_id

    def announce(self, source_id: str) -> str | None:
        """Return the id of a call whose arguments are being written; None where it has started already."""
        if self.find(source_id) or source_id in self._ended:
            return None
        if source_id in self._claimed:
            return source_id
        # An empty id may stand for several calls in a row, each announced anew.
        return self._announced.get(source_id) or self._announced.setdefault(source_id, self._ids.claim(source_id))

    def start(self, source_id: str, tool_name: str, parent_source_id: str = "") -> OpenCall:
        """Open a call, under the id that it was announced by where it was."""
        parent = self.find(parent_source_id) if parent_source_id else None
        if source_id in self._claimed:
            self._claimed.discard(source_id)
            call_id = source_id
        else:
            call_id = self._announced.pop(source_id, "") or self._ids.claim(source_id)
        parent_call_id = parent.tool_call_id if parent else parent_source_id
        call = self._open[call_id] = OpenCall(call_id, source_id, tool_name, parent_call_id, parent is not None)
        return call

    def claim_for_client(self, source_id: str) -> str:
        """Return the id of a call that the client runs: here it is neither open nor does it end."""
        return self._ids.claim(source_id)

    def find(self, source_id: str) -> OpenCall | None:
        """Return the open call that the agent calls so."""
        return next((call for call in self._open.values() if call.source_id == source_id), None)

    def has_ended(self, source_id: str) -> bool:
        """Return whether a call that the agent called so has ended."""
        return source_id in self._ended

    def end(self, call: OpenCall) -> None:
        """Close a call, and with it its round unless it runs inside another."""
        del self._open[call.tool_call_id]
        self._ended.add(call.source_id)
        if not call.is_inside:
            self.end_round()

    def end_round(self) -> None:
        """Let the next call begin a new round."""
        self._is_round_open = False

    def next_place(self) -> tuple[int, int]:
        """Return the round of the call that begins, and its place in it, both from 0."""
        if not self._is_round_open:
            self._is_round_open = True
            self._round_index += 1
            self._sequence_index = -1
        self._sequence_index += 1
        return self._round_index, self._sequence_index
