"""A stopping server loses nothing: its runs may end within the drain time, and the next server continues the others."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard import Agent, RunContext, Skill, ToolContext, tool
from callboard.errors import RunLost
from callboard.storage import Store
from callboard.storage.values import StoredFrame, StoredRun
from callboard.testing import Call, FakeModel
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
)
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish
from tests.processes import serving as forked
from tests.runs.promises import read
from tests.serving import ScriptedAgent, Service, numbered, request, serving
from tests.storage.test_shared_runs import body

pytestmark = pytest.mark.timeout(120)

TERM = signal.SIGTERM
INT = signal.SIGINT
AGENT = str(Path(__file__).with_name("careful_agent.py"))


# ------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("signals", "drain_seconds"), [([TERM], 0), ([INT], 3600), ([TERM, INT], 3600)], ids=["drained", "Ctrl+C", "twice"]
)
async def test_signals_stop_a_server_that_leaves_its_runs(
    tmp_path: Path, signals: list[signal.Signals], drain_seconds: float
) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    events: list[Event] = []
    async with OpenAIServer([waiting]) as model:
        settings = {"AGENTS": AGENT, "MODEL_BASE_URL": model.base_url, "MODEL": "m"}
        with forked(tmp_path, DRAIN_SECONDS=str(drain_seconds), **settings) as (url, process):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                async with client.stream("POST", "/v1/runs", json=request(agent="careful", chat_id="chat")) as response:
                    async for _, event in numbered(response):
                        events.append(event)
                        for place, number in enumerate(signals if isinstance(event, ToolCallStart) else ()):
                            # Each once the server has heard the one before.
                            while place and (await client.get("/ready")).status_code != 503:
                                pass
                            os.kill(process.pid, number)
            process.wait()
    assert isinstance(events[-1], ToolCallStart)


# ------------------------------------------------------------------------------------------------- while it drains


async def stop(service: Service) -> "asyncio.Task[None]":
    """Tell the server to stop; return once balancers can see it, with what ends when its runs are left."""
    stopping = asyncio.create_task(service.app.stop())
    while (await service.client.get("/ready")).status_code != 503:
        pass
    return stopping


async def test_a_draining_server_serves_its_runs_and_takes_no_new_ones(
    tmp_path: Path,
) -> None:
    @tool(requires_confirmation=True)
    async def sell() -> str:
        """Sell a seat."""
        return "sold"

    seats = Skill("seats", "Sells.", tools=(sell,))
    agents = [Agent(name, skills=(seats,), model=FakeModel([Call("sell")], "Sold.")) for name in ("one", "other")]
    async with serving(tmp_path, *agents, drain_seconds=3600) as service:
        assert (await service.client.get("/ready")).json() == {"status": "ready"}
        asked = {name: asyncio.Event() for name in ("one", "other")}
        questions: dict[str, str] = {}

        async def listen(name: str) -> list[tuple[int, Event]]:
            seen = []
            ours = request(agent=name, run_id=name, chat_id=name)
            async with service.client.stream("POST", "/v1/runs", json=ours) as response:
                async for one in numbered(response):
                    seen.append(one)
                    if isinstance(one[1], InputRequest):
                        questions[name] = one[1].request_id
                        asked[name].set()
            return seen

        listeners = [asyncio.create_task(listen(name)) for name in asked]
        for event in asked.values():
            await event.wait()
        stopping = await stop(service)

        refused = await service.client.post("/v1/runs", json=request(agent="one", chat_id="third"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert int(refused.headers["Retry-After"]) > 0
        assert (await service.client.get("/health")).status_code == 200
        attached = asyncio.create_task(service.events(request(agent="one", run_id="one", chat_id="one")))
        resumed = asyncio.create_task(service.client.get("/v1/runs/other/events"))
        assert (await service.client.post("/v1/runs/other/cancel")).status_code == 202
        answer = {"request_id": questions["one"], "value": True}
        assert (await service.client.post("/v1/runs/one/input", json=answer)).status_code == 202
        one, other = await asyncio.gather(*listeners)
        assert [event for _, event in one] == await attached
        assert read((await resumed).content) == other
        await stopping
    assert one[-1][1] == Done()
    assert [event.result for _, event in one if isinstance(event, ToolCallComplete)] == ["sold"]
    assert other[-1][1] == Done(finish_reason="cancelled")


# ------------------------------------------------------------------------------------------------------- its parts


async def test_a_released_run_can_be_taken_by_any_server_and_its_owner_cannot_write(store: Store) -> None:
    here = store.stored_runs("here")
    heir = store.stored_runs("heir")
    frames = [StoredFrame(b"1")]
    async with here.open(60, lambda _: None):
        run = await here.begin(StoredRun("run", "agent", "chat", "message", "ann"))
        assert await heir.take_over() == []
        await here.release(run)
        with pytest.raises(RunLost):
            await here.append(run, frames)
        with pytest.raises(RunLost):
            await here.release(run)
        [taken] = await heir.take_over()
        assert (taken.losses, taken.epoch > run.epoch) == (0, True)
        await heir.append(taken, frames)
        # One that is lost counts: what kills each server that runs it is given up.
        [taken] = await here.take_over()
        assert taken.losses == 1


@dataclass(frozen=True)
class Going(ScriptedAgent):
    on_owner_loss: str = "continue"


async def test_stopped_tool_knows_whether_another_server_calls_it_again(tmp_path: Path) -> None:
    left: list[bool] = []

    @tool
    async def paint(context: ToolContext) -> str:
        """Paint."""
        await context.keep_task("task")
        try:
            await asyncio.Event().wait()
        finally:
            left.append(context.is_left())
        return "painted"

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Well. ")
        await context.call(paint, {})

    paints = Agent("scripted", skills=(Skill("art", "Paints.", tools=(paint,)),), model=FakeModel([Call("paint")]))
    for agent in (paints, Going(script)):
        async with serving(tmp_path / type(agent).__name__, agent, drain_seconds=0) as service:
            async with service.client.stream("POST", "/v1/runs", json=body()) as response:
                async for _, event in numbered(response):
                    if isinstance(event, ToolStatus):
                        stopping = asyncio.create_task(service.app.stop())
            await stopping
    assert left == [True, False]


async def test_a_run_that_is_stored_incompletely_ends_with_an_error(tmp_path: Path, database: Path) -> None:
    going_on = asyncio.Event()

    async def script(_: Any) -> AsyncIterator[Event]:
        yield Message(content="Well. ")
        await going_on.wait()
        yield Message(content="And so on. ")
        await asyncio.Event().wait()

    url = f"sqlite+aiosqlite:///{database}"
    async with serving(tmp_path, Going(script), drain_seconds=0, database_url=url) as service:
        events: list[Event] = []
        async with service.client.stream("POST", "/v1/runs", json=body()) as response:
            async for _, event in numbered(response):
                events.append(event)
                if event == Message(content="Well. "):
                    with closing(sqlite3.connect(database)) as connection:
                        connection.execute("ALTER TABLE events RENAME TO lost")
                    going_on.set()
                if event == Message(content="And so on. "):
                    stopping = asyncio.create_task(service.app.stop())
        await stopping
    assert isinstance(events[-1], Error)
    assert events[-1].code == "interrupted"
