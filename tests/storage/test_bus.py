"""The bus between servers of one PostgreSQL: frames are exact at another server, even if it loses notifications."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from callboard.agents import RunContext
from callboard.errors import StorageError
from callboard.runs.database_poller import MAX_RECEIVED_BYTES, Follower
from callboard.storage import Store, bus
from callboard.storage.bus import Notification
from callboard.storage.redis_bus import CHANNEL, RedisBus, read_address
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import Done, Event, Message
from tests.faults.store_proxy import StoreProxy
from tests.runs.promises import check
from tests.serving import ScriptedAgent, numbered, request, serving
from tests.storage.conftest import new_database
from tests.storage.redis_servers import PASSWORD, RedisProcess, throw_away_redis

POSTGRESQL = pytest.mark.needs("postgresql")
REDIS = pytest.mark.needs("postgresql", "redis")

pytestmark = pytest.mark.timeout(60)

RUN = StoredRun("run", "agent", "chat", "message", "ann")


@pytest.fixture
async def postgresql_url(request: pytest.FixtureRequest, database: Path) -> str:
    """The URL of a new and empty PostgreSQL database."""
    return await new_database(request, "postgresql", database)


@pytest.fixture
def own_redis() -> Iterator[RedisProcess]:
    """A Redis that the test may kill."""
    with throw_away_redis() as server:
        yield server


@pytest.fixture(params=[pytest.param("postgresql", marks=POSTGRESQL), pytest.param("redis", marks=REDIS)])
def url_of_bus(request: pytest.FixtureRequest) -> str | None:
    """The URL of a Redis, None if servers notify each other through the database."""
    url: str | None = request.getfixturevalue("redis_url") if request.param == "redis" else None
    return url


@asynccontextmanager
async def two_logs(
    database_url: str, url_of_bus: str | None, received: asyncio.Queue[Notification], other_url: str | None = None
) -> AsyncIterator[tuple[StoredRuns, StoredRuns]]:
    """The logs of two servers; what the second is notified of is in `received`. `other_url` is its way to the same."""
    sides = (("owner", database_url, _fail), ("other", other_url or database_url, received.put_nowait))
    async with AsyncExitStack() as closing:
        logs = []
        for name, url, on_notification in sides:
            store = await Store.open(url, url_of_bus)
            closing.push_async_callback(store.close)
            logs.append(store.stored_runs(name))
            await closing.enter_async_context(logs[-1].open(60, on_notification))
        yield logs[0], logs[1]


def _fail(notification: Notification) -> None:
    raise AssertionError(f"the owner is notified of {notification}")


async def logged(logs: list[Any], event: str, times: int = 1) -> None:
    """Wait until an event was logged `times` times."""
    while [log["event"] for log in logs].count(event) < times:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


def body(**fields: Any) -> dict[str, Any]:
    return request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"}, **fields)


async def test_committed_frames_of_a_followed_run_reach_the_other_server_and_not_their_sender(
    postgresql_url: str, url_of_bus: str | None
) -> None:
    received: asyncio.Queue[Notification] = asyncio.Queue()
    async with two_logs(postgresql_url, url_of_bus, received) as (owner, other):
        run = await owner.begin(RUN)
        await owner.append(run, [StoredFrame(b"nobody follows yet")])
        assert await other.mark_listened(["run", "none"], 60) == {"run"}
        await owner.append(StoredRun("run", "agent", "chat", "message", "ann", last_seq=1), [StoredFrame(b"2")])
        more = [StoredFrame(b"3"), StoredFrame(b"4", is_last=True)]
        await owner.append(StoredRun("run", "agent", "chat", "message", "ann", last_seq=2), more)
        assert await received.get() == Notification("owner", "run", 1, 2, b"2")
        assert await received.get() == Notification("owner", "run", 2, 4, b"34", is_ended=True)
        assert await other.mark_listened(["run"], 60) == set()


async def test_signals_and_released_runs_wake_the_other_server(postgresql_url: str, url_of_bus: str | None) -> None:
    received: asyncio.Queue[Notification] = asyncio.Queue()
    # Here the second server is the one that owns the run.
    async with two_logs(postgresql_url, url_of_bus, received) as (asked, owner):
        run = await owner.begin(RUN)
        await owner.append(run, [StoredFrame(b"1", question="sure?")])
        assert await asked.answer("run", "sure?", GivenAnswer(True))
        assert not await asked.answer("run", "sure?", GivenAnswer(False))
        await asked.cancel("run")
        mine = await asked.begin(StoredRun("mine", "agent", "chat", "message", "ann"))
        await asked.release(mine)
        assert [(await received.get()).run_id for _ in range(3)] == ["run", "run", bus.RELEASED_RUN]
        assert received.empty()


@dataclass
class Play:
    """An agent that sends the next part of its answer when the test allows it."""

    parts: int
    may_say: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    part: str = "A part of the answer."

    async def script(self, _: RunContext) -> AsyncIterator[Event]:
        for number in range(self.parts):
            await self.may_say.acquire()
            yield Message(content=f"{number}: {self.part}\n")


async def follow(
    folder: Path,
    play: Play,
    owner: Mapping[str, Any],
    other: Mapping[str, Any],
    on_part: Callable[[int], Any],
) -> None:
    """Follow a run at another server, which must send the same bytes as its owner; `on_part` is called after each part.

    `owner` and `other` are settings of the two servers.
    """
    agent = ScriptedAgent(play.script)
    events = "/v1/runs/run/events?user_id=ann"
    async with serving(folder / "one", agent, **owner) as one, serving(folder / "other", agent, **other) as elsewhere:
        seen: list[tuple[int, Event]] = []
        parts = 0
        async with one.client.stream("POST", "/v1/runs", json=body()) as own:
            async with elsewhere.client.stream("GET", events) as response:
                play.may_say.release()
                async for number, event in numbered(response):
                    seen.append((number, event))
                    # A part may come as several messages.
                    if isinstance(event, Message) and event.content.endswith("\n"):
                        parts += 1
                        await on_part(parts)
                        play.may_say.release()
            whole = await own.aread()
        check(seen)
        assert parts == play.parts
        assert isinstance(seen[-1][1], Done)
        for service in (one, elsewhere):
            again = await service.client.get(events)
            while again.status_code == 503:
                # Its connections to the database were cut.
                again = await service.client.get(events)
            assert again.content == whole


async def test_frames_that_are_too_large_for_the_bus_are_read_from_the_database(
    tmp_path: Path, postgresql_url: str, url_of_bus: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus.ConnectedBus, "max_frame_bytes", 50_000)
    shared = {"database_url": postgresql_url, "redis_url": url_of_bus}
    await follow(tmp_path, Play(3, part="x" * 60_000), shared, shared, _nothing)


async def _nothing(_: int) -> None:
    pass


@REDIS
async def test_frames_come_by_redis_to_a_server_that_cannot_read_the_database(
    tmp_path: Path, postgresql_url: str, redis_url: str, cluster: Path
) -> None:
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as way:
        name = make_url(postgresql_url).database
        own_way = f"postgresql+asyncpg://postgres@127.0.0.1:{way.port}/{name}?ssl=disable"

        store = await Store.open(postgresql_url)
        log = store.stored_runs("looking")

        async def cut(part: int) -> None:
            if part == 1:
                while not await log.is_listened_to("run"):
                    pass
                way.cut()
            if part == 3:
                way.mend()

        owner = {"database_url": postgresql_url, "redis_url": redis_url}
        await follow(tmp_path, Play(4), owner, {**owner, "database_url": own_way}, cut)
        await store.close()


@REDIS
async def test_foreign_and_invalid_messages_send_nothing_to_listeners(
    tmp_path: Path, postgresql_url: str, redis_url: str
) -> None:
    async def forge(part: int) -> None:
        if part == 1:
            forged = Notification("a server of another database", "run", 2, 3, b"id: 3\ndata: {}\n\n", is_ended=True)
            with Redis.from_url(redis_url) as client:
                for content in (forged.encode(), b"\xff", b"[]\n", b"{}", b""):
                    assert client.publish(CHANNEL, content) == 2

    shared = {"database_url": postgresql_url, "redis_url": redis_url}
    await follow(tmp_path, Play(3), shared, shared, forge)


@REDIS
@pytest.mark.slow
async def test_a_server_starts_without_redis_says_so_once_and_uses_it_once_it_is_there(
    tmp_path: Path, postgresql_url: str, own_redis: RedisProcess
) -> None:
    own_redis.kill()
    shared = {"database_url": postgresql_url, "redis_url": own_redis.url}

    async def start_redis(part: int) -> None:
        if part == 1:
            own_redis.start()
            await logged(logs, "bus_works_again", times=2)

    with capture_logs() as logs:
        async with serving(tmp_path / "third", **shared) as service:
            assert (await service.client.get("/health")).status_code == 200
        [failed] = [log for log in logs if log["event"] == "bus_failed"]
        assert (failed["log_level"], failed["bus"]) == ("warning", f"unix://{own_redis.socket}")
        await follow(tmp_path, Play(2), shared, shared, start_redis)
    assert [log["event"] for log in logs].count("bus_failed") == 3
    assert PASSWORD not in str(logs)


async def test_a_redis_beside_sqlite_is_not_looked_at_and_has_no_effect(database: Path) -> None:
    with capture_logs() as logs:
        store = await Store.open(f"sqlite:///{database}", "redis://nowhere.invalid:6379/0")
        async with store.stored_runs("server").open(60, print):
            await store.stored_runs("other").cancel("run")
        await store.close()
    assert [log["event"] for log in logs] == ["redis_url_has_no_effect"]


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{PASSWORD[:5]}/{PASSWORD[5:]}@127.0.0.1:1",
        PASSWORD,
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(StorageError, match="CALLBOARD_REDIS_URL cannot be read: use redis:") as refused:
        Store("postgresql+asyncpg://host/name", url)
    assert PASSWORD[5:] not in str(refused.value)


@pytest.mark.needs("redis")
async def test_a_redis_that_cannot_be_used_says_why_and_no_password(running_redis: RedisProcess) -> None:
    wrong = running_redis.url.replace(PASSWORD, "wrong-but-secret-4711")
    for url, why in ((wrong, "invalid username-password"), (f"{running_redis.url}x", "No such file")):
        with capture_logs() as logs:
            async with RedisBus(url, read_address(url)).open("server", print):
                pass
        [failed] = logs
        assert why in failed["error"]
        assert "4711" not in str(failed)


def notification(after: int, *frames: bytes, sender: str = "owner") -> Notification:
    return Notification(sender, "run", after, after + len(frames), b"".join(frames))


def follower(seq: int) -> Follower:
    return Follower(StoredRun("run", "agent", None, None, None, last_seq=seq, owner="owner"), seq)


def test_a_listener_takes_frames_that_follow_directly_and_reads_the_others_from_the_database() -> None:
    listener = follower(3)
    assert not listener.receive(notification(3, b"4", sender="another"))
    for received in (notification(1, b"2", b"3", b"4"), notification(3, b"4"), notification(5, b"6")):
        assert listener.receive(received)
    assert listener.run
    before = replace(listener.run, last_seq=3)
    # A run that was read before the last notification does not take it back.
    listener.update(before)
    assert (listener.run.last_seq, listener.has_news.is_set()) == (6, True)
    taken = listener.next_frames()
    assert taken == notification(3, b"4")
    listener.seq = 4
    assert listener.next_frames() is None, "frame 5 is in the database alone"
    listener.seq = 5
    assert listener.next_frames() == notification(5, b"6")


def test_a_listener_that_does_not_read_takes_a_bounded_part_of_memory() -> None:
    listener = follower(0)
    frame = b"x" * 10_000
    for seq in range(100):
        listener.receive(notification(seq, frame))
    kept = 0
    while taken := listener.next_frames():
        kept += len(taken.frames)
        listener.seq = taken.last_seq
    assert MAX_RECEIVED_BYTES - len(frame) < kept <= MAX_RECEIVED_BYTES
    assert listener.run
    assert listener.run.last_seq == 100
