"""Storage: chats with their calls, memories, profiles, notes, responses, and the values of skills.

`Store` returns small repositories, each for one user. Every method that reads or writes raises `StorageError` if the
database fails.

Skills and the layers above them import this package; it imports `_history`, which builds the model's input. It does not
import runs or requests.
"""

from callboard._history.turns import StoredStatus
from callboard.storage.sql.chats import Chats
from callboard.storage.sql.personal import Records
from callboard.storage.sql.store import Store
from callboard.storage.values import Record, StoredCall, StoredMessage

__all__ = ["Chats", "Record", "Records", "Store", "StoredCall", "StoredMessage", "StoredStatus"]
