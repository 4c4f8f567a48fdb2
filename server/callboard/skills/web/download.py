"""A URL's body, within limits of time, size, type and redirects."""

import asyncio

import httpx

from callboard.errors import ToolError, ToolTimeout
from callboard.reading import Download, Kind
from callboard.reading.unpacking import too_large
from callboard.skills.web.client import redirect_target
from callboard.skills.web.guard import read_url

FETCH_TIMEOUT_SECONDS = 30.0
MAX_REDIRECTS = 5
_TEXT_TYPES = ("json", "xml", "yaml", "javascript", "csv", "x-ndjson", "toml", "x-sh", "sql")
_UNKNOWN_TYPES = ("", "application/octet-stream", "binary/octet-stream", "application/force-download")


async def download(client: httpx.AsyncClient, url: str, *, timeout_seconds: float = FETCH_TIMEOUT_SECONDS) -> Download:
    """What is at `url`, redirects followed.

    Raises `AddressRefused` for it or where it leads, and `ToolError` for all else that fails.
    """
    here = read_url(url)
    try:
        async with asyncio.timeout(timeout_seconds):
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", here) as response:
                    if not response.has_redirect_location:
                        return await _read(response)
                    # The body of a redirect stays unread: nobody has bounded it.
                    here = redirect_target(response)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ToolTimeout(
            f"{here.host} did not send the page within {timeout_seconds:g} s: try another page."
        ) from error
    except httpx.HTTPError as error:
        raise ToolError(f"{here.host} could not be reached: {str(error) or type(error).__name__}.") from error
    raise ToolError(f"The address redirects more than {MAX_REDIRECTS} times: try another page.")


async def _read(response: httpx.Response) -> Download:
    if response.status_code >= 400:
        raise ToolError(
            f"{response.url.host} answered {response.status_code} {response.reason_phrase}: "
            "check the address, or look for another page."
        )
    kind = _kind(response.headers.get("content-type", ""), response.url.host)
    empty = Download(str(response.url), kind, response.charset_encoding, _encoding(response), b"")
    body = bytearray()
    # As it was sent: a client that unpacks makes gigabytes of a few kilobytes before they can be counted.
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > empty.limit_bytes:
            raise too_large(empty)
    return Download(empty.url, kind, empty.charset, empty.encoding, bytes(body))


def _encoding(response: httpx.Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower().removeprefix("x-")
    if encoding not in ("", "identity", "gzip", "deflate"):
        raise ToolError(f"{response.url.host} packs its pages as {encoding[:40]!r}, unasked: try another page.")
    return "" if encoding == "identity" else encoding


def _kind(content_type: str, host: str) -> Kind | None:
    media_type = content_type.split(";")[0].strip().lower()
    if media_type in ("text/html", "application/xhtml+xml"):
        return "html"
    if media_type in ("application/pdf", "application/x-pdf"):
        return "pdf"
    if media_type.startswith("text/") or media_type.partition("/")[2].split("+")[-1] in _TEXT_TYPES:
        return "text"
    if media_type in _UNKNOWN_TYPES:
        return None
    raise ToolError(f"{host} sent {media_type[:80]!r}: only HTML, text and PDF can be read.")
