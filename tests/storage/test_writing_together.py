"""Writes that wait together share a transaction, but neither failures nor waits for locks."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, insert, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from callboard.errors import UnknownChat
from callboard.storage import Store
from callboard.storage.sql.database import WRITES_AT_ONCE, Database, Work
from callboard.storage.sql.tables import chats
from tests.bench.statements import counted

only_postgresql = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)


def adding(chat_id: str) -> Work[str]:
    def add(connection: Connection) -> str:
        connection.execute(insert(chats).values(id=chat_id, created_at=1.0, updated_at=1.0))
        return chat_id

    return add


def failing(chat_id: str) -> Work[str]:
    def fail(connection: Connection) -> str:
        adding(chat_id)(connection)
        raise UnknownChat(chat_id)

    return fail


async def kept(database: Database) -> Sequence[str]:
    return [row.id for row in await database.fetch(select(chats.c.id).order_by(chats.c.id))]


async def test_writes_that_wait_together_share_one_transaction(store: Store) -> None:
    names = [f"chat-{number:03}" for number in range(WRITES_AT_ONCE + 20)]
    with counted() as counts:
        assert await asyncio.gather(*(store.database.write(adding(name)) for name in names)) == names
    assert counts.committed == 2
    assert await kept(store.database) == names


async def test_a_failed_write_does_not_fail_the_others_of_its_transaction(store: Store) -> None:
    works = [adding("a"), failing("b"), adding("c"), failing("d"), adding("e")]
    results = await asyncio.gather(*map(store.database.write, works), return_exceptions=True)
    assert [result if isinstance(result, str) else type(result) for result in results] == [
        "a",
        UnknownChat,
        "c",
        UnknownChat,
        "e",
    ]
    assert await kept(store.database) == ["a", "c", "e"]


async def test_a_cancelled_write_is_not_made(store: Store) -> None:
    first = asyncio.create_task(store.database.write(adding("first")))
    given_up = asyncio.create_task(store.database.write(adding("given up")))
    last = asyncio.create_task(store.database.write(adding("last")))
    # Both are waiting by now, and nothing is written before this function waits.
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(first, last)
    assert await kept(store.database) == ["first", "last"]
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_close_waits_for_writes_in_progress(database_url: str) -> None:
    store = await Store.open(database_url)
    writing = asyncio.create_task(store.database.write(adding("last")))
    # It waits to be written by now.
    await asyncio.sleep(0)
    await store.close()
    assert await writing == "last"
    again = await Store.open(database_url)
    assert await kept(again.database) == ["last"]
    await again.close()


@pytest.mark.parametrize("name", ["sqlite:///{}", "sqlite://"])
async def test_a_cancelled_caller_leaves_the_connections_of_sqlite_usable(database: Path, name: str) -> None:
    loop, threads = asyncio.get_running_loop(), set(threading.enumerate())
    store = await Store.open(name.format(database))

    def slowly(chat_id: str, begun: asyncio.Event, goes_on: threading.Event) -> Work[object]:
        def run(connection: Connection) -> None:
            adding(chat_id)(connection)
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait()
            if chat_id == "failed":
                raise UnknownChat(chat_id)

        return run

    for call, chat_id in [
        (store.database.read, "only read"),
        (store.database.write, "failed"),
        (store.database.write, "committed"),
    ]:
        begun, goes_on = asyncio.Event(), threading.Event()
        calling = asyncio.create_task(call(slowly(chat_id, begun, goes_on)))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        goes_on.set()
    await store.database.write(adding("next"))
    assert await kept(store.database) == ["committed", "next"]
    await store.close()
    for thread in set(threading.enumerate()) - threads:
        await asyncio.to_thread(thread.join)


@only_postgresql
async def test_a_write_that_waits_for_a_lock_does_not_delay_others(store: Store, database_url: str) -> None:
    await store.database.write(adding("locked"))
    other = create_async_engine(database_url)

    def forget(connection: Connection) -> int:
        return connection.execute(delete(chats).where(chats.c.id == "locked")).rowcount

    async with other.connect() as connection:
        await connection.execute(text("SELECT id FROM chats FOR UPDATE"))
        waiting = asyncio.create_task(store.database.write(forget))
        assert await store.database.write(adding("free")) == "free"
        assert not waiting.done()
        await connection.rollback()
    assert await waiting == 1
    await other.dispose()
