"""Tracks the tool calls of one run: their ids, which are open, and their rounds.

Agents may repeat ids, leave them empty, or use ids of earlier turns. `agent_call_id` is the agent's id of a call;
`tool_call_id` is the unique id that replaces it in events, in the store and for the model.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from callboard._call_ids import new_call_id
from callboard._history.turns import CLIENT_PREFIXES
from callboard.calls.context import CallClock
from callboard.calls.tool import new_external_id
from callboard_protocol.events import EXTERNAL_ID_PREFIX

MAX_ID_CHARS = 512


class CallIds:
    """The tool call ids of a chat, shared by its concurrent runs, so that none is used twice."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._is_complete = True

    def add(self, seen: Iterable[str]) -> None:
        """Add ids that are in use."""
        self._seen.update(seen)

    def distrust(self) -> None:
        """Make `claim` return only new ids from now on, because the chat may use ids that are not known here."""
        self._is_complete = False

    def claim(self, candidate: str) -> str:
        """Return `candidate` if it is valid and not in use, otherwise a new id.

        A candidate with a prefix of the client's calls is replaced: it comes from another Callboard server, which is
        the agent's model.
        """
        can_keep = self._is_complete and not candidate.startswith(CLIENT_PREFIXES)
        return self._take(candidate if can_keep else "", new_call_id)

    def claim_for_client(self, candidate: str) -> str:
        """Return `candidate` if it is a valid id of a call that the client runs and not in use, otherwise a new one.

        Other servers do not use such an id either, because it is random.
        """
        return self._take(candidate if candidate.startswith(EXTERNAL_ID_PREFIX) else "", new_external_id)

    def _take(self, candidate: str, make_id: Callable[[], str]) -> str:
        is_valid = candidate.isprintable() and candidate.strip() != "" and len(candidate) <= MAX_ID_CHARS
        call_id = candidate if is_valid else make_id()
        while call_id in self._seen:
            call_id = make_id()
        self._seen.add(call_id)
        return call_id


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has started and not ended.

    `parent_call_id` is the call that started the agent which made this call, "" for the agent's own calls. `is_inside`
    is True if the parent was open when this call started: both are then in the same round.
    """

    tool_call_id: str
    agent_call_id: str
    tool_name: str
    parent_call_id: str = ""
    is_inside: bool = False
    clock: CallClock = field(default_factory=CallClock)


class CallTracker:
    """Tracks each call from its first argument to its end. Iterating yields the open calls."""

    def __init__(self, ids: CallIds, first_round: int = 0) -> None:
        self.ids = ids
        """The ids of the chat."""
        self._masked: set[str] = set()
        self._unstarted: dict[str, str] = {}
        """The ids of calls that have not started, by the agent's ids."""
        self._open: dict[str, OpenCall] = {}
        self._ended: set[str] = set()
        self._round_index = first_round - 1
        self._sequence_index = 0
        self._is_round_open = False
        self._restored: set[str] = set()

    def restore(self, open_calls: Mapping[str, str]) -> None:
        """Add calls that another server started, as names of tools by call ids; the agent uses the same ids."""
        for call_id, name in open_calls.items():
            self._open[call_id] = OpenCall(call_id, call_id, name)
            self._restored.add(call_id)

    def take_restored(self, agent_call_id: str) -> OpenCall | None:
        """Return the restored call that the agent now starts again; None for other calls, and for a second start."""
        if agent_call_id not in self._restored:
            return None
        self._restored.discard(agent_call_id)
        return self._open.get(agent_call_id)

    def mark_masked(self, call_id: str) -> None:
        """Note that an argument of the call is secret, so that its value is not stored."""
        self._masked.add(call_id)

    def can_wait(self, call_id: str) -> bool:
        """Return whether an open call can wait for its approval, because any server could run it.

        Calls of sub-agents cannot, nor can calls with masked arguments: the server that continues the run has only the
        stored arguments.
        """
        call = self._open.get(call_id)
        return call is not None and not call.parent_call_id and call_id not in self._masked

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(tuple(self._open.values()))

    def claim(self, candidate: str) -> str:
        """Return the id of a call that the agent is about to start; the agent then uses this id itself."""
        call_id = self.ids.claim(candidate)
        self._unstarted[call_id] = call_id
        return call_id

    def announce(self, agent_call_id: str) -> str | None:
        """Return the id of a call whose arguments are being written; None if the call has already started."""
        if self.find(agent_call_id) or agent_call_id in self._ended:
            return None
        # Several calls in a row may have an empty id: `start` removes it, so that the next call gets another one.
        if agent_call_id not in self._unstarted:
            self._unstarted[agent_call_id] = self.ids.claim(agent_call_id)
        return self._unstarted[agent_call_id]

    def start(self, agent_call_id: str, tool_name: str, agent_parent_call_id: str = "") -> OpenCall:
        """Open a call; it keeps the id that `claim` or `announce` gave it."""
        parent = self.find(agent_parent_call_id) if agent_parent_call_id else None
        call_id = self._unstarted.pop(agent_call_id, "") or self.ids.claim(agent_call_id)
        parent_call_id = parent.tool_call_id if parent else agent_parent_call_id
        call = self._open[call_id] = OpenCall(call_id, agent_call_id, tool_name, parent_call_id, parent is not None)
        return call

    def find(self, agent_call_id: str) -> OpenCall | None:
        """Return the open call with the agent's id `agent_call_id`."""
        return next((call for call in self._open.values() if call.agent_call_id == agent_call_id), None)

    def has_ended(self, agent_call_id: str) -> bool:
        """Return whether a call with the agent's id `agent_call_id` has ended."""
        return agent_call_id in self._ended

    def end(self, call: OpenCall) -> None:
        """Close a call, and its round unless the call runs inside another call."""
        del self._open[call.tool_call_id]
        self._ended.add(call.agent_call_id)
        if not call.is_inside:
            self.end_round()

    def end_round(self) -> None:
        """Make the next call begin a new round."""
        self._is_round_open = False

    def next_place(self) -> tuple[int, int]:
        """Return the round of the next call, and its index in that round, both from 0."""
        if not self._is_round_open:
            self._is_round_open = True
            self._round_index += 1
            self._sequence_index = -1
        self._sequence_index += 1
        return self._round_index, self._sequence_index
