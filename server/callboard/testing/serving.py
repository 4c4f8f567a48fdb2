"""An application on a port of this machine, and what talks to it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from anyio.from_thread import start_blocking_portal

from callboard._application import Callboard
from callboard._application.application import Application
from callboard._http.auth import ApiKey
from callboard._http.connections import listen
from callboard_protocol import (
    Decoder,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallError,
    decode,
)

RUN_SECONDS = 60
"""The time that a client waits for the next event: a test that waits for ever says nothing."""

DATE_SECONDS = 1
"""The time after which responses have another `Date`."""


@dataclass(frozen=True)
class Run:
    """A run that has ended: its events, in their order."""

    events: Sequence[Event]

    @property
    def text(self) -> str:
        """The text that the agent said."""
        return "".join(event.content for event in self.events if isinstance(event, Message))

    @property
    def results(self) -> dict[str, str]:
        """Each tool's last result, or its error, by the tool's name."""
        found: dict[str, str] = {}
        for event in self.events:
            match event:
                case ToolCallComplete():
                    found[event.tool_name] = event.result
                case ToolCallError():
                    found[event.tool_name] = event.error
                case _:
                    pass
        return found

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of that class: `run.of(ToolCallStart)`."""
        return [event for event in self.events if isinstance(event, kind)]


class Client:
    """A client of an application; `http` is an httpx client for its routes, with the application's key."""

    def __init__(self, http: httpx.Client, agent: str) -> None:
        self.http = http
        self._agent = agent

    def run(
        self,
        message: str | Sequence[dict[str, Any]],
        *,
        agent: str | None = None,
        approve: bool | Callable[[InputRequest], Any] = False,
        **fields: Any,
    ) -> Run:
        """Return the run that answers `message`, a text or OpenAI's messages; `fields` are those of `RunRequest`.

        `agent`: the application's first unless it is given. `approve` answers what a run asks: yes, no, or what the
        function returns. Raises `httpx.HTTPStatusError` where the request is refused.
        """
        messages = [{"role": "user", "content": message}] if isinstance(message, str) else list(message)
        body = {"agent": agent or self._agent, "messages": messages, **fields}
        return Run(list(self._events(body, approve)))

    def _events(self, body: dict[str, Any], approve: bool | Callable[[InputRequest], Any]) -> Iterator[Event]:
        decoder = Decoder()
        with self.http.stream("POST", "/v1/runs", json=body) as response:
            if response.is_error:
                response.read()
                response.raise_for_status()
            run_id = response.headers["X-Callboard-Run"]
            for chunk in response.iter_bytes():
                for frame in decoder.feed(chunk):
                    if (event := decode(frame)) is None:
                        continue
                    if isinstance(event, InputRequest):
                        value = approve(event) if callable(approve) else approve
                        self._answer(run_id, event, value, body)
                    yield event

    def _answer(self, run_id: str, question: InputRequest, value: object, body: dict[str, Any]) -> None:
        user = body.get("user")
        self.http.post(
            f"/v1/runs/{run_id}/input",
            params={"user_id": user["id"]} if user else None,
            json={"request_id": question.request_id, "value": value},
        ).raise_for_status()


@contextmanager
def client(board: Callboard) -> Iterator[Client]:
    """Serve the board in a thread until the block ends; raises what keeps it from starting."""
    asked = board.authenticate
    key = next(iter(asked.secrets), "") if isinstance(asked, ApiKey) else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(board.asgi())) as url,
        httpx.Client(base_url=url, headers=headers, timeout=RUN_SECONDS) as http,
    ):
        yield Client(http, next((agent.agent_id for agent in board.agents), ""))


class _Server(uvicorn.Server):
    """A server that tells when it listens, or will not, and ends as soon as `is_over` is set."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = asyncio.Event()
        self.is_over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the test runner: servers that end in another order than they began would mix them up."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn looks for it ten times a second, which is half of the time of a short test."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_over.wait(), DATE_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # So uvicorn ends a process whose application does not open; this one is a test's.
            self.should_exit = True
        finally:
            self.is_ready.set()


@asynccontextmanager
async def listening(app: Application, host: str = "127.0.0.1", **config: Any) -> AsyncIterator[str]:
    """Serve the application on a free port, in the running event loop; yields its address on this machine.

    `host` is what it listens on, `config` uvicorn's. At the end runs are ended, with their last events. Raises what
    keeps it from starting.
    """
    with listen(host, 0) as listener:
        server = _Server(uvicorn.Config(app, log_config=None, lifespan="on", **config))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.is_ready.wait()
        if app.start_error is not None:
            await serving
            raise app.start_error
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await app.stop(at_once=True)
            server.should_exit = True
            server.is_over.set()
            await serving
