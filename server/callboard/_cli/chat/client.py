"""The HTTP client of `callboard chat`: lists agents, loads chats, and reads a run from its first event to its last.

After a lost connection it resumes the run, like the pipe.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel

from callboard._openwebui.signed_users import HEADER, sign_user
from callboard._settings import is_loopback
from callboard.errors import CallboardError
from callboard_protocol import Decoder, Done, Error, Event, FrameError, InputAnswer, RunRequest, User, decode

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""The server pings every 15 s: four missed pings are a dead connection."""

RESUME_WAITS_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Waiting times before attempts to resume; the last one is repeated."""

RESUME_SECONDS = 20.0
"""Time after which attempts end if none of them brought a new event."""

RESUME_JITTER = 0.25

CANNOT_REACH = "Cannot reach a Callboard server at {url}: check the address and that `callboard serve` runs."
NOT_CALLBOARD = "The server at {url} is not a Callboard server."
BAD_KEY = "The API key cannot be sent: it may only have ASCII characters and no spaces."
LOST = "The connection to the server was lost, and the answer could not be resumed."


class ServerProblem(CallboardError):
    """The server cannot be used; the message says what to do."""


class TemporaryProblem(ServerProblem):
    """The server is stopping, or the connection broke before a response: retry, perhaps with another server."""


class Refusal(ServerProblem):
    """The server refused the request, and would refuse it again."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server: a URL, or the Unix socket of a server in this process.

    `user_secret` signs the user, if the server requires that.
    """

    url: str
    key: str = field(default="", repr=False)
    socket: Path | None = None
    user_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """An entry of `GET /v1/models`."""

    agent_id: str
    description: str


class _ErrorObject(BaseModel):
    message: str
    code: str = ""


class _ErrorBody(BaseModel):
    """The body of an error response."""

    error: _ErrorObject


class Deliver(Protocol):
    """Handles an event: its JSON, and the decoded event, None if this version does not know its type."""

    def __call__(self, data: str, event: Event | None, /) -> None: ...


_OpenStream = Callable[[], AbstractAsyncContextManager[httpx.Response]]


class ServerClient:
    """A client of the server at an address, for a user or without one. Every failure is a `ServerProblem`."""

    def __init__(self, address: Address, user: User | None) -> None:
        self.user = user
        self._address = address
        self._user = {"user_id": user.id} if user else {}
        self._last_seq = 0

    @property
    def public_url(self) -> str:
        """The address for a browser, without a password; empty if the server is in this process."""
        return "" if self._address.socket else re.sub(r"//[^/@]*@", "//", self._address.url.rstrip("/"))

    async def list_agents(self) -> list[ListedAgent]:
        """Return the agents of the server."""
        listed = await self._fetch("GET", "/v1/models")
        try:
            return [ListedAgent(str(entry["id"]), str(entry.get("description") or "")) for entry in listed["data"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def load_chat(self, chat_id: str) -> list[dict[str, Any]]:
        """Return the stored messages of a chat; none if the user has no such chat."""
        path = f"/v1/chats/{quote(chat_id, safe='')}/messages"
        try:
            return list((await self._fetch("GET", path, params=self._user))["messages"])
        except _UnknownChat:
            return []
        except (KeyError, TypeError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def run(self, request: RunRequest, deliver: Deliver, wait: Callable[[], None]) -> None:
        """Start a run and deliver its events up to the last; `wait` is called before each wait for the server.

        If the connection is lost before the first event, the request is sent again. It has the same run id, so the
        server starts the run once.
        """
        self._last_seq = 0
        body = request.model_dump(mode="json")

        def begin() -> AbstractAsyncContextManager[httpx.Response]:
            return self._send("POST", "/v1/runs", json=body)

        def resume() -> AbstractAsyncContextManager[httpx.Response]:
            headers = {"Last-Event-ID": str(self._last_seq)}
            return self._send("GET", f"/v1/runs/{request.run_id}/events", headers=headers, params=self._user)

        await self._read_until_done(begin, resume, deliver, wait)

    async def fetch_file(self, url: str) -> bytes:
        """Return the content of a file of a run."""
        async with self._send("GET", url, params=self._user) as response:
            return await response.aread()

    async def answer(self, run_id: str, request_id: str, value: object, *, asked: bool = True) -> None:
        """Send the user's answer to a question, or, with `asked` false, that the user could not be asked.

        Retries while the server cannot be reached.
        """
        body = InputAnswer(request_id=request_id, value=value, asked=asked).model_dump(mode="json")
        await self._retry("POST", f"/v1/runs/{run_id}/input", json=body)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run; retries while the server cannot be reached or has not begun the run."""
        await self._retry("POST", f"/v1/runs/{run_id}/cancel", waits_for_run=True)

    async def _retry(self, method: str, path: str, *, waits_for_run: bool = False, **options: Any) -> None:
        began_at_seconds = time.monotonic()
        for wait_seconds in _waits(skipped=1):
            try:
                await self._fetch(method, path, params=self._user, **options)
            except ServerProblem as problem:
                is_final = isinstance(problem, Refusal) and not (waits_for_run and isinstance(problem, _UnknownRun))
                if is_final or time.monotonic() + wait_seconds > began_at_seconds + RESUME_SECONDS:
                    raise
                await asyncio.sleep(wait_seconds)
            else:
                return

    async def _read_until_done(
        self, begin: _OpenStream, resume: _OpenStream, deliver: Deliver, wait: Callable[[], None]
    ) -> None:
        """Deliver events until the last one. After a lost connection, resume until `RESUME_SECONDS` bring no event."""
        tries = 0
        lost_at_seconds = 0.0
        problem: ServerProblem = self._problem(LOST)
        while True:
            seq_before = self._last_seq
            try:
                async with (resume if self._last_seq else begin)() as response:
                    if await self._read(response, deliver):
                        return
            except (httpx.HTTPError, ServerProblem) as error:
                if isinstance(error, ServerProblem):
                    problem = self._explain_failure(error, is_first=not tries)
            if not tries or self._last_seq > seq_before:
                tries = 0
                lost_at_seconds = time.monotonic()
            wait_seconds = RESUME_WAITS_SECONDS[min(tries, len(RESUME_WAITS_SECONDS) - 1)]
            if time.monotonic() + wait_seconds > lost_at_seconds + RESUME_SECONDS:
                raise problem
            if wait_seconds:
                wait()
                await asyncio.sleep(wait_seconds * (1 + random.uniform(-RESUME_JITTER, RESUME_JITTER)))  # noqa: S311 - not for security
            tries += 1

    def _explain_failure(self, problem: ServerProblem, *, is_first: bool) -> ServerProblem:
        """Return the problem to raise when the time for attempts is over; raise it at once if they cannot help."""
        if is_first and not isinstance(problem, TemporaryProblem):
            raise problem
        lost = self._problem(LOST)
        if isinstance(problem, Refusal):
            raise lost from problem
        return lost if self._last_seq else problem

    async def _read(self, response: httpx.Response, deliver: Deliver) -> bool:
        """Deliver new events of a stream; return true after the run's last event."""
        decoder = Decoder()
        async for chunk in response.aiter_bytes():
            for frame in decoder.feed(chunk):
                seq = int(frame.id) if frame.id.isdecimal() else self._last_seq + 1
                if seq <= self._last_seq:
                    continue
                self._last_seq = seq
                try:
                    event = decode(frame)
                except FrameError:
                    continue
                deliver(frame.data, event)
                if isinstance(event, Done | Error):
                    return True
        return False

    async def _fetch(self, method: str, path: str, **options: Any) -> Any:
        try:
            async with self._send(method, path, **options) as response:
                return json.loads(await response.aread())
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    @asynccontextmanager
    async def _send(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yield a successful response whose body is not read yet; raise `ServerProblem` for any other."""
        async with self._open() as http:
            try:
                request = http.build_request(method, self._address.url.rstrip("/") + path, **options)
                response = await http.send(request, stream=True)
            except (httpx.ReadError, httpx.RemoteProtocolError) as error:
                raise TemporaryProblem(str(self._problem(CANNOT_REACH))) from error
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise self._problem(CANNOT_REACH) from error
            if not response.is_success:
                raise self._read_refusal(response.status_code, await response.aread())
            yield response

    def _open(self) -> httpx.AsyncClient:
        key = self._address.key
        secret = self._address.user_secret
        signed = {HEADER: sign_user(self.user, secret)} if self.user and secret else {}
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            # The error of httpx would contain the key.
            raise ServerProblem(BAD_KEY)
        socket = self._address.socket
        return httpx.AsyncClient(
            headers={**signed, **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            transport=httpx.AsyncHTTPTransport(uds=str(socket)) if socket else None,
            # Loading certificates takes 20 ms, and plain HTTP needs none.
            verify=not self._address.url.startswith("http:"),
            # The environment's proxy is for other machines.
            trust_env=not is_local(self._address.url),
        )

    def _read_refusal(self, status: int, body: bytes) -> ServerProblem:
        try:
            error = _ErrorBody.model_validate_json(body).error
        except ValueError:
            return self._problem(NOT_CALLBOARD)
        message = error.message
        if self._address.key:
            message = message.replace(self._address.key, "***")
        match error.code:
            case "unknown_run":
                return _UnknownRun(message)
            case "unknown_chat":
                return _UnknownChat(message)
            case "shutting_down":
                return TemporaryProblem(message)
            # Except for a timeout or a full server, a later attempt would be refused too.
            case _ if 400 <= status < 500 and status not in (408, 425, 429):
                return Refusal(message)
            case _:
                return ServerProblem(message)

    def _problem(self, words: str) -> ServerProblem:
        # The address may have a password, which is not shown.
        return ServerProblem(words.format(url=re.sub(r"//[^/@]*@", "//", self._address.url)))


class _UnknownRun(Refusal):
    """The server has no run with this id."""


class _UnknownChat(Refusal):
    """The user has no chat with this id."""


def _waits(skipped: int) -> Sequence[float]:
    """Return more waiting times than fit into `RESUME_SECONDS`."""
    last = RESUME_WAITS_SECONDS[-1]
    return (*RESUME_WAITS_SECONDS[skipped:], *[last] * round(RESUME_SECONDS / last))


def is_local(url: str) -> bool:
    """Return whether the address is a loopback address."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
