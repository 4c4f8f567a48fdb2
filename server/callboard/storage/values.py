"""Values that stores give and take. Times are seconds since the epoch; a missing user is a user of its own."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from callboard._history.records import ChatDict, StoredStatus
from callboard_protocol import Done, Error

Item = Mapping[str, Any]
"""An item of a response, OpenAI's form, with an `id` of its own."""

Line = Mapping[str, Any]
"""A line of an export: what JSON can hold, by name."""

CallState = Literal["running", "complete", "error", "timed_out", "declined", "not_asked", "not_answered", "stopped"]
"""The state of a call; of one that has ended, what `callboard_protocol.find_ending` says of its error's code."""
NoteKind = Literal["note", "description"]
AttributeKind = Literal["text", "number", "boolean", "date", "list"]
AttributeValue = bool | int | float | str | list[str]
"""The value of an attribute; a date is its ISO 8601 text."""

Vector = Sequence[float]

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""A way to the vectors of texts, in their order."""

ANY_USER = object()
"""The operator, who may read every chat; requests never carry it."""

SECONDS_A_DAY = 86_400

RESPONSE_PREFIX = "resp_"
"""The beginning of the id of a response, as OpenAI has it; the rest is the id of its run."""

OWN_CHAT_PREFIX = "own:"
"""The beginning of the ids of chats that no client has named."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """An access to a store, and how long it was waited for, in a queue too."""

    operation: Literal["read", "write"]
    seconds: float
    is_failed: bool = False


@dataclass(frozen=True, slots=True)
class StoreQueues:
    """What waits for a store: writes that are asked for, and turns that it could not take when they ended."""

    waiting_writes: int = 0
    unwritten_turns: int = 0


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as its log knows it: whose it is, and how far.

    `epoch` counts its owners, from 1: what an earlier one still writes is refused. `is_cancelled`: a client has asked
    for its end. `losses` counts the owners that were lost with it, and did not hand it over. `age_seconds` is known of
    runs that are taken over, `owner`, the id of a server, of those that were found in the database.
    """

    run_id: str
    agent_id: str
    chat_id: str | None
    message_id: str | None
    user_id: str | None
    epoch: int = 1
    last_seq: int = 0
    is_ended: bool = False
    is_cancelled: bool = False
    losses: int = 0
    age_seconds: float = field(default=0.0, compare=False)
    owner: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LoggedFrame:
    """A frame, and what is kept with it: whoever sees the one finds the other.

    `question` is the id of the `input_request` that it is, `files` are `data:` URLs by the ids that it names them by.
    """

    frame: bytes
    question: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    is_last: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of the frame and its files."""
        return len(self.frame) + sum(map(len, self.files.values()))


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to a question: any JSON, and the name of the API key that it came with, None where it is not known.

    `asked` is False if nobody could be asked; `value` is None then.
    """

    value: Any
    key: str | None = None
    asked: bool = True

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the answer that was kept as that text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return it as it is kept."""
        return json.dumps({"value": self.value, "key": self.key} | ({} if self.asked else {"asked": False}))


@dataclass(frozen=True, slots=True)
class Orders:
    """What clients have asked of a run: whether it is to end, and their answers by the ids of the questions."""

    is_cancelled: bool
    answers: Mapping[str, GivenAnswer]


AuditKind = Literal["call", "handed_over", "approved", "ended", "forgotten"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit. `at`, in seconds since the epoch, and `id` are the store's to give.

    A `call` is one that is about to run here, `handed_over` one that the client runs, `approved` says that its user has
    agreed, `ended` has its `outcome`: `complete`, or the code of its error. `forgotten` is about a user whose calls'
    arguments are gone. `key` is the name of the API key that it was asked or agreed with, None where it is not known.
    """

    kind: AuditKind
    user_id: str | None = None
    key: str | None = None
    agent_id: str | None = None
    chat_id: str | None = None
    run_id: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    arguments: str | None = None
    outcome: str | None = None
    at: float | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """The entries to look for; what is None does not narrow. Times in seconds since the epoch, `until` excluded."""

    kind: AuditKind | None = None
    user_id: str | None = None
    agent_id: str | None = None
    chat_id: str | None = None
    run_id: str | None = None
    tool_name: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class DayUsage:
    """What a user has used of a day of UTC, and how many seconds of it are left."""

    calls: int
    tokens: int
    ends_in_seconds: float


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of a chat. Times are seconds since the epoch; what does not apply to the role is None."""

    role: str
    message_id: str | None
    run_id: str
    created_at: float
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    arguments: str | None = None
    tool_output: str | None = None
    error_code: str | None = None
    round_index: int | None = None
    sequence_index: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    duration_ms: int | None = None
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call with everything that is known of it.

    `parent_call_id` is the call that started the agent that made this one, None for the agent's own calls.
    """

    tool_call_id: str
    chat_id: str
    message_id: str | None
    run_id: str
    tool_name: str
    arguments: str
    result: str | None
    status: CallState
    error_code: str | None
    round_index: int
    sequence_index: int
    started_at: float
    ended_at: float | None
    duration_ms: int | None
    events: tuple[StoredStatus, ...]
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallFilter:
    """The calls to look for; what is None does not narrow. Times in seconds since the epoch, `until` excluded.

    `text` stands in the arguments or in the result, case aside; an overview alone looks for it.
    """

    chat_id: str | None = None
    tool_name: str | None = None
    status: CallState | None = None
    since: float | None = None
    until: float | None = None
    run_id: str | None = None
    agent_id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ChatFilter:
    """The chats to look for; what is None or empty does not narrow. Times in seconds since the epoch, `until` excluded.

    Something with any word of `text` was said in the chat. All else is true of one message in it: in whose turn it
    stands, when it was begun, and, of a call, the tool and how it went.
    """

    text: str = ""
    tool_name: str | None = None
    status: CallState | None = None
    agent_id: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCallPage:
    """Calls, newest first; `next_cursor` asks for those after them, None where there are none."""

    tool_calls: tuple[StoredCall, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A call as a list shows it: its arguments and its result are cut, and `result_chars` counts the whole.

    `agent_id` is None where it is not known: calls of earlier versions.
    """

    call: StoredCall
    user_id: str | None
    agent_id: str | None
    result_chars: int
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class CallPage:
    """Calls, newest first; `next_cursor` asks for what comes before them, None where there is nothing.

    A search looks through so many rows at a time: a page may be short, or empty, and more may come after it.
    """

    calls: tuple[CallSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A chat as a list shows it; times in seconds since the epoch.

    `began_with` is an excerpt of what the user typed first, `user_name` is None if no client sent it.
    """

    chat_id: str
    user_id: str | None
    began_with: str
    turns: int
    calls: int
    errors: int
    started_at: float
    last_at: float
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class ChatPage:
    """Chats, those with the newest answers first; `next_cursor` asks for those after them, None where there are none.

    A filter looks through so many chats at a time: a page may be short, or empty, and more may come after it.
    """

    chats: tuple[ChatSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """A turn as it is stored: the rows of one run. `answer` is the text that it ended with.

    `texts` are what was said before the calls of a round, by the round's index. `ending` is the run's last event, None
    while it goes on, or if the server that ran it was killed. `failures` are calls that failed, in a list of turns.
    """

    run_id: str
    chat_id: str
    user_id: str | None
    agent_id: str | None
    message_id: str | None
    question: str
    answer: str
    began_at: float
    last_at: float
    calls: int
    errors: int
    user_name: str | None = None
    ending: Done | Error | None = None
    texts: Mapping[int, str] = field(default_factory=dict)
    failures: Sequence[CallSummary] = ()


@dataclass(frozen=True, slots=True)
class TurnPage:
    """The turns of a chat, newest first."""

    turns: tuple[TurnSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that goes on, as its log has it: `owner` is the server that runs it, empty where any may.

    `begun_at` is in seconds since the epoch, by the store's clock.
    """

    run_id: str
    agent_id: str
    chat_id: str | None
    user_id: str | None
    owner: str
    begun_at: float


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """How the calls of a tool went; of those that have ended, half took `median_ms` or less, 95 % `p95_ms` or less."""

    tool_name: str
    calls: int
    errors: int
    median_ms: int | None
    p95_ms: int | None
    slowest_ms: int | None


@dataclass(frozen=True, slots=True)
class KeptResult:
    """What a chat keeps of a call's result: of which run, how much in all, and how much of it is replayed."""

    run_id: str
    chars: int
    replayed_chars: int


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory; times are seconds since the epoch."""

    id: int
    text: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Meant:
    """Memories that a search by meaning found, best first.

    `similarity`, by id, is from −1 to 1; `not_compared` counts the memories that were searched by their words alone.
    """

    memories: tuple[Memory, ...]
    similarity: dict[int, float]
    not_compared: int = 0


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message of the user or the assistant that was found; `at` in seconds since the epoch."""

    chat_id: str
    role: Literal["user", "assistant"]
    excerpt: str
    at: float


@dataclass(frozen=True, slots=True)
class PastChat:
    """A chat by how it began; `turns` counts regenerated ones too. Times in seconds since the epoch."""

    chat_id: str
    began_with: str
    turns: int
    started_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's value; `updated_at` in seconds since the epoch."""

    kind: AttributeKind
    value: AttributeValue
    updated_at: float


@dataclass(frozen=True, slots=True)
class SelfNote:
    """A note or a description; `version` counts each kind from 1, `created_at` is in seconds since the epoch."""

    version: int
    text: str
    created_at: float


@dataclass(frozen=True, slots=True)
class PastResponse:
    """The chat of a response, and the conversation up to its end; `replay` gives the calls in it their results."""

    chat_id: str
    messages: list[ChatDict]


@dataclass(frozen=True, slots=True)
class Record:
    """A value of a skill's under a key, which JSON can hold, and when it was put there."""

    key: str
    value: Any
    updated_at: float
