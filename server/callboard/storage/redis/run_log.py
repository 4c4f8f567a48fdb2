"""The log of runs in Redis: frames, owners, and what servers leave for each other.

Of each run the database knows the epoch as well (`RunOwners`): the journal, which is kept there, refuses by it what an
earlier owner still writes. A run is in the database before it is here, so that none is started twice even where Redis
has lost it; and it is another server's here before it is there, so that one server alone takes it.

Whoever is gone leaves the set of its runs, and whoever is there looks through its own: an answer of Redis may be lost
for good once a run has become a server's, and others may count a run as one's no longer at the moment that it becomes
it again.
"""

import asyncio
import json
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import structlog

from callboard.errors import RunLost, StorageError
from callboard.storage.redis import scripts
from callboard.storage.redis.lease import RedisLease
from callboard.storage.redis.scripts import Script, keys_of_run, keys_of_server
from callboard.storage.redis.server import FAILURES, Argument, RedisServer
from callboard.storage.run_log import RunLog
from callboard.storage.sql.run_owners import RunOwners
from callboard.storage.values import GivenAnswer, LoggedFrame, LoggedRun, Orders

MAX_RECENT_FRAMES = 400
MAX_RECENT_BYTES = 256 * 1024
"""What of each run is kept in memory for a Redis that has lost the newest of it: more than a second of any."""
RECONNECT_SECONDS = 0.5
BEGIN_LOOKS = 20
BEGIN_LOOK_SECONDS = 0.05
"""How often a server looks for a run in Redis that another one has begun in the database at this moment."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _OwnRun:
    """A run of this server: its newest frames, up to that of number `last_seq`.

    `is_forgotten`: Redis has lost it, and it goes on without.
    """

    epoch: int
    last_seq: int = 0
    recent: deque[LoggedFrame] = field(default_factory=deque)
    size_bytes: int = 0
    is_forgotten: bool = False

    def add(self, frames: Sequence[LoggedFrame]) -> None:
        self.recent.extend(frames)
        self.last_seq += len(frames)
        self.size_bytes += sum(map(_size, frames))
        while self.recent and (len(self.recent) > MAX_RECENT_FRAMES or self.size_bytes > MAX_RECENT_BYTES):
            self.size_bytes -= _size(self.recent.popleft())

    def after(self, seq: int) -> Sequence[LoggedFrame] | None:
        """Return the frames after one, None where they are not all here."""
        missing = self.last_seq - seq
        return list(self.recent)[len(self.recent) - missing :] if 0 <= missing <= len(self.recent) else None


class RedisRunLog(RunLog):
    """See `callboard.storage.RunLog`. `redis` is open; it keeps ended runs for `keep_seconds`."""

    sweep_seconds = 1.0
    is_one_with_journal = False

    def __init__(self, redis: RedisServer, server_id: str, owners: RunOwners, keep_seconds: float) -> None:
        self._redis = redis
        self._server_id = server_id
        self._owners = owners
        # Redis takes none for never.
        self._keep_seconds = max(1, math.ceil(keep_seconds))
        self._lease: RedisLease | None = None
        self._own: dict[str, _OwnRun] = {}
        self._ended: list[LoggedRun] = []
        # How often each is being begun at this moment.
        self._beginning: Counter[str] = Counter()
        # Perhaps they are in the database or in Redis, but they run nowhere, or without a log.
        self._unbegun: set[str] = set()
        self._withdrawing = asyncio.Lock()

    @asynccontextmanager
    async def open(self, lease_seconds: float, on_news: Callable[[str], None]) -> AsyncIterator[None]:
        """Let this server be known as one that is there, until the block ends."""
        self._lease = RedisLease(self._redis, self._server_id, lease_seconds)
        async with self._lease.held():
            hearing = asyncio.create_task(self._hear(on_news), name="news by redis")
            try:
                yield
            finally:
                hearing.cancel()
                await asyncio.wait({hearing})
                with suppress(StorageError):
                    await self._note_ended()

    async def _hear(self, on_news: Callable[[str], None]) -> None:
        """Tell of news as long as there is a connection, and connect anew where it is lost; what is missed is swept."""
        while True:
            with suppress(*FAILURES):
                async with self._redis.subscribed(scripts.NEWS + self._server_id) as messages:
                    async for run_id in messages:
                        on_news(run_id.decode())
            await asyncio.sleep(RECONNECT_SECONDS)

    def was_alone(self) -> bool:
        """Return whether no other server had a lease when this one's was last renewed, nor a while before that."""
        return self._lease is None or self._lease.was_alone

    async def begins_alone(self) -> bool:
        """Return whether no other server had a lease when this one's was last renewed, and that still holds."""
        return self.was_alone()

    async def is_alone(self) -> bool:
        """Return False: others may come at any time."""
        return False

    async def begin(self, run: LoggedRun, request: bytes | None = None, max_of_user: int | None = None) -> LoggedRun:
        """Take a new run for this server; return it, or the one of that id that is there already."""
        if run.run_id in self._unbegun:
            await self._withdraw_unbegun()
        self._beginning[run.run_id] += 1
        try:
            found = None
            while found is None:
                found = await self._begin(run, request, max_of_user)
            return found
        finally:
            self._beginning[run.run_id] -= 1
            if not self._beginning[run.run_id]:
                del self._beginning[run.run_id]

    async def _begin(self, run: LoggedRun, request: bytes | None, max_of_user: int | None) -> LoggedRun | None:
        """Do as `begin` does; return None where it is to be tried anew: whoever was about to begin the run is gone."""
        try:
            known = await self._owners.begin(run, max_of_user)
        except (StorageError, asyncio.CancelledError):
            self._unbegun.add(run.run_id)
            raise
        if known is not run:
            return await self._find_begun(known)
        about = json.dumps([run.agent_id, run.chat_id, run.message_id, run.user_id])
        token = uuid4().hex
        try:
            await self._enlist([run.run_id])
            there = await self._run(scripts.BEGIN, run.run_id, token, self._server_id, run.epoch, about, request or b"")
        except (StorageError, asyncio.CancelledError) as error:
            # It may be there all the same.
            self._unbegun.add(run.run_id)
            if isinstance(error, StorageError) and self.was_alone():
                # Nobody is to take it over, for it goes on here without a log.
                await self._owners.end(run.run_id)
            raise
        if there:
            # It is older than the database's memory.
            await self._owners.withdraw(run.run_id)
            return _read_run(run.run_id, there)
        self._own[run.run_id] = _OwnRun(run.epoch)
        return run

    async def _find_begun(self, known: LoggedRun) -> LoggedRun | None:
        """Return a run that the database knows, as it is in Redis once it has arrived there.

        Where Redis has lost it, it cannot be read; it is not started a second time for that. None where nothing was
        done yet, and whoever was about to begin it is gone; raises `StorageError` where it is still about to.
        """
        for _ in range(BEGIN_LOOKS):
            if found := await self.find([known.run_id]):
                return found[known.run_id]
            await asyncio.sleep(BEGIN_LOOK_SECONDS)
        if await self._owners.has_written(known):
            return known
        owner = (await self._owners.list_going_on()).get(known.run_id)
        _, there = await self._list_servers()
        if owner in there:
            raise StorageError("another server is about to start this run: ask again")
        await self._owners.forget(known)
        return None

    async def withdraw(self, run_id: str) -> None:
        """Forget a run that was taken and did not begin."""
        if await self._run(scripts.WITHDRAW, run_id, self._server_id):
            self._own.pop(run_id, None)
            await self._strike(self._server_id, [run_id])
            await self._owners.withdraw(run_id)

    async def _withdraw_unbegun(self) -> None:
        async with self._withdrawing:
            for run_id in tuple(self._unbegun):
                if run_id in self._beginning:
                    # It is another's of that id that is being begun.
                    continue
                if run_id not in self._own:
                    await self._run(scripts.WITHDRAW, run_id, self._server_id)
                    await self._strike(self._server_id, [run_id])
                    if not await self.find([run_id]):
                        await self._owners.withdraw(run_id)
                self._unbegun.discard(run_id)

    async def load_request(self, run_id: str) -> bytes | None:
        """Return what was kept with a run that goes on, None where nothing was."""
        request: bytes | None = await self._run(scripts.LOAD_REQUEST, run_id)
        return request

    async def append(self, run: LoggedRun, frames: Sequence[LoggedFrame]) -> None:
        """Keep the frames that follow `run.last_seq`; raises `RunLost` where another server owns the run by now.

        A Redis that has lost the newest frames, as it may when it is started anew, is given them again. Where it has
        lost more than that, or all, the run goes on without it: no other server can own it then.
        """
        own = self._own.setdefault(run.run_id, _OwnRun(run.epoch, run.last_seq))
        if own.epoch != run.epoch:
            raise _lost(run)
        if not own.is_forgotten:
            kept = await self._append(run, frames)
            if isinstance(kept, int):
                missing = own.after(kept)
                again = missing and await self._append(replace(run, last_seq=kept), [*missing, *frames])
                kept = again or b"gone"
            if kept == b"lost":
                self._let_go(run.run_id, own)
                raise _lost(run)
            if kept == b"kept":
                own.add(frames)
            else:
                await self._give_up(run, own)
        if frames[-1].is_last:
            self._let_go(run.run_id, own)
            self._ended.append(run)

    def _let_go(self, run_id: str, own: _OwnRun) -> None:
        # It may have come back meanwhile, in an epoch of its own.
        if self._own.get(run_id) is own:
            del self._own[run_id]

    async def _append(self, run: LoggedRun, frames: Sequence[LoggedFrame]) -> Any:
        """Return what the script `APPEND` returns."""
        questions = [frame.question for frame in frames if frame.question]
        files = [text for frame in frames for file in frame.files.items() for text in file]
        return await self._run(
            scripts.APPEND,
            run.run_id,
            run.run_id,
            run.epoch,
            run.last_seq,
            self._keep_seconds if frames[-1].is_last else 0,
            len(frames),
            len(questions),
            scripts.NEWS,
            *(frame.frame for frame in frames),
            *questions,
            *files,
        )

    async def _give_up(self, run: LoggedRun, own: _OwnRun) -> None:
        """Go on without Redis: nobody must go on from what it still has."""
        await self._run(scripts.FORGET, run.run_id, run.epoch)
        own.is_forgotten = True
        _log.error("redis_has_lost_run", run_id=run.run_id, advice="set appendonly yes in Redis' configuration")

    async def find(self, run_ids: Collection[str]) -> dict[str, LoggedRun]:
        """Return those of some runs that there are, by their ids."""
        found = await self._run_for_each(scripts.FIND, run_ids)
        return {run_id: _read_run(run_id, row) for run_id, row in found.items() if row}

    async def read(self, run_id: str, after: int, max_bytes: int) -> list[bytes]:
        """Return the frames after `after`, at least one if there is one, of about `max_bytes` together."""
        frames: list[bytes] = await self._run(scripts.READ, run_id, after, max_bytes)
        return frames

    async def file(self, run_id: str, file_id: str) -> str | None:
        """Return a file of a run as a `data:` URL, None where there is none."""
        url: bytes | None = await self._run(scripts.LOAD_FILE, run_id, file_id)
        return None if url is None else url.decode()

    async def listen_to(self, run_ids: Collection[str], seconds: float) -> bool:
        """Let the owners of runs know that somebody listens to them here, for so long from now on."""
        noted = await self._run_for_each(scripts.LISTEN, run_ids, self._server_id, seconds)
        return all(noted.values())

    async def is_listened_to(self, run_id: str) -> bool:
        """Return whether somebody listens to a run at another server."""
        return bool(await self._run(scripts.IS_LISTENED_TO, run_id, self._server_id))

    async def cancel(self, run_id: str) -> None:
        """Ask the owner of a run, and whoever owns it after, for its end."""
        await self._run(scripts.CANCEL, run_id, scripts.NEWS, run_id)

    async def answer(self, run_id: str, question: str, answer: GivenAnswer) -> bool:
        """Keep the answer to a question; False where there is no such question, or it has one."""
        token = uuid4().hex
        return bool(await self._run(scripts.ANSWER, run_id, scripts.NEWS, run_id, question, token, answer.to_json()))

    async def orders(self, run_ids: Collection[str]) -> dict[str, Orders]:
        """Return what was asked of some runs, by their ids."""
        orders: dict[str, Orders] = {}
        for run_id, (is_cancelled, inputs) in (await self._run_for_each(scripts.ORDERS, run_ids)).items():
            answers = {
                question.decode(): GivenAnswer.from_json(given[len(uuid4().hex) :])
                for question, given in zip(inputs[::2], inputs[1::2], strict=True)
                if given
            }
            if is_cancelled or answers:
                orders[run_id] = Orders(bool(is_cancelled), answers)
        return orders

    async def take_over(self) -> list[LoggedRun]:
        """Own the runs of servers that are there no longer; return them, each in its new epoch."""
        await self._withdraw_unbegun()
        await self._note_ended()
        gone, _ = await self._list_servers()
        taken: list[LoggedRun] = []
        for server_id in (self._server_id, *gone - {self._server_id}):
            try:
                await self._take_from(server_id, taken)
            except StorageError:
                # The rest is still there the next time.
                if not taken:
                    raise
        return taken

    async def _take_from(self, server_id: str, taken: list[LoggedRun]) -> None:
        left = await self._list_left(server_id)
        for run_id, row in (
            await self._run_for_each(scripts.TAKE, left, server_id, self._server_id, scripts.NOBODY)
        ).items():
            if isinstance(row, list):
                run = _read_run(run_id, row)
                if self._own.get(run_id, _OwnRun(0)).epoch != run.epoch and (own := await self._take(run)):
                    taken.append(own)
            else:
                if row == b"ended":
                    await self._owners.end(run_id)
                await self._strike(self._server_id, [run_id])
            if server_id != self._server_id:
                await self._strike(server_id, [run_id])

    async def _list_left(self, server_id: str) -> set[str]:
        """Return the runs to take from a server that is gone, counted as this one's by now.

        Of this server's own it is those that it tried to take, and was not told that it has them.
        """
        left = {run_id.decode() for run_id in await self._redis.run(scripts.LIST, keys_of_server(server_id))}
        if server_id == self._server_id:
            # Others may have struck what became its own again.
            await self._enlist(list(self._own.keys() - left))
            return left - {*self._own, *self._beginning, *self._unbegun, *(run.run_id for run in self._ended)}
        if left:
            await self._enlist(list(left))
        else:
            # It is not known any more, and not asked for each time.
            await self._strike(server_id, [])
        return left

    async def _take(self, run: LoggedRun) -> LoggedRun | None:
        """Own a run in the database too; until then the one before may still write there, where nobody reads yet."""
        age_seconds = await self._owners.take(run)
        if age_seconds is not None:
            self._own[run.run_id] = _OwnRun(run.epoch, run.last_seq)
            return replace(run, age_seconds=age_seconds)
        # It went on without a log, or Redis is older than the database.
        await self._owners.close_calls(run.run_id)
        await self._run(scripts.FORGET, run.run_id, run.epoch)
        await self._strike(self._server_id, [run.run_id])
        return None

    async def hand_over(self, run: LoggedRun) -> None:
        """Let any server that is there take over a run of this one's, which is not at fault; raises `RunLost`."""
        if not await self._run(scripts.HAND_OVER, run.run_id, self._server_id, run.epoch, scripts.NOBODY):
            raise _lost(run)
        self._own.pop(run.run_id, None)
        # It is nobody's by now: whoever finds it among this server's runs, once this one is gone, takes it as well.
        with suppress(StorageError):
            # Not before: whoever looks through nobody's runs strikes those that are still somebody's.
            await self._redis.run(scripts.ENLIST, keys_of_server(scripts.NOBODY), scripts.NOBODY, run.run_id)
            await self._strike(self._server_id, [run.run_id])
            _, there = await self._list_servers()
            for server_id in there - {self._server_id}:
                await self._redis.run(scripts.TELL, [scripts.LEASES], scripts.NEWS + server_id)

    async def close_calls(self, run_id: str, but: Collection[str] = (), waiting: Collection[str] = ()) -> None:
        """Mark the calls of a run that are open as interrupted, but for some, and those that a client runs."""
        await self._owners.close_calls(run_id, but, waiting)

    async def of_user(self, user_id: str) -> list[LoggedRun]:
        """Return the runs of a user, those that have ended included."""
        return list((await self.find(await self._owners.ids_of_user(user_id))).values())

    async def forget_user(self, user_id: str) -> int:
        """Forget the runs of a user with their frames and files; returns how many there were."""
        run_ids = await self._owners.ids_of_user(user_id)
        for run in (await self.find(run_ids)).values():
            await self._run(scripts.FORGET, run.run_id, run.epoch)
        await self._owners.forget_all(run_ids)
        return len(run_ids)

    async def drop(self, ended_before_seconds: float, max_user_bytes: int) -> int:
        """Forget runs that ended longer ago than that, and a user's oldest beyond so many bytes; return how many.

        Of those that Redis has lost, what servers that are gone have left in the database is closed; the others are
        counted as their owners' again.
        """
        await self._note_ended()
        await self._tend_left()
        await self._owners.drop(ended_before_seconds)
        dropped = 0
        sizes: Counter[str | None] = Counter()
        now, noted = await self._redis.run(scripts.LIST_ENDED, [scripts.ENDED])
        for note, ended_at in zip(noted[::2], noted[1::2], strict=True):
            run_id, epoch, user_id, size_bytes = json.loads(note)
            sizes[user_id] += size_bytes
            if sizes[user_id] > max_user_bytes or float(ended_at) < float(now) - ended_before_seconds:
                # It may have expired meanwhile.
                dropped += bool(await self._run(scripts.FORGET, run_id, epoch))
                await self._redis.run(scripts.DROP_ENDED, [scripts.ENDED], note)
        return dropped

    async def _tend_left(self) -> None:
        """Close what servers that are gone have left of runs of which Redis knows nothing any more.

        Count what it knows of as its owner's, for whom it may have been struck as it took the run.
        """
        _, there = await self._list_servers()
        left = {run_id for run_id, owner in (await self._owners.list_going_on()).items() if owner not in there}
        for run_id, owner in (await self._run_for_each(scripts.OWNER, left)).items():
            if owner is None:
                await self._owners.close_calls(run_id)
                await self._owners.end(run_id)
            else:
                name = owner.decode()
                await self._redis.run(scripts.ENLIST, keys_of_server(name), name, run_id)

    async def _note_ended(self) -> None:
        """Let the database know of runs that have ended, and count them as theirs no longer who owned them."""
        while self._ended:
            run = self._ended[0]
            await self._owners.end(run.run_id)
            if size_bytes := await self._run(scripts.SIZE, run.run_id):
                note = json.dumps([run.run_id, run.epoch, run.user_id, size_bytes])
                await self._redis.run(scripts.COUNT_ENDED, [scripts.ENDED], note)
            await self._strike(self._server_id, [run.run_id])
            self._ended.pop(0)

    async def _list_servers(self) -> tuple[set[str], set[str]]:
        """Return the servers that are gone and may have left runs, and those that are there."""
        gone, there = await self._redis.run(scripts.SERVERS, [scripts.LEASES])
        return {name.decode() for name in gone}, {name.decode() for name in there}

    async def _enlist(self, run_ids: Sequence[str]) -> None:
        """Count runs as this server's, before they are."""
        if run_ids:
            await self._redis.run(scripts.ENLIST, keys_of_server(self._server_id), self._server_id, *run_ids)

    async def _strike(self, server_id: str, run_ids: Sequence[str]) -> None:
        """Count runs as a server's no longer."""
        await self._redis.run(scripts.STRIKE, keys_of_server(server_id), server_id, *run_ids)

    async def _run(self, script: Script, run_id: str, *arguments: Argument) -> Any:
        return await self._redis.run(script, keys_of_run(run_id), *arguments)

    async def _run_for_each(self, script: Script, run_ids: Collection[str], *arguments: Argument) -> dict[str, Any]:
        """Return what a script returns for each of some runs."""
        results = await asyncio.gather(*(self._run(script, run_id, *arguments) for run_id in run_ids))
        return dict(zip(run_ids, results, strict=True))


def _read_run(run_id: str, row: Sequence[Any]) -> LoggedRun:
    about, epoch, last_seq, is_ended, is_cancelled, losses = row
    agent_id, chat_id, message_id, user_id = json.loads(about)
    return LoggedRun(
        run_id, agent_id, chat_id, message_id, user_id, epoch, last_seq, bool(is_ended), bool(is_cancelled), losses
    )


def _lost(run: LoggedRun) -> RunLost:
    return RunLost(f"run {run.run_id!r} is another server's by now")


def _size(frame: LoggedFrame) -> int:
    return len(frame.frame) + sum(map(len, frame.files.values()))
