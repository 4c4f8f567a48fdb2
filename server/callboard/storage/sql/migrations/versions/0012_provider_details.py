"""Provider details of calls and answers, in which thoughts are from now on."""

import json
from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

COMMENT = "JSON: what the model sent beside a call or an answer, for itself"
THOUGHT = "of a call: what the model wrote before it, where it is to read that again"

messages = sa.table("messages", sa.column("id"), sa.column("thought"), sa.column("provider_details"))


def upgrade() -> None:
    """Add the column, and move thoughts into it."""
    # Not by Alembic's batch, which would copy `messages` and lose its trigger.
    op.add_column("messages", sa.Column("provider_details", sa.Text(), comment=COMMENT))
    _move(messages.c.thought, messages.c.provider_details, lambda thought: json.dumps({"thought": thought}))
    op.drop_column("messages", "thought")


def downgrade() -> None:
    """Drop it, but for thoughts."""
    op.add_column("messages", sa.Column("thought", sa.Text(), comment=THOUGHT))
    _move(messages.c.provider_details, messages.c.thought, lambda details: json.loads(details).get("thought"))
    op.drop_column("messages", "provider_details")


def _move(source: sa.ColumnClause[str], target: sa.ColumnClause[str], convert: Callable[[str], str | None]) -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.select(messages.c.id, source).where(source.is_not(None))).all()
    for row_id, value in rows:
        changed = sa.update(messages).where(messages.c.id == row_id).values({target.name: convert(value)})
        connection.execute(changed)
