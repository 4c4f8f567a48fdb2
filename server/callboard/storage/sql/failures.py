"""Failures of a database: in words for users, and whether to try again. Pure.

What drivers say names files, hosts and statements; it is for the log.
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
_BUSY_WITH_OTHERS = "it has too many connections"
_ITS_OWN = "it refused a request"

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
    "53300": _BUSY_WITH_OTHERS,
    "55P03": _LOCKED,
    "25006": _READ_ONLY,
    "57P01": _UNREACHABLE,
    "57P02": _UNREACHABLE,
    "57P03": _UNREACHABLE,
}
_PASSING = (_LOCKED, _UNREACHABLE, _BUSY_WITH_OTHERS)


def reason(error: BaseException) -> str:
    """Return what is wrong, in words that name no file, host or statement."""
    for cause in _list_causes(error):
        if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
            # The extended codes have the plain one in their last byte.
            return _SQLITE_REASONS.get(code & 0xFF, _ITS_OWN)
        if (state := getattr(cause, "sqlstate", None)) is not None:
            return _UNREACHABLE if state.startswith("08") else _POSTGRESQL_REASONS.get(state, _ITS_OWN)
        if isinstance(cause, OSError):
            return _UNREACHABLE
    return _UNREACHABLE if is_lost(error) else _ITS_OWN


def is_passing(error: BaseException) -> bool:
    """Return whether the same may work a moment later: a lock, a server that starts or is crowded."""
    return reason(error) in _PASSING


def is_trouble(error: BaseException) -> bool:
    """Return whether the database failed, and not what was asked of it."""
    return not isinstance(error, (DataError, IntegrityError))


def is_lost(error: BaseException) -> bool:
    """Return whether the connection to a server is gone."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and what the libraries between the driver and us wrapped."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__
