"""Notifications between the servers of one database, so that a server need not wait for its next query.

A notification may be lost: its content is also in the database, and servers that know of others query that each second.
"""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import structlog

from callboard.errors import StorageError

RELEASED_RUN = ""
"""The run id in a notification that a run was released, so that any server may take it over."""

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""The size of the queue of unsent notifications; beyond it notifications are dropped."""
OPEN_SECONDS = 1.0
"""The seconds that a starting server waits for the first connection of its bus."""
RECONNECT_SECONDS = 0.5
CLOSE_SECONDS = 1.0
HEARTBEAT = b"heartbeat"
HEARTBEAT_SECONDS = 3.0
SILENCE_SECONDS = 10.0
"""A server also receives its own heartbeats. After this time without a message it reconnects."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notification:
    """A message about a run: frames were committed or, if `last_seq` is 0, a client has sent a signal to the run.

    `sender` is the id of a server. `frames` are the frames after number `after` up to `last_seq`, joined; empty if they
    are too large for the bus. `is_ended` means that `last_seq` is the run's last frame.
    """

    sender: str
    run_id: str
    after: int = 0
    last_seq: int = 0
    frames: bytes = b""
    is_ended: bool = False

    def encode(self) -> bytes:
        """Return a line of JSON, followed by the frames."""
        head = [self.sender, self.run_id, self.after, self.last_seq, self.is_ended]
        return json.dumps(head).encode() + b"\n" + self.frames

    @classmethod
    def decode(cls, message: bytes) -> "Notification":
        """Return the notification in a message; raises `ValueError` if the message has another format."""
        head, _, frames = message.partition(b"\n")
        match json.loads(head):
            case [str(sender), str(run_id), int(after), int(last_seq), bool(is_ended)]:
                return cls(sender, run_id, after, last_seq, frames, is_ended)
        raise ValueError("not a notification of this version")


OnNotification = Callable[[Notification], None]
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

    def publish(self, run_id: str, first_seq: int = 1, frames: Sequence[bytes] = (), *, is_ended: bool = False) -> None:
        """Notify other servers of committed frames, numbered from `first_seq`; without frames, of a signal to the run.

        Never blocks or raises. Does nothing while the bus is not connected.
        """


class ConnectedBus(Bus, ABC):
    """A bus with a connection. `name` identifies it in the log; it has no password."""

    max_frame_bytes: ClassVar[int] = 256 * 1024
    """The most bytes of frames in one notification; without them, followers read the frames from the database."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._server_id = ""
        self._is_connected = False
        self._is_closing = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
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

    def publish(self, run_id: str, first_seq: int = 1, frames: Sequence[bytes] = (), *, is_ended: bool = False) -> None:
        """See `Bus.publish`."""
        if not self._is_connected or self._waiting_bytes > MAX_WAITING_BYTES:
            return
        after = first_seq - 1
        joined = b"".join(frames) if sum(map(len, frames)) <= self.max_frame_bytes else b""
        message = Notification(self._server_id, run_id, after, after + len(frames), joined, is_ended).encode()
        self._waiting.append(message)
        self._waiting_bytes += len(message)
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
                self._waiting = []
                self._waiting_bytes = 0
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
            messages = self._waiting or [HEARTBEAT]
            self._waiting = []
            self._waiting_bytes = 0
            await send(messages)

    def _receive(self, on_notification: OnNotification, message: bytes) -> None:
        self._received_at = time.monotonic()
        if message == HEARTBEAT:
            return
        try:
            notification = Notification.decode(message)
        except ValueError as error:
            _log.warning("notification_not_read", bus=self._name, error=str(error))
            return
        if notification.sender != self._server_id:
            on_notification(notification)
