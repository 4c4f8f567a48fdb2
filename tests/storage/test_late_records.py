"""Runs that the database could not store while they were active."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from callboard._history import HistoryCall, Turn
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql import late_records
from tests.faults.store_proxy import StoreProxy
from tests.storage.conftest import new_database
from tests.storage.trouble import locked_by_another_program
from tests.storage.turns import RecordedSteps, StoredSteps

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
    """The URL of a new database, and a context in which writes to it fail."""
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


async def begin_turn(store: Store, chat_id: str, question: str) -> RecordedSteps:
    return await RecordedSteps.open(store, Turn(chat_id, f"run of {question}", None, "ann", question))


async def end_turn(steps: RecordedSteps, call_id: str = "a") -> None:
    """Record a turn while the database cannot be written."""
    await steps.begin()
    await steps.call_started(HistoryCall(call_id, "read", "{}", 0, 0), "")
    await steps.call_ended(call_id, "found", None, 5)
    await steps.finish("Found.", is_answered=True)
    assert steps.record.is_late


async def questions(store: Store, chat_id: str) -> list[str | None]:
    return [message.content for message in await store.chats("ann").messages(chat_id) if message.role == "user"]


async def wait_until_stored(store: Store) -> None:
    while len(store.database.late):  # noqa: ASYNC110 - nobody but the store is told of it
        await asyncio.sleep(0)


async def test_after_the_next_successful_write_late_turns_are_stored_in_order(store: Store, database: Path) -> None:
    turns = [await begin_turn(store, "chat", question) for question in ("first", "second")]
    async with locked_by_another_program(database):
        for number, steps in enumerate(turns):
            await end_turn(steps, call_id=f"call {number}")
    await StoredSteps(store, Turn("other", "run", None, "bob", "hello")).begin()
    await wait_until_stored(store)
    assert await questions(store, "chat") == ["first", "second"]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [("MAX_ENDED", 2), ("MAX_ENDED_BYTES", 4_000_000)])
async def test_beyond_the_limit_the_oldest_ended_turns_are_dropped(
    database: Path, store: Store, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_records, limit, most)
    turns = [await begin_turn(store, f"chat{number}", f"{number}" * 1_500_000) for number in range(3)]
    async with locked_by_another_program(database):
        for steps in turns:
            await end_turn(steps)
    assert len(store.database.late) == 2
    await store.database.late.store()
    history = [(await store.chats("ann").history(f"chat{number}")).tool_call_ids for number in range(3)]
    assert history == [frozenset(), {"a"}, {"a"}]


async def test_rows_that_the_database_refuses_do_not_delay_other_turns(store: Store, database: Path) -> None:
    # The same id for two calls of a chat; a recorder would not give it.
    ids = {"first": "a", "again": "a", "last": "b"}
    turns = {question: await begin_turn(store, "chat", question) for question in ids}
    async with locked_by_another_program(database):
        for question, call_id in ids.items():
            await end_turn(turns[question], call_id=call_id)
    await store.database.late.store()
    assert len(store.database.late) == 0
    assert (await questions(store, "chat"))[-1] == "last"
    assert (await store.chats("ann").history("chat")).tool_call_ids == {"a", "b"}


async def test_calls_of_late_turns_are_visible_only_to_their_user(store: Store, database: Path) -> None:
    steps = await begin_turn(store, "chat", "first")
    async with locked_by_another_program(database):
        await end_turn(steps)
        [record] = (await store.chats("ann").history("chat")).calls
        assert (record.tool_call_id, record.result) == ("a", "found")
        assert (await store.chats("bob").history("chat")).calls == ()


async def test_a_store_closes_although_late_turns_cannot_be_stored(troubled: tuple[str, Trouble]) -> None:
    url, trouble = troubled
    store = await Store.open(url)
    steps = await begin_turn(store, "chat", "later")
    async with trouble():
        await end_turn(steps)
    await store.close()
    opened = await Store.open(url)
    assert await questions(opened, "chat") == ["later"]
    await opened.close()
