"""A scripted OpenAI-compatible server over real HTTP, for anything that talks to a model.

    async with OpenAIServer([chunks(text("Hi"), finish("stop"))]) as server:
        model = OpenAICompatible(server.base_url, api_key="key", model="m")

Answers are used up one a request; a callable in their place gets each request's body. Every
body is kept in `requests`. `models` are what `/models` lists, 404 where there are none. `pages` are
other routes, `{"GET /props": {…}}`: JSON, an answer, or what makes JSON of a body; `asked` keeps who
asks for them. What an endpoint can do wrong is an answer too: `Refusal` for statuses, and an ending of `Chunks` for
everything in mid-stream.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from starlette.requests import ClientDisconnect, Request

from tests.fakes.http_server import HttpServer

Body = dict[str, Any]
ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]

Ending = Literal["done", "eof", "cut", "hang"]
"""`[DONE]`; an end without it; a connection cut in mid-stream; silence until the client goes away."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """A stream of chunks; a string among them is sent as it is, as one `data:` line.

    `pause_seconds` before each: a model takes its time.
    """

    chunks: Iterable[Mapping[str, Any] | str]
    ending: Ending = "done"
    content_type: str = "text/event-stream"
    pause_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status."""

    status: int
    message: str = "refused"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer at all, until the client goes away."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer byte by byte; where `headers` promise more than `body` holds, the connection is cut."""

    body: Iterable[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is none for an answer; `route` is its method and path."""

    route: str
    query: str
    body: Body
    headers: Mapping[str, str]


Answer = Chunks | Refusal | Silence | Raw
Page = Mapping[str, Any] | Refusal | Silence | Raw | Callable[[Body], Mapping[str, Any]]
Script = Sequence[Answer] | Callable[[Body], Answer]


def chunks(*parts: Mapping[str, Any] | str, ending: Ending = "done", pause_seconds: float = 0) -> Chunks:
    """A stream of these chunks."""
    return Chunks(parts, ending, pause_seconds=pause_seconds)


def text(content: str | None, **delta: Any) -> Body:
    """A chunk with a piece of answer text."""
    return _chunk({"content": content, **delta})


def call(
    name: str | None = None,
    arguments: str | None = None,
    *,
    index: int | None = 0,
    call_id: str | None = None,
) -> Body:
    """A chunk with a piece of a tool call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    # As OpenAI's own: the type comes with the name.
    kind = "function" if name is not None else None
    entry: Body = {"index": index, "id": call_id, "type": kind, "function": function}
    return _chunk({"tool_calls": [{key: value for key, value in entry.items() if value is not None}]})


def finish(reason: str | None) -> Body:
    """The chunk that says why the model stopped."""
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
    }


def usage(prompt: int, completion: int, **more: object) -> Body:
    """The last chunk where usage was asked for: no choices; `more` is what some endpoints tell beside the tokens."""
    total = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": total}


class OpenAIServer:
    """The server; use it as an asynchronous context manager.

    `clients` are the addresses that requests come from. `is_asked` is set by each request, `hanging` once an answer
    has gone silent, `disconnected` once a client went away from such an answer. A test that clears `may_answer` holds
    the answers until it sets it again.
    """

    def __init__(self, script: Script, models: Sequence[str] = (), pages: Mapping[str, Page] | None = None) -> None:
        self.requests: list[Body] = []
        self.asked: list[Asked] = []
        self.headers: list[dict[str, str]] = []
        self.clients: set[tuple[str, int]] = set()
        self.base_url = ""
        self.is_asked = asyncio.Event()
        self.hanging = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._news = asyncio.Event()
        self._script = script
        self._models = models
        self._pages = pages or {}
        self._answered = 0

    async def __aenter__(self) -> Self:
        self._server = await HttpServer(self._app, interface="asgi3").__aenter__()
        self.base_url = f"http://127.0.0.1:{self._server.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    async def until_asked(self, times: int) -> None:
        """Wait until as many requests for an answer have come."""
        while len(self.requests) < times:
            self._news.clear()
            await self._news.wait()

    def _next(self, body: Body) -> Answer:
        if callable(self._script):
            return self._script(body)
        if self._answered >= len(self._script):
            return Refusal(500, "the script is used up")
        self._answered += 1
        return self._script[self._answered - 1]

    async def _app(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        try:
            body: Body = json.loads(await Request(scope, receive).body() or b"{}")
        except ClientDisconnect:
            return
        if scope["path"] == "/v1/models" and self._models:
            await _answer(send, 200, {"object": "list", "data": [{"id": name} for name in self._models]})
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"] != "/v1/chat/completions":
            asked = Asked(f"{scope['method']} {scope['path']}", scope["query_string"].decode(), body, headers)
            await self._show(asked, receive, send)
            return
        self.requests.append(body)
        self.clients.add(scope["client"])
        self.is_asked.set()
        self.headers.append(headers)
        self._news.set()
        await self.may_answer.wait()
        match self._next(body):
            case Refusal() | Silence() | Raw() as other:
                await self._answer_otherwise(other, receive, send)
            case Chunks() as stream if body.get("stream"):
                await self._stream(stream, receive, send)
            case Chunks() as whole:
                await _send_whole(whole, send)

    async def _show(self, asked: Asked, receive: Receive, send: Send) -> None:
        self.asked.append(asked)
        match self._pages.get(asked.route, Refusal(404, f"no route {asked.route}")):
            case Refusal() | Silence() | Raw() as other:
                await self._answer_otherwise(other, receive, send)
            case Mapping() as page:
                await _answer(send, 200, dict(page))
            case make:
                await _answer(send, 200, dict(make(asked.body)))

    async def _answer_otherwise(self, answer: Refusal | Silence | Raw, receive: Receive, send: Send) -> None:
        """Answer with something that is neither a completion nor a page."""
        match answer:
            case Refusal():
                await _refuse(send, answer)
            case Silence():
                await self._hang(receive)
            case Raw():
                await self._send_raw(answer, receive, send)

    async def _stream(self, stream: Chunks, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", stream.content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in stream.chunks:
            if stream.pause_seconds:
                await asyncio.sleep(stream.pause_seconds)
            data = chunk if isinstance(chunk, str) else json.dumps(chunk)
            await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})
        match stream.ending:
            case "done":
                await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            case "eof":
                await send({"type": "http.response.body", "body": b""})
            case "cut":
                return  # uvicorn closes the connection of an answer that is not complete
            case "hang":
                await self._hang(receive)

    async def _send_raw(self, raw: Raw, receive: Receive, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in raw.headers.items()]
        await send({"type": "http.response.start", "status": raw.status, "headers": headers})
        watching = asyncio.create_task(self._watch(receive))
        for piece in raw.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            # To a client that has left, uvicorn sends without waiting for anything.
            await asyncio.sleep(0)
            if watching.done():
                return
        watching.cancel()
        if "Content-Length" not in raw.headers:
            await send({"type": "http.response.body", "body": b""})

    async def _hang(self, receive: Receive) -> None:
        self.hanging.set()
        await self._watch(receive)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()


def _chunk(delta: Body) -> Body:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


async def _send_whole(answer: Chunks, send: Send) -> None:
    """The text, the calls and the usage of a stream as one completion, for a client that did not ask for a stream."""
    bodies = [chunk for chunk in answer.chunks if not isinstance(chunk, str)]
    choices = [choice for chunk in bodies for choice in chunk["choices"]]
    said = "".join(choice["delta"].get("content") or "" for choice in choices)
    message: Body = {"role": "assistant", "content": said}
    calls: dict[int, Body] = {}
    for piece in (piece for choice in choices for piece in choice["delta"].get("tool_calls") or ()):
        whole = calls.setdefault(piece["index"], {**piece, "function": {"name": "", "arguments": ""}})
        for name, value in piece["function"].items():
            whole["function"][name] += value
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    completion = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if counts := [chunk["usage"] for chunk in bodies if "usage" in chunk]:
        completion["usage"] = counts[-1]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(completion).encode()})


async def _refuse(send: Send, refusal: Refusal) -> None:
    error = {"message": refusal.message, "type": "error", "code": None}
    await _answer(send, refusal.status, {"error": error}, refusal.headers)


async def _answer(send: Send, status: int, body: Body, headers: Mapping[str, str] | None = None) -> None:
    sent = [(b"content-type", b"application/json")]
    sent += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
