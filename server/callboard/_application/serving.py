"""Serves an application in the running event loop, for tests."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn

from callboard._application.application import Application

DATE_SECONDS = 1
"""Interval at which uvicorn updates the `Date` of its responses."""


class _Server(uvicorn.Server):
    """A uvicorn server that sets `is_ready` when it listens or has failed to start, and ends when `is_over` is set."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = asyncio.Event()
        self.is_over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handling of signals to the program around the server."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn checks ten times a second, which takes half of the time of a short test."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_over.wait(), DATE_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn exits if the application does not open, but this process goes on and reports the error.
            self.should_exit = True
        finally:
            self.is_ready.set()


@asynccontextmanager
async def serving(app: Application, sockets: list[socket.socket] | None = None, **config: Any) -> AsyncIterator[None]:
    """Serve the application until the block ends, on `sockets` or as uvicorn's `config` says; then end its runs.

    Raises the error that prevents its start.
    """
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="on", **config))
    task = asyncio.create_task(server.serve(sockets=sockets))
    await server.is_ready.wait()
    if app.start_error is not None:
        await task
        raise app.start_error
    try:
        yield
    finally:
        await app.stop(at_once=True)
        server.should_exit = True
        server.is_over.set()
        await task
