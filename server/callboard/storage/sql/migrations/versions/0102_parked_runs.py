"""Runs that are parked, and the questions that they wait for."""

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"

PARKED_AT = "since when it waits for approvals without a server; null: it does not"
WAITING_SINCE = "since when it waits for an answer without a time limit; null: asked"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("runs", sa.Column("parked_at", sa.Double(), comment=PARKED_AT))
    op.add_column("run_inputs", sa.Column("waiting_since", sa.Double(), comment=WAITING_SINCE))
