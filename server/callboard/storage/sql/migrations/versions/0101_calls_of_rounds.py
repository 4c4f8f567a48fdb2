"""Drop `messages.tool_calls`: the tool rows of a round have the same calls."""

from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Drop the column."""
    op.drop_column("messages", "tool_calls")
