"""`callboard serve --workers N`: several servers that accept connections from one socket, each in its own process.

uvicorn's supervisor starts the workers and replaces a worker that ends. Like servers on several machines, they share
the database and so each other's runs.
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
"""The supervisor kills a worker that does not answer for this long. A start on a busy machine takes several seconds."""

METRICS_SECONDS = 1.0
"""The interval at which a worker writes its gauges to the shared folder, from which each worker serves `/metrics`."""

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder of shared metrics. `prometheus_client` reads it when it is imported."""


def supervise(config: uvicorn.Config, listener: socket.socket) -> int:
    """Run `config.workers` workers until a signal stops this process. Return 1 if one of them could not start."""
    # At a higher level, uvicorn does not report that a worker died.
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)
    with TemporaryDirectory(prefix="callboard-") as folder:
        os.environ[METRICS_FOLDER] = folder
        supervisor = Multiprocess(config, [listener])
        supervisor.run()
    return int(any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes))


@asynccontextmanager
async def run_as_worker(metrics: Metrics | None) -> AsyncGenerator[None]:
    """Until the block ends, share metrics with the other workers, and stop this worker if the supervisor has ended."""
    _ignore_repeats(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def stop() -> None:
        loop.remove_reader(supervisor.sentinel)
        signal.raise_signal(signal.SIGTERM)

    # The sentinel becomes readable when the supervisor's process has ended.
    loop.add_reader(supervisor.sentinel, stop)
    sharing = asyncio.create_task(_share_metrics(metrics), name="share metrics") if metrics else None
    try:
        yield
    finally:
        loop.remove_reader(supervisor.sentinel)
        if sharing:
            sharing.cancel()


async def _share_metrics(metrics: Metrics) -> None:
    metrics.folder = Path(os.environ[METRICS_FOLDER])
    while True:
        metrics.refresh()
        await asyncio.sleep(METRICS_SECONDS)


def _ignore_repeats(number: int) -> None:
    """Ignore every signal with this number after the first.

    The supervisor and systemd both send the signal to every worker, because systemd signals each process of a service.
    The server would read the second signal as an order to stop at once.
    """
    handle = signal.getsignal(number)
    assert callable(handle)

    def handle_first(given: int, frame: FrameType | None) -> None:
        # A function instead of SIG_IGN, because the processes that tools start would inherit SIG_IGN.
        signal.signal(number, lambda *_: None)
        handle(given, frame)

    signal.signal(number, handle_first)
