"""Drop `messages.tool_calls`: the tool rows of a round have the same calls."""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Drop the column."""
    op.drop_column("messages", "tool_calls")


def downgrade() -> None:
    """Add the column again, empty."""
    op.add_column("messages", sa.Column("tool_calls", sa.Text()))
