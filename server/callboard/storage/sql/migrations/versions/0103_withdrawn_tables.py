"""Drop the vectors of memories, which are found by their words."""

from alembic import op

revision = "0103"
down_revision = "0102"


def upgrade() -> None:
    """Drop the table."""
    op.drop_table("memory_vectors")
