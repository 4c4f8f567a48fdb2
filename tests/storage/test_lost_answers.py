"""The connection to PostgreSQL is lost after a commit and before its confirmation: everything is written once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.engine import make_url

from callboard._history import HistoryCall, NewResponse, Turn
from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.values import GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import Done, InputRequest, encode
from tests.faults.store_proxy import StoreProxy
from tests.storage.turns import RecordedSteps, StoredSteps

pytestmark = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)

MINE = StoredRun("run", "agent", "chat", None, "ann")


@pytest.fixture
async def troubled(database_url: str, cluster: Path) -> AsyncIterator[tuple[StoreProxy, Store]]:
    """A proxy in front of a new database, and a store that uses it."""
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as proxy:
        name = make_url(database_url).database
        store = await Store.open(f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{name}?ssl=disable")
        yield proxy, store
        await store.close()


async def test_a_run_whose_begin_was_committed_belongs_to_this_server(troubled: tuple[StoreProxy, Store]) -> None:
    proxy, store = troubled
    proxy.lose_answers("COMMIT")
    assert await store.stored_runs("server").begin(MINE) is MINE
    assert proxy.has_lost_answers


async def test_a_run_whose_takeover_was_committed_is_returned_once(troubled: tuple[StoreProxy, Store]) -> None:
    proxy, store = troubled
    await store.stored_runs("gone").begin(MINE)
    log = store.stored_runs("server")
    proxy.lose_answers("COMMIT")
    taken = [*await log.take_over(), *await log.take_over()]
    assert proxy.has_lost_answers
    assert [(run.run_id, run.losses) for run in taken] == [("run", 1)]
    # This server runs it now.
    assert await log.take_over() == []
    await log.append(taken[0], [StoredFrame(encode(1, Done()), is_last=True)])
    assert await log.take_over() == []


@pytest.mark.parametrize("is_asked_again", [False, True])
async def test_a_run_with_an_unknown_begin_is_withdrawn_unless_it_is_asked_for_again(
    troubled: tuple[StoreProxy, Store], is_asked_again: bool
) -> None:
    proxy, store = troubled
    log = store.stored_runs("server")
    proxy.lose_answers("COMMIT", "COMMIT")
    with pytest.raises(StorageError):
        await log.begin(MINE)
    assert "run" in await log.find(["run"])
    again = replace(MINE)
    assert not is_asked_again or await log.begin(again) is again
    assert await log.take_over() == []
    assert ("run" in await log.find(["run"])) == is_asked_again


async def test_an_answer_that_was_committed_is_accepted(troubled: tuple[StoreProxy, Store]) -> None:
    proxy, store = troubled
    log = store.stored_runs("server")
    await log.begin(MINE)
    question = InputRequest(request_id="q", kind="confirmation", title="Sell it?")
    await log.append(MINE, [StoredFrame(encode(1, question), question="q")])
    proxy.lose_answers("COMMIT")
    assert await log.answer("run", "q", GivenAnswer(True))
    assert proxy.has_lost_answers
    assert not await log.answer("run", "q", GivenAnswer(True))


async def test_each_step_of_a_turn_is_written_once(troubled: tuple[StoreProxy, Store]) -> None:
    proxy, store = troubled
    journal = await RecordedSteps.open(store, Turn("chat", "run", None, "ann", "hello", response=NewResponse(None, [])))
    for step in (
        journal.begin(),
        journal.call_started(HistoryCall("a", "sell", "{}", 0, 0), "I sell it."),
        journal.call_progressed("a", "working", "Half done", 50),
        journal.call_ended("a", "sold", None, 5),
        journal.finish("Sold.", is_answered=True),
    ):
        proxy.lose_answers("COMMIT")
        await step
        assert proxy.has_lost_answers
    found = await store.chats("ann").messages("chat")
    assert [(message.role, message.content) for message in found if message.role != "tool"] == [
        ("user", "hello"),
        ("assistant", "I sell it."),
        ("assistant", "Sold."),
    ]
    call = await store.chats("ann").tool_call("chat", "a")
    assert (call.result, [status.message for status in call.events]) == ("sold", ["Half done"])


async def test_a_write_that_fails_later_is_not_run_again(troubled: tuple[StoreProxy, Store]) -> None:
    proxy, store = troubled
    proxy.lose_answers("COMMIT")
    await StoredSteps(store, Turn("chat", "run", None, "ann", "hello")).begin()
    tries = 0

    def refused(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.exec_driver_sql("SELECT 1/0")

    with pytest.raises(StorageError):
        await store.database.write(refused)
    assert tries == 1
