"""The history of a chat: rows of a turn, and the messages that a model gets of earlier turns. Pure.

It replays stored calls, limits the tokens of the history, and drops sources that no answer cites. `callboard.storage`
is the layer above, `callboard.errors` and texts are below. It knows no database and no requests.
"""

from callboard._history.replay import Replayed, replay
from callboard._history.sources import CompactResults, compact_message_tools
from callboard._history.token_limit import limit_tokens
from callboard._history.turn_rows import NewResponse, RowChange, Turn, TurnRows
from callboard._history.turns import (
    ChatHistory,
    HistoryCall,
    StoredRound,
    StoredTurn,
    insert_turns_by_client_call,
    insert_turns_by_text,
    lacks_calls,
)

__all__ = [
    "ChatHistory",
    "CompactResults",
    "HistoryCall",
    "NewResponse",
    "Replayed",
    "RowChange",
    "StoredRound",
    "StoredTurn",
    "Turn",
    "TurnRows",
    "compact_message_tools",
    "insert_turns_by_client_call",
    "insert_turns_by_text",
    "lacks_calls",
    "limit_tokens",
    "replay",
]
