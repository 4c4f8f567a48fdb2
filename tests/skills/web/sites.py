"""Web servers on 127.0.0.1 with exactly scripted answers, including the faults of real sites and services."""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Heard:
    """A received request. `server_name` is the name in TLS or in the proxy's CONNECT."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    server_name: str = ""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `ending`: complete, shorter than `Content-Length`, or silence after the body."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: Literal["done", "cut", "hang"] = "done"


def page(html: str, content_type: str = HTML) -> Reply:
    return Reply(html.encode(), headers={"Content-Type": content_type})


def redirect(location: str, status: int = 302) -> Reply:
    return Reply(b"moved", status, {"Location": location})


def answer(value: Any, status: int = 200, **headers: str) -> Reply:
    """JSON; `headers` with `_` for `-`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json", **named})


class Site:
    """A server whose `script` answers each request.

    `heard` are the requests, `connections` the number of connections. With `tls` the server uses HTTPS. `proxy` is the
    TLS context for all hosts that a client reaches by CONNECT.
    """

    def __init__(
        self,
        script: Callable[[Heard], Reply] | Reply,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        proxy: ssl.SSLContext | None = None,
    ) -> None:
        self.heard: list[Heard] = []
        self.connections = 0
        self.port = port
        self._script = script
        self._host = host
        self._tls = tls
        self._proxy = proxy
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        # Or the test's event loop would end before their sockets are closed.
        await asyncio.gather(*(writer.wait_closed() for writer in self._open), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            request = await _read(reader, "")
            if request.method == "CONNECT" and self._proxy:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await writer.start_tls(self._proxy)
                request = await _read(reader, request.target.partition(":")[0])
            while (reply := self._reply(request)).headers.get("Connection") == "keep-alive":
                await _send(writer, reply)
                request = await _read(reader, request.server_name)
            await _send(writer, reply)
            if reply.ending == "hang":
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # The client went away.
        finally:
            writer.close()

    def _reply(self, request: Heard) -> Reply:
        self.heard.append(request)
        return self._script(request) if callable(self._script) else self._script


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(_head(reply) + reply.body)
    await writer.drain()


async def _read(reader: asyncio.StreamReader, server_name: str) -> Heard:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Heard(method, target, headers, body, server_name)


def _head(reply: Reply) -> bytes:
    length = len(reply.body) + (0 if reply.ending == "done" else 1000)
    headers = {"Content-Length": str(length), "Connection": "close", **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Whatever\r\n{lines}\r\n".encode()
