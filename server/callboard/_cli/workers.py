"""`callboard serve --workers N`: servers that take connections from one socket, each in a process of its own.

uvicorn's supervisor starts them and replaces one that ends. They share the database, and through it their runs, as
servers on several machines do.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from callboard._metrics import Metrics

HEALTHCHECK_SECONDS = 30
"""The time after which the supervisor kills a worker that does not answer: a start on a busy machine takes some."""

METRICS_SECONDS = 1.0
"""The time between two looks of a worker at its own gauges, which any other worker may be asked for."""

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which `prometheus_client` knows, once it is imported, that processes share their metrics."""


def supervise(config: uvicorn.Config, listener: socket.socket) -> int:
    """Run `config.workers` workers until this process is told to stop; return 1 if one of them could not start."""
    # Otherwise no line tells that a worker died.
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)
    with TemporaryDirectory(prefix="callboard-") as folder:
        os.environ[METRICS_FOLDER] = folder
        supervisor = Multiprocess(config, [listener])
        supervisor.run()
    return int(any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes))


@asynccontextmanager
async def working(metrics: Metrics | None) -> AsyncGenerator[None]:
    """Be one of several workers until the block ends: share metrics, and stop when the supervisor stops or is gone."""
    _ignore_repeated(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def stop() -> None:
        loop.remove_reader(supervisor.sentinel)
        signal.raise_signal(signal.SIGTERM)

    # It is readable once that process has ended.
    loop.add_reader(supervisor.sentinel, stop)
    sharing = asyncio.create_task(_share(metrics), name="share metrics") if metrics else None
    try:
        yield
    finally:
        loop.remove_reader(supervisor.sentinel)
        if sharing:
            sharing.cancel()


async def _share(metrics: Metrics) -> None:
    metrics.folder = Path(os.environ[METRICS_FOLDER])
    while True:
        metrics.refresh()
        await asyncio.sleep(METRICS_SECONDS)


def _ignore_repeated(number: int) -> None:
    """Handle the first such signal and no other.

    The supervisor sends one to each worker, and so does systemd to each process of a service. The application takes a
    second signal for the order to stop at once.
    """
    handle = signal.getsignal(number)
    assert callable(handle)

    def handle_first(given: int, frame: FrameType | None) -> None:
        # Not SIG_IGN, which processes that tools start would inherit.
        signal.signal(number, lambda *_: None)
        handle(given, frame)

    signal.signal(number, handle_first)
