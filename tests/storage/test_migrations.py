"""A new database gets its tables once, and a database of another version is refused."""

import asyncio

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from callboard._history import Turn
from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.values import StoredRun
from tests.storage.turns import StoredSteps


async def ask(store: Store) -> list[str]:
    await StoredSteps(store, Turn("chat", "run", None, "ann", "Where is my umbrella?")).begin()
    return [one.excerpt for one in await store.past_chats("ann", None).search("umbrella", 5)]


async def test_an_interrupted_migration_leaves_the_database_unchanged(database_url: str) -> None:
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE message_words (in_the_way INTEGER)"))
    with pytest.raises(StorageError, match="message_words"):
        await Store.open(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("DROP TABLE message_words"))
    await engine.dispose()
    store = await Store.open(database_url)
    assert len(await ask(store)) == 1
    await store.close()


async def test_two_servers_that_start_at_once_make_the_tables_once(database_url: str) -> None:
    one, other = await asyncio.gather(Store.open(database_url), Store.open(database_url))
    assert len(await ask(one)) == 1
    for store in (one, other):
        await store.close()


async def test_a_database_of_an_unknown_version_is_refused_with_an_explanation(store: Store, database_url: str) -> None:
    await ask(store)
    await store.database.execute(text("UPDATE alembic_version SET version_num = '0014'"))
    with pytest.raises(StorageError, match=r"another version of Callboard.*install that version"):
        await Store.open(database_url)
    assert len(await store.chats("ann").messages("chat")) == 1


async def test_a_database_of_an_earlier_version_loses_withdrawn_tables_and_keeps_runs_that_wait(
    store: Store, database_url: str
) -> None:
    await ask(store)
    await store.stored_runs("gone").begin(StoredRun("waits", "agent", "chat", "message", "ann"), b"request")
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE runs ADD COLUMN parked_at DOUBLE PRECISION"))
        await connection.execute(text("UPDATE runs SET parked_at = begun_at"))
        await connection.execute(text("CREATE TABLE audit (id INTEGER PRIMARY KEY)"))
        await connection.execute(text("CREATE TABLE audit_arguments (audit_id INTEGER REFERENCES audit (id))"))
        await connection.execute(text("INSERT INTO audit (id) VALUES (1)"))
        await connection.execute(text("INSERT INTO audit_arguments (audit_id) VALUES (1)"))
        await connection.execute(text("ALTER TABLE chats DROP COLUMN user_email"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '0102'"))
    later = await Store.open(database_url)
    assert len(await later.chats("ann").messages("chat")) == 1
    other = later.stored_runs("other")
    assert await other.take_over() == []
    await other.cancel("waits")
    assert [run.run_id for run in await other.take_over()] == ["waits"]
    await later.close()
    async with engine.connect() as connection:
        found = await connection.run_sync(lambda one: inspect(one).get_table_names())
    await engine.dispose()
    assert not {"audit", "audit_arguments"} & set(found)
