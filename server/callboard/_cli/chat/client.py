"""A server as the terminal uses it: its agents, its chats, and a run from its first event to its last.

It speaks HTTP for the whole command. A connection that is lost is resumed as the pipe does it.
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
"""What each try to resume waits for; the last is repeated."""

RESUME_SECONDS = 20.0
"""How long in all, where no try brings anything new."""

RESUME_JITTER = 0.25

CANNOT_REACH = "Cannot reach a Callboard server at {url}: is it running (`callboard serve`), and the address right?"
NOT_CALLBOARD = "What answers at {url} is no Callboard server."
BAD_KEY = "The API key cannot be sent: it holds characters that do not belong there."
LOST = "The connection to the server was lost, and the answer could not be resumed."


class ServerProblem(CallboardError):
    """The server cannot be used; the message says what to do."""


class TemporaryProblem(ServerProblem):
    """A server that is about to stop, or was lost before it answered: the next try may have another."""


class Refusal(ServerProblem):
    """A server says itself that it will not do it, now or later."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: a URL, or a socket of this process in a folder of its own.

    `user_secret` is what users are signed with, where the server asks for that.
    """

    url: str
    key: str = field(default="", repr=False)
    socket: Path | None = None
    user_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """An agent as the server lists it."""

    agent_id: str
    description: str


class _ErrorObject(BaseModel):
    message: str
    code: str = ""


class _ErrorBody(BaseModel):
    """A refusal as the server writes it."""

    error: _ErrorObject


class Deliver(Protocol):
    """Takes an event: its JSON, and what it is; None where this version does not know it."""

    def __call__(self, data: str, event: Event | None, /) -> None: ...


_OpenStream = Callable[[], AbstractAsyncContextManager[httpx.Response]]


class ServerClient:
    """What talks to the server at an address, for a user or for nobody by name. Every failure is a `ServerProblem`."""

    def __init__(self, address: Address, user: User | None) -> None:
        self.user = user
        self._address = address
        self._user = {"user_id": user.id} if user else {}
        self._last_seq = 0

    @property
    def public_url(self) -> str:
        """The address that a person could open, without a password; nothing where the server is in this process."""
        return "" if self._address.socket else re.sub(r"//[^/@]*@", "//", self._address.url.rstrip("/"))

    async def list_agents(self) -> list[ListedAgent]:
        """Return the agents that there are."""
        listed = await self._fetch("GET", "/v1/models")
        try:
            return [ListedAgent(str(one["id"]), str(one.get("description") or "")) for one in listed["data"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def load_chat(self, chat_id: str) -> list[dict[str, Any]]:
        """Return the stored messages of a chat; none where there is no such chat of the user's."""
        path = f"/v1/chats/{quote(chat_id, safe='')}/messages"
        try:
            return list((await self._fetch("GET", path, params=self._user))["messages"])
        except _UnknownChat:
            return []
        except (KeyError, TypeError) as error:
            raise self._problem(NOT_CALLBOARD) from error

    async def run(self, request: RunRequest, deliver: Deliver, wait: Callable[[], None]) -> None:
        """Start a run and deliver its events up to the last; `wait` is called where the server is away.

        Where the connection is lost before the first event, the request is sent again with the same run id, and the
        server starts that run once.
        """
        self._last_seq = 0
        body = request.model_dump(mode="json")

        def begin() -> AbstractAsyncContextManager[httpx.Response]:
            return self._send("POST", "/v1/runs", json=body)

        def resume() -> AbstractAsyncContextManager[httpx.Response]:
            headers = {"Last-Event-ID": str(self._last_seq)}
            return self._send("GET", f"/v1/runs/{request.run_id}/events", headers=headers, params=self._user)

        await self._deliver_all(begin, resume, deliver, wait)

    async def fetch_file(self, url: str) -> bytes:
        """Return a file that the server holds for the run."""
        async with self._send("GET", url, params=self._user) as response:
            return await response.aread()

    async def answer(self, run_id: str, request_id: str, value: object, *, asked: bool = True) -> None:
        """Tell the server what the user answered, or that nobody could be `asked`.

        A server that is away for a moment is waited for.
        """
        body = InputAnswer(request_id=request_id, value=value, asked=asked).model_dump(mode="json")
        await self._retry("POST", f"/v1/runs/{run_id}/input", json=body)

    async def cancel(self, run_id: str) -> None:
        """End a run; one that the server has not begun yet is waited for."""
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

    async def _deliver_all(
        self, begin: _OpenStream, resume: _OpenStream, deliver: Deliver, wait: Callable[[], None]
    ) -> None:
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
                await asyncio.sleep(wait_seconds * (1 + random.uniform(-RESUME_JITTER, RESUME_JITTER)))  # noqa: S311 - it keeps no secret
            tries += 1

    def _explain_failure(self, problem: ServerProblem, *, is_first: bool) -> ServerProblem:
        """Return the problem to raise when the time for tries is over; raises it at once where no try can help."""
        if is_first and not isinstance(problem, TemporaryProblem):
            raise problem
        lost = self._problem(LOST)
        if isinstance(problem, Refusal):
            raise lost from problem
        return lost if self._last_seq else problem

    async def _read(self, response: httpx.Response, deliver: Deliver) -> bool:
        """Deliver the events of one stream, each once; return true after the run's last."""
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
        """Yield an accepted answer, its body unread; everything else is a problem."""
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
            # httpx would quote the key in its own message.
            raise ServerProblem(BAD_KEY)
        socket = self._address.socket
        return httpx.AsyncClient(
            headers={**signed, **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            transport=httpx.AsyncHTTPTransport(uds=str(socket)) if socket else None,
            # To load the certificates costs 20 ms, which plain HTTP can do without.
            verify=not self._address.url.startswith("http:"),
            # A proxy of the environment is for other machines.
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
            # A server that is full or stops says so too, and may take the next try.
            case _ if 400 <= status < 500 and status not in (408, 425, 429):
                return Refusal(message)
            case _:
                return ServerProblem(message)

    def _problem(self, words: str) -> ServerProblem:
        # What people are shown has no password in it.
        return ServerProblem(words.format(url=re.sub(r"//[^/@]*@", "//", self._address.url)))


class _UnknownRun(Refusal):
    """The server knows no such run."""


class _UnknownChat(Refusal):
    """The server knows no such chat of this user's."""


def _waits(skipped: int) -> Sequence[float]:
    """Return what tries wait for, more of them than there is time for."""
    last = RESUME_WAITS_SECONDS[-1]
    return (*RESUME_WAITS_SECONDS[skipped:], *[last] * round(RESUME_SECONDS / last))


def is_local(url: str) -> bool:
    """Return whether the address is one of this machine alone."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
