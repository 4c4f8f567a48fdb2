"""Store the e-mail addresses of users, by which the inspector finds their chats."""

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"


def upgrade() -> None:
    """Add the column."""
    email = sa.Column("user_email", sa.Text(), comment="the user's e-mail address, as the client last sent it")
    op.add_column("chats", email)
