"""A real server on a real port, in the test's own event loop."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from callboard._application.application import Application, Callboard
from callboard._cli.serve import make_default_model
from callboard.agents import AgentLike, RunContext
from callboard.http.auth import authenticate_by
from callboard.http.state import ServerState
from callboard.settings import Settings
from callboard.storage import Store
from callboard.storage.sql.database import Database
from callboard.testing.serving import listening
from callboard_protocol import Decoder, Event, InputRequest, decode
from tests.databases import put_new_database

make_store: Callable[[], Store] | None = None
"""Makes the store of servers unless a test gives one; None: a database in their folder."""

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


@dataclass(frozen=True)
class Service:
    """A running server and a client for it."""

    app: Application
    client: httpx.AsyncClient

    @property
    def state(self) -> ServerState:
        return self.app.state

    async def events(self, body: dict[str, Any]) -> list[Event]:
        """All events of a run."""
        async with self.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200, await response.aread()
            return [event async for _, event in numbered(response)]

    async def events_with_answer(self, body: dict[str, Any], value: object) -> list[Event]:
        """All events of a run, each of whose questions is answered with this value. `body` has a `run_id`."""
        events: list[Event] = []
        user = {"user_id": body["user"]["id"]} if "user" in body else {}
        async with self.client.stream("POST", "/v1/runs", json=body) as response:
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, InputRequest):
                    answer = {"request_id": event.request_id, "value": value}
                    sent = await self.client.post(f"/v1/runs/{body['run_id']}/input", params=user, json=answer)
                    assert sent.status_code == 202
        return events


def database_of(service: Service) -> Database:
    """The database of a service that was not given another store."""
    assert isinstance(service.state.store, Store)
    return service.state.store.database


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
    if make_store is None and "database_url" not in values:
        await put_new_database(folder / "callboard.db")
    board = Callboard(
        agents,
        store=make_store() if make_store else ...,
        model=make_default_model(settings),
        authenticate=authenticate_by(settings),
        settings=settings,
    )
    app = board.asgi()
    async with (
        listening(app, settings.host) as url,
        # Plain HTTP needs no certificates, which take 20 ms of the processor to load.
        httpx.AsyncClient(base_url=url, verify=False, timeout=None) as client,
    ):
        yield Service(app, client)
