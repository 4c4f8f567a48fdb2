"""Keeps the frames of one run in the store's log, and says which of them listeners may see."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from callboard.errors import RunLost, StorageError, UnknownRun
from callboard.storage import LoggedFrame, LoggedRun, RunLog
from callboard_protocol import Done, Error, Event, InputRequest

PATIENCE_SECONDS = 5.0
"""The seconds that listeners wait for a frame to be kept: locks of others and a busy disk pass sooner than that.

A store in trouble must not hold up an answer for longer. What is shown unkept is lost with a server that is killed
then.
"""
RETRY_SECONDS = 1.0
HAND_OVER_SECONDS = 5.0
"""The seconds that a server waits for the last frames to be kept of a run that it leaves."""

_log = structlog.get_logger(__name__)


class LogKeeper:
    """The frames of a run on their way into the log: what waits goes in one write, and the next when that is done.

    `show` is told the number of the newest frame that listeners may see: what they have seen is kept, and can be
    resumed from whatever becomes of this server. Where the store is in trouble they see more than that, but only where
    no other server is there: another may go on with the run from what is kept, which is then not what they have seen.
    `on_lost` is called once another one does. `take_files` returns the files that the frames since the last one name.
    """

    def __init__(
        self,
        run_log: RunLog,
        run: LoggedRun,
        show: Callable[[int], None],
        on_lost: Callable[[], None],
        take_files: Callable[[], Mapping[str, str]],
    ) -> None:
        self._run_log = run_log
        self._run = run
        self._show = show
        self._on_lost = on_lost
        self._take_files = take_files
        self._waiting: list[LoggedFrame] = []
        self._newest = run.last_seq
        self._is_late = False
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_up_to_date(self) -> bool:
        """Return whether all that was added is kept."""
        return self._run.last_seq == self._newest

    def add(self, frame: bytes, event: Event) -> None:
        """Take the next frame, which is that of `event`."""
        self._newest += 1
        question = event.request_id if isinstance(event, InputRequest) else None
        self._waiting.append(LoggedFrame(frame, question, self._take_files(), isinstance(event, Done | Error)))
        if self._is_late:
            self._show_unkept()
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name=f"log of {self._run.run_id}")

    async def read(self, after: int, max_bytes: int) -> list[bytes]:
        """Return frames that are kept; see `RunLog.read`."""
        return await self._run_log.read(self._run.run_id, after, max_bytes)

    def stop(self) -> None:
        """Keep nothing more."""
        if self._keeping:
            self._keeping.cancel()

    async def hand_over(self) -> bool:
        """Let another server own the run from here on; False where the log lacks what listeners may have seen."""
        if self._keeping and not self._is_late:
            await asyncio.wait({self._keeping}, timeout=HAND_OVER_SECONDS)
        if not self.is_up_to_date:
            return False
        try:
            await self._run_log.hand_over(self._run)
        except RunLost:
            pass  # It does already.
        except StorageError as error:
            _log.warning("run_not_handed_over", run_id=self._run.run_id, error=str(error))
            return False
        return True

    async def _keep(self) -> None:
        try:
            while self._waiting:
                frames = self._waiting
                self._waiting = []
                await self._append(frames)
                self._is_late = False
                self._run = replace(self._run, last_seq=self._run.last_seq + len(frames))
                self._show(self._run.last_seq)
        except RunLost:
            self._on_lost()
        except UnknownRun as error:
            _log.warning("run_no_longer_logged", run_id=self._run.run_id, error=str(error))
            self._is_late = True
            self._show(self._newest)
        else:
            self._keeping = None

    async def _append(self, frames: list[LoggedFrame]) -> None:
        """Return once the frames are kept. The same again after a failure: what of them is kept is not known."""
        clock = asyncio.get_running_loop()
        while True:
            patience = clock.call_later(PATIENCE_SECONDS, self._be_late, "it takes too long")
            try:
                await self._run_log.append(self._run, frames)
            except StorageError as error:
                self._be_late(str(error))
            except (RunLost, UnknownRun):
                raise
            except Exception as error:  # noqa: BLE001 - nothing more would be kept, and who listens would wait for ever
                self._be_late("it fails as nobody expected", error)
            else:
                return
            finally:
                patience.cancel()
            await asyncio.sleep(RETRY_SECONDS)

    def _be_late(self, reason: str, mistake: Exception | None = None) -> None:
        if not self._is_late:
            # A server that comes after this one knows the run up to here.
            _log.warning(
                "run_not_logged", run_id=self._run.run_id, after=self._run.last_seq, error=reason, exc_info=mistake
            )
        self._is_late = True
        self._show_unkept()

    def _show_unkept(self) -> None:
        if self._run_log.was_alone():
            self._show(self._newest)
