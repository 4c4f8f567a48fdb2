"""One question to a search engine's JSON API over HTTP. The addresses are the admin's own, so they may be private."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from callboard.errors import ToolError
from callboard.skills.web.client import tls_context

TIMEOUT_SECONDS = 10.0
MAX_WAIT_SECONDS = 2.0
DETAIL_CHARS = 200

Wait = Callable[[httpx.Headers], float | None]
"""From a 429's headers to the seconds after which to ask again; None where that is not worth it."""


async def ask_json(
    engine: str,
    request: httpx.Request,
    *,
    advice: Mapping[int, str],
    wait: Wait = lambda _: None,
) -> dict[str, Any]:
    """The answer's object. `advice` says what to do about a status.

    A 429 is waited for once, `MAX_WAIT_SECONDS` at most: a model asks for several searches at
    one time, and free plans allow one a second. Raises `ToolError` for all that is no answer.
    """
    try:
        async with httpx.AsyncClient(verify=tls_context(), timeout=TIMEOUT_SECONDS) as client:
            response = await client.send(request)
            seconds = wait(response.headers) if response.status_code == 429 else None
            if seconds is not None and 0 <= seconds <= MAX_WAIT_SECONDS:
                await asyncio.sleep(seconds)
                response = await client.send(request)
    except httpx.TimeoutException as error:
        raise ToolError(f"{engine} did not answer within {TIMEOUT_SECONDS:g} s.") from error
    except httpx.HTTPError as error:
        raise ToolError(f"{engine} could not be reached: {str(error) or type(error).__name__}.") from error
    answer = _object(response)
    if response.status_code != 200:
        moved = "it redirects: set the address where it leads" if response.has_redirect_location else ""
        told = moved or advice.get(response.status_code, "") or _detail(answer)
        raise ToolError(f"{engine} answered {response.status_code}{': ' + told if told else ''}.")
    if answer is None:
        raise ToolError(f"{engine} answered with something else than JSON: check its address.")
    return answer


def _object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _detail(answer: Mapping[str, Any] | None) -> str:
    """What an error's body says, in Brave's shape (`error.detail`) or Tavily's (`detail.error`)."""
    for outer, inner in (("error", "detail"), ("detail", "error")):
        part = (answer or {}).get(outer)
        text = part.get(inner) if isinstance(part, Mapping) else part
        if isinstance(text, str) and text:
            return text[:DETAIL_CHARS].rstrip(".")
    return ""
