"""All tables, the full-text indexes and the guards of the audit.

The audit is append-only: triggers refuse changes. A row can be deleted after its `keep_until`. Its arguments are in a
separate table, and can be deleted earlier, after a row of the kind `forgotten` was added for their user.

A later migration in which Alembic copies `messages` or `memories` on SQLite (`batch_alter_table`) must create their
triggers again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# The texts in the indexes are already normalised by `callboard.storage.words`.
TOKENIZERS = {
    "memory_words": "porter unicode61 remove_diacritics 0",
    "message_words": "unicode61 remove_diacritics 0",
}
INDEXED = {"memory_words": "memories", "message_words": "messages"}
WORD_INDEX = {
    "sqlite": (
        "CREATE VIRTUAL TABLE {index} USING fts5(words, tokenize = '{tokenizer}')",
        "CREATE TRIGGER {of}_deleted AFTER DELETE ON {of} BEGIN DELETE FROM {index} WHERE rowid = old.id; END",
    ),
    "postgresql": (
        "CREATE TABLE {index} (rowid BIGINT NOT NULL CONSTRAINT pk_{index} PRIMARY KEY "
        "CONSTRAINT fk_{index}_rowid REFERENCES {of} (id) ON DELETE CASCADE, words TSVECTOR NOT NULL)",
        "CREATE INDEX ix_{index}_words ON {index} USING gin (words)",
    ),
}

REFUSAL = "the audit is append-only"
RAISE = f"RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'"

SQLITE_NOW = "(julianday('now') - 2440587.5) * 86400.0"
POSTGRESQL_NOW = "extract(epoch from clock_timestamp())"

IS_KEPT = "(OLD.keep_until IS NULL OR OLD.keep_until > {now})"
ARGUMENTS_ARE_KEPT = """EXISTS (
  SELECT 1 FROM audit AS kept WHERE kept.id = OLD.audit_id AND (kept.keep_until IS NULL OR kept.keep_until > {now})
  AND NOT EXISTS (
    SELECT 1 FROM audit AS later WHERE later.kind = 'forgotten' AND later.user_id = kept.user_id AND later.id > kept.id
  )
)"""
ARGUMENTS_ARE_LATE = "(SELECT at FROM audit WHERE id = NEW.audit_id) < {now} - 60"
"""Arguments are inserted with their row; refuse later inserts, so that deleted arguments cannot be replaced."""

TRIGGERS = (
    ("audit_unchanged", "UPDATE", "audit", "1 = 1"),
    ("audit_kept", "DELETE", "audit", IS_KEPT),
    ("audit_arguments_unchanged", "UPDATE", "audit_arguments", "1 = 1"),
    ("audit_arguments_kept", "DELETE", "audit_arguments", ARGUMENTS_ARE_KEPT),
    ("audit_arguments_in_time", "INSERT", "audit_arguments", ARGUMENTS_ARE_LATE),
)
ON_SQLITE_ALONE = (
    # INSERT OR REPLACE deletes rows without firing DELETE triggers.
    ("audit_not_replaced", "INSERT", "audit", "EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)"),
    (
        "audit_arguments_not_replaced",
        "INSERT",
        "audit_arguments",
        "EXISTS (SELECT 1 FROM audit_arguments WHERE audit_id = NEW.audit_id)",
    ),
)


def upgrade() -> None:
    """Create everything."""
    _create_chats()
    _create_runs()
    _create_personal()
    _create_audit()
    for index, table in INDEXED.items():
        for statement in WORD_INDEX[op.get_bind().dialect.name]:
            op.execute(statement.format(index=index, of=table, tokenizer=TOKENIZERS[index]))
    _guard_audit()


def _create_chats() -> None:
    op.create_table(
        "chats",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("model", sa.Text(), comment="the model chosen for this chat; null: the server's default"),
        sa.Column("user_name", sa.Text(), comment="the user's name, as the client last sent it"),
        sa.PrimaryKeyConstraint("id", name="pk_chats"),
    )
    op.create_index("ix_chats_user_id_updated_at", "chats", ["user_id", "updated_at"])
    op.create_table(
        "messages",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("chat_id", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(128), nullable=False),
        sa.Column("message_id", sa.String(255), comment="the client's assistant message"),
        sa.Column("role", sa.String(16), nullable=False, comment="user, assistant or tool"),
        sa.Column("content", sa.Text(), comment="text; a list of parts as JSON"),
        sa.Column("tool_calls", sa.Text(), comment="JSON list, OpenAI's form"),
        sa.Column("tool_call_id", sa.String(512)),
        sa.Column("tool_name", sa.String(255)),
        sa.Column("arguments", sa.Text(), comment="as the model wrote them"),
        sa.Column("tool_output", sa.Text(), comment="the whole result; null while the tool runs"),
        sa.Column("replay_output", sa.Text(), comment="the compacted result for replay; null: tool_output"),
        sa.Column("error_code", sa.String(64), comment="null if the call succeeded"),
        sa.Column("round_index", sa.Integer()),
        sa.Column("sequence_index", sa.Integer()),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("duration_ms", sa.Integer(), comment="as reported in the call's last event"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("provider_details", sa.Text(), comment="JSON: opaque data of the provider for a call or an answer"),
        sa.Column("place", sa.Integer(), comment="of a user's row: the number of the question in its conversation"),
        sa.Column("agent_id", sa.String(255), comment="null: stored by a version without this column"),
        sa.Column("parent_call_id", sa.String(512), comment="the call that started the sub-agent; null: none"),
        sa.Column("ending", sa.Text(), comment="JSON: the run's last event; only in a turn's first row"),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name="fk_messages_chat_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        sa.UniqueConstraint("chat_id", "tool_call_id", name="uq_messages_chat_id_tool_call_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_messages_chat_id_id", "messages", ["chat_id", "id"])
    op.create_index("ix_messages_tool_call_id", "messages", ["tool_call_id"])
    op.create_table(
        "tool_events",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("tool_message_id", ROW_ID, nullable=False),
        sa.Column("status", sa.String(64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("progress", sa.Double(), comment="0 to 100; null: unknown"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tool_message_id"], ["messages.id"], name="fk_tool_events_tool_message_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tool_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_events_tool_message_id", "tool_events", ["tool_message_id"])
    op.create_table(
        "responses",
        sa.Column("run_id", sa.String(128), nullable=False),
        sa.Column("chat_id", sa.String(255), nullable=False),
        sa.Column("previous", sa.String(128), comment="the run of the previous response; null: none"),
        sa.Column("input", sa.Text(), nullable=False, comment="JSON list of the request's new chat messages"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name="fk_responses_chat_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_responses"),
    )
    op.create_index("ix_responses_chat_id", "responses", ["chat_id"])
    op.create_table(
        "response_items",
        sa.Column("id", sa.String(1024), nullable=False),
        sa.Column("user_id", sa.String(255)),
        sa.Column("chat_id", sa.String(255)),
        sa.Column("item", sa.Text(), nullable=False, comment="JSON, OpenAI's form"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_response_items"),
    )
    op.create_index("ix_response_items_chat_id", "response_items", ["chat_id"])
    op.create_index("ix_response_items_created_at", "response_items", ["created_at"])


def _create_runs() -> None:
    op.create_table(
        "servers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False, comment="by the database's clock"),
        sa.PrimaryKeyConstraint("id", name="pk_servers"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("agent_id", sa.String(255), nullable=False),
        sa.Column("chat_id", sa.String(255)),
        sa.Column("message_id", sa.String(255)),
        sa.Column("user_id", sa.String(255)),
        sa.Column(
            "owner", sa.String(64), nullable=False, comment="the server that runs it; empty: any server may take it"
        ),
        sa.Column("epoch", sa.Integer(), nullable=False, comment="the number of the owner, from 1"),
        sa.Column(
            "losses",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="owners that stopped without handing it over",
        ),
        sa.Column("last_seq", sa.Integer(), nullable=False, comment="of the newest frame; 0: none"),
        sa.Column("begun_at", sa.Double(), nullable=False, comment="by the database's clock"),
        sa.Column("ended_at", sa.Double(), comment="null while it is active"),
        sa.Column("request", sa.LargeBinary(), comment="the packed request; null after the end"),
        sa.Column("size_bytes", sa.BigInteger(), server_default="0", nullable=False, comment="of its frames and files"),
        sa.Column(
            "is_cancelled",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment="a client has cancelled it",
        ),
        sa.Column("listened_until", sa.Double(), comment="by clients of other servers"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_ended_at", "runs", ["ended_at"])
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(128), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False, comment="the encoded event"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_events"),
    )
    op.create_table(
        "run_inputs",
        sa.Column("run_id", sa.String(128), nullable=False),
        sa.Column("question", sa.String(640), nullable=False, comment="the id of the input_request"),
        sa.Column("answer", sa.Text(), comment="JSON; null: not answered"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_inputs_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "question", name="pk_run_inputs"),
    )
    op.create_table(
        "run_files",
        sa.Column("run_id", sa.String(128), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False, comment="a data: URL"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_files_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_run_files"),
    )


def _create_personal() -> None:
    op.create_table(
        "memories",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("uses", sa.Integer(), server_default="0", nullable=False, comment="how often a search found it"),
        sa.PrimaryKeyConstraint("id", name="pk_memories"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memories_user_id", "memories", ["user_id"])
    op.create_table(
        "memory_vectors",
        sa.Column("memory_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("model", sa.String(255), nullable=False, comment="the embedding model"),
        sa.Column("vector", sa.LargeBinary(), nullable=False, comment="little-endian 32-bit floats, of length 1"),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"], name="fk_memory_vectors_memory_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("memory_id", "model", name="pk_memory_vectors"),
    )
    op.create_table(
        "profile_attributes",
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False, comment="text, number, boolean, date or list"),
        sa.Column("value", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "name", name="pk_profile_attributes"),
    )
    op.create_table(
        "self_notes",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("agent_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False, comment="note or description"),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_self_notes"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_self_notes_agent_id_user_id_kind", "self_notes", ["agent_id", "user_id", "kind"])
    op.create_table(
        "records",
        sa.Column("namespace", sa.String(64), nullable=False, comment="the skill's"),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "user_id", "key", name="pk_records"),
    )
    op.create_table(
        "usage",
        sa.Column("user_id", sa.String(255), nullable=False, comment="empty: requests without a user"),
        sa.Column("day", sa.Integer(), nullable=False, comment="UTC, counted from 1970-01-01 by the database's clock"),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_usage"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False, comment="by the database's clock"),
        sa.Column(
            "kind", sa.String(16), nullable=False, comment="call, handed_over, changed, approved, ended or forgotten"
        ),
        sa.Column("user_id", sa.String(255)),
        sa.Column("key", sa.String(64), comment="the name of the API key; null: unknown"),
        sa.Column("agent_id", sa.String(255)),
        sa.Column("chat_id", sa.String(255)),
        sa.Column("run_id", sa.String(128)),
        sa.Column("tool_call_id", sa.String(512)),
        sa.Column("tool_name", sa.String(255)),
        sa.Column("outcome", sa.String(64), comment="of an ended call: complete, or the error code"),
        sa.Column("keep_until", sa.Double(), comment="null: for ever"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_user_id", "audit", ["user_id"])
    op.create_table(
        "audit_arguments",
        sa.Column("audit_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["audit_id"], ["audit.id"], name="fk_audit_arguments_audit_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("audit_id", name="pk_audit_arguments"),
    )


def _guard_audit() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name, event, table, is_refused in (*TRIGGERS, *ON_SQLITE_ALONE):
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {is_refused.format(now=SQLITE_NOW)} "
                f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
            )
        return
    op.execute(f"CREATE FUNCTION refuse_audit_change() RETURNS trigger AS $$ BEGIN {RAISE}; END $$ LANGUAGE plpgsql")
    for name, event, table, is_refused in TRIGGERS:
        # On PostgreSQL the WHEN of a trigger cannot query other rows, so a function checks the condition.
        row = "OLD" if event == "DELETE" else "NEW"
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger AS $$ BEGIN IF {is_refused.format(now=POSTGRESQL_NOW)} THEN "
            f"{RAISE}; END IF; RETURN {row}; END $$ LANGUAGE plpgsql"
        )
        op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    for table in ("audit", "audit_arguments"):
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} FOR EACH STATEMENT "
            "EXECUTE FUNCTION refuse_audit_change()"
        )
