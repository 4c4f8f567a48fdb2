"""The socket that a server listens on, and the number of connections that its descriptors allow.

Every connection takes a file descriptor, and so does everything that a run does. uvicorn counts connections; it has no
limit on the time for a request's headers and none for one address. A proxy has both: `deploy/`.
"""

import resource
import socket

import structlog

DESCRIPTORS_OF_SERVER = 192
DESCRIPTORS_OF_RUN = 2
"""Descriptors that are kept for the database, the log and processes, and for the model and a tool of each run."""

FEWEST_CONNECTIONS = 16
ENOUGH_CONNECTIONS = 1000
"""Below this number a start logs a warning."""

MOST_DESCRIPTORS = 65_536
"""The highest limit that a server sets for itself: more than one client address can open, which has 64,511 ports.

Each connection takes memory too, so a limit of millions protects nothing.
"""

_log = structlog.get_logger(__name__)


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


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as the system lets this process; return the limit."""
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


def compute_connection_limit(descriptors: int, *, max_connections: int, max_runs: int) -> int:
    """Return the number of connections that leaves runs the descriptors that they need."""
    left = descriptors - DESCRIPTORS_OF_SERVER - DESCRIPTORS_OF_RUN * max_runs
    total = max(FEWEST_CONNECTIONS, min(max_connections, left))
    if left < min(max_connections, ENOUGH_CONNECTIONS):
        _log.warning(
            "few_descriptors",
            connections=total,
            hint=f"only {descriptors} files may be open, and one client can use them up: raise that limit (ulimit -n, "
            "LimitNOFILE= of systemd), or let a proxy limit connections",
        )
    return total
