"""Polls the database, also after notifications, for frames of other servers' runs and signals to its own runs."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from callboard.errors import StorageError
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import RunSignals, StoredRun

LISTENING_SECONDS = 10.0
"""How long a mark keeps a run alive at its owner."""
LISTENING_ROUND_SECONDS = 3.0
"""How often the marks are renewed."""
MARK_AGAIN_SECONDS = 0.1
"""The delay before a run that could not be marked is marked again."""

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Follower:
    """A listener on this server to a run of another server.

    `run` is the run as it was last read, None if it has been deleted. `seq` is the newest frame that the listener has
    seen. `has_news` is set when there is something to read.
    """

    run: StoredRun | None
    seq: int = 0
    has_news: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, run: StoredRun | None) -> None:
        """Replace `run` by its current state."""
        self.run = run
        if run is None or run.is_ended or run.last_seq > self.seq:
            self.has_news.set()


class DatabasePoller:
    """Reads the database after notifications, and regularly without them, for all followed runs at once.

    `list_own_ids` returns the ids of this server's live runs. `receive_signals` gets the signals that clients have sent
    to them through other servers.
    """

    def __init__(
        self,
        stored_runs: StoredRuns,
        list_own_ids: Callable[[], Collection[str]],
        receive_signals: Callable[[Mapping[str, RunSignals]], None],
    ) -> None:
        self._stored_runs = stored_runs
        self._list_own_ids = list_own_ids
        self._receive_signals = receive_signals
        self._followed: defaultdict[str, set[Follower]] = defaultdict(set)
        self._is_due = asyncio.Event()
        self._are_signals_due = True
        self._marked_at: dict[str, float] = {}
        self._all_were_marked = True

    @property
    def listeners(self) -> int:
        """The number of listeners on this server to runs of other servers."""
        return sum(map(len, self._followed.values()))

    def receive(self, run_id: str) -> None:
        """Accept a notification: a followed run has new frames, or a run of this server has a signal."""
        if run_id in self._followed:
            self._is_due.set()
        if run_id in self._list_own_ids():
            self._are_signals_due = True
            self._is_due.set()

    def wake(self, run_id: str) -> None:
        """Wake the followers of a run that this server has taken over, and read the signals to this server's runs."""
        for follower in self._followed.get(run_id, ()):
            follower.has_news.set()
        # A notification about a signal that arrived before the run was this server's was ignored.
        self._are_signals_due = True
        self._is_due.set()

    @contextmanager
    def following(self, run: StoredRun, after: int) -> Iterator[Follower]:
        """Follow a run of another server; the run is marked as listened to."""
        run_id = run.run_id
        follower = Follower(run, after)
        self._followed[run_id].add(follower)
        # Without delay: the owner may be about to cancel the run because it has no listeners.
        self._is_due.set()
        try:
            yield follower
        finally:
            self._followed[run_id].discard(follower)
            if not self._followed[run_id]:
                del self._followed[run_id]
                self._marked_at.pop(run_id, None)

    async def poll(self) -> None:
        """Read signals and frames until cancelled; retry after errors."""
        while True:
            wait_seconds = self._stored_runs.sweep_seconds if self._all_were_marked else MARK_AGAIN_SECONDS
            is_sweep = False
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._is_due.wait()
            except TimeoutError:
                is_sweep = True
            self._is_due.clear()
            try:
                # Without other servers, clients send their signals to this server directly.
                if self._are_signals_due or (is_sweep and not await self._stored_runs.is_alone()):
                    self._are_signals_due = False
                    if own := self._list_own_ids():
                        self._receive_signals(await self._stored_runs.signals(own))
                await self._mark_as_listened()
                await self._fetch_frames()
            except StorageError as error:
                self._are_signals_due = True
                _log.warning("followed_runs_not_read", error=str(error))
            except Exception as error:  # noqa: BLE001 - otherwise followers would wait for ever, and no signal would arrive
                self._are_signals_due = True
                _log.error("followed_runs_not_read", exc_info=error)

    async def _mark_as_listened(self) -> None:
        """Mark the followed runs as listened to, because their owners publish only the frames of such runs."""
        renew_before = time.monotonic() - LISTENING_ROUND_SECONDS
        unmarked = {
            run_id
            for run_id, listeners in self._followed.items()
            if any(one.run and not one.run.is_ended for one in listeners)
            and self._marked_at.get(run_id, renew_before) <= renew_before
        }
        marked = await self._stored_runs.mark_listened(unmarked, LISTENING_SECONDS) if unmarked else unmarked
        self._marked_at.update(dict.fromkeys(marked & self._followed.keys(), time.monotonic()))
        self._all_were_marked = marked == unmarked

    async def _fetch_frames(self) -> None:
        followed = tuple(self._followed)
        found = await self._stored_runs.find(followed) if followed else {}
        for run_id in followed:
            for follower in self._followed.get(run_id, ()):
                follower.update(found.get(run_id))
