"""The parents of calls: those that started the agent that makes them."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

COMMENT = "the call that started the agent that made this one; null: none"


def upgrade() -> None:
    """Add the column."""
    op.add_column("messages", sa.Column("parent_call_id", sa.String(512), comment=COMMENT))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("messages", "parent_call_id")
