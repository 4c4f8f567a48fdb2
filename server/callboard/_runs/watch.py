"""What other servers do that matters here: frames of their runs that are followed, orders for those of this one."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from callboard.errors import StorageError
from callboard.storage import LoggedRun, Orders, RunLog

LISTENING_SECONDS = 10.0
"""The seconds for which a run's owner knows that somebody listens here, unless it is said again."""
LISTENING_ROUND_SECONDS = 3.0
TELL_AGAIN_SECONDS = 0.1
"""The seconds after which an owner is told again that was busy with its run."""

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class News:
    """Of a run that is followed: the run as it was found last, None where it is forgotten by now.

    `seq` is the newest frame that its listener has seen, `are_there` says that there is something new.
    """

    run: LoggedRun | None
    seq: int = 0
    are_there: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, run: LoggedRun | None) -> None:
        """Take note of the run as it is now."""
        self.run = run
        if run is None or run.is_ended or run.last_seq > self.seq:
            self.are_there.set()


class Watch:
    """Looks for news when it is told of some, and after a while when it is not: for all runs at once.

    `find_own` returns the ids of this server's live runs, `take_orders` is given what clients have asked of them
    elsewhere.
    """

    def __init__(
        self,
        run_log: RunLog,
        find_own: Callable[[], Collection[str]],
        take_orders: Callable[[Mapping[str, Orders]], None],
    ) -> None:
        self._run_log = run_log
        self._find_own = find_own
        self._take_orders = take_orders
        self._followed: defaultdict[str, set[News]] = defaultdict(set)
        self._is_due = asyncio.Event()
        self._are_orders_due = True
        self._said_at = 0.0
        self._all_were_told = True

    @property
    def listeners(self) -> int:
        """How many follow runs."""
        return sum(map(len, self._followed.values()))

    def hear(self, run_id: str) -> None:
        """Take note that another server has news of a run."""
        if run_id in self._followed:
            self._is_due.set()
        if run_id in self._find_own():
            self._are_orders_due = True
            self._is_due.set()

    def wake(self, run_id: str) -> None:
        """Let whoever follows a run look for itself: it goes on here now."""
        for news in self._followed.get(run_id, ()):
            news.are_there.set()

    @contextmanager
    def following(self, run: LoggedRun, after: int) -> Iterator[News]:
        """Be told of a run that goes on elsewhere; its owner knows that somebody listens."""
        run_id = run.run_id
        news = News(run, after)
        self._followed[run_id].add(news)
        # At once: its owner may be about to give it up.
        self._said_at = 0.0
        self._is_due.set()
        try:
            yield news
        finally:
            self._followed[run_id].discard(news)
            if not self._followed[run_id]:
                del self._followed[run_id]

    async def look(self) -> None:
        """Look for news, again and again; what cannot be read is looked for again."""
        while True:
            wait_seconds = self._run_log.sweep_seconds if self._all_were_told else TELL_AGAIN_SECONDS
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._is_due.wait()
            except TimeoutError:
                self._are_orders_due = True
            self._is_due.clear()
            try:
                if self._are_orders_due:
                    self._are_orders_due = False
                    await self._look_for_orders()
                await self._tell_owners()
                await self._look_for_frames()
            except StorageError as error:
                _log.warning("no_news_of_runs", error=str(error))
            except Exception as error:  # noqa: BLE001 - who follows a run would wait for ever, and no order arrive
                _log.error("no_news_of_runs", exc_info=error)

    async def _look_for_orders(self) -> None:
        own = self._find_own()
        if own and not await self._run_log.is_alone():
            self._take_orders(await self._run_log.orders(own))

    async def _tell_owners(self) -> None:
        """Let the owners of runs know that these are followed: they tell of no others."""
        self._all_were_told = True
        going_on = [run_id for run_id, listeners in self._followed.items() if any(map(_goes_on, listeners))]
        if going_on and time.monotonic() >= self._said_at + LISTENING_ROUND_SECONDS:
            self._all_were_told = await self._run_log.listen_to(going_on, LISTENING_SECONDS)
            if self._all_were_told:
                self._said_at = time.monotonic()

    async def _look_for_frames(self) -> None:
        followed = tuple(self._followed)
        found = await self._run_log.find(followed) if followed else {}
        for run_id in followed:
            for news in self._followed.get(run_id, ()):
                news.take(found.get(run_id))


def _goes_on(news: News) -> bool:
    return news.run is not None and not news.run.is_ended
