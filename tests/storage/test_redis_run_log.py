"""The log of runs in Redis, where it is not what it is in a database: alone, a cluster, away, anew and empty."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis
from redis.crc import key_slot

from callboard._agents import RunContext
from callboard._history import HistoryCall, Turn
from callboard._runs.left_run import read_left_run
from callboard.errors import RunLost, StorageError
from callboard.storage import GivenAnswer, LoggedFrame, LoggedRun, RunLog, Store
from callboard.storage.redis import RedisServer
from callboard.storage.redis.scripts import (
    BEGIN,
    ENDED,
    ENLIST,
    FIND,
    HAND_OVER,
    LEASES,
    NOBODY,
    TAKE,
    Script,
    keys_of_run,
    keys_of_server,
)
from callboard.storage.redis.server import find_problem
from callboard.storage.sql.run_owners import RunOwners
from callboard_protocol import Done, Event, Message, ToolCallComplete, ToolCallStart
from tests.runs.promises import check
from tests.serving import ScriptedAgent, numbered, request, serving
from tests.storage.redis_servers import PASSWORD, RedisProcess, throw_away_cluster, throw_away_redis
from tests.storage.silent_proxy import (
    SilentProxy,
    check_that_no_failure_is_left,
    check_that_nobody_sees_what_is_not_kept,
)
from tests.storage.turns import StoredSteps

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(60)]

RUN = LoggedRun("run", "agent", "chat", "message", "ann")


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[str]:
    with throw_away_cluster() as url:
        yield url


@pytest.fixture(params=["one", "cluster"])
def any_url(request: pytest.FixtureRequest) -> str:
    """The URL of a Redis that has nothing of the test's, and of a cluster."""
    url: str = request.getfixturevalue("redis_url" if request.param == "one" else "running_cluster")
    return url


@asynccontextmanager
async def opened(database: Path, url: str, count: int = 1) -> AsyncIterator[list[Store]]:
    """Stores of servers that share a database and a Redis."""
    async with AsyncExitStack() as closing:
        stores = []
        for _ in range(count):
            stores.append(await Store.open(f"sqlite:///{database}", url))
            closing.push_async_callback(stores[-1].close)
        yield stores


def frames(*contents: bytes, is_last: bool = False) -> list[LoggedFrame]:
    return [LoggedFrame(content, is_last=is_last and content == contents[-1]) for content in contents]


def test_the_keys_of_a_run_are_in_one_slot_and_those_of_the_servers_in_another() -> None:
    assert len({key_slot(key.encode()) for key in keys_of_run("a-run.of_mine")}) == 1
    assert len({key_slot(key.encode()) for key in (LEASES, ENDED, *keys_of_server("one"), *keys_of_server("two"))}) == 1
    assert len({key_slot(keys_of_run(f"run-{number}")[0].encode()) for number in range(20)}) > 10


async def test_a_run_is_read_answered_and_taken_over(database: Path, any_url: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with opened(database, any_url, 2) as (one, other):
        gone = one.run_log("gone")
        heir = other.run_log("heir")
        async with heir.open(60, told.put_nowait):
            async with gone.open(60, told.put_nowait):
                run = await gone.begin(RUN, b"request")
                assert await heir.begin(RUN) == run
                await heir.listen_to(["run", "none"], 60)
                assert (await gone.is_listened_to("run"), await heir.is_listened_to("run")) == (True, False)
                await gone.append(run, [*frames(b"1"), LoggedFrame(b"2", question="sure?", files={"f": "data:,x"})])
                assert await told.get() == "run"
                assert await heir.answer("run", "sure?", GivenAnswer({"agreed": True}, "phone"))
                assert await told.get() == "run"
                assert (await gone.orders(["run"]))["run"].answers == {"sure?": GivenAnswer({"agreed": True}, "phone")}
                assert await heir.read("run", 1, 1_000) == [b"2"]
                assert (await heir.file("run", "f"), await heir.load_request("run")) == ("data:,x", b"request")
                assert await heir.take_over() == []
            [taken] = await heir.take_over()
            assert taken == replace(run, epoch=2, last_seq=2, losses=1)
            with pytest.raises(RunLost):
                await gone.append(replace(run, last_seq=2), frames(b"3"))
            await heir.append(taken, frames(b"end", is_last=True))
            assert await heir.drop(60, 1_000) == 0
            assert (await heir.load_request("run"), await heir.read("run", 0, 1_000)) == (None, [b"1", b"2", b"end"])
            assert await heir.drop(60, max_user_bytes=0) == 1
            assert await heir.find(["run"]) == {}


async def test_long_reads_are_cut_between_two_frames(database: Path, any_url: str) -> None:
    async with opened(database, any_url) as [store]:
        log = store.run_log("server")
        run = await log.begin(replace(RUN, run_id=f"long-{time.time_ns()}"))
        many = [b"%04d" % number for number in range(9_000)]
        await log.append(run, frames(*many))
        read: list[bytes] = []
        while some := await log.read(run.run_id, len(read), 1_000):
            assert len(some) == 250
            read += some
        assert read == many


async def test_a_server_that_was_killed_and_leaves_no_run_is_not_known_any_more(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url) as [store]:
        log = store.run_log("server")
        async with log.open(60, print):
            with Redis.from_url(redis_url) as redis:
                redis.zadd(LEASES, {"killed": 1})
                assert await log.take_over() == []
                assert redis.zrange(LEASES, 0, -1) == [b"server"]


async def test_a_run_has_one_taker(database: Path, any_url: str) -> None:
    ids = {f"left-{number}-{time.time_ns()}" for number in range(30)}
    async with opened(database, any_url, 5) as stores:
        gone = stores[0].run_log("gone")
        async with gone.open(60, print):
            for run_id in ids:
                await gone.begin(replace(RUN, run_id=run_id))
        takers = [store.run_log(f"taker {number}") for number, store in enumerate(stores)]
        async with AsyncExitStack() as there:
            for taker in takers:
                await there.enter_async_context(taker.open(60, print))
            taken = [run for runs in await asyncio.gather(*(taker.take_over() for taker in takers)) for run in runs]
            assert sorted(run.run_id for run in taken) == sorted(ids)
            assert {run.epoch for run in taken} == {2}
            assert [run for taker in takers for run in await taker.take_over()] == []


async def test_a_run_that_came_back_to_its_server_is_gone_on_with(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        first = one.run_log("first")
        second = other.run_log("second")
        run = await first.begin(RUN)
        [taken] = await second.take_over()
        [again] = await first.take_over()
        assert (taken.epoch, again.epoch) == (2, 3)
        with pytest.raises(RunLost):
            await first.append(run, frames(b"of the first epoch"))
        await first.append(again, frames(b"1"))


async def test_a_run_that_is_handed_over_is_told_of_and_not_counted_as_lost(database: Path, any_url: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with opened(database, any_url, 2) as (one, other):
        owner = one.run_log("owner")
        heir = other.run_log("heir")
        async with owner.open(60, print), heir.open(60, told.put_nowait):
            run = await owner.begin(replace(RUN, run_id=f"handed-{time.time_ns()}"))
            await owner.hand_over(run)
            assert await told.get() == ""
            with pytest.raises(RunLost):
                await owner.append(run, frames(b"1"))
            assert await heir.take_over() == [replace(run, epoch=3)]
            assert await heir.take_over() == []
            with pytest.raises(RunLost):
                await owner.hand_over(run)


async def test_a_lease_is_kept_while_the_event_loop_is_busy(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        busy = one.run_log("busy")
        heir = other.run_log("heir")
        async with busy.open(0.6, print):
            await busy.begin(RUN)
            time.sleep(1.5)  # noqa: ASYNC251 - as a tool may that does not know better
            assert await heir.take_over() == []


async def test_a_server_knows_whether_it_was_alone_when_it_last_looked(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        first = one.run_log("first")
        second = other.run_log("second")
        async with first.open(0.3, print):
            assert first.was_alone()
            async with second.open(60, print):
                assert not second.was_alone()
                while first.was_alone():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            while not first.was_alone():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)


class CuttingProxy:
    """Passes on to a Redis what is asked, and cuts the connection where it is told to before the answer arrives."""

    def __init__(self, url: str) -> None:
        self._socket = url.partition("@")[2]
        self._is_cutting = False
        self._is_cut = False
        self._fatal: bytes | None = None
        self._held: bytes | None = None
        self.holds = asyncio.Event()
        """Set while a script is held."""
        self._passes = asyncio.Event()
        self.cuts = 0
        self._writers: list[asyncio.StreamWriter] = []

    def cut_once(self) -> None:
        self._is_cutting = True

    def cut_after(self, script: Script) -> None:
        """Let Redis run a script that it knows, and then be away until `mend`, before anybody is told."""
        self._fatal = script.digest.encode()

    def mend(self) -> None:
        """Be there again."""
        self._is_cut = False

    def hold(self, script: Script) -> None:
        """Pass a script that Redis knows on no sooner than `let_pass`."""
        self._held = script.digest.encode()

    def let_pass(self) -> None:
        """Pass on what is held."""
        self._held = None
        self._passes.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL of the Redis behind it."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"redis://:{PASSWORD}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        answers, asking = await asyncio.open_unix_connection(self._socket)
        self._writers += [writer, asking]
        await asyncio.gather(self._pass_on(reader, asking), self._pass_back(answers, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            if self._held and self._held in piece:
                self.holds.set()
                await self._passes.wait()
            if self._fatal and self._fatal in piece:
                self._fatal = None
                self._is_cutting = self._is_cut = True
            writer.write(piece)
        writer.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            if self._is_cutting:
                self._is_cutting = False
                self.cuts += 1
                break
            writer.write(piece)
        writer.close()


async def test_what_is_sent_again_after_a_cut_connection_is_kept_once(database: Path, redis_url: str) -> None:
    proxy = CuttingProxy(redis_url)
    async with proxy.listening() as url, opened(database, url) as [store]:
        log = store.run_log("server")
        proxy.cut_once()
        run = await log.begin(RUN)
        assert run is RUN, "the second try knows the first"
        for number in range(5):
            proxy.cut_once()
            await log.append(replace(run, last_seq=number), [LoggedFrame(b"%d" % number, question=f"{number}?")])
            proxy.cut_once()
            assert await log.answer("run", f"{number}?", GivenAnswer(number)), "it was this one's answer that was first"
        assert await log.read("run", 0, 1_000) == [b"0", b"1", b"2", b"3", b"4"]
        assert proxy.cuts == 11


@asynccontextmanager
async def at_a_distance(database: Path, url: str) -> AsyncIterator[tuple[CuttingProxy, Store, Store]]:
    """A way to Redis, the store of the server at its end, and that of another server; Redis knows the scripts."""
    with Redis.from_url(url) as redis:
        for script in (BEGIN, ENLIST, HAND_OVER, TAKE):
            redis.script_load(script.text)
    proxy = CuttingProxy(url)
    async with proxy.listening() as far, opened(database, far) as [one], opened(database, url) as [other]:
        yield proxy, one, other


async def test_a_run_whose_taker_was_not_told_is_gone_on_with(database: Path, redis_url: str) -> None:
    async with at_a_distance(database, redis_url) as (proxy, one, other):
        await other.run_log("gone").begin(RUN)
        taker = one.run_log("taker")
        witness = other.run_log("witness")
        async with taker.open(60, print), witness.open(60, print):
            proxy.cut_after(TAKE)
            with pytest.raises(StorageError):
                await taker.take_over()
            # It finds the run taken, and counts it as that of who is gone no longer.
            assert await witness.take_over() == []
            proxy.mend()
            [taken] = await taker.take_over()
            assert taken == replace(RUN, epoch=2, losses=1)
            assert await taker.take_over() == await witness.take_over() == []
            await taker.append(taken, frames(b"end", is_last=True))
            assert await taker.take_over() == []


async def test_a_run_that_is_looked_at_while_it_is_handed_over_is_taken(database: Path, redis_url: str) -> None:
    async with at_a_distance(database, redis_url) as (proxy, one, other):
        owner = one.run_log("owner")
        heir = other.run_log("heir")
        async with owner.open(60, print), heir.open(60, print):
            run = await owner.begin(RUN)
            proxy.hold(HAND_OVER)
            handing_over = asyncio.create_task(owner.hand_over(run))
            await proxy.holds.wait()
            assert await heir.take_over() == []
            proxy.let_pass()
            await handing_over
            assert await heir.take_over() == [replace(run, epoch=3)]


async def test_a_run_that_is_nobodys_and_not_counted_as_such_is_taken_from_the_server_that_was_its_owner(
    database: Path, redis_url: str
) -> None:
    async with at_a_distance(database, redis_url) as (proxy, one, other):
        owner = one.run_log("owner")
        heir = other.run_log("heir")
        run = await owner.begin(RUN)
        proxy.cut_after(HAND_OVER)
        with pytest.raises(StorageError):
            await owner.hand_over(run)
        async with heir.open(60, print):
            assert await heir.take_over() == [replace(run, epoch=3)]
            assert await heir.take_over() == []


async def test_a_run_that_others_struck_as_it_began_is_taken_over_once_its_server_is_gone(
    database: Path, redis_url: str
) -> None:
    async with at_a_distance(database, redis_url) as (proxy, one, other):
        # Without a lease, as where that has run out for a moment.
        owner = one.run_log("owner")
        heir = other.run_log("heir")
        async with heir.open(60, print):
            proxy.hold(BEGIN)
            beginning = asyncio.create_task(owner.begin(RUN))
            await proxy.holds.wait()
            assert await heir.take_over() == []
            proxy.let_pass()
            run = await beginning
            assert await owner.take_over() == []
            assert await heir.take_over() == [replace(run, epoch=2, losses=1)]


async def test_the_calls_of_a_run_that_goes_on_without_its_log_are_its_own(database: Path, redis_url: str) -> None:
    async with at_a_distance(database, redis_url) as (proxy, store, _):
        log = store.run_log("server")
        assert log.was_alone()
        proxy.cut_after(BEGIN)
        with pytest.raises(StorageError):
            await log.begin(RUN)
        journal = StoredSteps(store, Turn("chat", "run", "message", "ann", "hello"))
        await journal.begin()
        await journal.call_started(HistoryCall("a", "sell", "{}", 0, 0), "I sell it.")
        proxy.mend()
        assert await log.find(["run"]) == {"run": RUN}
        assert await log.take_over() == []
        assert await log.find(["run"]) == {}
        assert (await store.chats("ann").tool_call("chat", "a")).ended_at is None


@pytest.mark.parametrize("owner", ["gone", NOBODY])
async def test_a_run_that_is_counted_as_nobodys_is_found_in_the_database(
    database: Path, redis_url: str, owner: str
) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        log = one.run_log("gone")
        run = await log.begin(RUN)
        if owner == NOBODY:
            await log.hand_over(run)
        with Redis.from_url(redis_url) as redis:
            assert redis.delete(LEASES, keys_of_server(owner)[1]) == 2
        heir = other.run_log("heir")
        async with heir.open(60, print):
            assert await heir.take_over() == []
            await heir.drop(60, 1_000)
            assert [taken.run_id for taken in await heir.take_over()] == ["run"]


async def test_lost_news_are_heard_of_a_moment_later(tmp_path: Path, redis_url: str) -> None:
    going_on = asyncio.Event()

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look. ")
        await going_on.wait()
        yield Message(content="There it is.")

    database = f"sqlite:///{tmp_path / 'shared.db'}"
    async with (
        serving(tmp_path / "one", ScriptedAgent(script), database_url=database) as one,
        serving(tmp_path / "other", ScriptedAgent(script), database_url=database) as other,
    ):
        body = request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
        own = asyncio.create_task(one.events(body))
        seen: list[tuple[int, Event]] = []
        async with other.client.stream("POST", "/v1/runs", json=body) as response:
            async for number, event in numbered(response):
                seen.append((number, event))
                if isinstance(event, Message) and not going_on.is_set():
                    with Redis.from_url(redis_url) as redis:
                        assert redis.client_kill_filter(_type="pubsub") == 2
                    going_on.set()
        assert [event for _, event in seen] == await own
    check(seen)


async def test_frames_that_redis_has_lost_are_kept_again(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url) as [store]:
        log = store.run_log("server")
        run = await log.begin(RUN)
        await log.append(run, frames(b"1", b"2"))
        await log.append(replace(run, last_seq=2), [LoggedFrame(b"3", question="sure?", files={"f": "data:,x"})])
        with Redis.from_url(redis_url) as redis:
            # As after a crash, where its file is written once a second.
            redis.ltrim(keys_of_run("run")[1], 0, 0)
            redis.delete(*keys_of_run("run")[2:])
        await log.append(replace(run, last_seq=3), frames(b"4"))
        assert await log.read("run", 0, 1_000) == [b"1", b"2", b"3", b"4"]
        assert await log.file("run", "f") == "data:,x"
        assert await log.answer("run", "sure?", GivenAnswer(True))


async def test_an_answer_goes_on_where_redis_has_lost_its_run_and_is_not_given_twice(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    ran: list[str] = []

    async def script(_: RunContext) -> AsyncIterator[Event]:
        ran.append("run")
        yield Message(content="Let me look. ")
        await going_on.wait()
        yield ToolCallStart(tool_call_id="a", tool_name="pay")
        yield ToolCallComplete(tool_call_id="a", result="paid")
        yield Message(content="There it is.")

    database = f"sqlite:///{tmp_path / 'shared.db'}"
    with throw_away_redis() as redis:
        shared = {"database_url": database, "redis_url": redis.url}
        async with (
            serving(tmp_path / "one", ScriptedAgent(script), **shared) as one,
            serving(tmp_path / "other", ScriptedAgent(script), **shared) as other,
        ):
            body = request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
            seen: list[tuple[int, Event]] = []
            async with one.client.stream("POST", "/v1/runs", json=body) as response:
                async for number, event in numbered(response):
                    seen.append((number, event))
                    if isinstance(event, Message) and not going_on.is_set():
                        redis.kill()
                        redis.start()
                        going_on.set()
            check(seen)
            assert seen[-1][1] == Done()
            kept = await other.client.get("/v1/chats/chat/timeline", params={"user_id": "ann"})
            assert [call["result"] for call in kept.json()["tool_calls"]] == ["paid"]
            assert (await other.client.get("/v1/runs/run/events?user_id=ann")).status_code == 404
            again = await other.client.post("/v1/runs", json=body)
            assert (again.text, ran) == ("", ["run"])


async def test_a_redis_that_is_away_for_a_while_costs_who_is_alone_a_pause_and_no_event(
    tmp_path: Path,
) -> None:
    going_on = asyncio.Event()

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look. ")
        await going_on.wait()
        yield ToolCallStart(tool_call_id="a", tool_name="pay")
        yield ToolCallComplete(tool_call_id="a", result="paid")
        yield Message(content="There it is.")

    with throw_away_redis("--appendonly", "yes", "--appendfsync", "always") as redis:
        shared = {"database_url": f"sqlite:///{tmp_path / 'shared.db'}", "redis_url": redis.url}
        async with serving(tmp_path / "one", ScriptedAgent(script), **shared) as one:
            body = request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
            seen: list[tuple[int, Event]] = []
            async with one.client.stream("POST", "/v1/runs", json=body) as response:
                async for number, event in numbered(response):
                    seen.append((number, event))
                    if isinstance(event, Message) and not going_on.is_set():
                        redis.kill()
                        going_on.set()
                    if isinstance(event, ToolCallStart):
                        redis.start()
            check(seen)
            assert seen[-1][1] == Done()
            async with (
                serving(tmp_path / "other", ScriptedAgent(script), **shared) as other,
                other.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response,
            ):
                assert [one async for one in numbered(response)] == seen


@pytest.mark.slow
async def test_nobody_sees_what_is_not_kept_where_another_server_may_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with throw_away_redis() as redis:
        async with SilentProxy(redis.socket).listening() as silent:
            shared = {"database_url": f"sqlite:///{tmp_path / 'shared.db'}"}
            away = {**shared, "redis_url": f"redis://:{PASSWORD}@127.0.0.1:{silent.port}"}
            await check_that_nobody_sees_what_is_not_kept(silent, away, {**shared, "redis_url": redis.url}, tmp_path)
    check_that_no_failure_is_left(caplog)


async def test_what_a_server_has_left_of_a_run_that_redis_has_lost_is_closed(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        gone = one.run_log("gone")
        async with gone.open(60, print):
            await gone.begin(RUN)
            await StoredSteps(one, Turn("chat", "run", "message", "ann", "hello")).begin()
        with Redis.from_url(redis_url) as redis:
            redis.flushall()
        heir = other.run_log("heir")
        async with heir.open(60, print):
            assert await heir.take_over() == []
            assert not (await heir.begin(RUN)).is_ended
            await heir.drop(60, 1_000)
            assert (await heir.begin(RUN)).is_ended


async def test_a_run_that_began_without_its_log_is_nobodys_to_take_over(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        log: RunLog = one.run_log("server")
        await log.begin(RUN)
        # As where the answer to the beginning was lost for good.
        await one.run_log("server")._owners.end("run")  # type: ignore[attr-defined] # of Redis' log alone
        heir = other.run_log("heir")
        assert await heir.take_over() == []
        assert await heir.find(["run"]) == {}
        assert (await read_left_run(heir, "run")).frames == []


async def test_a_run_whose_server_is_gone_before_it_began_is_begun_by_the_next(database: Path, redis_url: str) -> None:
    async with opened(database, redis_url, 2) as (one, other):
        await RunOwners(one.database, "gone").begin(RUN)
        heir = other.run_log("heir")
        async with heir.open(60, print):
            assert await heir.begin(RUN) is RUN


async def test_a_run_that_could_not_begin_at_one_server_begins_at_another(database: Path) -> None:
    with throw_away_redis("--appendonly", "yes", "--appendfsync", "always") as redis:
        async with opened(database, redis.url, 2) as (one, other):
            first = one.run_log("first")
            second = other.run_log("second")
            async with second.open(60, print), first.open(60, print):
                redis.kill()
                with pytest.raises(StorageError):
                    await first.begin(RUN)
                redis.start()
                with pytest.raises(StorageError, match="ask again"):
                    await second.begin(RUN)
                await first.take_over()
                assert await second.begin(RUN) is RUN


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{PASSWORD[:5]}/{PASSWORD[5:]}@127.0.0.1:1",
        f"redis://:{PASSWORD[:5]}#{PASSWORD[5:]}@127.0.0.1:1",
        f"http://:{PASSWORD}@127.0.0.1:1",
        PASSWORD,
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(StorageError, match="CALLBOARD_REDIS_URL cannot be read: it is to be") as refused:
        RedisServer(url)
    assert PASSWORD[5:] not in str(refused.value)


async def test_a_redis_that_cannot_be_used_says_why_and_no_password(
    running_redis: RedisProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = running_redis.url.replace(PASSWORD, "wrong-but-secret-4711")
    for url, why in ((wrong, "refuses the name or the password"), (f"{running_redis.url}x", "cannot be reached")):
        with pytest.raises(StorageError, match=why) as refused:
            await RedisServer(url).open()
        assert "4711" not in str(refused.value)
    server = RedisServer(running_redis.url)
    with pytest.raises(StorageError, match="cannot be reached"):
        await server.run(FIND, keys_of_run("run"))
    assert "4711" not in "".join(capfd.readouterr())


def test_a_redis_that_is_too_old_is_refused() -> None:
    assert find_problem({"redis_version": "6.2.14"}) == "it is version 6.2.14, and 7.0 or newer is needed"
    assert find_problem({"redis_version": "7.0.15"}) == find_problem({"redis_version": "8.2.0"}) == ""


async def test_the_runs_of_a_user_are_forgotten_with_all_that_redis_has_of_them(database: Path, any_url: str) -> None:
    async with opened(database, any_url) as [store]:
        log = store.run_log("server")
        async with log.open(60, print):
            hers = replace(RUN, run_id="hers")
            theirs = replace(RUN, run_id="theirs", user_id="bob")
            for run in (hers, theirs):
                await log.begin(run, b"request")
                await log.append(run, [LoggedFrame(b"frame", question="q", files={"f": "data:,x"})])
            assert [run.run_id for run in await log.of_user("ann")] == ["hers"]
            assert await log.forget_user("ann") == 1
            assert await log.find(["hers"]) == {}
            assert (await log.read("hers", 0, 100), await log.file("hers", "f")) == ([], None)
            assert await log.load_request("hers") is None
            assert await log.read("theirs", 0, 100) == [b"frame"]
            assert [run.run_id for run in await log.of_user("bob")] == ["theirs"]
