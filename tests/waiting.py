"""A server with a run that waits for the approval of a call."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callboard import Agent, Skill, tool
from callboard_protocol import Event, InputRequest, Parked
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import Service, numbered, request, serving

ANSWER = "It is done."


@dataclass
class ParkedRun:
    """A server, its parked run `run` of the user `ann`, its agent, and the seats that its tool was called with."""

    service: Service
    agent: Agent
    paid: list[int] = field(default_factory=list)

    async def read_rest(self) -> list[Event]:
        """Read the events of the run until the connection ends."""
        async with self.service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            return [event async for _, event in numbered(response)]


@asynccontextmanager
async def parked_run(
    folder: Path, seats: Sequence[int] = (7,), headers: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[ParkedRun]:
    """Start a server, and a run that is parked: it has a call that waits for each of the seats.

    `headers` are those of each request of the service's client.
    """
    paid: list[int] = []

    @tool(requires_confirmation=True)
    async def refund(seat: int) -> str:
        """Pay a seat back.

        Args:
            seat: Its number.
        """
        paid.append(seat)
        return f"Seat {seat} is paid back."

    agent = Agent("till", skills=[Skill("seats", "Sells seats.", tools=[refund])], name="The till")
    calls = [call("refund", f'{{"seat": {seat}}}', index=at, call_id=f"c{at + 1}") for at, seat in enumerate(seats)]
    script = [
        chunks(*calls, finish("tool_calls")),
        chunks(text(ANSWER), finish("stop")),
    ]
    ids = {"agent": "till", "run_id": "run", "chat_id": "chat", "message_id": "message"}
    async with (
        OpenAIServer(script) as model,
        serving(folder, agent, model_base_url=model.base_url, model="m", **settings) as service,
    ):
        service.client.headers.update(headers or {})
        body = request(**ids, user={"id": "ann", "name": "Ann"}, approvals_wait=True)
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for _, event in numbered(response):
                if isinstance(event, InputRequest):
                    answer = {"request_id": event.request_id, "value": None, "asked": False}
                    assert (await service.client.post("/v1/runs/run/input?user_id=ann", json=answer)).is_success
            assert isinstance(event, Parked)
        yield ParkedRun(service, agent, paid)
