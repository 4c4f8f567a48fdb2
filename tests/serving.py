"""A real server on a real port, in the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from callboard.agents import AgentLike, Registry, RunContext
from callboard.cli.serve import Server, bind
from callboard.http import ServerState, create_app, open_state
from callboard.settings import Settings
from callboard_protocol import Decoder, Event, decode

Script = Callable[[RunContext], AsyncIterator[Event]]


@dataclass(frozen=True)
class ScriptedAgent:
    """An agent whose events are written down in the test."""

    script: Script
    agent_id: str = "scripted"
    name: str = "Scripted"
    description: str = "Says what the test wants."

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        return self.script(context)


class ReadyServer(Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, AsyncExitStack())
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@dataclass(frozen=True)
class Service:
    """A running server and a client for it."""

    state: ServerState
    server: Server
    client: httpx.AsyncClient

    async def events(self, body: dict[str, Any]) -> list[Event]:
        """All events of a run."""
        async with self.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200, await response.aread()
            return [event async for _, event in numbered(response)]


async def numbered(response: httpx.Response) -> AsyncIterator[tuple[int, Event]]:
    """The events of a stream with their numbers, as they come."""
    decoder = Decoder()
    async for chunk in response.aiter_bytes():
        for frame in decoder.feed(chunk):
            event = decode(frame)
            assert event is not None
            yield int(frame.id), event


def request(**fields: Any) -> dict[str, Any]:
    """The body of a run."""
    return {"agent": "scripted", "messages": [{"role": "user", "content": "hi"}], **fields}


@asynccontextmanager
async def serving(folder: Path, *agents: AgentLike, **values: Any) -> AsyncIterator[Service]:
    """A server for these agents, its data in `folder`; `values` are settings."""
    settings = Settings(data_dir=folder, port=0, **values)
    registry = Registry(agents)
    api_key = settings.api_key.get_secret_value() if settings.api_key else None
    async with open_state(settings, registry) as state:
        config = uvicorn.Config(create_app(state, api_key), log_config=None, lifespan="off")
        server = ReadyServer(config, state)
        with bind(settings) as listener:
            port = listener.getsockname()[1]
            serve = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await server.ready.wait()
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None) as client:
                    yield Service(state, server, client)
            finally:
                server.should_exit = True
                await serve
