"""Serves an application on a port of this machine, with a client for tests."""

import asyncio
import atexit
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal

from callboard._application.application import Application, Callboard
from callboard.agents import Agent
from callboard.http.auth import ApiKey
from callboard.http.listening import listen
from callboard.testing.fake_model import FakeModel
from callboard_protocol import (
    Decoder,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    RunRequest,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolStatus,
    UserMessage,
    decode,
)

RUN_SECONDS = 60
"""Time that a client waits for the next event; without a bound, a test would hang and show no reason."""
DATE_SECONDS = 1
"""Interval at which uvicorn updates the `Date` of its responses."""


@dataclass(frozen=True, slots=True)
class RunCall:
    """A tool call of a run: either `result` and its `files`, or `error` and its `code`.

    `result`, `error` and `code` are None for a call of a function that the client runs.
    """

    tool_name: str
    arguments: dict[str, Any] | str
    result: str | None = None
    error: str | None = None
    code: str | None = None
    files: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, with its events in order."""

    events: Sequence[Event]

    @property
    def calls(self) -> list[RunCall]:
        """Every tool call, in the order in which they began."""
        calls: dict[str, RunCall] = {}
        for event in self.events:
            match event:
                case ToolCallStart():
                    calls[event.tool_call_id] = RunCall(event.tool_name, event.tool_args)
                case ToolCallExternal():
                    calls[event.tool_call_id] = RunCall(event.tool_name, event.arguments)
                case ToolStatus(tool_call_id=call_id, data=data) if data.arguments is not None:
                    calls[call_id] = replace(calls[call_id], arguments=data.arguments)
                case ToolCallComplete():
                    found = calls[event.tool_call_id]
                    calls[event.tool_call_id] = replace(found, result=event.result, files=event.files)
                case ToolCallError():
                    found = calls[event.tool_call_id]
                    calls[event.tool_call_id] = replace(found, error=event.error, code=event.code)
                case _:
                    pass
        return list(calls.values())

    @property
    def error(self) -> str | None:
        """The message of the error that ended the run; None if it did not fail."""
        last = self.events[-1] if self.events else None
        return last.message if isinstance(last, Error) else None

    @property
    def text(self) -> str:
        """The text of the answer, without text that the run has taken back."""
        texts: list[str] = []
        kept_count = 0
        for event in self.events:
            match event:
                case Message():
                    texts.append(event.content)
                case Rewind():
                    del texts[kept_count:]
                case ToolCallStart() | ToolCallComplete() | ToolCallError() | UserMessage():
                    kept_count = len(texts)
                case _:
                    pass
        return "".join(texts)

    @property
    def results(self) -> dict[str, str]:
        """Each tool's last result, or its error, by the tool's name; `calls` has all of them."""
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
    """A client of an application; `http` is an httpx client that sends the application's key."""

    def __init__(self, http: httpx.Client, agent: str, models: Sequence[FakeModel] = ()) -> None:
        self.http = http
        self._agent = agent
        self._models = models

    def run(
        self,
        message: str | Sequence[dict[str, Any]],
        *,
        agent: str | None = None,
        approve: bool | Callable[[InputRequest], Any] = False,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> EndedRun:
        """Start a run, and return it when it has ended.

        Args:
            message: The question, or a conversation as OpenAI's messages.
            agent: An agent's id. Default: the application's first agent.
            approve: The answer to every question of the run, or a function that returns it.
            headers: Headers of every request of this run.
            fields: More fields of `RunRequest`.

        Raises `httpx.HTTPStatusError` with the server's message if the request is refused, `TypeError` for an unknown
        field, and `AssertionError` if a `FakeModel` has no more answers.
        """
        # Hides this frame, so that pytest shows the line of the test.
        __tracebackhide__ = True
        # The server ignores unknown fields, but in a test such a field is misspelt.
        if unknown := fields.keys() - RunRequest.model_fields.keys():
            raise TypeError(f"a run has no field {min(unknown)!r}: it has {', '.join(RunRequest.model_fields)}")
        messages = [{"role": "user", "content": message}] if isinstance(message, str) else list(message)
        body = {"agent": agent or self._agent, "messages": messages, **fields}
        run = EndedRun(list(self._events(body, approve, headers or {})))
        self.check_models()
        return run

    def check_models(self) -> None:
        """Raise `AssertionError` if a `FakeModel` got more requests than it has answers, and forget that."""
        __tracebackhide__ = True
        for model in self._models:
            if failure := model.failure:
                model.failure = None
                raise AssertionError(failure)

    def _events(
        self, body: dict[str, Any], approve: bool | Callable[[InputRequest], Any], headers: Mapping[str, str]
    ) -> Iterator[Event]:
        __tracebackhide__ = True
        decoder = Decoder()
        with self.http.stream("POST", "/v1/runs", json=body, headers=headers) as response:
            _raise_refusal(response)
            run_id = response.headers["X-Callboard-Run"]
            for chunk in response.iter_bytes():
                for frame in decoder.feed(chunk):
                    if (event := decode(frame)) is None:
                        continue
                    if isinstance(event, InputRequest):
                        value = approve(event) if callable(approve) else approve
                        self._answer(run_id, event, value, body, headers)
                    yield event

    def _answer(
        self, run_id: str, question: InputRequest, value: object, body: dict[str, Any], headers: Mapping[str, str]
    ) -> None:
        __tracebackhide__ = True
        user = body.get("user")
        answered = self.http.post(
            f"/v1/runs/{run_id}/input",
            params={"user_id": user["id"]} if user else None,
            json={"request_id": question.request_id, "value": value},
            headers=headers,
        )
        _raise_refusal(answered)


def _raise_refusal(response: httpx.Response) -> None:
    """Raise `httpx.HTTPStatusError` with the server's message if the response is an error."""
    __tracebackhide__ = True
    if not response.is_error:
        return
    response.read()
    try:
        reason = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        # The application's own middleware may answer in another form.
        reason = response.text
    raise httpx.HTTPStatusError(f"{response.status_code}: {reason}", request=response.request, response=response)


@contextmanager
def client(board: Callboard, *, headers: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Serve the board in a thread until the block ends; raises the error that prevents its start.

    All clients of a process share the thread and its event loop: models of frameworks keep connections in it.
    `headers` are sent with each request, for the board's own `authenticate`; the key of `api_key` is sent anyway.
    Raises `AssertionError` at the end if a `FakeModel` had too few answers.
    """
    __tracebackhide__ = True
    authenticate = board.authenticate
    key = next(iter(authenticate.secrets), "") if isinstance(authenticate, ApiKey) else ""
    sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
    models = [board.model, *(agent.model for agent in board.agents if isinstance(agent, Agent))]
    with (
        _start_portal().wrap_async_context_manager(listening(board.asgi())) as url,
        httpx.Client(base_url=url, headers=sent, timeout=RUN_SECONDS) as http,
    ):
        opened = Client(
            http,
            next((agent.agent_id for agent in board.agents), ""),
            [model for model in models if isinstance(model, FakeModel)],
        )
        yield opened
    opened.check_models()


@cache
def _start_portal() -> BlockingPortal:
    """Return the portal to the event loop of all clients, which runs in a thread until the process ends."""
    opened = start_blocking_portal(name="callboard.testing")
    atexit.register(opened.__exit__, None, None, None)
    return opened.__enter__()


class _Server(uvicorn.Server):
    """A uvicorn server that sets `is_ready` when it listens or has failed to start, and ends when `is_over` is set."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = asyncio.Event()
        self.is_over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handling of signals to the program around the server."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn checks ten times a second, which takes half of the time of a short test."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_over.wait(), DATE_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn exits if the application does not open, but this process goes on and reports the error.
            self.should_exit = True
        finally:
            self.is_ready.set()


@asynccontextmanager
async def listening(app: Application, host: str = "127.0.0.1", **config: Any) -> AsyncIterator[str]:
    """Serve the application on a free port, in the running event loop; yields its URL on this machine.

    The server listens on `host`; `config` is for uvicorn. At the end, runs end with their last events. Raises the error
    that prevents the start.
    """
    with listen(host, 0) as listener:
        server = _Server(uvicorn.Config(app, log_config=None, lifespan="on", **config))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await server.is_ready.wait()
        if app.start_error is not None:
            await task
            raise app.start_error
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await app.stop(at_once=True)
            server.should_exit = True
            server.is_over.set()
            await task
