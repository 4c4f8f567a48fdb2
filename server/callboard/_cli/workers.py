"""`callboard serve --workers N`: processes that take connections from one socket, each a server of its own.

They share the database, and through it their runs, as servers on several machines do. The process that starts them
serves nothing: it passes on that they are to stop, and starts another in the place of one that has ended. It tells them
through a pipe and not by signals: who stops a service sends its signal to each of its processes, and a worker takes a
second one for the order to stop at once.
"""

import asyncio
import multiprocessing
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import structlog
import uvicorn

from callboard._application.application import Application

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
RESTART_SECONDS = 5.0
"""The wait before another is started in the place of one that did not come to serve."""

_log = structlog.get_logger(__name__)


class Word(StrEnum):
    """What the two tell each other."""

    STOP = "stop"
    HURRY = "hurry"
    SERVES = "serves"


Work = Callable[[Path, int, Connection], None]
"""Serves as the worker of that number until the pipe says otherwise; it is pickled for its process.

The folder is the workers' own, for what they have to tell each other.
"""


@dataclass(slots=True)
class Worker:
    """A process, as the one that started it sees it."""

    number: int
    process: SpawnProcess
    serves: bool = False


def supervise(count: int, work: Work) -> int:
    """Run `count` workers until this process is told to stop; return 1 where none of them comes to serve.

    Ends with the signal that it was stopped by.
    """
    with _signals() as told, TemporaryDirectory(prefix="callboard-") as folder:
        supervisor = Supervisor(work, Path(folder))
        for number in range(1, count + 1):
            supervisor.start(number)
        while supervisor.workers or supervisor.due:
            supervisor.wait(told)
    if not supervisor.has_served:
        return 1
    signal.raise_signal(supervisor.stopped_by)
    return 0


class Supervisor:
    """The workers that there are, and those that are to be started again."""

    def __init__(self, work: Work, folder: Path) -> None:
        self.workers: dict[Connection, Worker] = {}
        """By their pipes."""
        self.due: dict[int, float] = {}
        """The times by `time.monotonic` at which those of these numbers are to be started."""
        self.has_served = False
        self.stopped_by = 0
        """The signal that came first."""
        self._work = work
        self._folder = folder

    def start(self, number: int) -> None:
        """Start a worker."""
        # Not forked: libraries that agents load have threads, whose locks nobody would let go of.
        spawning = multiprocessing.get_context("spawn")
        ours, theirs = spawning.Pipe()
        process = spawning.Process(target=self._work, args=(self._folder, number, theirs), name=f"worker {number}")
        process.start()
        # Else it would stay open when the worker ends.
        theirs.close()
        self.workers[ours] = Worker(number, process)
        _log.info("worker_started", worker=number, pid=process.pid)

    def wait(self, told: socket.socket) -> None:
        """Wait for the next signal, word or end of a worker, or time to start one, and do what follows from it."""
        seconds = max(0.0, min(self.due.values()) - time.monotonic()) if self.due else None
        for one in wait([told, *self.workers], seconds):
            if isinstance(one, Connection):
                self._hear(one, self.workers[one])
            else:
                self._stop(told.recv(1)[0])
        now = time.monotonic()
        for number in [number for number, at in self.due.items() if at <= now]:
            del self.due[number]
            self.start(number)

    def _stop(self, number: int) -> None:
        self._tell(Word.HURRY if self.stopped_by or number == signal.SIGINT else Word.STOP)
        self.stopped_by = self.stopped_by or number
        self.due.clear()

    def _tell(self, word: Word) -> None:
        for pipe in self.workers:
            # It may have ended.
            with suppress(OSError):
                pipe.send(word.value)

    def _hear(self, pipe: Connection, worker: Worker) -> None:
        try:
            worker.serves = Word(pipe.recv()) is Word.SERVES
        except (EOFError, OSError):
            self._part_from(pipe, worker)
        else:
            self.has_served = True

    def _part_from(self, pipe: Connection, worker: Worker) -> None:
        worker.process.join()
        pipe.close()
        del self.workers[pipe]
        if self.stopped_by:
            return
        _log.warning("worker_ended", worker=worker.number, exit_code=worker.process.exitcode)
        if self.has_served:
            self.due[worker.number] = time.monotonic() + (0 if worker.serves else RESTART_SECONDS)
        else:
            # What keeps one from serving keeps the others; it has said what it is.
            self._stop(signal.SIGINT)


@asynccontextmanager
async def following_supervisor(pipe: Connection, app: Application, server: uvicorn.Server) -> AsyncIterator[None]:
    """Stop when the pipe says so, or whoever is at its other end is gone."""
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    async def stop(word: Word) -> None:
        if server.started:
            await app.stop(at_once=word is Word.HURRY)
        server.should_exit = True

    def hear() -> None:
        try:
            word = Word(pipe.recv())
        except (EOFError, OSError):
            loop.remove_reader(pipe)
            word = Word.STOP
        stopping.add(asyncio.create_task(stop(word)))

    loop.add_reader(pipe, hear)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket from which the numbers of the signals come that ask this process to stop."""
    hearing, telling = socket.socketpair()
    telling.setblocking(False)

    def tell(number: int, _: FrameType | None) -> None:
        telling.send(bytes([number]))

    before = {number: signal.signal(number, tell) for number in STOP_SIGNALS}
    try:
        with hearing, telling:
            yield hearing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
