"""Drop the vectors of memories, which are found by their words, and the audit, which is a log.

A run that waits for an approval has ended and kept its request, and needs no column of its own.
"""

from alembic import op

revision = "0103"
down_revision = "0102"

REQUEST = "the packed request; null after the end, unless it waits for an approval"
TRIGGER_FUNCTIONS = (
    "refuse_audit_change",
    "audit_unchanged",
    "audit_kept",
    "audit_arguments_unchanged",
    "audit_arguments_kept",
    "audit_arguments_in_time",
)


def upgrade() -> None:
    """Drop the tables, if the database is so old that it has them, with their triggers, and the column."""
    for table in ("memory_vectors", "audit_arguments", "audit"):
        op.execute(f"DROP TABLE IF EXISTS {table}")
    op.execute("UPDATE runs SET ended_at = parked_at, owner = '' WHERE parked_at IS NOT NULL")
    op.drop_column("runs", "parked_at")
    if op.get_bind().dialect.name == "postgresql":
        for function in TRIGGER_FUNCTIONS:
            op.execute(f"DROP FUNCTION IF EXISTS {function}()")
        op.execute(f"COMMENT ON COLUMN runs.request IS '{REQUEST}'")
