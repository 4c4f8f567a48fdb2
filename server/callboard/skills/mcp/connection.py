"""The connection to an MCP server with the official SDK, over standard streams or HTTP.

This module and the modules that import the SDK are imported only when a server is started.
"""

import asyncio
import json
import math
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Literal, TextIO

import anyio
import httpx2
import structlog
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ServerNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from callboard._version import __version__
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import elicit
from callboard.skills.mcp.messages import WatchedStream
from callboard.skills.mcp.oauth import demands_token
from callboard.skills.mcp.session import Session
from callboard.skills.mcp.signals import Signals, sent_call
from callboard.skills.mcp.tasks import Tasks
from callboard.text import storable_json

REQUEST_SECONDS = 60.0
"""The time limit for the handshake and for a list. `npx` may have to download the server first."""

CONNECT_SECONDS = 30.0
EVENTS = "text/event-stream"
LISTEN_SECONDS = 5.0
"""The time for a server to confirm a subscription to changes. After that its list is read regardless."""

LISTEN_AGAIN_SECONDS = 5.0
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""The largest message over HTTP. Messages contain pictures as base64."""

MAX_STDERR_CHARS = 2_000
MAX_RETRY_AFTER_CHARS = 40

STOP_SECONDS = 10.0
"""The time that a process or a session may take to end."""

CONNECTION_ERRORS = (MCPError, OSError, RuntimeError, ValueError, httpx2.HTTPError, anyio.BrokenResourceError)
"""The exceptions of a connection that fails, single or in anyio's groups."""

_REQUEST_STATUSES = frozenset({401, 403, 413, 422, 429, 500})
"""The statuses that are errors of one call. Others, such as a plain 400 or 503, may mean that the server has restarted:
https://github.com/modelcontextprotocol/python-sdk/issues/2604"""

_FORGOTTEN_STATUSES = frozenset({400, 401, 410, 503})
_FORGOTTEN_WORDS = re.compile(r"session|not initiali[sz]ed", re.IGNORECASE)
_OTHER_CODES = re.compile(r'"code"\s*:\s*-3260[123]\b')
"""JSON-RPC's codes for a wrong method, wrong arguments and an internal error. The call may have reached its tool."""

_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd"})
"""The values of `Content-Encoding` that a client may unpack. Some servers send other values, such as `none`."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def connect(
    declaration: ServerDeclaration, signals: Signals, mode: Literal["auto", "legacy"]
) -> AsyncIterator[Session]:
    """Open a session. Enter and leave it in the same task. Raises `CONNECTION_ERRORS`, also in groups.

    With the mode `auto` a request of the newest protocol is tried before the older handshake.
    """

    async def on_message(message: ServerNotification | Exception) -> None:
        if isinstance(message, Exception):
            _log.debug("mcp_message_unreadable", server=declaration.name, error=type(message).__name__)

    async def on_question(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:  # noqa: ARG001 - the SDK names it
        return await elicit(params, declaration, signals)

    client = Client(
        _open_streams(declaration, signals),
        read_timeout_seconds=REQUEST_SECONDS,
        message_handler=on_message,
        elicitation_callback=on_question,
        client_info=Implementation(name="callboard", version=__version__),
        cache=None,
        extensions=[Tasks(declaration, signals)],
        mode=mode,
    )
    async with client, _listen_while_open(client, signals):
        signals.session = client.session
        yield Session(declaration, client, signals)


_Streams = tuple[Any, Any]


@asynccontextmanager
async def _open_streams(declaration: ServerDeclaration, signals: Signals) -> AsyncIterator[_Streams]:
    # Shielded while a process starts. If the SDK is cancelled there, it leaves the process running, and asyncio's event
    # loop may be closed before the process has ended.
    with anyio.CancelScope(shield=bool(declaration.command)) as scope:
        async with _open_transport(declaration, signals) as (read, write):
            scope.shield = False
            try:
                yield WatchedStream(read, declaration.name, signals), write
            finally:
                # Shielded while the session at the server, or the process, ends.
                scope.shield = True
                scope.deadline = anyio.current_time() + STOP_SECONDS


@asynccontextmanager
async def _open_transport(declaration: ServerDeclaration, signals: Signals) -> AsyncIterator[_Streams]:
    if declaration.command:
        parameters = StdioServerParameters(
            command=declaration.command,
            args=list(declaration.args),
            env=dict(declaration.env),
            cwd=declaration.cwd,
            encoding_error_handler="replace",
        )
        async with _log_stderr(declaration) as errlog, stdio_client(parameters, errlog=errlog) as streams:
            yield streams
        return
    http = _http_client(declaration, signals)
    async with (
        http,
        streamable_http_client(declaration.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def _listen_while_open(client: Client, signals: Signals) -> AsyncIterator[None]:
    """Subscribe to changes: since 2026-07-28 servers report changes only to subscribers."""
    capability = client.server_capabilities.tools
    is_offered = capability is not None and capability.list_changed
    if not is_offered or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        yield
        return
    begun = asyncio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_listen, client, signals, begun)
        # Subscribed before the list is read, because a change in between would be missed.
        with anyio.move_on_after(LISTEN_SECONDS):
            await begun.wait()
        yield
        group.cancel_scope.cancel()


async def _listen(client: Client, signals: Signals, begun: asyncio.Event) -> None:
    while True:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                begun.set()
                async for _ in changes:
                    pass  # `WatchedStream` has seen it
        except SubscriptionLost:
            pass
        except (MCPError, TimeoutError):
            return  # the server declares the subscription but does not support it: the list is not updated
        finally:
            begun.set()
        await anyio.sleep(LISTEN_AGAIN_SECONDS)
        signals.change_tools()


def _http_client(declaration: ServerDeclaration, signals: Signals) -> httpx2.AsyncClient:
    async def guard(response: httpx2.Response) -> None:
        codings = response.headers.get("content-encoding", "").lower()
        if not _COMPRESSIONS.isdisjoint(coding.strip() for coding in codings.split(",")):
            # A small compressed answer may become gigabytes, which the client would hold in memory.
            raise ConnectionRefusedError("it compresses its answers, although `Accept-Encoding: identity` forbids it")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _CheckedBody(response.stream, response.headers)
        if signals.auth and demands_token(response):
            return  # `auth` sends the request again, or reports why it cannot
        is_call = await _is_call(response.request)
        call = sent_call.get() if is_call else None
        if call is not None:
            call.has_session = MCP_SESSION_ID in response.request.headers
        if call is not None and call.has_session and await _is_session_forgotten(response):
            signals.forget(call)
        elif call is not None and response.status_code in _REQUEST_STATUSES:
            call.http_error = _describe_status(response)
        elif response.status_code in (401, 403) and not is_call:
            raise ConnectionRefusedError(f"it answered HTTP {response.status_code}: check its headers")

    # No limit on reading, because streams of notifications are silent for hours. The executor limits calls.
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    hooks: Mapping[str, list[Any]] = {"response": [guard]}
    headers = {**declaration.headers, "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(auth=signals.auth, headers=headers, timeout=timeout, event_hooks=hooks)


async def _is_call(request: httpx2.Request) -> bool:
    """Return whether a refusal of the request does not end the connection."""
    if request.method != "POST":
        return False
    # Read, because httpx2 gives the request after a redirect its body as a stream.
    method: str = json.loads(await request.aread() or b"{}").get("method", "")
    return method.startswith(("tools/call", "resources/", "tasks/"))


def _describe_status(response: httpx2.Response) -> str:
    status = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"{status}: check its headers"
    wait = response.headers.get("retry-after", "").strip()[:MAX_RETRY_AFTER_CHARS]
    return f"{status}: try again {f'in {wait} s' if wait.isdecimal() else f'after {wait}'}" if wait else status


async def _is_session_forgotten(response: httpx2.Response) -> bool:
    """Return whether the server refused a call before it ran, because it does not know the call's session.

    The specification requires status 404. Many servers use another status and explain it in the body.
    """
    if response.status_code == HTTPStatus.NOT_FOUND:
        return True
    if response.status_code not in _FORGOTTEN_STATUSES:
        return False
    body = (await response.aread()).decode(errors="replace")
    return _FORGOTTEN_WORDS.search(body) is not None and _OTHER_CODES.search(body) is None


class _CheckedBody(httpx2.AsyncByteStream):
    """A body of at most `MAX_MESSAGE_BYTES`, without lone surrogates, for which the SDK would reject the message.

    The SDK limits events itself, but not plain answers.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, headers: httpx2.Headers) -> None:
        self._inner = inner
        self._max_bytes = math.inf if headers.get("content-type", "").startswith(EVENTS) else MAX_MESSAGE_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        waiting: list[bytes] = []
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._max_bytes:
                raise httpx2.StreamError(f"the answer is over {MAX_MESSAGE_BYTES} bytes")
            # Escape sequences do not span lines.
            lines, end, rest = chunk.rpartition(b"\n")
            if end:
                yield storable_json(b"".join((*waiting, lines, end)))
                waiting.clear()
            waiting.append(rest)
        yield storable_json(b"".join(waiting))

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()


@asynccontextmanager
async def _log_stderr(declaration: ServerDeclaration) -> AsyncIterator[TextIO]:
    """Open a file for the server's standard error, whose lines are logged at debug level."""
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: _StderrLines(declaration), os.fdopen(reading, "rb", 0))
    try:
        with os.fdopen(writing, "w") as file:
            yield file
    finally:
        transport.close()


class _StderrLines(asyncio.Protocol):
    def __init__(self, declaration: ServerDeclaration) -> None:
        self._declaration = declaration
        self._rest = ""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if len(self._rest) > MAX_STDERR_CHARS:
            lines = [*lines, self._rest]
            self._rest = ""
        for line in lines:
            shown = self._declaration.hide(line.strip())[:MAX_STDERR_CHARS]
            _log.debug("mcp_server_stderr", server=self._declaration.name, line=shown)
