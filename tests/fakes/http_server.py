"""The server of the fakes that are reached over real HTTP."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import uvicorn

from callboard.http.listening import listen


class HttpServer(uvicorn.Server):
    """Serves an application on a free port until the block ends, then breaks off whatever is under way.

    uvicorn itself looks ten times a second whether it should end, and then waits for its connections.
    """

    def __init__(self, app: Any, **config: Any) -> None:
        super().__init__(uvicorn.Config(app, lifespan="off", log_config=None, **config))
        self._is_over = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listener = listen("127.0.0.1", 0)
        self._serving = asyncio.create_task(self.serve(sockets=[self._listener]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over.set()
        await self._serving
        self._listener.close()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the test runner."""
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._is_over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for task in self.server_state.tasks:
            task.cancel()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        for connection in self.server_state.connections:
            connection.transport.abort()
        while self.server_state.connections:  # noqa: ASYNC110 - uvicorn says of none that it is gone
            await asyncio.sleep(0)
