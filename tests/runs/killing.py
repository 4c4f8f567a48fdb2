"""Kills the server of a run, and reads how the next server continues the run."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from callboard.storage import Store
from callboard_protocol import Event, InputRequest, ToolRequest
from tests.fakes.openai_server import Body, OpenAIServer
from tests.processes import serving
from tests.scraping import Scrape, scrape
from tests.serving import numbered, request


@dataclass
class Killing:
    """A run whose server is killed after a certain event; the next server sends the following events.

    `agents` is the file of the agent `careful`. Its tools append a line to the file `CALLBOARD_TEST_RAN` when they run.
    Only the server that is killed has the variable `CALLBOARD_TEST_HANGS`.
    """

    folder: Path
    model: OpenAIServer
    agents: str
    settings: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the run's request."""
    seen: list[tuple[int, Event]] = field(default_factory=list)
    scraped: Scrape = field(default_factory=lambda: Scrape({}, {}))
    """The metrics of the next server after the end of the run."""

    @property
    def ran(self) -> list[str]:
        """The lines that the tools have written."""
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def events(self) -> list[Event]:
        """The events that the client has received."""
        return [event for _, event in self.seen]

    def _settings(self) -> dict[str, str]:
        return {
            "AGENTS": self.agents,
            "MODEL_BASE_URL": self.model.base_url,
            "MODEL": "m",
            "TEST_RAN": str(self.folder / "ran"),
            **self.settings,
        }

    async def run_until(
        self,
        is_last: Callable[[Event], bool],
        *,
        waits_for_model: bool = False,
        agrees: object = False,
        do: Callable[[httpx.AsyncClient], Awaitable[object]] | None = None,
    ) -> None:
        """Start the run, and kill the server after the event `is_last`.

        `waits_for_model` waits until the model hangs, `agrees` is the answer to questions, `do` runs before the server
        is killed.
        """
        with serving(self.folder, **self._settings(), TEST_HANGS="yes") as (url, process):
            names = {"agent": "careful", "run_id": "run", "chat_id": "chat", "message_id": "message"}
            asked = request(**names, user={"id": "ann"}, **self.asked)
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                async with client.stream("POST", "/v1/runs", json=asked) as response:
                    assert response.status_code == 200, await response.aread()
                    async for one in numbered(response):
                        self.seen.append(one)
                        if agrees and isinstance(one[1], InputRequest):
                            await _answer(client, one[1], agrees)
                        if is_last(one[1]):
                            break
                if waits_for_model:
                    await self.model.hanging.wait()
                if do:
                    await do(client)
            process.kill()
            process.wait()

    @asynccontextmanager
    async def opened_store(self) -> AsyncIterator[Store]:
        """Yield the store while no server runs."""
        store = await Store.open(f"sqlite:///{self.folder / 'callboard.db'}")
        yield store
        await store.close()

    async def go_on(self, *, agrees: object = False, tool_result: str = "") -> list[dict[str, Any]]:
        """Read the rest of the run from the next server, and return the stored messages of the chat.

        `agrees` is the answer to questions, and `tool_result` is what the client's tools return.
        """
        with serving(self.folder, **self._settings()) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                rest = f"/v1/runs/run/events?user_id=ann&after={self.seen[-1][0]}"
                async with client.stream("GET", rest) as response:
                    assert response.status_code == 200
                    async for one in numbered(response):
                        self.seen.append(one)
                        if agrees and isinstance(one[1], InputRequest):
                            await _answer(client, one[1], agrees)
                        if tool_result and isinstance(one[1], ToolRequest):
                            await _answer(client, one[1], {"text": tool_result})
                self.scraped = await scrape(client)
                kept = await client.get("/v1/chats/chat/messages?user_id=ann")
                messages: list[dict[str, Any]] = kept.json().get("messages", [])
                return messages


async def _answer(client: httpx.AsyncClient, asked: InputRequest | ToolRequest, value: object) -> None:
    """Answer a question, or a request for a tool."""
    answer = {"request_id": asked.request_id, "value": value}
    taken = await client.post("/v1/runs/run/input?user_id=ann", json=answer)
    assert taken.status_code == 202


def told(body: Body) -> list[tuple[str, Any]]:
    """Return the roles and contents of the messages in a request to the model."""
    return [(message["role"], message.get("content")) for message in body["messages"]]
