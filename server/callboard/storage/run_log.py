"""The interface of the log of runs, which SQL and Redis implement.

Every method that reads or writes raises `StorageError` if it cannot.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sqlalchemy import Connection

from callboard.storage.values import (
    GivenAnswer,
    LoggedFrame,
    LoggedRun,
    Orders,
)


class RunLog(Protocol):
    """The frames of runs that go on, and of those that ended a short while ago; which server owns which run.

    Each belongs to one server, which writes into it as long as it owns a run; any other may read it, and leave orders
    for its owner. The journal of the store refuses what an earlier owner writes, by the turn's `epoch`. Times are those
    of the store's clock.
    """

    sweep_seconds: float
    """The seconds after which a server looks for news that it was not told of."""

    def open(self, lease_seconds: float, on_news: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Let this server be known as one that is there, until the block ends: then others may own its runs at once.

        It says so again and again, so that others notice within `lease_seconds` when it is gone. `on_news` is called
        with the id of a run that has new frames, or orders, and with "" where one was handed over; now and then one
        goes untold. Raises `StorageError` where the store cannot be written at the beginning.
        """

    def was_alone(self) -> bool:
        """Return whether there was no other server, when this one last looked, that could own the runs of this one."""

    async def begins_alone(self) -> bool:
        """Return whether no other server is there that could begin the same run, as far as this one knows."""

    async def is_alone(self) -> bool:
        """Return whether no other server is there, of whom there could be news; False where that is not known."""

    async def begin(
        self, run: LoggedRun, request: bytes | None = None, max_of_user: int | None = None, first: bytes | None = None
    ) -> LoggedRun:
        """Make a new run this server's; return it, or the run of that id that is there already."""

    async def withdraw(self, run_id: str) -> None:
        """Forget a run that was taken and did not begin."""

    async def load_request(self, run_id: str) -> bytes | None:
        """Return what was kept with a run that goes on, None where nothing was."""

    async def append(
        self,
        run: LoggedRun,
        frames: Sequence[LoggedFrame],
        write_rows: Callable[[Connection], None] = ...,
        find_rows: Callable[[Connection], object] = ...,
    ) -> None:
        """Keep the frames that follow `run.last_seq`; one that is the last ends the run.

        Given once more after a failure, the same frames are kept once. Raises `RunLost` where another server owns the
        run by now, `UnknownRun` where the log of this server's own run is gone, for the store is another one.
        """

    async def find(self, run_ids: Collection[str]) -> dict[str, LoggedRun]:
        """Return those of some runs that there are, by their ids."""

    async def read(self, run_id: str, after: int, max_bytes: int) -> list[bytes]:
        """Return the frames after `after`, at least one if there is one, of about `max_bytes` together."""

    async def file(self, run_id: str, file_id: str) -> str | None:
        """Return a file of a run as a `data:` URL, None where there is none."""

    async def listen_to(self, run_ids: Collection[str], seconds: float) -> bool:
        """Let the owners of runs know that somebody listens to them here, for so long from now on.

        Return False where not all of them could be told, or have ended: it is to be said again soon.
        """

    async def is_listened_to(self, run_id: str) -> bool:
        """Return whether somebody listens to a run at another server."""

    async def cancel(self, run_id: str) -> None:
        """Ask the owner of a run, and whoever owns it after, for its end."""

    async def answer(self, run_id: str, question: str, answer: GivenAnswer) -> bool:
        """Keep the answer to a question; False where there is no such question, or it has one."""

    async def orders(self, run_ids: Collection[str]) -> dict[str, Orders]:
        """Return what was asked of some runs, by their ids; those of which nothing was are not among them."""

    async def take_over(self) -> list[LoggedRun]:
        """Own the runs of servers that are there no longer; return them, each in its new epoch."""

    async def hand_over(self, run: LoggedRun) -> None:
        """Let any server that is there take over a run of this one's, which is not at fault; raises `RunLost`."""

    async def of_user(self, user_id: str) -> list[LoggedRun]:
        """Return the runs of a user, those that have ended included."""

    async def forget_user(self, user_id: str) -> int:
        """Forget the runs of a user with their frames and files; returns how many there were.

        What the owner of one that goes on still writes is not kept.
        """

    async def drop(self, ended_before_seconds: float, max_user_bytes: int) -> int:
        """Forget runs that ended longer ago than that, and a user's oldest beyond so many bytes; return how many."""
