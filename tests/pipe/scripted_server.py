"""A real HTTP server whose responses a test scripts, including cut connections."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from callboard_protocol import Event, encode

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    query: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ScriptedServer:
    """Answers each request with the next answer of its route; the last one is repeated."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self._arrival = asyncio.Condition()
        self._handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.on("POST", "cancel", answer_json({}, 202))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def on(self, method: str, last_part: str, *answers: Answer) -> None:
        self._answers[method, last_part] = list(answers)

    async def seen(self, method: str, last_part: str, count: int = 1) -> list[Request]:
        """Wait until `count` such requests have arrived, and return them."""

        def matching() -> list[Request]:
            return [r for r in self.requests if r.method == method and r.path.rpartition("/")[2] == last_part]

        async with self._arrival:
            await self._arrival.wait_for(lambda: len(matching()) >= count)
        return matching()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._handlers.add(task)
        try:
            request = await self._read(reader)
            async with self._arrival:
                self.requests.append(request)
                self._arrival.notify_all()
            answers = self._answers[request.method, request.path.rpartition("/")[2]]
            await (answers.pop(0) if len(answers) > 1 else answers[0])(writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path, _, query = path.partition("?")
        return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))), query)


def answer_bytes(body: bytes, status: int = 200, kind: str = "application/json") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


def answer_json(value: Any, status: int = 200) -> Answer:
    return answer_bytes(json.dumps(value).encode(), status)


def error_response(status: int, code: str, message: str) -> Answer:
    return answer_json({"error": {"code": code, "message": message}}, status)


def frames(*events: Event, first: int = 1) -> bytes:
    return b"".join(encode(seq, event) for seq, event in enumerate(events, first))


def stream(*pieces: bytes | asyncio.Event, end: str = "close") -> Answer:
    """An event stream; an `asyncio.Event` among the pieces is waited for.

    `end`: "close" ends the body, "abort" cuts a chunked body in the middle, "hang" keeps the connection open.
    """

    async def answer(writer: asyncio.StreamWriter) -> None:
        chunked = b"transfer-encoding: chunked\r\n" if end == "abort" else b""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + chunked + b"\r\n")
        for piece in pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
        if end == "hang":
            await asyncio.Event().wait()

    return answer


async def hang(writer: asyncio.StreamWriter) -> None:
    """Accepts and never answers."""
    await asyncio.Event().wait()


async def hang_up(_: asyncio.StreamWriter) -> None:
    """Ends the connection without an answer."""
