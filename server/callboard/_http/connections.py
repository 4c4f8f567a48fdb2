"""Bounds on connections: how many there may be, and how long one may take to say what it wants.

Every connection takes a file descriptor, and so does everything that a run does: a server without bounds is stopped by
whoever opens connections and says nothing, with a key or without.
"""

import asyncio
import resource
import socket
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, cast

import structlog
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 15.0
"""The time that a request may take up to the end of its headers; that of a body is in `http.body`."""

MAX_SILENT_OF_ADDRESS = 64
SILENT_SECONDS = 1.0
"""Connections of one address that have not said for so long what they want; the oldest makes place for the newest.

What a client opens in one go is not silent: Open WebUI comes back to all its answers at once.
"""

BACKLOG = 64
"""Connections that the event loop accepts at once, before any of them is counted."""

DESCRIPTORS_OF_SERVER = 64 + 2 * BACKLOG
DESCRIPTORS_OF_RUN = 2
"""Descriptors that are kept back: for the database, the log and processes, and for each run its model and a tool."""

FEWEST_CONNECTIONS = 16
MOST_DESCRIPTORS = 65_536

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The most connections in all and of one address."""

    total: int
    of_address: int
    header_seconds: float = HEADER_SECONDS
    silent_seconds: float = SILENT_SECONDS


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as the system lets this process; return what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else MOST_DESCRIPTORS
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        _log.warning("descriptor_limit_not_raised", limit=soft, error=str(error))
        return soft
    return wanted


def compute_bounds(descriptors: int, *, max_connections: int, max_of_address: int, max_runs: int) -> ConnectionBounds:
    """Return the bounds that leave runs the descriptors that they need."""
    left = descriptors - DESCRIPTORS_OF_SERVER - DESCRIPTORS_OF_RUN * max_runs
    total = max(FEWEST_CONNECTIONS, min(max_connections, left))
    if total < max_connections:
        _log.warning(
            "few_descriptors",
            connections=total,
            hint=f"only {descriptors} files may be open: raise that limit (ulimit -n), or lower CALLBOARD_MAX_RUNS",
        )
    return ConnectionBounds(total, min(max_of_address, total))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections send each event at once.

    asyncio turns off Nagle's algorithm only if a socket names its protocol, and those of `create_server` do not. With
    the algorithm an event waits until the client has acknowledged the event before, which it delays by 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # The connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Open:
    """The connections that are open."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self._bounds = bounds
        self._of_address: Counter[str] = Counter()
        self._silent: defaultdict[str, dict[Any, float]] = defaultdict(dict)
        """The connections of each address that have not said what they want and since when, the oldest first."""

    def add(self, address: str) -> bool:
        """Count one more, in the place of one that says nothing where it must be; return False where none is."""
        if self._of_address[address] >= self._bounds.of_address and not self._end_oldest_of(address):
            return False
        if self._of_address.total() >= self._bounds.total:
            most = max(self._silent, key=lambda other: len(self._silent[other]), default="")
            if not self._end_oldest_of(most):
                return False
        self._of_address[address] += 1
        return True

    def remove(self, address: str) -> None:
        """Count one less."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def add_silent(self, address: str, connection: Any) -> None:
        """Count a connection that has not said what it wants."""
        silent = self._silent[address]
        now = time.monotonic()
        silent[connection] = now
        oldest_since = next(iter(silent.values()))
        if len(silent) > MAX_SILENT_OF_ADDRESS and now - oldest_since >= self._bounds.silent_seconds:
            self._end_oldest_of(address)

    def _end_oldest_of(self, address: str) -> bool:
        silent = self._silent.get(address)
        if not silent:
            return False
        next(iter(silent)).end()
        return True

    def remove_silent(self, address: str, connection: Any) -> None:
        """Forget a connection that has, or is gone."""
        self._silent[address].pop(connection, None)
        if not self._silent[address]:
            del self._silent[address]


class _BoundedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # a class or another, by what is installed
    """uvicorn's protocol that refuses connections that are too many, and ends those that take too long to ask."""

    bounds: ConnectionBounds
    open_now: _Open
    _known = False
    """True once uvicorn has been told of it."""
    _counted = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self._own_transport = cast(asyncio.Transport, transport)
        if not self.open_now.add(self._address):
            # Without a word to uvicorn: for it there is no such connection.
            self._own_transport.write(BUSY)
            self._own_transport.close()
            return
        self._known = self._counted = True
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        if not self._counted:
            return
        super().data_received(data)
        if self._is_asked():
            self._stop_waiting()
        else:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._known:
            self._leave()
            super().connection_lost(exc)

    def pause_writing(self) -> None:
        if self._known:
            super().pause_writing()

    def resume_writing(self) -> None:
        if self._known:
            super().resume_writing()

    def end(self) -> None:
        """Close the connection: what it wants did not come in time, or others need its place."""
        self._leave()
        self._own_transport.abort()

    def _leave(self) -> None:
        self._stop_waiting()
        if self._counted:
            self._counted = False
            self.open_now.remove(self._address)

    def _is_asked(self) -> bool:
        """Return whether a request is under way, or uvicorn has closed."""
        return self._own_transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete)

    def _wait_for_headers(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.bounds.header_seconds, self.end)
            self.open_now.add_silent(self._address, self)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.open_now.remove_silent(self._address, self)


def build_protocol(bounds: ConnectionBounds) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol for one server, within these bounds."""
    return type("BoundedProtocol", (_BoundedProtocol,), {"bounds": bounds, "open_now": _Open(bounds)})
