"""The HTTP client for URLs that a model wrote: it connects to the addresses that the guard has looked at."""

import ssl
from functools import cache
from urllib.parse import urljoin

import httpx

from callboard.errors import AddressRefused
from callboard.skills.web.guard import Guard, host_of, read_url
from callboard.version import __version__

CONNECT_TIMEOUT_SECONDS = 10.0
SILENCE_TIMEOUT_SECONDS = 15.0

HEADERS = {
    "User-Agent": f"Mozilla/5.0 (compatible; Callboard/{__version__})",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/pdf;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


class PinnedTransport(httpx.AsyncBaseTransport):
    """Asks the guard before every request, redirects too, and connects to the guard's addresses.

    The request keeps its name in `Host`, in TLS's server name, and in the check of the certificate.
    """

    def __init__(self, guard: Guard, *, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        # No connection is kept: one made for a name must not serve another name at the same address.
        self._inner = httpx.AsyncHTTPTransport(
            verify=tls or tls_context(), limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the first address that takes the connection. Raises what the guard raises."""
        *others, last = await self._guard.addresses(request.url)
        for address in others:
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_pinned(request, last))

    async def aclose(self) -> None:
        """Closes what is open."""
        await self._inner.aclose()


def guarded_client(guard: Guard, *, tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """A client for one task: its cookies are nobody else's. It follows no redirects and reads no environment.

    Proxies of the environment stay unused: with one, the proxy would resolve the name.
    """
    return httpx.AsyncClient(
        transport=PinnedTransport(guard, tls=tls),
        trust_env=False,
        follow_redirects=False,
        headers=HEADERS,
        # Before httpx reads the address its own way, and fails in ways of its own.
        event_hooks={"response": [_check_redirect]},
        timeout=httpx.Timeout(SILENCE_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
    )


def redirect_target(response: httpx.Response) -> httpx.URL:
    """Where a redirect leads. Raises `AddressRefused` where that is no address to fetch."""
    try:
        return read_url(urljoin(str(response.url), response.headers["location"]))
    except ValueError as error:
        raise AddressRefused(f"{response.url.host} redirects to what is no address: try another page.") from error


@cache
def tls_context() -> ssl.SSLContext:
    """The usual certificates, loaded once: that takes longer than many a request."""
    return httpx.create_ssl_context()


async def _check_redirect(response: httpx.Response) -> None:
    if response.has_redirect_location:
        redirect_target(response)


def _pinned(request: httpx.Request, address: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host_of(request.url)},
    )
