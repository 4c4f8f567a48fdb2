"""Runs that the database could not store while they were active."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from callboard._history import HistoryCall, Turn
from callboard.errors import RunLost, StorageError
from callboard.runs.files import RunFiles
from callboard.runs.forgetting import forget_user
from callboard.runs.log import EventLog
from callboard.storage import NewRun, RunRecord, Store, StoredFrame, StoredRun
from callboard.storage.sql import database as database_module
from callboard.storage.sql import late_records, run_record
from callboard_protocol import Done, Event, Status
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


class SpeakingLog:
    """Says what its record tells it in an event, as the log of a run does."""

    def __init__(self, record: RunRecord) -> None:
        self.said: list[str] = []
        self.on_lost: Callable[[], None] = lambda: self.said.append("lost")
        self._record = record
        record.report_to(self)

    def on_shown(self, seq: int | None) -> None:
        pass

    def on_stored(self) -> None:
        pass

    def on_late(self) -> None:
        was_last = self._record.take_back_last()
        self._say("late")
        if was_last:
            self._record.append(StoredFrame(b"last", is_last=True))

    def on_recovered(self) -> None:
        self._say("recovered")

    def _say(self, what: str) -> None:
        self.said.append(what)
        self._record.append(StoredFrame(what.encode()))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await Store.open(url)
    yield store
    await store.close()


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


@pytest.mark.needs("postgresql")
async def test_listeners_get_the_end_of_a_dropped_turn_although_there_is_another_server(
    request: pytest.FixtureRequest, cluster: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_records, "MAX_ENDED", 0)
    url = await new_database(request, "postgresql", database)
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as proxy, opened(url) as other:
        by_proxy = f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{make_url(url).database}?ssl=disable"
        async with opened(by_proxy) as store, other.database.hold_lease("other", 60):
            async with store.database.hold_lease("server", 60):
                assert store.database.may_lose_runs()
                monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 0.05)
                steps = await begin_turn(store, "chat", "question")
                log = EventLog()
                log.store_in(steps.record, RunFiles("run"))
                proxy.cut()
                log.append(Done())
                assert [event async for event in closed_events(log)] == [Done()]
                proxy.mend()


@pytest.mark.slow
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


@pytest.mark.slow
async def test_two_late_runs_of_a_chat_that_both_go_on_do_not_wait_for_each_other(store: Store, database: Path) -> None:
    turns = [await begin_turn(store, "chat", question) for question in ("first", "second")]
    logs = [SpeakingLog(steps.record) for steps in turns]
    async with locked_by_another_program(database):
        for steps in turns:
            await steps.begin()
        # The second tries again, and so has the first tried.
        await asyncio.sleep(run_record.RETRY_SECONDS * 1.5)
    try:
        async with asyncio.timeout(30):
            while not all(steps.record.is_stored for steps in turns):  # noqa: ASYNC110 - no event tells of both
                await asyncio.sleep(0.01)
    finally:
        for steps in turns:
            steps.record.stop()
    assert await questions(store, "chat") == ["first", "second"]
    assert [log.said for log in logs] == [["late", "recovered"]] * 2


async def test_the_last_event_is_not_taken_back_while_it_is_being_stored(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 20)
    monkeypatch.setattr(run_record, "PATIENCE_SECONDS", 0.1)
    steps = await begin_turn(store, "chat", "question")
    log = SpeakingLog(steps.record)
    await steps.begin()
    async with locked_by_another_program(database):
        steps.record.append(StoredFrame(b"last", is_last=True), steps.writer.rows.finish("Hi.", is_answered=True))
        await steps.record.wait_until_stored()
        assert steps.record.is_late
    await store.database.late.store()
    assert await steps.record.read(0, 1000) == [b"frame", b"last"]
    assert log.said == []
    assert len(store.database.late) == 0


async def test_observers_are_told_once_of_a_last_event_that_is_taken_back(store: Store, database: Path) -> None:
    steps = await begin_turn(store, "chat", "question")
    told: list[Event] = []
    log = EventLog(on_append=told.append)

    def say(_: bool) -> None:
        log.append(Status(content="late"))

    log.on_late_changed = say
    log.store_in(steps.record, RunFiles("run"))
    async with locked_by_another_program(database):
        log.append(Done())
        await log.wait_until_stored()
        assert [event async for event in closed_events(log)] == [Status(content="late"), Done()]
    assert [event.type for event in told] == ["done", "status"]


async def closed_events(log: EventLog) -> AsyncIterator[Event]:
    log.close()
    async for event in log.events():
        yield event


async def test_who_waits_for_a_lost_run_to_be_stored_is_told(store: Store) -> None:
    steps = await begin_turn(store, "chat", "question")
    await store.stored_runs("server").forget_user("ann")
    steps.record.append(StoredFrame(b"frame"))
    with pytest.raises(RunLost):
        await steps.record.store_now()


async def test_the_files_of_a_late_run_count_as_what_it_takes(store: Store, database: Path) -> None:
    steps = await begin_turn(store, "chat", "question")
    async with locked_by_another_program(database):
        steps.record.append(StoredFrame(b"frame", files={"file": "x" * 1_000_000}))
        await steps.record.wait_until_stored()
        assert steps.record.size_bytes >= 1_000_000
    await store.database.late.store()
    assert steps.record.size_bytes < 1_000_000


async def test_a_run_whose_rows_were_refused_is_not_said_to_be_kept_after_all(store: Store, database: Path) -> None:
    # The same id for two calls of a chat, which no recorder would give.
    await end_turn_in_time(await begin_turn(store, "chat", "first"))
    steps = await begin_turn(store, "chat", "second")
    log = SpeakingLog(steps.record)
    async with locked_by_another_program(database):
        await steps.begin()
        await steps.call_started(HistoryCall("a", "read", "{}", 0, 0), "")
    await store.database.late.store()
    assert set(log.said) == {"late"}


async def end_turn_in_time(steps: RecordedSteps) -> None:
    await steps.begin()
    await steps.call_started(HistoryCall("a", "read", "{}", 0, 0), "")
    await steps.call_ended("a", "found", None, 5)


async def test_a_user_is_forgotten_with_a_run_that_could_not_even_be_begun(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "RETRY_SECONDS", 60)
    stored_runs = store.stored_runs("server")
    turn = Turn("chat", "run", None, "ann", "question")
    run = StoredRun("run", "agent", "chat", None, "ann", last_seq=1)
    record = store.record(stored_runs, run, turn, new=NewRun(None, b"first"))
    assert record.writer
    async with locked_by_another_program(database):
        log = SpeakingLog(record)
        record.append(StoredFrame(b"last", is_last=True), record.writer.rows.begin("question"))
        with pytest.raises(StorageError):
            await record.store_now()
    await forget_user(store, stored_runs, "ann", None)
    await wait_until_stored(store)
    assert log.said == ["late"]
    assert await stored_runs.of_user("ann") == []
    assert await stored_runs.read("run", 0, 1000) == []


async def test_a_run_that_is_begun_while_it_is_withdrawn_is_run_once(store: Store, database: Path) -> None:
    stored_runs = store.stored_runs("server")
    run = StoredRun("run", "agent", "chat", None, "ann", last_seq=1)
    async with locked_by_another_program(database):
        with pytest.raises(StorageError):
            await stored_runs.begin(run)
    tending = asyncio.create_task(stored_runs.take_over())
    await asyncio.sleep(0)
    assert await stored_runs.begin(run) is run
    assert await tending == []
    assert await stored_runs.take_over() == []
