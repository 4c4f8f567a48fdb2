"""Values of the inspector: summaries of chats, turns and calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callboard.storage.values import StoredCall
from callboard_protocol import Done, Error


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A call for a list: arguments and result are truncated, `result_chars` is the length of the full result.

    `agent_id` is None for calls that an earlier version stored without it.
    """

    call: StoredCall
    user_id: str | None
    agent_id: str | None
    result_chars: int
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A chat for a list; times in seconds since the epoch.

    `began_with` is an excerpt of the first question, `user_name` is None if no client sent it. `waiting` is the number
    of calls whose user is asked.
    """

    chat_id: str
    user_id: str | None
    began_with: str
    turns: int
    calls: int
    errors: int
    waiting: int
    started_at: float
    last_at: float
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """The stored rows of one run. `answer` is the text after the last call; `waiting` are calls whose user is asked.

    `texts` has the text before the calls of each round, by round index. `ending` is the run's last event, None while
    the run is active or if its server was killed. `said` are the user's messages to the run, each after its time in
    seconds since the epoch. `failures` has the failed calls; only `newest_turns` sets it.
    """

    run_id: str
    chat_id: str
    user_id: str | None
    agent_id: str | None
    question: str
    answer: str
    began_at: float
    last_at: float
    calls: int
    errors: int
    waiting: int
    user_name: str | None = None
    ending: Done | Error | None = None
    texts: Mapping[int, str] = field(default_factory=dict)
    said: Sequence[tuple[float, str]] = ()
    failures: Sequence[CallSummary] = ()


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An active run: `owner` is the id of the server that runs it, empty if any server may take it.

    `begun_at` is in seconds since the epoch, by the database's clock.
    """

    run_id: str
    agent_id: str
    chat_id: str | None
    user_id: str | None
    owner: str
    begun_at: float


@dataclass(frozen=True, slots=True)
class ResultSize:
    """The lengths of a stored result, in characters: in full, and as it is replayed to the model."""

    run_id: str
    chars: int
    replayed_chars: int
