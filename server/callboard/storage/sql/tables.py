"""The tables. Each message and each tool call has one row; times are in seconds since the epoch, UTC.

A turn consists of the rows with one `run_id`, ordered by `id`: the user's message; for each round an assistant row with
its `round_index` and the text before the calls, and a tool row for each call; the assistant's last text. `arguments`
is the text as the call runs: repaired, changed by the user, without secrets. `tool_output` is never re-serialised.
`replay_output` is the text for later turns, in place of the result; in the row of a question, of the question.

The full-text indexes `memory_words` and `message_words` are FTS5 tables on SQLite, and tables with a `tsvector` column
on PostgreSQL. Migrations create them; the `Database` classes query them.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    column,
    false,
    table,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from callboard.storage.values import ANY_USER

# Named constraints, so that later migrations can refer to them on every database.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite generates row ids only for a primary key of the type INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")

chats = Table(
    "chats",
    metadata,
    Column("id", String(255), primary_key=True),
    Column("user_id", String(255)),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("model", Text, comment="the model chosen for this chat; null: the server's default"),
    Column("user_name", Text, comment="the user's name, as the client last sent it"),
    Column("user_email", Text, comment="the user's e-mail address, as the client last sent it"),
    Index("ix_chats_user_id_updated_at", "user_id", "updated_at"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("chat_id", String(255), ForeignKey("chats.id", ondelete="CASCADE"), nullable=False),
    Column("run_id", String(128), nullable=False),
    Column("message_id", String(255), comment="the client's assistant message"),
    Column("role", String(16), nullable=False, comment="user, assistant or tool"),
    Column("content", Text, comment="text; a list of parts as JSON"),
    Column("tool_call_id", String(512)),
    Column("tool_name", String(255)),
    Column("arguments", Text, comment="as the model wrote them"),
    Column("tool_output", Text, comment="the whole result; null while the tool runs"),
    Column("replay_output", Text, comment="the compacted result for replay; null: tool_output"),
    Column("error_code", String(64), comment="null if the call succeeded"),
    # Of a user's row: the round before the message; null for the question.
    Column("round_index", Integer),
    Column("sequence_index", Integer),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("duration_ms", Integer, comment="as reported in the call's last event"),
    Column("created_at", Double, nullable=False),
    Column("provider_details", Text, comment="JSON: opaque data of the provider for a call or an answer"),
    Column("place", Integer, comment="of a user's row: the number of the question in its conversation"),
    Column("agent_id", String(255), comment="null: stored by a version without this column"),
    Column("parent_call_id", String(512), comment="the call that started the sub-agent; null: none"),
    Column("ending", Text, comment="JSON: the run's last event; only in a turn's first row"),
    UniqueConstraint("chat_id", "tool_call_id"),
    Index("ix_messages_chat_id_id", "chat_id", "id"),
    Index("ix_messages_tool_call_id", "tool_call_id"),
    sqlite_autoincrement=True,
)

tool_events = Table(
    "tool_events",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("tool_message_id", RowId, ForeignKey("messages.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("status", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Column("progress", Double, comment="0 to 100; null: unknown"),
    Column("created_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

responses = Table(
    "responses",
    metadata,
    Column("run_id", String(128), primary_key=True),
    Column("chat_id", String(255), ForeignKey("chats.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("previous", String(128), comment="the run of the previous response; null: none"),
    Column("input", Text, nullable=False, comment="JSON list of the request's new chat messages"),
    Column("created_at", Double, nullable=False),
)

memories = Table(
    "memories",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("user_id", String(255), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("uses", Integer, nullable=False, server_default="0", comment="how often a search found it"),
    sqlite_autoincrement=True,
)

profile_attributes = Table(
    "profile_attributes",
    metadata,
    Column("user_id", String(255), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("kind", String(16), nullable=False, comment="text, number, boolean, date or list"),
    Column("value", Text, nullable=False, comment="JSON"),
    Column("updated_at", Double, nullable=False),
)

self_notes = Table(
    "self_notes",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("agent_id", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("kind", String(16), nullable=False, comment="note or description"),
    Column("text", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_self_notes_agent_id_user_id_kind", "agent_id", "user_id", "kind"),
    sqlite_autoincrement=True,
)

response_items = Table(
    "response_items",
    metadata,
    Column("id", String(1024), primary_key=True),
    Column("user_id", String(255)),
    Column("chat_id", String(255), index=True),
    Column("item", Text, nullable=False, comment="JSON, OpenAI's form"),
    Column("created_at", Double, nullable=False, index=True),
)

records = Table(
    "records",
    metadata,
    Column("namespace", String(64), primary_key=True, comment="the skill's"),
    Column("user_id", String(255), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("value", Text, nullable=False, comment="JSON"),
    Column("updated_at", Double, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("user_id", String(255), primary_key=True, comment="empty: requests without a user"),
    Column("day", Integer, nullable=False, comment="UTC, counted from 1970-01-01 by the database's clock"),
    Column("calls", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
)

servers = Table(
    "servers",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("lease_until", Double, nullable=False, comment="by the database's clock"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("agent_id", String(255), nullable=False),
    Column("chat_id", String(255)),
    Column("message_id", String(255)),
    Column("user_id", String(255)),
    Column("owner", String(64), nullable=False, comment="the server that runs it; empty: any server may take it"),
    Column("epoch", Integer, nullable=False, comment="the number of the owner, from 1"),
    Column(
        "losses", Integer, nullable=False, server_default="0", comment="owners that stopped without handing it over"
    ),
    Column("last_seq", Integer, nullable=False, comment="of the newest frame; 0: none"),
    Column("begun_at", Double, nullable=False, comment="by the database's clock"),
    Column("ended_at", Double, index=True, comment="null while it is active"),
    Column("request", LargeBinary, comment="the packed request; null after the end, unless it waits for an approval"),
    Column("size_bytes", BigInteger, nullable=False, server_default="0", comment="of its frames and files"),
    Column("is_cancelled", Boolean, nullable=False, server_default=false(), comment="a client has cancelled it"),
    Column("listened_until", Double, comment="by clients of other servers"),
)

events = Table(
    "events",
    metadata,
    Column("run_id", String(128), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("frame", LargeBinary, nullable=False, comment="the encoded event"),
)

run_inputs = Table(
    "run_inputs",
    metadata,
    Column("run_id", String(128), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("question", String(640), primary_key=True, comment="the id of the input_request"),
    Column("answer", Text, comment="JSON; null: not answered"),
    Column("waiting_since", Double, comment="since when it waits for an answer without a time limit; null: asked"),
)

run_files = Table(
    "run_files",
    metadata,
    Column("run_id", String(128), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("url", Text, nullable=False, comment="a data: URL"),
)


class now(FunctionElement[float]):  # noqa: N801 - a function of SQL
    """The database's clock in seconds since the epoch, not before the start of the statement."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_on_sqlite(*_: object, **_options: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_on_postgresql(*_: object, **_options: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"


# The `rowid` in a full-text index is the id of the row with the text. The index is written in the transaction of the
# text. When a text is deleted, a trigger on SQLite or a foreign key on PostgreSQL deletes its row of the index.
_INDEX_COLUMNS = ("rowid", "words", "rank")
MESSAGE_WORDS = table("message_words", *map(column, _INDEX_COLUMNS))
MEMORY_WORDS = table("memory_words", *map(column, _INDEX_COLUMNS))
"""A search also finds other forms of English words (`drinking` for `drinks`); on SQLite its tokenizer does this."""


def is_owned_by(owner: ColumnElement[str | None], user_id: object) -> ColumnElement[bool]:
    """Return the condition that a row is this user's; it is true for `ANY_USER`."""
    return true() if user_id is ANY_USER else owner == user_id
