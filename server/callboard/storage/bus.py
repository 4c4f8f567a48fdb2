"""The bus: notifications between the servers of one database, so that they need not wait for their next look.

A notification may be lost. Everything that it says is in the database, where servers look every second.
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

import structlog

from callboard.errors import StorageError

RELEASED_RUN = ""
"""The run id of the notification that some run was released: any server may take it over."""

MAX_FRAME_BYTES = 256 * 1024
"""The most that the frames of one notification take; larger ones are read from the database."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""The most that waits to be sent; more is dropped."""
OPEN_SECONDS = 1.0
"""The seconds that a server waits for the first connection before it starts without."""
RECONNECT_SECONDS = 0.5
CLOSE_SECONDS = 1.0
HEARTBEAT = b"heartbeat"
HEARTBEAT_SECONDS = 3.0
SILENCE_SECONDS = 10.0
"""A server receives its own messages too. If it has received nothing for so long, it connects again."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notification:
    """Tells other servers of a run: of committed frames, or, without a `last_seq`, that a client wants something of it.

    `sender` is the id of a server. The frames are those after number `after`, up to `last_seq`, joined; there are none
    if they are too large for the bus. `is_ended` means that `last_seq` is the run's last frame.
    """

    sender: str
    run_id: str
    after: int = 0
    last_seq: int = 0
    frames: bytes = b""
    is_ended: bool = False

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads: a line of JSON, and the frames."""
        head = [self.sender, self.run_id, self.after, self.last_seq, self.is_ended]
        return json.dumps(head).encode() + b"\n" + self.frames

    @classmethod
    def decode(cls, message: bytes) -> "Notification":
        """Return the notification; raises `ValueError` if it is none."""
        head, _, frames = message.partition(b"\n")
        match json.loads(head):
            case [str(sender), str(run_id), int(after), int(last_seq), bool(is_ended)]:
                return cls(sender, run_id, after, last_seq, frames, is_ended)
        raise ValueError("not a notification of this version")


OnNotification = Callable[[Notification], None]
Send = Callable[[Sequence[bytes]], Awaitable[None]]


class Bus:
    """A bus that notifies nobody: that of SQLite, whose file one server has."""

    @asynccontextmanager
    async def open(self, _server_id: str, _on_notification: OnNotification) -> AsyncIterator[None]:
        """Send what is published, and call `on_notification` with what other servers publish, until the block ends.

        Waits for the first attempt to connect, for `OPEN_SECONDS` at most. If the connection fails, or is lost later,
        the bus connects again.
        """
        yield

    def publish(self, run_id: str, first_seq: int = 1, frames: Sequence[bytes] = (), *, is_ended: bool = False) -> None:
        """Notify other servers of committed frames, the first with the number `first_seq`; without frames, of a signal.

        Never waits and never fails. Does nothing while the bus is not connected.
        """


class ConnectedBus(Bus, ABC):
    """A bus with a connection. `name` is for the log, without passwords."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._server_id = ""
        self._is_connected = False
        self._is_closing = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_due = asyncio.Event()
        self._heard_at = 0.0

    @abstractmethod
    def _connect(self, hear: Callable[[bytes], None]) -> AbstractAsyncContextManager[Send]:
        """Connect until the block ends; call `hear` with every message, and yield what sends some.

        Raises whatever the client's library raises, as does the sending. Sets `_is_due` when the connection is lost.
        """

    def _explain(self, error: Exception) -> str:
        """Return the text of an error, without passwords."""
        return str(error)

    def _fit(self, notification: Notification) -> bytes:
        """Return the message of a notification, without its frames if the bus cannot carry them."""
        return notification.encode()

    @asynccontextmanager
    async def open(self, server_id: str, on_notification: OnNotification) -> AsyncIterator[None]:
        """See `Bus.open`."""
        self._server_id = server_id
        has_tried = asyncio.Event()
        task = asyncio.create_task(
            self._stay_connected(partial(self._hear, on_notification), has_tried), name="bus", context=Context()
        )
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS):
                    await has_tried.wait()
            yield
        finally:
            # A server that stops has just published the runs that it released.
            self._is_closing = True
            self._is_due.set()
            await asyncio.wait({task}, timeout=CLOSE_SECONDS if self._is_connected else 0)
            task.cancel()
            await asyncio.wait({task})

    def publish(self, run_id: str, first_seq: int = 1, frames: Sequence[bytes] = (), *, is_ended: bool = False) -> None:
        """See `Bus.publish`."""
        if not self._is_connected or self._waiting_bytes > MAX_WAITING_BYTES:
            return
        after = first_seq - 1
        joined = b"".join(frames) if sum(map(len, frames)) <= MAX_FRAME_BYTES else b""
        notification = Notification(self._server_id, run_id, after, after + len(frames), joined, is_ended)
        message = self._fit(notification)
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        self._is_due.set()

    async def _stay_connected(self, hear: Callable[[bytes], None], has_tried: asyncio.Event) -> None:
        is_in_trouble = False
        while True:
            try:
                async with self._connect(hear) as send:
                    if is_in_trouble:
                        _log.info("bus_works_again", bus=self._name)
                    is_in_trouble = False
                    self._is_connected = True
                    has_tried.set()
                    await self._send_waiting(send)
                    return
            except Exception as error:  # noqa: BLE001 - nobody translates what the clients of a bus raise
                if not is_in_trouble:
                    _log.warning("bus_failed", bus=self._name, error=self._explain(error))
                is_in_trouble = True
            finally:
                self._is_connected = False
                self._waiting = []
                self._waiting_bytes = 0
                has_tried.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _send_waiting(self, send: Send) -> None:
        """Send what is published until the bus is closed."""
        self._heard_at = time.monotonic()
        while not self._is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._is_due.wait()
            self._is_due.clear()
            if time.monotonic() - self._heard_at > SILENCE_SECONDS:
                raise StorageError("nothing comes back from it")
            messages = self._waiting or [HEARTBEAT]
            self._waiting = []
            self._waiting_bytes = 0
            await send(messages)

    def _hear(self, on_notification: OnNotification, message: bytes) -> None:
        self._heard_at = time.monotonic()
        if message == HEARTBEAT:
            return
        try:
            notification = Notification.decode(message)
        except ValueError as error:
            _log.warning("notification_not_read", bus=self._name, error=str(error))
            return
        if notification.sender != self._server_id:
            on_notification(notification)
