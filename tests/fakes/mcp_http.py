"""An MCP server over streamable HTTP of the older protocol that forgets its sessions when told to."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes.http_server import HttpServer

SESSION = "mcp-session-id"


class ForgetfulServer:
    """Has a tool `run`, whose executions it counts.

    A request of a session that it does not know is answered with `status` and `body`. `has_stream`: whether GET opens
    a stream of notifications, which ends when the sessions are forgotten. `is_always_forgetful`: each call is refused.
    `release`: an answer waits for it, if there is one; `waiting` and `refused` say that a call waits and was refused.
    `error`: the answer to each call, if there is one. `raw`: the parts of the body that answers a call, in which `ID`
    stands for its id. `description` is the tool's. `moved`: the status and the target of a redirect from `/moved`;
    `authorized`: the headers `Authorization` that came.
    """

    def __init__(self, status: int = 404, body: str | dict[str, Any] = "", *, has_stream: bool = False) -> None:
        self.sessions: set[str] = set()
        self.runs = 0
        self.description = "Runs."
        self.moved = (307, "/mcp")
        self.authorized: set[str | None] = set()
        self.initialized = 0
        self.is_always_forgetful = False
        self.release: asyncio.Event | None = None
        self.waiting = asyncio.Event()
        self.refused = asyncio.Event()
        self.raw: list[bytes] = []
        self.error: Response | None = None
        self.raw_type = "application/json"
        self._refusal = body
        self._status = status
        self._has_stream = has_stream
        self._streams: list[asyncio.Event] = []
        methods = ["GET", "POST", "DELETE"]
        app = Starlette(
            routes=[Route("/mcp", self._serve, methods=methods), Route("/moved", self._move, methods=methods)]
        )
        self._server = HttpServer(app, interface="asgi3")

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.forget()
        await self._server.__aexit__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}/mcp"

    def forget(self) -> None:
        self.sessions.clear()
        for stream in self._streams:
            stream.set()

    async def _move(self, _: Request) -> Response:
        status, target = self.moved
        return RedirectResponse(target, status)

    async def _serve(self, request: Request) -> Response:
        session = request.headers.get(SESSION)
        self.authorized.add(request.headers.get("authorization"))
        if session is not None and session not in self.sessions:
            # A status of success answers the request with this id.
            return self._refuse((await request.json()).get("id") if self._status == 200 else None)
        if request.method == "GET":
            return self._open_stream() if self._has_stream else PlainTextResponse("no stream here", 405)
        if request.method == "DELETE":
            self.sessions.discard(str(session))
            return Response(status_code=204)
        message = await request.json()
        match message["method"]:
            case "initialize":
                self.initialized += 1
                self.sessions.add(session := uuid4().hex)
                info = {"name": "forgetful", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                return self._answer(message, result, {SESSION: session})
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                tool = {"name": "run", "description": self.description, "inputSchema": schema}
                return self._answer(message, {"tools": [tool]})
            case "tools/call":
                return await self._run(message)
            case _ if "id" in message:
                error = {"code": -32601, "message": "no such method"}
                return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
            case _:
                return Response(status_code=202)

    async def _run(self, message: dict[str, Any]) -> Response:
        if self.is_always_forgetful:
            self.forget()
            return self._refuse(message["id"])
        if self.error is not None:
            return self.error
        self.runs += 1
        text = f"run {self.runs}"
        if (release := self.release) is not None:
            self.waiting.set()
            await release.wait()
        if self.raw:
            parts = [part.replace(b"ID", str(message["id"]).encode()) for part in self.raw]
            return StreamingResponse(iter(parts), media_type=self.raw_type)
        return self._answer(message, {"content": [{"type": "text", "text": text}]})

    def _refuse(self, answered: Any = None) -> Response:
        self.refused.set()
        if isinstance(self._refusal, dict):
            return JSONResponse({"jsonrpc": "2.0", "id": answered, "error": self._refusal}, self._status)
        return PlainTextResponse(self._refusal, self._status)

    def _answer(
        self, message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Response:
        # Some servers send this so that proxies do not compress the answer.
        headers = {**(headers or {}), "Content-Encoding": "none"}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    def _open_stream(self) -> Response:
        ended = asyncio.Event()
        self._streams.append(ended)

        async def stream() -> AsyncIterator[bytes]:
            yield b": here\n\n"
            await ended.wait()

        return StreamingResponse(stream(), media_type="text/event-stream")
