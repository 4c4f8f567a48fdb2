"""Classifies database errors: a reason for users, and whether to retry. Pure.

The drivers' messages name files, hosts and statements, so they go only into the log.
"""

import sqlite3
from collections.abc import Iterator, Mapping

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

_LOCKED = "another program has locked it"
_FULL = "its disk is full"
_DAMAGED = "it is damaged, or not a database of Callboard"
_READ_ONLY = "it cannot be written"
_NOT_OPEN = "it cannot be opened"
_UNREACHABLE = "it cannot be reached"
_TOO_MANY_CONNECTIONS = "it has too many connections"
_OTHER = "it refused a request"

_SQLITE_REASONS: Mapping[int, str] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_IOERR: "its disk failed",
    sqlite3.SQLITE_CANTOPEN: _NOT_OPEN,
}
_POSTGRESQL_REASONS: Mapping[str, str] = {
    "53100": _FULL,
    "53300": _TOO_MANY_CONNECTIONS,
    "55P03": _LOCKED,
    "25006": _READ_ONLY,
    "57P01": _UNREACHABLE,
    "57P02": _UNREACHABLE,
    "57P03": _UNREACHABLE,
}
_TEMPORARY = (_LOCKED, _UNREACHABLE, _TOO_MANY_CONNECTIONS)


def describe_failure(error: BaseException) -> str:
    """Return the reason of a failure without the names of files, hosts and statements."""
    for cause in _list_causes(error):
        if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
            # The last byte of an extended code is the primary code.
            return _SQLITE_REASONS.get(code & 0xFF, _OTHER)
        if (state := getattr(cause, "sqlstate", None)) is not None:
            return _UNREACHABLE if state.startswith("08") else _POSTGRESQL_REASONS.get(state, _OTHER)
        if isinstance(cause, OSError):
            return _UNREACHABLE
    return _UNREACHABLE if is_connection_lost(error) else _OTHER


def is_temporary(error: BaseException) -> bool:
    """Return whether a retry may succeed: the cause is a lock, an unreachable server or too many connections."""
    return describe_failure(error) in _TEMPORARY


def is_database_failure(error: BaseException) -> bool:
    """Return whether the database failed; False if it refused the values of a statement."""
    return not isinstance(error, (DataError, IntegrityError))


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection to a database server was lost."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and the errors that SQLAlchemy and the driver have wrapped in it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__
