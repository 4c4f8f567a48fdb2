"""Notifications between the servers of one database, so that a server need not wait for its next query.

A notification has the id of a run only. It may be lost: servers that know of others query the database each second.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from functools import partial

import structlog

from callboard.errors import StorageError

RELEASED_RUN = ""
"""The run id in a notification that a run was released, so that any server may take it over."""

OPEN_SECONDS = 1.0
"""The seconds that a starting server waits for the first connection of its bus."""
RECONNECT_SECONDS = 0.5
CLOSE_SECONDS = 1.0
HEARTBEAT = b"heartbeat"
HEARTBEAT_SECONDS = 3.0
SILENCE_SECONDS = 10.0
"""A server also receives its own heartbeats. After this time without a message it reconnects."""

_log = structlog.get_logger(__name__)

OnNotification = Callable[[str], None]
"""Called with the id of a run that has new frames or signals in the database."""
Send = Callable[[Sequence[bytes]], Awaitable[None]]


class Bus:
    """A bus that sends and receives nothing; used with SQLite, where each process polls the database instead."""

    @asynccontextmanager
    async def open(self, _server_id: str, _on_notification: OnNotification) -> AsyncIterator[None]:
        """Send published notifications and call `on_notification` with those of other servers, until the block ends.

        Waits for the first attempt to connect, for `OPEN_SECONDS` at most. If the connection fails, or is lost later,
        the bus reconnects.
        """
        yield

    def publish(self, run_id: str) -> None:
        """Notify other servers of committed frames of a run, or of a signal to it.

        Never blocks or raises. Does nothing while the bus is not connected.
        """


class ConnectedBus(Bus, ABC):
    """A bus with a connection. `name` identifies it in the log; it has no password."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._server_id = ""
        self._is_connected = False
        self._is_closing = False
        # A set in order: several notifications of one run become one.
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._received_at = 0.0

    @abstractmethod
    def _connect(self, receive: Callable[[bytes], None]) -> AbstractAsyncContextManager[Send]:
        """Connect until the block ends; call `receive` with every message, and yield a function that sends messages.

        The block and the function raise the errors of the client library. Sets `_wake` when the connection is lost.
        """

    def _describe(self, error: Exception) -> str:
        """Return the text of an error without passwords."""
        return str(error)

    @asynccontextmanager
    async def open(self, server_id: str, on_notification: OnNotification) -> AsyncIterator[None]:
        """See `Bus.open`."""
        self._server_id = server_id
        has_tried = asyncio.Event()
        task = asyncio.create_task(
            self._stay_connected(partial(self._receive, on_notification), has_tried), name="bus", context=Context()
        )
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS):
                    await has_tried.wait()
            yield
        finally:
            # A stopping server has just published the runs that it released: send them.
            self._is_closing = True
            self._wake.set()
            await asyncio.wait({task}, timeout=CLOSE_SECONDS if self._is_connected else 0)
            task.cancel()
            await asyncio.wait({task})

    def publish(self, run_id: str) -> None:
        """See `Bus.publish`."""
        if self._is_connected:
            self._waiting[run_id] = None
            self._wake.set()

    async def _stay_connected(self, receive: Callable[[bytes], None], has_tried: asyncio.Event) -> None:
        has_failed = False
        while True:
            try:
                async with self._connect(receive) as send:
                    if has_failed:
                        _log.info("bus_works_again", bus=self._name)
                    has_failed = False
                    self._is_connected = True
                    has_tried.set()
                    await self._send_waiting(send)
                    return
            except Exception as error:  # noqa: BLE001 - the client libraries have no common error class
                if not has_failed:
                    _log.warning("bus_failed", bus=self._name, error=self._describe(error))
                has_failed = True
            finally:
                self._is_connected = False
                self._waiting.clear()
                has_tried.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _send_waiting(self, send: Send) -> None:
        """Send notifications and heartbeats until the bus is closed."""
        self._received_at = time.monotonic()
        while not self._is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            if time.monotonic() - self._received_at > SILENCE_SECONDS:
                raise StorageError(f"no message received for {SILENCE_SECONDS:g} s")
            messages = [f"{self._server_id}\n{run_id}".encode() for run_id in self._waiting]
            self._waiting.clear()
            await send(messages or [HEARTBEAT])

    def _receive(self, on_notification: OnNotification, message: bytes) -> None:
        self._received_at = time.monotonic()
        # Heartbeats, and messages of other programs, have no second line.
        sender, newline, run_id = message.decode(errors="replace").partition("\n")
        if newline and sender != self._server_id:
            on_notification(run_id)
