"""Handles the signals for a shutdown.

An ASGI server sends the shutdown event only after every connection has closed, and a stream closes when its run ends.
Without `Shutdown`, the server would wait for all runs and would refuse new connections meanwhile, so that clients could
not resume, answer a question or cancel.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self

import anyio

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


class Shutdown:
    """The steps of a shutdown, as events: it is requested, it becomes urgent, the runs are released.

    As a context manager it handles SIGTERM and SIGINT, if it is entered in the main thread; other threads get no
    signals. It is entered when the application starts, when the server has set its own handlers. These are called only
    after the runs are released, so the server accepts connections until then. SIGTERM requests a shutdown. SIGINT or a
    second signal makes it urgent, because a person who presses Ctrl-C waits for the process. Later signals go to the
    server at once.
    """

    def __init__(self) -> None:
        self.requested = anyio.Event()
        """Set when the server must not start new runs."""
        self.urgent = anyio.Event()
        """Set when runs must be released without waiting for their ends."""
        self.runs_released = anyio.Event()
        """Set when every run has ended or is released to another server."""
        self._handlers: dict[int, _ChainedHandler] = {}
        self._delayed_signal: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in STOP_SIGNALS:
                previous = signal.getsignal(number)
                # Without a handler, the signal is ignored or ends the process: there is no orderly shutdown to delay.
                if callable(previous):
                    self._handlers[number] = _ChainedHandler(self, loop, previous)
                    signal.signal(number, self._handlers[number])
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            previous = handler.previous
            # If another application has chained its own handler to this one, this one stays and does no harm.
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)
        self.finish()

    async def wait(self) -> None:
        """Wait until a shutdown is requested."""
        await self.requested.wait()

    def hurry(self) -> None:
        """Request a shutdown that does not wait for the ends of the runs."""
        self.requested.set()
        self.urgent.set()

    def finish(self) -> None:
        """Set `runs_released`, and call the server's handler for the signal that was delayed."""
        self.runs_released.set()
        delayed = self._delayed_signal
        self._delayed_signal = None
        if delayed:
            delayed()

    def handle_signal(self, number: int, call_previous: Callable[[], object] | None) -> None:
        """Request a shutdown; `call_previous`, the previous handler if any, is called when the runs are released."""
        if self.runs_released.is_set() or self.urgent.is_set():
            # The delayed signal is dropped: the server counts signals, and a second one may make it exit at once.
            self._delayed_signal = None
            if call_previous:
                call_previous()
            return
        if number == signal.SIGINT or self.requested.is_set():
            self.urgent.set()
        self.requested.set()
        self._delayed_signal = self._delayed_signal or call_previous


@dataclass(frozen=True, slots=True, eq=False)
class _ChainedHandler:
    """A signal handler that runs before the handler that was set previously."""

    shutdown: Shutdown
    loop: asyncio.AbstractEventLoop
    previous: Handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.loop.is_closed():
            self.previous(number, frame)
            return
        call_previous: Callable[[], object] | None = partial(self.previous, number, None)
        if isinstance(self.previous, _ChainedHandler):
            # Another application in this process: it shuts down at the same time, and delays the signal itself.
            self.previous(number, frame)
            call_previous = None
        self.loop.call_soon_threadsafe(self.shutdown.handle_signal, number, call_previous)
