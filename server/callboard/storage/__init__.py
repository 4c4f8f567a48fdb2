"""Storage: chats with their calls, memories, profiles, notes, responses, and the values of skills.

`Store` returns small repositories, each for one user. Every method that reads or writes raises `StorageError` if the
database fails.

Skills and the layers above them import this package; it imports `_history`, which builds the model's input. It does not
import runs or requests.
"""

from callboard._history.records import StoredStatus
from callboard.storage.bus import RELEASED_RUN, Notification
from callboard.storage.rows import INTERRUPTED_CALL, UNANSWERED_CALL, name_state
from callboard.storage.sql.chats import Chats
from callboard.storage.sql.memories import Memories
from callboard.storage.sql.overview import Overview
from callboard.storage.sql.past_chats import PastChats
from callboard.storage.sql.personal import Profile, Records, SelfNotes
from callboard.storage.sql.responses import Responses
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.sql.store import Store
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.sql.usage import Usage
from callboard.storage.summaries import (
    CallPage,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    OpenRun,
    ResultSize,
    ToolSummary,
    TurnPage,
    TurnSummary,
)
from callboard.storage.values import (
    ANY_USER,
    OWN_CHAT_PREFIX,
    RESPONSE_PREFIX,
    ApprovalPage,
    Attribute,
    AttributeKind,
    AttributeValue,
    CallState,
    DayUsage,
    FoundMessage,
    GivenAnswer,
    Item,
    Line,
    Memory,
    NoteKind,
    PastChat,
    PastResponse,
    Record,
    RunSignals,
    SelfNote,
    StoreAccess,
    StoredCall,
    StoredFrame,
    StoredMessage,
    StoredRun,
    ToolCallFilter,
    ToolCallPage,
    WaitingApproval,
)

__all__ = [
    "ANY_USER",
    "INTERRUPTED_CALL",
    "OWN_CHAT_PREFIX",
    "RELEASED_RUN",
    "RESPONSE_PREFIX",
    "UNANSWERED_CALL",
    "ApprovalPage",
    "Attribute",
    "AttributeKind",
    "AttributeValue",
    "CallPage",
    "CallState",
    "CallSummary",
    "ChatFilter",
    "ChatPage",
    "ChatSummary",
    "Chats",
    "DayUsage",
    "FoundMessage",
    "GivenAnswer",
    "Item",
    "Line",
    "Memories",
    "Memory",
    "NoteKind",
    "Notification",
    "OpenRun",
    "Overview",
    "PastChat",
    "PastChats",
    "PastResponse",
    "Profile",
    "Record",
    "Records",
    "Responses",
    "ResultSize",
    "RunRecord",
    "RunSignals",
    "SelfNote",
    "SelfNotes",
    "Store",
    "StoreAccess",
    "StoredCall",
    "StoredFrame",
    "StoredMessage",
    "StoredRun",
    "StoredRuns",
    "StoredStatus",
    "ToolCallFilter",
    "ToolCallPage",
    "ToolSummary",
    "TurnPage",
    "TurnSummary",
    "Usage",
    "WaitingApproval",
    "name_state",
]
