"""Storage: chats with their calls, memories, profiles, notes, responses, and the values of skills.

`Store` returns small repositories, each for one user. Every method that reads or writes raises `StorageError` if the
database fails.

Skills and the layers above them import this package; it imports `_history`, which builds the model's input. It does not
import runs or requests.
"""

from callboard._history.records import StoredStatus
from callboard.storage.bus import RELEASED_RUN, Notification
from callboard.storage.rows import INTERRUPTED_CALL, UNANSWERED_CALL, name_state
from callboard.storage.sql.audit import Audit
from callboard.storage.sql.chats import Chats, PastChats, Responses
from callboard.storage.sql.overview import Overview
from callboard.storage.sql.personal import Memories, Profile, Records, SelfNotes
from callboard.storage.sql.run_log import RunLog
from callboard.storage.sql.run_record import NewRun, RunRecord
from callboard.storage.sql.store import Store
from callboard.storage.sql.turn_writer import TurnWriter
from callboard.storage.sql.usage import Usage
from callboard.storage.values import (
    ANY_USER,
    OWN_CHAT_PREFIX,
    RESPONSE_PREFIX,
    Attribute,
    AttributeKind,
    AttributeValue,
    AuditEntry,
    AuditFilter,
    AuditKind,
    CallPage,
    CallState,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    DayUsage,
    Embed,
    GivenAnswer,
    Item,
    KeptResult,
    Line,
    LoggedFrame,
    LoggedRun,
    Memory,
    MemoryMatches,
    NoteKind,
    OpenRun,
    Orders,
    PastChat,
    PastResponse,
    Record,
    SaidMessage,
    SelfNote,
    StoreAccess,
    StoredCall,
    StoredMessage,
    StoreQueues,
    ToolCallFilter,
    ToolCallPage,
    ToolSummary,
    TurnPage,
    TurnSummary,
)

__all__ = [
    "ANY_USER",
    "INTERRUPTED_CALL",
    "OWN_CHAT_PREFIX",
    "RELEASED_RUN",
    "RESPONSE_PREFIX",
    "UNANSWERED_CALL",
    "Attribute",
    "AttributeKind",
    "AttributeValue",
    "Audit",
    "AuditEntry",
    "AuditFilter",
    "AuditKind",
    "CallPage",
    "CallState",
    "CallSummary",
    "ChatFilter",
    "ChatPage",
    "ChatSummary",
    "Chats",
    "DayUsage",
    "Embed",
    "GivenAnswer",
    "Item",
    "KeptResult",
    "Line",
    "LoggedFrame",
    "LoggedRun",
    "Memories",
    "Memory",
    "MemoryMatches",
    "NewRun",
    "NoteKind",
    "Notification",
    "OpenRun",
    "Orders",
    "Overview",
    "PastChat",
    "PastChats",
    "PastResponse",
    "Profile",
    "Record",
    "Records",
    "Responses",
    "RunLog",
    "RunRecord",
    "SaidMessage",
    "SelfNote",
    "SelfNotes",
    "Store",
    "StoreAccess",
    "StoreQueues",
    "StoredCall",
    "StoredMessage",
    "StoredStatus",
    "ToolCallFilter",
    "ToolCallPage",
    "ToolSummary",
    "TurnPage",
    "TurnSummary",
    "TurnWriter",
    "Usage",
    "name_state",
]
