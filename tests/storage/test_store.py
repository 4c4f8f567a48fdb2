"""Opening and migrating a database, its error messages, and basic reads and writes of chats."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from callboard._history import ChatHistory, HistoryCall, Turn
from callboard.errors import StorageError, UnknownChat
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql.tables import metadata
from tests.storage.turns import StoredSteps


def turn(chat_id: str = "chat", user_id: str | None = "ann", run_id: str = "run") -> Turn:
    return Turn(chat_id=chat_id, run_id=run_id, message_id="m1", user_id=user_id, user_content="hello")


async def test_the_migrations_create_exactly_the_tables_of_the_metadata(store: Store) -> None:
    def differences(connection: Connection) -> list[object]:
        options = {"include_name": lambda name, *_: "_words" not in (name or "")}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    assert await store.database.read(differences) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense", "parse"),
        ("postgresql+carrier_pigeon://x", "carrier_pigeon"),
        ("mysql+aiomysql://u:secret@x/y", r"\*\*\*@x/y is neither SQLite nor PostgreSQL"),
    ],
)
async def test_what_cannot_be_used_is_named_with_its_setting(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(StorageError, match=f"CALLBOARD_DATABASE_URL.*{reason}"):
        await Store.open(url)
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be read as the header of one " * 20)
    with pytest.raises(StorageError, match=r"notes\.txt.*CALLBOARD_DATABASE_URL"):
        await Store.open(f"sqlite+aiosqlite:///{path}")
    with pytest.raises(StorageError, match="CALLBOARD_DATA_DIR"):
        await Store.open(f"sqlite+aiosqlite:///{path / 'callboard.db'}")


async def test_when_two_users_create_the_same_chat_at_once_one_of_them_owns_it(store: Store) -> None:
    journals = [StoredSteps(store, turn(user_id=user, run_id=user)) for user in ("ann", "bob")]
    begun = await asyncio.gather(*(journal.begin() for journal in journals))
    assert sorted(begun) == [False, True]
    for journal in journals:
        await journal.call_started(HistoryCall("a", "read", "{}", 0, 0), "")
        await journal.call_ended("a", "found", None, 5)
        await journal.finish("Found.", is_answered=True)
    owner, other = ("ann", "bob") if begun[0] else ("bob", "ann")
    assert await StoredSteps(store, turn(user_id=owner, run_id=owner)).begin()
    with pytest.raises(UnknownChat):
        await store.chats(other).history("chat")
    assert not await StoredSteps(store, turn(user_id=None)).begin()
    assert {message.run_id for message in await store.chats(owner).messages("chat")} == {owner}


@pytest.mark.parametrize("is_begun_again", [False, True])
async def test_after_the_deletion_of_its_chat_a_turn_is_not_stored(store: Store, is_begun_again: bool) -> None:
    journal = StoredSteps(store, turn())
    await journal.begin()
    await journal.call_started(HistoryCall("a", "read", "{}", 0, 0), "")
    await store.chats("ann").delete("chat")
    if is_begun_again:
        await StoredSteps(store, turn(user_id="bob", run_id="other")).begin()
    await journal.call_progressed("a", "processing", "half", 50)
    assert not await journal.call_ended("a", "found", None, 5)
    await journal.call_started(HistoryCall("b", "read", "{}", 1, 0), "")
    await journal.finish("Found.", is_answered=True)
    if is_begun_again:
        assert [message.run_id for message in await store.chats("bob").messages("chat")] == ["other"]
    else:
        assert await store.chats("ann").history("chat") == ChatHistory()


TAKE_LOCK = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "LOCK TABLE chats, messages"}


async def test_a_write_waits_for_a_lock_up_to_the_limit(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(database_module, "ATTEMPT_SECONDS", 0.05)
    store = await Store.open(database_url)
    other = create_async_engine(database_url)
    async with other.connect() as connection:
        await connection.exec_driver_sql(TAKE_LOCK[connection.dialect.name])
        with pytest.raises(StorageError, match="locked") as refused:
            await StoredSteps(store, turn()).begin()
        await connection.rollback()
    assert str(other.url.database) not in str(refused.value)
    await other.dispose()
    await store.close()


async def test_errors_do_not_contain_texts_of_users(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    await store.database.execute(text("ALTER TABLE messages RENAME COLUMN content TO gone"))
    with pytest.raises(StorageError) as failed:
        await StoredSteps(store, replace(turn(), user_content="my secret")).begin()
    assert "my secret" not in capsys.readouterr().out + str(failed.value) + str(failed.value.__cause__)


async def test_calls_left_open_by_a_crash_are_marked_interrupted(store: Store) -> None:
    journal = StoredSteps(store, turn())
    await journal.begin()
    await journal.call_started(HistoryCall("a", "read", "{}", 0, 0), "")
    await journal.call_started(HistoryCall("b", "read", "{}", 0, 1), "")
    await journal.call_ended("a", "whole", None, 5)
    assert await store.close_interrupted_calls() == 1
    assert await store.close_interrupted_calls() == 0
    outputs = {call.tool_call_id: call.result for call in (await store.chats("ann").history("chat")).calls}
    assert outputs["a"] == "whole"
    assert outputs["b"] is not None
    assert outputs["b"].startswith("Error: The server stopped")


async def test_all_records_of_a_chat_are_loaded_with_one_query(store: Store) -> None:
    for number in range(20):
        journal = StoredSteps(store, turn(run_id=f"run{number}"))
        await journal.begin()
        await journal.call_started(HistoryCall(f"call{number}", "read", "{}", 0, 0), "")
        await journal.call_ended(f"call{number}", "result", None, 5)
    queries: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        queries.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        history = await store.chats("ann").history("chat")
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert len(history.calls) == 20
    assert len(queries) == 1


async def test_the_full_result_is_kept_until_its_retention_has_passed(store: Store) -> None:
    journal = StoredSteps(store, turn())
    await journal.begin()
    await journal.call_started(HistoryCall("a", "search", "{}", 0, 0), "")
    whole = '[{"source_number": 1}, {"source_number": 2}]'
    await journal.call_ended("a", whole, None, 5)
    await journal.finish("As it says [source2].", is_answered=True)
    [replayed] = (await store.chats("ann").history("chat")).calls
    assert replayed.result == '[{"source_number": 2}]'
    chats = store.chats("ann")
    assert (await chats.tool_call("chat", "a")).result == whole
    assert await store.drop_uncited(before=time.time() - 60) == 0
    assert (await chats.tool_call("chat", "a")).result == whole
    assert await store.drop_uncited(before=time.time() + 60) == 1
    assert (await chats.tool_call("chat", "a")).result == '[{"source_number": 2}]'
    assert (await store.chats("ann").history("chat")).calls == (replayed,)
