"""Runs whose events the database does not store in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from callboard._history import Turn
from callboard._streams import closing_stream
from callboard.agents import RunContext
from callboard.errors import RunLost, StorageError
from callboard.runs.recorder import NOT_REMEMBERED
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql import run_record
from callboard.storage.values import StoredFrame, StoredRun
from callboard_protocol import Done, Event, Message, Rewind, Status, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, numbered, request, serving
from tests.storage.trouble import locked_by_another_program
from tests.storage.turns import RecordedSteps


@dataclass(frozen=True)
class Steadfast(ScriptedAgent):
    """An agent whose runs another server can continue."""

    on_owner_loss: str = "continue"


@pytest.fixture
def short_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite waits for locks in short steps."""
    monkeypatch.setattr(database_module, "ATTEMPT_SECONDS", 0.05)


@asynccontextmanager
async def failing(database: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The database cannot be written, and the time for a batch passes at once."""
    async with locked_by_another_program(database):
        with monkeypatch.context() as clock:
            clock.setattr(database_module, "PATIENCE_SECONDS", 0.05)
            clock.setattr(run_record, "PATIENCE_SECONDS", 0.1)
            yield


@pytest.fixture
async def store(database: Path, short_attempts: None) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite+aiosqlite:///{database}")
    yield opened
    await opened.close()


ANSWER: list[Event] = [
    Message(content="Let me look."),
    ToolCallStart(tool_call_id="a", tool_name="search"),
    ToolCallComplete(tool_call_id="a", result="found"),
    Message(content="Found it."),
]
SHOWN = ["run_start", "message", "tool_call_start", "tool_call_complete", "message", "done"]
"""The events of a whole answer, without statuses."""


PAUSES = {"the start": 0, "the call": 1, "the end": len(ANSWER)}
"""The number of events that the agent sends before the database fails; 0: it fails before the run begins."""


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("fails_before", PAUSES)
async def test_run_that_is_not_stored_in_time_goes_on_alone_and_is_left_to_other_servers(
    tmp_path: Path,
    database: Path,
    short_attempts: None,
    fails_before: str,
    is_shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()
    pauses_at = PAUSES[fails_before]

    async def script(_: RunContext) -> AsyncIterator[Event]:
        for event in ANSWER[:pauses_at]:
            yield event
        reached.set()
        await goes_on.wait()
        for event in ANSWER[pauses_at:]:
            yield event

    settings = {"database_url": f"sqlite+aiosqlite:///{database}", "lease_seconds": 1}
    body = request(run_id="run", chat_id="chat")
    seen: list[Event] = []
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(serving(tmp_path / "one", Steadfast(script), **settings))
        if is_shared:
            await stack.enter_async_context(serving(tmp_path / "other", Steadfast(script), **settings))
        stored_runs = service.state.store.stored_runs("reader")

        async def run() -> int:
            async with service.client.stream("POST", "/v1/runs", json=body) as response:
                seen.extend([event async for _, event in numbered(response)] if response.is_success else [])
                return response.status_code

        running = asyncio.create_task(run()) if pauses_at else None
        if running:
            await reached.wait()
            [live] = service.state.runs
            # Listeners see only stored events, and the last text is sent with a delay.
            async with closing_stream(live.events()) as events:
                for _ in SHOWN[: pauses_at + 1]:
                    await anext(events)
        async with failing(database, monkeypatch):
            goes_on.set()
            status = await (running or run())
        statuses = [event.content for event in seen if isinstance(event, Status)]
        types = [event.type for event in seen if not isinstance(event, Status)]
        if not is_shared:
            assert (status, types, statuses) == (200, SHOWN, [NOT_REMEMBERED])
            assert seen[-1] == Done()
            # The first check after the failure deletes the row, so that no server continues the run.
            await service.state.runs._stored_runs.delete_unstored()
            assert await stored_runs.find(["run"]) == {}
            rows = (await service.client.get("/v1/chats/chat/messages")).json().get("messages", [])
            assert [row["content"] for row in rows if row["role"] == "assistant"] in ([], ["Let me look."])
        elif pauses_at == 0:
            assert (status, seen) == (503, [])
        else:
            assert (status, types, statuses) == (200, SHOWN[: pauses_at + 1], [])
            async with service.client.stream("GET", f"/v1/runs/run/events?after={len(seen)}") as response:
                rest = [event async for _, event in numbered(response)]
            assert rest[-1] == Done()
            assert Status not in map(type, rest)
            assert isinstance(rest[0], Rewind)


async def test_run_that_another_server_has_taken_over_is_not_stored(store: Store) -> None:
    steps = await RecordedSteps.open(store, Turn("chat", "run", None, "ann", "question"))
    await store.stored_runs("server").forget_user("ann")
    steps.record.append(StoredFrame(b"frame"))
    with pytest.raises(RunLost):
        await steps.record.store()


async def test_a_run_that_is_begun_while_it_is_withdrawn_is_run_once(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_runs = store.stored_runs("server")
    run = StoredRun("run", "agent", "chat", None, "ann", last_seq=1)
    async with failing(database, monkeypatch):
        with pytest.raises(StorageError):
            await stored_runs.begin(run)
    tending = asyncio.create_task(stored_runs.take_over())
    await asyncio.sleep(0)
    assert await stored_runs.begin(run) is run
    assert await tending == []
    assert await stored_runs.take_over() == []
