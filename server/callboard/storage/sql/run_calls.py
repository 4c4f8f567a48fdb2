"""Statements about runs and their calls: a new run, whether there is room for it, the calls of runs that were left."""

from typing import Any

from sqlalchemy import Connection, and_, func, select, update

from callboard.errors import TooManyRuns
from callboard.storage.rows import interrupt_call
from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import messages, runs
from callboard.storage.values import LoggedRun
from callboard_protocol import EXTERNAL_ID_PREFIX

IS_EXTERNAL = messages.c.tool_call_id.startswith(EXTERNAL_ID_PREFIX, autoescape=True)
"""A call that its client runs."""


def make_row(dialect: Dialect, run: LoggedRun, server_id: str) -> dict[str, Any]:
    """Return the row of a run that begins at a server."""
    return {
        "id": run.run_id,
        "agent_id": run.agent_id,
        "chat_id": run.chat_id,
        "message_id": run.message_id,
        "user_id": run.user_id,
        "owner": server_id,
        "epoch": run.epoch,
        "begun_at": dialect.now(),
    }


def has_room(dialect: Dialect, connection: Connection, run: LoggedRun, max_of_user: int | None) -> bool:
    """Return whether fewer runs of the user are under way, and have one begin at a time."""
    if max_of_user is None or run.user_id is None:
        return True
    dialect.serialize_writes(connection, f"runs/{run.user_id}")
    others = (runs.c.user_id == run.user_id) & runs.c.ended_at.is_(None) & (runs.c.id != run.run_id)
    under_way = connection.scalar(select(func.count()).select_from(runs).where(others)) or 0
    return under_way < max_of_user


def refuse(max_of_user: int | None) -> TooManyRuns:
    """Return the answer for a run that has no room."""
    return TooManyRuns(f"{max_of_user} runs of this user are under way: try again when one has ended")


def close_open_calls(connection: Connection) -> int:
    """Mark the calls that nobody runs any more as interrupted, but for those that clients run; returns how many."""
    # Servers that share the database may be at work; what one of them leaves is closed with its run.
    elsewhere = select(runs.c.id).where(runs.c.ended_at.is_(None))
    is_left = and_(messages.c.ended_at.is_(None), messages.c.run_id.not_in(elsewhere))
    is_open = and_(messages.c.role == "tool", is_left, ~IS_EXTERNAL)
    return connection.execute(update(messages).where(is_open).values(interrupt_call())).rowcount
