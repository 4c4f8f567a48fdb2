"""A run whose server is killed, and what the next server makes of it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from callboard.storage import Store
from callboard.storage.redis.scripts import LEASES, keys_of_run
from callboard_protocol import Event, InputRequest
from tests.fakes.openai_server import Body, OpenAIServer
from tests.processes import Command, serving
from tests.scraping import Scrape, scrape
from tests.serving import numbered, request


@dataclass
class Killing:
    """A run whose server is killed once the page has seen a certain event; the next server sends what follows.

    `agents` is the file of the agent `careful`, which writes a line into the file `CALLBOARD_TEST_RAN` each time that a
    tool of it runs. The server that is killed has `CALLBOARD_TEST_HANGS`, the next one has not.
    """

    folder: Path
    model: OpenAIServer
    agents: str
    settings: Mapping[str, str] = field(default_factory=dict)
    seen: list[tuple[int, Event]] = field(default_factory=list)
    scraped: Scrape = field(default_factory=lambda: Scrape({}, {}))
    """What the next server tells Prometheus once the page has seen the end."""

    @property
    def ran(self) -> list[str]:
        """The lines of the tools that have run."""
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def events(self) -> list[Event]:
        """The events that the page has seen."""
        return [event for _, event in self.seen]

    def _settings(self) -> dict[str, str]:
        return {
            "AGENTS": self.agents,
            "MODEL_BASE_URL": self.model.base_url,
            "MODEL": "m",
            "TEST_RAN": str(self.folder / "ran"),
            **self.settings,
        } | ({"REDIS_URL": self.redis_url} if self.redis_url else {})

    @property
    def redis_url(self) -> str | None:
        """The Redis that has the log, where the environment names one."""
        return os.environ.get("CALLBOARD_REDIS_URL")

    def _kill(self, process: Command) -> None:
        """Kill the server, so that others notice at once."""
        process.kill()
        process.wait()
        if self.redis_url:
            with Redis.from_url(self.redis_url) as redis:
                for server, _ in redis.zscan_iter(LEASES):
                    redis.zadd(LEASES, {server: 0})

    def lose(self, is_lost: Callable[[Event], bool]) -> None:
        """Let the server have been killed before what it said from some event on was in the log in Redis."""
        assert self.redis_url
        place = next(place for place, event in enumerate(self.events) if is_lost(event))
        del self.seen[place:]
        with Redis.from_url(self.redis_url) as redis:
            redis.ltrim(keys_of_run("run")[1], 0, place - 1)

    async def run_until(
        self,
        is_last: Callable[[Event], bool],
        *,
        waits_for_model: bool = False,
        agrees: bool = False,
        do: Callable[[httpx.AsyncClient], Awaitable[object]] | None = None,
    ) -> None:
        """Start the run, and kill the server after an event: once the model has gone silent, and `do` is done."""
        with serving(self.folder, **self._settings(), TEST_HANGS="yes") as (url, process):
            asked = request(agent="careful", run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                async with client.stream("POST", "/v1/runs", json=asked) as response:
                    assert response.status_code == 200, await response.aread()
                    async for one in numbered(response):
                        self.seen.append(one)
                        if agrees and isinstance(one[1], InputRequest):
                            await _agree(client, one[1])
                        if is_last(one[1]):
                            break
                if waits_for_model:
                    await self.model.hanging.wait()
                if do:
                    await do(client)
            self._kill(process)

    @asynccontextmanager
    async def opened_store(self) -> AsyncIterator[Store]:
        """The store, while no server is there."""
        store = await Store.open(f"sqlite:///{self.folder / 'callboard.db'}", self.redis_url)
        yield store
        await store.close()

    async def go_on(self, *, agrees: bool = False) -> list[dict[str, Any]]:
        """Read the rest from the next server, and agree to what it asks; return the messages that the chat then has."""
        with serving(self.folder, **self._settings()) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                rest = f"/v1/runs/run/events?user_id=ann&after={self.seen[-1][0]}"
                async with client.stream("GET", rest) as response:
                    assert response.status_code == 200
                    async for one in numbered(response):
                        self.seen.append(one)
                        if agrees and isinstance(one[1], InputRequest):
                            await _agree(client, one[1])
                self.scraped = await scrape(client)
                kept = await client.get("/v1/chats/chat/messages?user_id=ann")
                messages: list[dict[str, Any]] = kept.json().get("messages", [])
                return messages


async def _agree(client: httpx.AsyncClient, question: InputRequest) -> None:
    """Answer a question with yes."""
    answer = {"request_id": question.request_id, "value": True}
    taken = await client.post("/v1/runs/run/input?user_id=ann", json=answer)
    assert taken.status_code == 202


def told(body: Body) -> list[tuple[str, Any]]:
    """The roles and the texts of what a model was sent."""
    return [(message["role"], message.get("content")) for message in body["messages"]]
