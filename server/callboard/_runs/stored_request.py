"""A run's request as it is stored, so that another server can continue the run."""

import zlib
from collections.abc import Mapping

import structlog
from opentelemetry.context import Context
from pydantic import Field

from callboard._trace_context import headers_of, join
from callboard_protocol import RunRequest

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""The largest request, packed, that is kept for another server to go on with."""

LOGGED_FIELDS = ("request_id", "key")
"""What every line of log of a request, and of its run, says."""


class StoredRequest(RunRequest):
    """A request as it is kept. `origin` is what the log, traces and the audit say of it.

    That is its id, the name of its key, the headers of its trace, and as `run` the `traceparent` of its run.
    """

    origin: dict[str, str] = Field(default_factory=dict)


def find_origin(run: Context) -> dict[str, str]:
    """Return the origin of the request that the current task works for; `run` is the context of its run."""
    said = structlog.contextvars.get_contextvars()
    of_run = headers_of(run)
    # A request of no trace begins one with its run, and whoever goes on with it stays in that.
    origin = of_run | headers_of()
    if "traceparent" in of_run:
        origin["run"] = of_run["traceparent"]
    return origin | {name: said[name] for name in LOGGED_FIELDS if said.get(name)}


def enter_origin(origin: Mapping[str, str]) -> None:
    """Have this task, until it ends, work for the request of that origin, and whatever it begins."""
    structlog.contextvars.bind_contextvars(**{name: origin[name] for name in LOGGED_FIELDS if name in origin})
    join(origin)


def pack_request(request: RunRequest) -> bytes | None:
    """Return a request as it is kept, None where it is too large."""
    packed = zlib.compress(request.model_dump_json(exclude_unset=True).encode())
    return packed if len(packed) <= MAX_REQUEST_BYTES else None


def unpack_request(packed: bytes) -> StoredRequest:
    """Return a request that was kept."""
    return StoredRequest.model_validate_json(zlib.decompress(packed))
