"""The names of users, and how runs ended."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

USER_NAME = "the user's name, as the client last sent it"
ENDING = "JSON: the run's last event; of a turn's first row"


def upgrade() -> None:
    """Add the columns."""
    # Not by Alembic's batch, which would copy `messages` and lose its trigger.
    op.add_column("chats", sa.Column("user_name", sa.Text(), comment=USER_NAME))
    op.add_column("messages", sa.Column("ending", sa.Text(), comment=ENDING))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("messages", "ending")
    op.drop_column("chats", "user_name")
