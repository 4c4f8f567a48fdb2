"""An HTTP client for URLs that a model wrote: it connects only to addresses that the guard has checked.

`download` reads a URL within limits on time, size, content type and redirects.
"""

import asyncio
import ssl
from dataclasses import replace
from urllib.parse import urljoin

import httpx

from callboard._version import __version__
from callboard.errors import AddressRefused, ToolError, ToolTimeout
from callboard.reading.formats import Download, Kind
from callboard.skills.web.guard import Guard, normalize_host, read_url
from callboard.tls import tls_context

CONNECT_TIMEOUT_SECONDS = 10.0
SILENCE_TIMEOUT_SECONDS = 15.0
FETCH_TIMEOUT_SECONDS = 30.0
MAX_REDIRECTS = 5
_TEXT_TYPES = ("json", "xml", "yaml", "javascript", "csv", "x-ndjson", "toml", "x-sh", "sql")
_UNKNOWN_TYPES = ("", "application/octet-stream", "binary/octet-stream", "application/force-download")

HEADERS = {
    "User-Agent": f"Mozilla/5.0 (compatible; Callboard/{__version__})",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/pdf;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


class PinnedTransport(httpx.AsyncBaseTransport):
    """A transport that checks every request with the guard, including redirects, and connects to the checked addresses.

    The host name is still used in `Host`, in TLS's server name, and for the certificate.
    """

    def __init__(self, guard: Guard, *, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        # Connections are not reused: a connection for one name must not serve another name at the same address.
        self._inner = httpx.AsyncHTTPTransport(
            verify=tls or tls_context(), limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address that accepts a connection. Raises the guard's exceptions."""
        *others, last = await self._guard.addresses(request.url)
        for address in others:
            try:
                return await self._inner.handle_async_request(_pin(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_pin(request, last))

    async def aclose(self) -> None:
        """Close open connections."""
        await self._inner.aclose()


def guarded_client(guard: Guard, *, tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """Return a client for one task, whose cookies are not shared. It follows no redirects and ignores the environment.

    A proxy from the environment is not used, because it would resolve the name itself.
    """
    return httpx.AsyncClient(
        transport=PinnedTransport(guard, tls=tls),
        trust_env=False,
        follow_redirects=False,
        headers=HEADERS,
        # Checked before httpx parses the address, which may raise other exceptions.
        event_hooks={"response": [_check_redirect]},
        timeout=httpx.Timeout(SILENCE_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
    )


def redirect_target(response: httpx.Response) -> httpx.URL:
    """Return the target of a redirect. Raises `AddressRefused` if it is not an address that may be fetched."""
    try:
        return read_url(urljoin(str(response.url), response.headers["location"]))
    except ValueError as error:
        raise AddressRefused(f"{response.url.host} redirects to an invalid address: try another page.") from error


async def _check_redirect(response: httpx.Response) -> None:
    if response.has_redirect_location:
        redirect_target(response)


def _pin(request: httpx.Request, address: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": normalize_host(request.url)},
    )


async def download(client: httpx.AsyncClient, url: str, *, timeout_seconds: float = FETCH_TIMEOUT_SECONDS) -> Download:
    """Download a URL, following redirects.

    Raises `AddressRefused` if the URL or a redirect may not be fetched, and `ToolError` for any other failure.
    """
    current = read_url(url)
    try:
        async with asyncio.timeout(timeout_seconds):
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", current) as response:
                    if not response.has_redirect_location:
                        return await _read_body(response)
                    # The body of a redirect is not read, because its size is not limited.
                    current = redirect_target(response)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ToolTimeout(
            f"{current.host} did not send the page within {timeout_seconds:g} s: try another page."
        ) from error
    except httpx.HTTPError as error:
        raise ToolError(f"{current.host} could not be reached: {str(error) or type(error).__name__}.") from error
    raise ToolError(f"The address redirects more than {MAX_REDIRECTS} times: try another page.")


async def _read_body(response: httpx.Response) -> Download:
    if response.status_code >= 400:
        raise ToolError(
            f"{response.url.host} answered {response.status_code} {response.reason_phrase}: "
            "check the address, or look for another page."
        )
    kind = _read_kind(response.headers.get("content-type", ""), response.url.host)
    empty = Download(str(response.url), kind, response.charset_encoding, _read_encoding(response), b"")
    body = bytearray()
    # Read without decompression: a few kilobytes may decompress to gigabytes before they can be counted.
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > empty.limit_bytes:
            raise empty.too_large()
    return replace(empty, body=bytes(body))


def _read_encoding(response: httpx.Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower().removeprefix("x-")
    if encoding not in ("", "identity", "gzip", "deflate"):
        raise ToolError(f"{response.url.host} compresses its pages as {encoding[:40]!r}, unasked: try another page.")
    return "" if encoding == "identity" else encoding


def _read_kind(content_type: str, host: str) -> Kind | None:
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
