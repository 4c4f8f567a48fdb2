"""Kills the server of a run, and reads how the next server continues the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from callboard_protocol import Event, InputRequest
from tests.fakes.openai_server import OpenAIServer
from tests.processes import serving
from tests.serving import numbered, request


@dataclass
class Killing:
    """A run whose server is killed after a certain event; the next server sends the following events.

    `agents` is the file of the agent `careful`. Its tools append a line to the file `CALLBOARD_TEST_RAN` when they run.
    """

    folder: Path
    model: OpenAIServer
    agents: str
    settings: Mapping[str, str] = field(default_factory=dict)
    seen: list[tuple[int, Event]] = field(default_factory=list)

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

    async def run_until(self, is_last: Callable[[Event], bool], *, waits_for_model: bool = False) -> None:
        """Start the run, and kill the server after the event `is_last`.

        `waits_for_model` waits until the model hangs.
        """
        with serving(self.folder, **self._settings()) as (url, process):
            names = {"agent": "careful", "run_id": "run", "chat_id": "chat", "message_id": "message"}
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                asked = request(**names, user={"id": "ann"})
                async with client.stream("POST", "/v1/runs", json=asked) as response:
                    assert response.status_code == 200, await response.aread()
                    async for one in numbered(response):
                        self.seen.append(one)
                        if is_last(one[1]):
                            break
                if waits_for_model:
                    await self.model.hanging.wait()
            process.kill()
            process.wait()

    async def go_on(self, *, agrees: bool = False) -> list[dict[str, Any]]:
        """Read the rest of the run from the next server, and return the stored messages of the chat.

        `agrees` is the answer to questions.
        """
        with serving(self.folder, **self._settings()) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                rest = f"/v1/runs/run/events?user_id=ann&after={self.seen[-1][0]}"
                async with client.stream("GET", rest) as response:
                    assert response.status_code == 200
                    async for one in numbered(response):
                        self.seen.append(one)
                        if agrees and isinstance(one[1], InputRequest):
                            answer = {"request_id": one[1].request_id, "value": True}
                            taken = await client.post("/v1/runs/run/input?user_id=ann", json=answer)
                            assert taken.status_code == 202
                kept = await client.get("/v1/chats/chat/messages?user_id=ann")
                messages: list[dict[str, Any]] = kept.json().get("messages", [])
                return messages
