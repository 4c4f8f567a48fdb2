"""A buffer between the tasks that send events and the one task that reads them."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from callboard_protocol import Event


class EventBuffer:
    """Holds events until the reader takes them. `on_send` is called with each event when it is sent.

    Not an `asyncio.Queue`, which takes more memory than everything else that a turn without events needs here.
    """

    def __init__(self, on_send: Callable[[Event], None] = lambda _: None) -> None:
        self._on_send = on_send
        self._unread: list[Event | Callable[[], None]] = []
        self._more: asyncio.Future[None] | None = None

    def send(self, event: Event) -> None:
        """Add an event."""
        self._on_send(event)
        self._append(event)

    async def wait_until_written(self) -> None:
        """Return when the reader has processed every event sent so far: starts and approvals are then stored."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_in_order(lambda: None if written.done() else written.set_result(None))
        await written

    def call_in_order(self, function: Callable[[], None]) -> None:
        """Call the function when every event sent so far is processed; never if reading has stopped."""
        self._append(function)

    async def read(self, work: "asyncio.Task[object]") -> AsyncGenerator[Event, None]:
        """Yield the events until `work`, the task that sends them, has ended. Closing the generator cancels it."""
        work.add_done_callback(lambda _: self._wake())
        try:
            while self._unread or not work.done():
                unread = self._unread
                self._unread = []
                for item in unread:
                    if isinstance(item, Event):
                        yield item
                    else:
                        item()
                if not self._unread and not work.done():
                    self._more = asyncio.get_running_loop().create_future()
                    await self._more
        finally:
            work.cancel()
            await asyncio.wait({work})

    def _append(self, item: Event | Callable[[], None]) -> None:
        self._unread.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
