"""The store's tables, statements and databases: SQLite and PostgreSQL."""

import warnings


def __getattr__(name: str) -> object:
    """Return the store by the name that it had here; raises `AttributeError` for any other name."""
    if name != "SqlStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callboard.storage.sql.store import Store

    warnings.warn("callboard.storage.sql.SqlStore is callboard.storage.Store", DeprecationWarning, stacklevel=2)
    return Store
