"""Turns that could not be written before their run had ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from callboard._history import HistoryCall, Turn
from callboard.errors import RunLost, StorageError
from callboard.storage import LoggedRun, Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql import unwritten as unwritten_module
from tests.faults.store_proxy import StoreProxy
from tests.storage.conftest import new_database
from tests.storage.trouble import locked_by_another_program

Trouble = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(database_module, "PATIENCE_IN_TROUBLE_SECONDS", 0.05)


@pytest.fixture
async def store(database: Path, impatience: None) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite+aiosqlite:///{database}")
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def troubled(
    request: pytest.FixtureRequest, database: Path, impatience: None
) -> AsyncIterator[tuple[str, Trouble]]:
    """The URL of a new database, and a block within which nothing can be written to it."""
    url = await new_database(request, request.param, database)
    if request.param == "sqlite":
        yield url, partial(locked_by_another_program, database)
        return
    folder: Path = request.getfixturevalue("cluster")
    async with StoreProxy(folder / ".s.PGSQL.5432").listening() as proxy:

        @asynccontextmanager
        async def cut_off() -> AsyncIterator[None]:
            proxy.cut()
            yield
            proxy.mend()

        yield f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{make_url(url).database}?ssl=disable", cut_off


async def end_turn(store: Store, chat_id: str, question: str, call_id: str = "a") -> None:
    """Write a turn that cannot be written."""
    journal = store.journal(Turn(chat_id, f"run of {question}", None, "ann", question))
    with pytest.raises(StorageError):
        await journal.begin()
    with pytest.raises(StorageError):
        await journal.call_started(HistoryCall(call_id, "read", "{}", 0, 0), "")
    with pytest.raises(StorageError):
        await journal.call_ended(call_id, "found", None, 5)
    with pytest.raises(StorageError):
        await journal.finish("Found.", is_answered=True)


async def questions(store: Store, chat_id: str) -> list[str | None]:
    return [message.content for message in await store.chats("ann").messages(chat_id) if message.role == "user"]


async def test_the_next_write_of_anybody_brings_what_waits(store: Store, database: Path) -> None:
    async with locked_by_another_program(database):
        for question in ("first", "second"):
            await end_turn(store, "chat", question, call_id=question)
    await store.journal(Turn("other", "run", None, "bob", "hello")).begin()
    while len(store.database.unwritten):  # noqa: ASYNC110 - nobody but the store is told of it
        await asyncio.sleep(0)
    assert await questions(store, "chat") == ["first", "second"]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [("MAX_TURNS", 2), ("MAX_BYTES", 4_000_000)])
async def test_of_more_than_there_is_room_for_the_oldest_are_dropped(
    database: Path, store: Store, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwritten_module, limit, most)
    async with locked_by_another_program(database):
        for number in range(3):
            await end_turn(store, f"chat{number}", f"{number}" * 1_500_000)
    assert len(store.database.unwritten) == 2
    await store.database.unwritten.write()
    history = [(await store.chats("ann").history(f"chat{number}")).tool_call_ids for number in range(3)]
    assert history == [frozenset(), {"a"}, {"a"}]


async def test_a_turn_that_the_database_refuses_holds_up_no_other(store: Store, database: Path) -> None:
    async with locked_by_another_program(database):
        # The same id for two calls of a chat, which no recorder would give.
        for question in ("first", "again", "last"):
            await end_turn(store, "chat", question, call_id="b" if question == "last" else "a")
    await store.database.unwritten.write()
    assert len(store.database.unwritten) == 0
    assert await questions(store, "chat") == ["first", "last"]


async def fail() -> None:
    raise RuntimeError("a mistake")


async def test_a_turn_that_fails_as_nobody_expected_holds_up_others_for_a_while_only(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwritten_module, "SECONDS_BETWEEN_TRIES", 0.01)
    async with locked_by_another_program(database):
        store.database.unwritten.keep(store.journal(Turn("chat", "mistaken", None, "ann", "first")), fail)
        await end_turn(store, "chat", "second")
    while len(store.database.unwritten):  # noqa: ASYNC110 - nobody but the store is told of it
        await asyncio.sleep(0)
    assert await questions(store, "chat") == ["second"]


async def test_a_store_closes_with_a_turn_that_fails_as_nobody_expected(database: Path) -> None:
    store = await Store.open(f"sqlite:///{database}")
    store.database.unwritten.keep(store.journal(Turn("chat", "mistaken", None, "ann", "first")), fail)
    # It is tried again meanwhile.
    await store.journal(Turn("other", "run", None, "bob", "hello")).begin()
    await store.close()
    opened = await Store.open(f"sqlite:///{database}")
    assert [message.content for message in await opened.chats("bob").messages("other")] == ["hello"]
    await opened.close()


async def test_while_nothing_can_be_written_the_calls_of_what_waits_are_known_to_its_user_alone(
    store: Store, database: Path
) -> None:
    async with locked_by_another_program(database):
        await end_turn(store, "chat", "first")
        [record] = (await store.chats("ann").history("chat")).calls
        assert (record.tool_call_id, record.result) == ("a", "found")
        assert (await store.chats("bob").history("chat")).calls == ()


async def lose_run(store: Store, trouble: Trouble) -> None:
    """Let a turn's end wait to be written, and one of a later turn behind it, while another server takes its run."""
    await store.run_log("gone").begin(LoggedRun("run", "agent", "lost", "message", "ann"))
    journal = store.journal(Turn("lost", "run", "message", "ann", "hello", epoch=1))
    await journal.begin()
    async with trouble():
        with pytest.raises(StorageError):
            await journal.finish("Written by nobody.", is_answered=True)
        await end_turn(store, "chat", "later")
    assert [run.run_id for run in await store.run_log("heir").take_over()] == ["run"]
    with pytest.raises(RunLost):
        await journal.catch_up()


async def test_a_turn_that_another_server_has_taken_over_holds_up_nobody(troubled: tuple[str, Trouble]) -> None:
    url, trouble = troubled
    store = await Store.open(url)
    await lose_run(store, trouble)
    assert await store.chats("bob").chat_of_call("call") is None
    assert await store.responses("bob").load("response") is None
    assert await questions(store, "chat") == ["later"]
    assert [message.content for message in await store.chats("ann").messages("lost")] == ["hello"]
    assert len(store.database.unwritten) == 0
    await store.close()


async def test_a_store_closes_with_a_turn_that_another_server_has_taken_over(troubled: tuple[str, Trouble]) -> None:
    url, trouble = troubled
    store = await Store.open(url)
    await lose_run(store, trouble)
    await store.close()
    opened = await Store.open(url)
    assert await questions(opened, "chat") == ["later"]
    await opened.close()
