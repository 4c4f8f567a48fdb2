"""A database in trouble: whoever asks is answered, without memory where it must be, and it recovers by itself."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from callboard.agents import RunContext
from callboard.runs.recorder import NOT_REMEMBERED
from callboard.storage.sql import database as database_module
from callboard.storage.sql import run_record, sqlite
from callboard_protocol import Done, Event, Message, Status, ToolCallComplete, ToolCallStart
from tests.runs.promises import check
from tests.serving import ScriptedAgent, Service, numbered, request, serving
from tests.storage.trouble import locked_by_another_program, no_large_files, no_room_on_the_disk, refusals


async def stored_run(service: Service, chat_id: str, **fields: object) -> list[tuple[int, Event]]:
    body = request(chat_id=chat_id, **fields)
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        assert response.status_code == 200
        return [pair async for pair in numbered(response)]


async def one_call(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Let me look.")
    yield ToolCallStart(tool_call_id="a", tool_name="search")
    yield ToolCallComplete(tool_call_id="a", result="x" * 4_000_000)
    yield Message(content="Found it.")


def check_answered(run: Sequence[tuple[int, Event]]) -> list[str]:
    """The run has its answer to the end; returns what its statuses say."""
    check(run)
    events = [event for _, event in run]
    assert isinstance(events[-1], Done)
    assert "".join(event.content for event in events if isinstance(event, Message)) == "Let me look.Found it."
    assert [event.type for event in events].count("tool_call_complete") == 1
    return [event.content for event in events if isinstance(event, Status)]


async def outputs(service: Service, chat_id: str) -> list[str | None]:
    response = await service.client.get(f"/v1/chats/{chat_id}/messages")
    if response.status_code != 200:
        return []
    return [message["tool_output"] for message in response.json()["messages"] if message["role"] == "tool"]


WHOLE = ["x" * 4_000_000]


async def test_a_lock_that_ends_in_time_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "ATTEMPT_SECONDS", 0.05)
    begun = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        begun.set()
        async for event in one_call(context):
            yield event

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        with refusals(3) as refused:
            async with locked_by_another_program(tmp_path / "callboard.db"):
                runs = [asyncio.create_task(stored_run(service, f"chat{number}")) for number in range(3)]
                await refused.wait()
                assert not begun.is_set()
        for run in runs:
            assert check_answered(await run) == []
        assert [await outputs(service, f"chat{number}") for number in range(3)] == [WHOLE] * 3


async def test_a_stop_reaches_the_agent_while_the_database_is_locked(tmp_path: Path) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="search")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        run = asyncio.create_task(stored_run(service, "chat", run_id="r"))
        await begun.wait()
        async with locked_by_another_program(tmp_path / "callboard.db"):
            cancelling = asyncio.create_task(service.client.post("/v1/runs/r/cancel"))
            async with asyncio.timeout(database_module.PATIENCE_SECONDS / 2):
                await stopped.wait()
        assert (await cancelling).status_code == 202
        assert (await run)[-1][1] == Done(finish_reason="cancelled")


@pytest.mark.parametrize("trouble", [no_room_on_the_disk, no_large_files])
async def test_a_full_disk_costs_memory_and_no_answer_until_there_is_room_again(
    tmp_path: Path, trouble: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, ScriptedAgent(one_call)) as service:
        assert check_answered(await stored_run(service, "before")) == []
        monkeypatch.setattr(run_record, "PATIENCE_SECONDS", 0.1)
        with trouble():
            for number in range(3):
                assert check_answered(await stored_run(service, f"full{number}")) == [NOT_REMEMBERED]
        monkeypatch.undo()
        assert check_answered(await stored_run(service, "after")) == []
        assert (await service.client.get("/health")).status_code == 200
        assert await outputs(service, "before") == await outputs(service, "after") == WHOLE


async def test_health_is_503_on_a_disk_with_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, ScriptedAgent(one_call)) as service:
        monkeypatch.setattr(sqlite, "MIN_FREE_BYTES", 2**62)
        health = await service.client.get("/health")
        assert health.status_code == 503
        assert "disk is full" in health.json()["reason"]


async def test_when_the_history_cannot_be_read_the_model_gets_the_chat_without_it(tmp_path: Path) -> None:
    told: list[int] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        told.append(len(context.messages))
        yield Message(content="hello")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        await stored_run(service, "chat")
        with sqlite3.connect(tmp_path / "callboard.db") as connection:
            connection.execute("ALTER TABLE messages RENAME COLUMN tool_name TO gone")
        connection.close()
        events = [event for _, event in await stored_run(service, "chat")]
        assert told == [1, 1]
        assert [event.type for event in events] == ["run_start", "status", "message", "done"]


async def test_a_failure_names_no_path_and_no_statement_to_a_user(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(one_call)) as service:
        with sqlite3.connect(tmp_path / "callboard.db") as connection:
            connection.execute("ALTER TABLE messages RENAME COLUMN tool_name TO gone")
        connection.close()
        answer = await service.client.get("/v1/tool-calls")
        assert answer.status_code == 503
        assert str(tmp_path) not in answer.text
        assert "SELECT" not in answer.text
