"""Client of Seerr, and of Overseerr and Jellyseerr, whose API v1 it keeps. Says in words what went wrong.

Seerr checks each request against its own schema and refuses what an older version does not
know, so nothing is sent but what Overseerr 1.33 took already.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from callboard._text import storable
from callboard._trace_context import pass_on
from callboard.errors import ToolError

TIMEOUT_SECONDS = 30.0
MAX_MESSAGE_CHARS = 300

NO_ACCESS = "You do not have permission to access this endpoint"
"""The words of Seerr, with status 403, to a key that it does not know."""

WRONG_KEY = "Seerr does not know the key: set CALLBOARD_SEERR_API_KEY to the one in Seerr's settings."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeerrClient:
    """An open connection. Every method raises `ToolError` where Seerr refuses or cannot be reached."""

    client: httpx.AsyncClient

    async def get(self, kind: type[T], path: str, **query: str | float | None) -> T:
        """Read `path` as a `kind`; what is None in `query` is left out."""
        # By hand: Seerr takes no reserved character as it is, and httpx would write a space as `+`, which is one.
        pairs = [f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value is not None]
        return _read(kind, await self._send("GET", f"{path}?{'&'.join(pairs)}" if pairs else path))

    async def post(self, kind: type[T], path: str, body: Mapping[str, Any]) -> T:
        """Send a JSON object and read the answer as a `kind`."""
        return _read(kind, await self._send("POST", path, body))

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            response = await self.client.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise ToolError("Seerr did not answer in time: try again later, or see whether it is well.") from error
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if not response.is_success:
            raise _refusal(response)
        return response


@asynccontextmanager
async def connect(url: str, key: str) -> AsyncIterator[SeerrClient]:
    """Open a connection to the Seerr at `url`. Raises `ToolError` where that is no address."""
    headers = {"X-Api-Key": key}
    try:
        client = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            event_hooks={"request": [pass_on]},
        )
    except httpx.InvalidURL as error:
        raise _unreachable(error) from error
    async with client:
        yield SeerrClient(client)


def _read(kind: type[T], response: httpx.Response) -> T:
    try:
        return TypeAdapter(kind).validate_python(_without_nulls(response.json()))
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise ToolError(
            "What answers at CALLBOARD_SEERR_URL is a web page and not Seerr's API: give the address that Seerr "
            "itself listens on, with nothing after its port or base path."
        ) from error
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise ToolError(
            f"Seerr's answer is not what its API v1 gives (at '{place}'): is CALLBOARD_SEERR_URL an Overseerr, a "
            "Jellyseerr or a Seerr of a version that this server knows?"
        ) from error


def _without_nulls(value: Any) -> Any:
    """Return the value without nulls in its objects and lists: TMDB has them in the place of anything it lost."""
    match value:
        case dict():
            return {key: _without_nulls(one) for key, one in value.items() if one is not None}
        case list():
            return [_without_nulls(one) for one in value if one is not None]
        case _:
            return value


def _refusal(response: httpx.Response) -> ToolError:
    said = _read_message(response)
    match response.status_code:
        case 401:
            return ToolError(WRONG_KEY)
        case 403 if not said or said.startswith(NO_ACCESS):
            return ToolError(WRONG_KEY)
        case 403:
            return ToolError(f"Seerr does not allow it: {said} Only whoever runs Seerr can change that.")
        case 409:
            return ToolError(f"Nothing new: {said} media_requests shows how far it is.")
        case 429:
            wait = response.headers.get("Retry-After", "")
            return ToolError(f"Seerr takes no more requests now: try again in {wait if wait.isdigit() else 60} s.")
        case 502 | 503 | 504:
            return ToolError("Seerr is not ready: it may be starting. Try again in a minute.")
        case status if 300 <= status < 400:
            # Not followed: the key would go along, to wherever it leads.
            return ToolError(
                "Seerr sends us elsewhere: set CALLBOARD_SEERR_URL to its own address (https://, perhaps)."
            )
        case status:
            return ToolError(f"Seerr refused ({status}): {said or 'it did not say why'}")


def _read_message(response: httpx.Response) -> str:
    """Return what Seerr says: its routes in `message`, its gate in `error`. Empty where it is none of it."""
    try:
        body = response.json()
    except (JSONDecodeError, UnicodeDecodeError):
        return ""
    if not isinstance(body, dict):
        return ""
    said = body.get("message") or body.get("error") or ""
    return storable(str(said))[:MAX_MESSAGE_CHARS]


def _unreachable(error: Exception) -> ToolError:
    return ToolError(
        f"Seerr cannot be reached ({type(error).__name__}): is it running, and is CALLBOARD_SEERR_URL its address?"
    )
