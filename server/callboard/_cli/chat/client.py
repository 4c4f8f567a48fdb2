"""The HTTP client of `callboard chat`: lists agents, loads chats, and reads a run from its first event to its last.

If the connection is lost, the client resumes the run, like the pipe.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from callboard._cli.chat.visible import make_line
from callboard.errors import CallboardError
from callboard.openwebui.signed_users import HEADER, sign_user
from callboard.settings import Settings, is_loopback
from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    Frame,
    FrameError,
    InputAnswer,
    RunRequest,
    Status,
    User,
    decode,
)

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""The server sends a ping every 15 s. After four missed pings the connection counts as lost."""

RETRY_SECONDS = 0.5
RESUME_SECONDS = 20.0
"""The time without a new event after which the client stops trying to resume the run."""

MAX_APPROVALS = 200
"""The maximum number of approvals that the server lists in one response."""

CANNOT_REACH = "Cannot reach a Callboard server at {url}: check the address and that `callboard serve` runs."
BAD_KEY = "The API key cannot be sent: it may only have ASCII characters and no spaces."
NOT_CALLBOARD = "The server at {url} is not a Callboard server."
LOST = "The connection to the server was lost, and the answer could not be resumed."
RECONNECTING = "Reconnecting…"


class ServerProblem(CallboardError):
    """A request failed. The message says what to do. If `is_temporary`, the same request may succeed later."""

    def __init__(self, message: str, code: str = "", *, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_temporary = is_temporary


@asynccontextmanager
async def open_client(
    settings: Settings, url: str, socket: Path | None, user: User | None
) -> AsyncIterator["ServerClient"]:
    """Open a client that sends the settings' key, for a user or without a user.

    `socket` is the Unix socket of a server in this process. Raises `ServerProblem` if the URL or the key is invalid.
    """
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ServerProblem(BAD_KEY)

    async def authorize(request: httpx.Request) -> None:
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        if user and settings.open_webui_jwt_secret:
            request.headers[HEADER] = sign_user(user, settings.open_webui_jwt_secret.get_secret_value())

    # Messages show the URL without its password.
    shown_url = re.sub(r"//[^/@]*@", "//", url.rstrip("/"))
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL as error:
        raise ServerProblem(CANNOT_REACH.format(url=shown_url)) from error
    async with httpx.AsyncClient(
        base_url=url,
        params={"user_id": user.id} if user else None,
        event_hooks={"request": [authorize]},
        timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
        transport=httpx.AsyncHTTPTransport(uds=str(socket)) if socket else None,
        # The proxy in the environment cannot reach this machine.
        trust_env=not is_loopback(host),
    ) as http:
        yield ServerClient(http, shown_url)


class ServerClient:
    """A client of one server. `url` is shown in messages. Every failure raises a `ServerProblem`."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self.url = url
        self._http = http

    async def list_agents(self) -> dict[str, str]:
        """Return the description of each agent of the server, by the agent's id."""
        listed = await self._fetch_list("/v1/models", "data")
        return {str(entry.get("id")): str(entry.get("description") or "") for entry in listed}

    async def load_chat(self, chat_id: str) -> list[dict[str, Any]]:
        """Return the stored messages of a chat; [] if the user has no such chat."""
        try:
            return await self._fetch_list(f"/v1/chats/{quote(chat_id, safe='')}/messages", "messages")
        except ServerProblem as problem:
            if problem.code == "unknown_chat":
                return []
            raise

    async def list_approvals(self) -> list[dict[str, Any]]:
        """Return the user's newest calls that wait for approval, as the server lists them."""
        return await self._fetch_list("/v1/approvals", "approvals", limit=MAX_APPROVALS)

    async def fetch_file(self, url: str) -> bytes:
        """Return the content of a file of a run."""
        async with self._send("GET", url) as response:
            return await response.aread()

    async def answer(self, run_id: str, request_id: str, value: object, *, asked: bool = True) -> None:
        """Send the user's answer to a question. If `asked` is false, report that the user could not be asked."""
        body = InputAnswer(request_id=request_id, value=value, asked=asked).model_dump(mode="json")
        await self._post_about_run(f"/v1/runs/{run_id}/input", body)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run."""
        await self._post_about_run(f"/v1/runs/{run_id}/cancel")

    async def run(self, request: RunRequest) -> AsyncIterator[tuple[Event | None, str]]:
        """Start a run, and yield each of its events, decoded and as JSON; None if this version cannot decode it.

        When the connection is lost, a status without JSON is yielded, and the run is resumed. If no event has arrived
        yet, the request is sent again. It has the same run id, so the server starts the run only once. Raises
        `ServerProblem` if the run cannot be started or resumed.
        """
        last_seq = 0
        is_lost = False
        ends_at_seconds = time.monotonic() + RESUME_SECONDS
        while True:
            problem = ServerProblem(LOST, is_temporary=True)
            try:
                if last_seq:
                    path, after = f"/v1/runs/{request.run_id}/events", {"Last-Event-ID": str(last_seq)}
                    sending = self._send("GET", path, headers=after)
                else:
                    sending = self._send("POST", "/v1/runs", json=request.model_dump(mode="json"))
                async with sending as response:
                    async for frame in _read_frames(response):
                        if int(frame.id) <= last_seq:
                            continue
                        last_seq = int(frame.id)
                        event = _decode(frame)
                        yield event, frame.data
                        if isinstance(event, Done | Error):
                            return
                        is_lost = False
                        ends_at_seconds = time.monotonic() + RESUME_SECONDS
            except ServerProblem as error:
                problem = error
            if not problem.is_temporary or time.monotonic() > ends_at_seconds:
                raise (ServerProblem(LOST) if last_seq else problem) from problem
            if not is_lost:
                yield Status(content=RECONNECTING), ""
            is_lost = True
            await asyncio.sleep(RETRY_SECONDS)

    async def _post_about_run(self, path: str, body: object = None) -> None:
        """Send a request about a run. Retry it while the server cannot be reached or does not know the run yet."""
        ends_at_seconds = time.monotonic() + RESUME_SECONDS
        while True:
            try:
                async with self._send("POST", path, json=body):
                    return
            except ServerProblem as problem:
                can_retry = problem.is_temporary or problem.code == "unknown_run"
                if not can_retry or time.monotonic() > ends_at_seconds:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _fetch_list(self, path: str, name: str, **query: int) -> list[dict[str, Any]]:
        """Return the list with this name in the server's JSON."""
        async with self._send("GET", path, params=query) as response:
            try:
                return [dict(entry) for entry in json.loads(await response.aread())[name]]
            except (ValueError, KeyError, TypeError) as error:
                raise self._make_problem(NOT_CALLBOARD) from error

    @asynccontextmanager
    async def _send(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yield a successful response, whose body is not read yet. Raise `ServerProblem` for any other response."""
        try:
            async with self._http.stream(method, path, **options) as response:
                if not response.is_success:
                    raise self._read_refusal(response.status_code, await response.aread())
                yield response
        except httpx.HTTPError as error:
            raise self._make_problem(CANNOT_REACH, is_temporary=True) from error

    def _read_refusal(self, status: int, body: bytes) -> ServerProblem:
        is_temporary = status in (408, 425, 429) or status >= 500
        try:
            error = json.loads(body)["error"]
            return ServerProblem(make_line(str(error["message"])), str(error.get("code")), is_temporary=is_temporary)
        except (ValueError, KeyError, TypeError):
            return self._make_problem(NOT_CALLBOARD, is_temporary=is_temporary)

    def _make_problem(self, template: str, *, is_temporary: bool = False) -> ServerProblem:
        return ServerProblem(template.format(url=self.url), is_temporary=is_temporary)


async def _read_frames(response: httpx.Response) -> AsyncIterator[Frame]:
    decoder = Decoder()
    async for chunk in response.aiter_bytes():
        for frame in decoder.feed(chunk):
            yield frame


def _decode(frame: Frame) -> Event | None:
    try:
        return decode(frame)
    except FrameError:
        return None
