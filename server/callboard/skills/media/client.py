"""A client of Seerr's API v1, which Overseerr and Jellyseerr share. Errors explain the cause to the user.

Seerr validates each request and refuses parameters that an older version does not know. So only parameters of Overseerr
1.33 are sent.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from callboard.errors import ToolError
from callboard.text import storable

TIMEOUT_SECONDS = 30.0
MAX_MESSAGE_CHARS = 300

NO_ACCESS = "You do not have permission to access this endpoint"
"""Seerr's message, with status 403, for a key that it does not know."""

WRONG_KEY = "Seerr does not know the key: set CALLBOARD_SEERR_API_KEY to the key in Seerr's settings."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeerrClient:
    """An open connection. Every method raises `ToolError` if Seerr refuses the request or cannot be reached."""

    client: httpx.AsyncClient

    async def get(self, kind: type[T], path: str, **query: str | float | None) -> T:
        """Read `path` as a `kind`. Parameters in `query` that are None are omitted."""
        # Encoded here, because Seerr refuses reserved characters, and httpx would encode a space as the reserved `+`.
        pairs = [f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value is not None]
        return await self._send(kind, "GET", f"{path}?{'&'.join(pairs)}" if pairs else path)

    async def post(self, kind: type[T], path: str, body: Mapping[str, Any]) -> T:
        """Send a JSON object and read the answer as a `kind`."""
        return await self._send(kind, "POST", path, body)

    async def _send(self, kind: type[T], method: str, path: str, body: Mapping[str, Any] | None = None) -> T:
        try:
            response = await self.client.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise ToolError("Seerr did not answer in time: try again later, or check that it works.") from error
        except httpx.HTTPError as error:
            raise _unreachable_error(error) from error
        if not response.is_success:
            raise _status_error(response)
        try:
            return TypeAdapter(kind).validate_python(_remove_nulls(response.json()))
        except (JSONDecodeError, UnicodeDecodeError) as error:
            raise ToolError(
                "CALLBOARD_SEERR_URL answers with a web page, not with Seerr's API: set it to the address that Seerr "
                "itself listens on, with nothing after its port or base path."
            ) from error
        except ValidationError as error:
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise ToolError(
                f"Seerr's answer is not in the form of its API v1 (at '{place}'): is CALLBOARD_SEERR_URL an Overseerr, "
                "a Jellyseerr or a Seerr of a version that this server supports?"
            ) from error


@asynccontextmanager
async def connect(url: str, key: str) -> AsyncIterator[SeerrClient]:
    """Open a connection to the Seerr at `url`. Raises `ToolError` for an invalid address."""
    headers = {"X-Api-Key": key}
    try:
        client = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers=headers,
            timeout=TIMEOUT_SECONDS,
        )
    except httpx.InvalidURL as error:
        raise _unreachable_error(error) from error
    async with client:
        yield SeerrClient(client)


def _remove_nulls(value: Any) -> Any:
    """Return the value without nulls in its objects and lists: any field from TMDB may be null."""
    match value:
        case dict():
            return {key: _remove_nulls(item) for key, item in value.items() if item is not None}
        case list():
            return [_remove_nulls(item) for item in value if item is not None]
        case _:
            return value


def _status_error(response: httpx.Response) -> ToolError:
    message = _read_message(response)
    match response.status_code:
        case 401:
            return ToolError(WRONG_KEY)
        case 403 if not message or message.startswith(NO_ACCESS):
            return ToolError(WRONG_KEY)
        case 403:
            return ToolError(f"Seerr does not allow it: {message} Only the admin of Seerr can change that.")
        case 409:
            return ToolError(f"Nothing new: {message} media_requests shows its state.")
        case 429:
            wait = response.headers.get("Retry-After", "")
            return ToolError(f"Seerr accepts no more requests now: try again in {wait if wait.isdigit() else 60} s.")
        case 502 | 503 | 504:
            return ToolError("Seerr is not ready: it may be starting. Try again in a minute.")
        case status if 300 <= status < 400:
            # Redirects are not followed, because their target would receive the key.
            return ToolError(
                "Seerr redirects to another address: set CALLBOARD_SEERR_URL to its own (https://, perhaps)."
            )
        case status:
            return ToolError(f"Seerr refused ({status}): {message or 'it gave no reason'}")


def _read_message(response: httpx.Response) -> str:
    """Return Seerr's error message: `message` from its routes, `error` from its authentication, otherwise empty."""
    try:
        body = response.json()
    except (JSONDecodeError, UnicodeDecodeError):
        return ""
    if not isinstance(body, dict):
        return ""
    message = body.get("message") or body.get("error") or ""
    return storable(str(message))[:MAX_MESSAGE_CHARS]


def _unreachable_error(error: Exception) -> ToolError:
    return ToolError(
        f"Seerr cannot be reached ({type(error).__name__}): is it running, and is CALLBOARD_SEERR_URL its address?"
    )
