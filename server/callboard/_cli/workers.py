"""`callboard serve --workers N`: several servers that accept connections from one socket, each in its own process.

uvicorn's supervisor starts the workers and replaces a worker that ends. They share the database, and through it their
runs, like servers on several machines.
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
"""The supervisor kills a worker that does not answer for this long; the start on a busy machine takes seconds."""

METRICS_SECONDS = 1.0
"""Interval at which a worker writes its gauges to the shared folder, from which any worker answers `GET /metrics`."""

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of `prometheus_client`, read at its import: the folder in which processes share metrics."""


def supervise(config: uvicorn.Config, listener: socket.socket) -> int:
    """Run `config.workers` workers until this process is told to stop; return 1 if one of them could not start."""
    # Above this level uvicorn does not report that a worker died.
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)
    with TemporaryDirectory(prefix="callboard-") as folder:
        os.environ[METRICS_FOLDER] = folder
        supervisor = Multiprocess(config, [listener])
        supervisor.run()
    return int(any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes))


@asynccontextmanager
async def working(metrics: Metrics | None) -> AsyncGenerator[None]:
    """Until the block ends, share metrics with the other workers, and stop this worker if the supervisor is gone."""
    _ignore_repeated(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def stop() -> None:
        loop.remove_reader(supervisor.sentinel)
        signal.raise_signal(signal.SIGTERM)

    # The sentinel becomes readable when the supervisor's process has ended.
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
    """Ignore every signal of this number after the first.

    Both the supervisor and systemd, which signals each process of a service, send it to every worker. The application
    would read the second one as the order to stop at once.
    """
    handle = signal.getsignal(number)
    assert callable(handle)

    def handle_first(given: int, frame: FrameType | None) -> None:
        # Not SIG_IGN, because processes that tools start would inherit it.
        signal.signal(number, lambda *_: None)
        handle(given, frame)

    signal.signal(number, handle_first)
