"""The bus between servers of one PostgreSQL: frames are exact at another server, even if it loses notifications."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from callboard.agents import RunContext
from callboard.errors import StorageError
from callboard.storage import Store, bus
from callboard.storage.redis_bus import CHANNEL, RedisBus, read_address
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import Done, Event, Message
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
    database_url: str, url_of_bus: str | None, received: asyncio.Queue[str], other_url: str | None = None
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


def _fail(run_id: str) -> None:
    raise AssertionError(f"the owner is notified of {run_id}")


async def logged(logs: list[Any], event: str, times: int = 1) -> None:
    """Wait until an event was logged `times` times."""
    while [log["event"] for log in logs].count(event) < times:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


def body(**fields: Any) -> dict[str, Any]:
    return request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"}, **fields)


async def test_committed_frames_of_a_followed_run_wake_the_other_server_and_not_their_sender(
    postgresql_url: str, url_of_bus: str | None
) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    async with two_logs(postgresql_url, url_of_bus, received) as (owner, other):
        run = await owner.begin(RUN)
        await owner.append(run, [StoredFrame(b"nobody follows yet")])
        assert await other.mark_listened(["run", "none"], 60) == {"run"}
        await owner.append(StoredRun("run", "agent", "chat", "message", "ann", last_seq=1), [StoredFrame(b"2")])
        more = [StoredFrame(b"3"), StoredFrame(b"4", is_last=True)]
        await owner.append(StoredRun("run", "agent", "chat", "message", "ann", last_seq=2), more)
        assert await received.get() == "run"
        assert await other.mark_listened(["run"], 60) == set()


async def test_signals_and_released_runs_wake_the_other_server(postgresql_url: str, url_of_bus: str | None) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    # Here the second server is the one that owns the run.
    async with two_logs(postgresql_url, url_of_bus, received) as (asked, owner):
        run = await owner.begin(RUN)
        await owner.append(run, [StoredFrame(b"1", question="sure?")])
        assert await asked.answer("run", "sure?", GivenAnswer(True))
        assert not await asked.answer("run", "sure?", GivenAnswer(False))
        await asked.cancel("run")
        mine = await asked.begin(StoredRun("mine", "agent", "chat", "message", "ann"))
        await asked.release(mine)
        woken = [await received.get()]
        while woken[-1] != bus.RELEASED_RUN:
            woken.append(await received.get())
        assert set(woken) == {"run", bus.RELEASED_RUN}
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


@REDIS
async def test_foreign_and_invalid_messages_send_nothing_to_listeners(
    tmp_path: Path, postgresql_url: str, redis_url: str
) -> None:
    async def forge(part: int) -> None:
        if part == 1:
            forged = b"a server of another database\nrun"
            with Redis.from_url(redis_url) as client:
                for content in (forged, b"\xff", b"[]\n", b"{}", b""):
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
