"""All tables and the full-text indexes.

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


def upgrade() -> None:
    """Create everything."""
    _create_chats()
    _create_runs()
    _create_personal()
    for index, table in INDEXED.items():
        for statement in WORD_INDEX[op.get_bind().dialect.name]:
            op.execute(statement.format(index=index, of=table, tokenizer=TOKENIZERS[index]))


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
