"""A run of another server, or one that has ended: read from the database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext

import structlog

from callboard.data_urls import Data
from callboard.errors import StorageError, UnknownRun
from callboard.runs.database_poller import DatabasePoller
from callboard.runs.files import read_file
from callboard.runs.inputs import unknown_input
from callboard.runs.log import MAX_CHUNK_BYTES
from callboard.runs.run import Run, RunIdentity
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GivenAnswer, StoredRun

RETRY_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class FollowedRun:
    """A run that another server owns, or that has ended. Signals to its owner are stored in the database.

    `find_own` returns the run with an id if this server runs it: this server may take over the run at any time.
    """

    def __init__(
        self, run: StoredRun, stored_runs: StoredRuns, poller: DatabasePoller, find_own: Callable[[str], Run | None]
    ) -> None:
        self.run_id = run.run_id
        self.identity = RunIdentity(run.agent_id, run.chat_id, run.message_id, run.user_id)
        self.ended = run.is_ended
        self._run = run
        self._stored_runs = stored_runs
        self._poller = poller
        self._find_own = find_own

    async def is_listened_to(self) -> bool:
        """Return True while the run is live, because only its owner knows its listeners."""
        return not self.ended

    def check(self, after: int) -> None:
        """Do nothing: the database has every frame."""

    def listening(self) -> AbstractContextManager[None]:
        """Do nothing: `listen` counts its listeners itself."""
        return nullcontext()

    async def listen(self, after: int = 0) -> AsyncIterator[bytes]:
        """Yield the frames after `after` until the run has ended. Raises `UnknownRun` if the run has been deleted."""
        with self._poller.following(self._run, after) as follower:
            while (own := self._find_own(self.run_id)) is None:
                follower.has_news.clear()
                run = follower.run
                if run is None:
                    raise UnknownRun(f"run {self.run_id!r} ended a while ago, and its events are deleted")
                try:
                    while follower.seq < run.last_seq:
                        frames = await self._stored_runs.read(self.run_id, follower.seq, MAX_CHUNK_BYTES)
                        if not frames:
                            break
                        follower.seq += len(frames)
                        yield b"".join(frames)
                except StorageError as error:
                    # The database may recover before the client disconnects.
                    _log.warning("run_not_read", run_id=self.run_id, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if run.is_ended:
                    return
                await follower.has_news.wait()
            after = follower.seq
        # This server has taken over the run.
        async for chunk in own.listen(after):
            yield chunk

    async def cancel_for_client(self) -> None:
        """Ask the owner to cancel the run. Raises `StorageError`."""
        await self._stored_runs.cancel(self.run_id)

    async def answer(self, request_id: str, answer: GivenAnswer) -> None:
        """Store the answer to a question for the owner.

        Raises `UnknownInput` if the question is not open or already answered, and `StorageError`.
        """
        if not await self._stored_runs.answer(self.run_id, request_id, answer):
            raise unknown_input(request_id)

    async def add_message(self, content: str) -> str:
        """Store a message of the user for the owner; see `StoredRuns.add_message`."""
        return (await self._stored_runs.add_message(self.run_id, content))[0]

    async def file(self, file_id: str) -> Data:
        """Return a file that an event links to. Raises `UnknownFile`, `StorageError`."""
        return read_file(self.run_id, file_id, await self._stored_runs.file(self.run_id, file_id))
