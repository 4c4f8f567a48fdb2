"""The `callboard` command as a process of its own.

`run` and `serving` fork it from a process that has imported everything already: that takes a tenth of the time of a
start. `COMMAND` starts Python anew, for tests of the start itself and of its standard streams.
"""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Thread
from typing import IO, Any

from callboard import _cli

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "import sys; from callboard._cli import main; sys.exit(main())"]

_processes = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "callboard._cli.serve",
    "callboard.agents.builtin",
    "callboard._history",
    "alembic.command",
    "anyio._backends._asyncio",
]
_processes.set_forkserver_preload(_PRELOADED)


def preload(*modules: str) -> None:
    """Import more modules before the first process is forked."""
    _processes.set_forkserver_preload([*_PRELOADED, *modules])


def environment(folder: Path, **settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CALLBOARD_")}
    # A model that happens to run on this machine, or a `.env` in its working directory, must not change a test.
    own = {"CALLBOARD_DATA_DIR": str(folder), "CALLBOARD_PORT": "0", "CALLBOARD_FIND_MODEL": "false"}
    # The agents' files of tests import from the tests.
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), clean.get("PYTHONPATH")]))
    return {**clean, **own} | {f"CALLBOARD_{name}": value for name, value in settings.items()}


@dataclass(frozen=True)
class Command:
    """A command that was started, as `subprocess.Popen` has it; `events` has the log of `serving` until it listens."""

    stdout: IO[str]
    stderr: IO[str]
    _process: ForkServerProcess
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """The exit code; of a process that a signal ended, the signal's number below zero."""
        self._process.join(seconds)
        assert self._process.exitcode is not None
        return self._process.exitcode


def start(folder: Path, *arguments: str, **settings: str) -> Command:
    """Start a command in a folder, which is also its data folder."""
    out, says = _processes.Pipe(duplex=False)
    err, complains = _processes.Pipe(duplex=False)
    given = (folder, arguments, environment(folder, **settings), says, complains)
    process = _processes.Process(target=_run, args=given)
    process.start()
    with out, err, says, complains:
        return Command(os.fdopen(os.dup(out.fileno())), os.fdopen(os.dup(err.fileno())), process)


def _run(
    folder: Path, arguments: Sequence[str], variables: Mapping[str, str], out: Connection, err: Connection
) -> None:
    with out, err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
    # Made again, as Python does at its start, because the streams of the fork server are not pipes.
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    # A shell that starts tests in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    # A server collects garbage at its start, which must not include objects of the fork server.
    gc.freeze()
    sys.exit(_cli.main(arguments))


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = start(folder, *arguments, **settings)
    with command.stdout, command.stderr, ThreadPoolExecutor() as threads:
        out, err = threads.map(lambda stream: stream.read(), (command.stdout, command.stderr))
        return subprocess.CompletedProcess(arguments, command.wait(), out, err)


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[tuple[str, Command]]:
    """Start a server; its address, and its process, which is killed at the end of the block."""
    folder.mkdir(exist_ok=True)
    command = start(folder, "serve", **settings)
    with command.stdout, command.stderr:
        try:
            command.events.extend(read_start(command.stderr))
            yield str(command.events[-1]["url"]), command
        finally:
            command.kill()
            command.wait()


def discard(log: IO[str]) -> None:
    """Read a log until its end, because a server whose log nobody reads stops after 64 KiB of it."""
    Thread(target=lambda: deque(log, maxlen=0), daemon=True).start()


def read_start(log: IO[str]) -> list[dict[str, Any]]:
    """The events in a server's log until it listens; the last one has its address."""
    events = []
    for line in log:
        if line.startswith("{"):
            events.append(json.loads(line))
            if events[-1]["event"] == "listening":
                return events
    raise AssertionError("the server ended before it listened")


def address(log: IO[str]) -> str:
    return str(read_start(log)[-1]["url"])
