"""What is kept of chats: tables, migrations, the journal of a turn, replay.

Above: runs. Below: settings and errors. Does not know who asks or why.
"""

from callboard.history.bound import bound
from callboard.history.chats import (
    ANY_USER,
    Chats,
    StoredCall,
    StoredMessage,
    StoredStatus,
    ToolCallFilter,
    ToolCallPage,
)
from callboard.history.compaction import compact_message_tools
from callboard.history.extraction import extract_message_tools
from callboard.history.journal import ChatJournal, Journal, NoJournal, StartedCall, Turn
from callboard.history.memories import Embed, Meant, Memories, Memory
from callboard.history.past_chats import PastChat, PastChats, SaidMessage
from callboard.history.profiles import Attribute, AttributeKind, AttributeValue, Profile
from callboard.history.records import ChatHistory, ChatMessageTool, ToolResponse
from callboard.history.replay import Replayed, replay
from callboard.history.self_notes import SelfNote, SelfNotes
from callboard.history.store import Store

__all__ = [
    "ANY_USER",
    "Attribute",
    "AttributeKind",
    "AttributeValue",
    "ChatHistory",
    "ChatJournal",
    "ChatMessageTool",
    "Chats",
    "Embed",
    "Journal",
    "Meant",
    "Memories",
    "Memory",
    "NoJournal",
    "PastChat",
    "PastChats",
    "Profile",
    "Replayed",
    "SaidMessage",
    "SelfNote",
    "SelfNotes",
    "StartedCall",
    "Store",
    "StoredCall",
    "StoredMessage",
    "StoredStatus",
    "ToolCallFilter",
    "ToolCallPage",
    "ToolResponse",
    "Turn",
    "bound",
    "compact_message_tools",
    "extract_message_tools",
    "replay",
]
