"""A run's request as it is stored, so that another server can continue the run."""

import zlib
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import Field
from pydantic_core import to_json

from callboard._trace_context import headers_of, join
from callboard_protocol import RunRequest

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""The largest packed request that is stored; runs with larger requests cannot be continued."""

LOGGED_FIELDS = ("request_id", "key")
"""The fields in every log line of a request and of its run."""


class StoredRequest(RunRequest):
    """A stored request. `origin` identifies it in logs and traces.

    `origin` has the request's id, the name of its API key, and its trace headers.
    """

    origin: dict[str, str] = Field(default_factory=dict)


def find_origin() -> dict[str, str]:
    """Return the origin of the current task's request."""
    stored = structlog.contextvars.get_contextvars()
    return headers_of() | {name: stored[name] for name in LOGGED_FIELDS if stored.get(name)}


def enter_origin(origin: Mapping[str, str]) -> None:
    """Bind the current task, and the tasks that it starts, to the logs and the trace of the origin's request."""
    structlog.contextvars.bind_contextvars(**{name: origin[name] for name in LOGGED_FIELDS if name in origin})
    join(origin)


def pack_request(request: Mapping[str, Any]) -> bytes | None:
    """Return the fields of a `StoredRequest` as compressed JSON; None if it exceeds `MAX_REQUEST_BYTES`."""
    packed = zlib.compress(to_json(request))
    return packed if len(packed) <= MAX_REQUEST_BYTES else None


def unpack_request(packed: bytes) -> StoredRequest:
    """Return the request that `pack_request` packed."""
    return StoredRequest.model_validate_json(zlib.decompress(packed))
