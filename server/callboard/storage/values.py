"""Values that the store accepts and returns.

Times are in seconds since the epoch. `user_id=None` counts as one user: all requests without a user share its data.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Literal, Self, TypeVar

from callboard._history.turns import StoredStatus
from callboard.errors import RequestTooLarge
from callboard_protocol.wire import MAX_TEXT_BYTES

T = TypeVar("T")

Item = Mapping[str, Any]
"""An output item of OpenAI's Responses API; it has an `id`."""

Line = Mapping[str, Any]
"""A line of an export: a JSON object."""

CallState = Literal[
    "running", "waiting", "complete", "error", "timed_out", "declined", "not_asked", "not_answered", "stopped"
]
"""The state of a call; `callboard_protocol.endings.find_ending` maps the error code of an ended call to its state."""
NoteKind = Literal["note", "description"]
AttributeKind = Literal["text", "number", "boolean", "date", "list"]
AttributeValue = bool | int | float | str | list[str]
"""The value of an attribute; a date is a string in ISO 8601."""

ANY_USER = object()
"""Given as a user id: no restriction to one user, for operators. A request cannot contain it."""

SECONDS_A_DAY = 86_400

RESPONSE_PREFIX = "resp_"
"""The prefix of response ids, as in OpenAI's API; the rest is the id of the run."""

OWN_CHAT_PREFIX = "own:"
"""The prefix of the ids that the server gives to chats of requests without a chat id."""

GRANTS = "approvals"
"""The namespace of the records of tools that users have allowed always in a chat. They are deleted with the chat."""
TOKENS = "tokens"
"""The namespace of the records of users' tokens for other services, which are encrypted and not exported."""

DIGEST_CHARS = 40

MESSAGE_PREFIX = "say:"
"""The prefix of the ids of the user's messages to a run. Each has a row in `run_inputs`, as its own answer."""


def digest(text: str) -> str:
    """Return a part of a record's key that stands for a text of any length. Keys of grants begin with their chat's."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list; `next_cursor` requests the next page, None on the last one.

    A search examines a limited number of rows for each page, so a page may be short or empty without being the last.
    """

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """One read or write of the database; `seconds` includes the time in the queue."""

    operation: Literal["read", "write"]
    seconds: float
    is_failed: bool = False


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A row of the `runs` table.

    `epoch` starts at 1 and grows with each change of the owner and each release; the store refuses writes of an
    earlier epoch. `is_cancelled` means that a client has cancelled the run. `losses` counts the owners that stopped
    without handing the run over. A run that waits for an approval has ended too, until the answer.
    `age_seconds` is set only by `StoredRuns.take_over`.
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


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame with the rows that are stored in the same transaction.

    `question` is the id if the frame is an `input_request` or a `tool_request`. `files` maps file ids in the frame to
    `data:` URLs. `waits_for` are the questions whose answers begin the run again, if it ends with this frame.
    """

    frame: bytes
    question: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    is_last: bool = False
    waits_for: Sequence[str] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of the frame and its files."""
        return len(self.frame) + sum(map(len, self.files.values()))


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to a question: any JSON value, and the name of the API key of the request, None if unknown.

    `asked` is False if the question could not be shown to a user; `value` is None then. `in_inspector`: a person in the
    inspector gave the answer, not the user.
    """

    value: Any
    key: str | None = None
    asked: bool = True
    in_inspector: bool = False

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the answer from its stored JSON."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the answer as JSON for the database."""
        return json.dumps(asdict(self))


def put_message(messages: dict[str, str], content: str, unique: str) -> str:
    """Add a message of the user to those of a run, in order by their ids; return its id. Raises `RequestTooLarge`."""
    if len(json.dumps([*messages.values(), content])) > MAX_TEXT_BYTES:
        raise RequestTooLarge(f"the messages to a run have {MAX_TEXT_BYTES} bytes at most: send it as the next turn")
    # With a number, so that the order of the ids is the order in which the messages were accepted.
    message_id = f"{MESSAGE_PREFIX}{len(messages):06}:{unique}"
    messages[message_id] = content
    return message_id


@dataclass(frozen=True, slots=True)
class RunSignals:
    """Signals that clients have sent to a run: the cancel flag, and the answers by question id.

    `messages` are the user's messages by their ids, in order. `waiting` are the questions without an answer in time
    that still wait for one. `has_waited` means that the run has had such a question.
    """

    is_cancelled: bool
    answers: Mapping[str, GivenAnswer]
    waiting: AbstractSet[str] = frozenset()
    has_waited: bool = False
    messages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingApproval:
    """A call that waits for approval since a time in seconds since the epoch; its run has ended, or is about to.

    `request_id` is the id of the question. `arguments` is the text as the call would run, without secrets.
    """

    run_id: str
    request_id: str
    tool_call_id: str
    tool_name: str
    arguments: str
    agent_id: str
    chat_id: str
    message_id: str | None
    user_id: str | None
    user_name: str | None
    waiting_since: float


@dataclass(frozen=True, slots=True)
class DayUsage:
    """A user's calls and tokens of the current day (UTC), and the seconds until it ends."""

    calls: int
    tokens: int
    ends_in_seconds: float


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of a chat. Times are in seconds since the epoch; fields that do not apply to the role are None."""

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
    """A stored tool call with its status events.

    `parent_call_id` is the call that started the sub-agent that made this call, None for the main agent's calls.
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
    """A filter for calls, or for chats with such messages; None or "" matches all.

    Times in seconds since the epoch, `until` excluded. Only `Overview` uses `text`: it is searched for in arguments and
    results of calls, ignoring case, and its words in the messages of chats. All other fields must match one message of
    a chat: its agent, its time and, for a call, its tool and state.
    """

    chat_id: str | None = None
    tool_name: str | None = None
    status: CallState | None = None
    since: float | None = None
    until: float | None = None
    agent_id: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory; times in seconds since the epoch."""

    id: int
    text: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message found by a search in past chats; `at` in seconds since the epoch."""

    chat_id: str
    role: Literal["user", "assistant"]
    excerpt: str
    at: float


@dataclass(frozen=True, slots=True)
class PastChat:
    """A past chat with an excerpt of its first question; times in seconds since the epoch.

    `turns` includes regenerated turns.
    """

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
    """A note or a description; each kind has its own versions from 1. `created_at` in seconds since the epoch."""

    version: int
    text: str
    created_at: float


@dataclass(frozen=True, slots=True)
class PastResponse:
    """The chat of a response; `stored` has the responses of this chat, as `join_responses` takes them."""

    chat_id: str
    stored: Mapping[str, tuple[str | None, str]]


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON value that a skill has stored under a key; `updated_at` in seconds since the epoch."""

    key: str
    value: Any
    updated_at: float
