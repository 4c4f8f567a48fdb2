"""Unexpected errors end their run only, and other runs continue."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import RunContext
from callboard.runs.recorder import NOT_REMEMBERED, Recorder
from callboard.storage import Store
from callboard.storage.bus import Bus
from callboard.storage.sql.run_record import TurnWriter
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import StoredFrame, StoredRun
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    RunStart,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    encode,
)
from tests import serving as serving_module
from tests.serving import ScriptedAgent, numbered, request, serving


async def test_run_ends_and_releases_its_slot_if_finish_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Recorder, "finish", fail)

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="sell")
        yield ToolCallStart(tool_call_id="b", tool_name="sell")

    async with serving(tmp_path, ScriptedAgent(script), max_runs=1, run_queue_seconds=0) as service:
        for _ in range(2):
            events = await service.events(request(chat_id="chat"))
            assert {event.tool_name for event in events if isinstance(event, ToolCallError)} == {"sell"}
            assert sum(isinstance(event, ToolCallError) for event in events) == 2
            [last] = [event for event in events if isinstance(event, Error)]
            assert last is events[-1]
            assert (last.code, "a mistake" in last.message) == ("internal_error", False)


async def test_answer_continues_if_writing_rows_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(TurnWriter, "write", fail)

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="sell")
        yield ToolCallComplete(tool_call_id="a", result="sold")
        yield Message(content="Sold.")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await service.events(request(chat_id="chat"))
        assert [event.content for event in events if isinstance(event, Status)] == [NOT_REMEMBERED]
        assert events[-1] == Done()


class OwnLog(StoredRuns):
    """A log of runs in which the second call of `take_over` and of `find` raises."""

    failures: Counter[str]
    has_looked_again: asyncio.Event

    def fail_once(self, why: str) -> None:
        self.failures[why] += 1
        if self.failures[why] == 2:
            raise RuntimeError("a mistake")

    async def take_over(self) -> list[StoredRun]:
        # The first call is at the start of the server.
        self.fail_once("take_over")
        if self.failures["take_over"] > 2:
            self.has_looked_again.set()
        return await super().take_over()

    async def find(self, run_ids: Collection[str]) -> dict[str, StoredRun]:
        # The first call is for the client's request.
        self.fail_once("find")
        return await super().find(run_ids)


async def test_watcher_and_takeover_continue_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    OwnLog.failures = Counter()
    OwnLog.has_looked_again = asyncio.Event()

    class LoggingStore(Store):
        def stored_runs(self, server_id: str) -> OwnLog:
            return OwnLog(self.database, server_id, Bus())

    monkeypatch.setattr(serving_module, "make_store", lambda: LoggingStore(f"sqlite:///{database}"))
    elsewhere = await Store.open(f"sqlite:///{database}")
    log = elsewhere.stored_runs("elsewhere")
    async with log.open(60, print), serving(tmp_path, lease_seconds=0.5) as service:
        run = await log.begin(StoredRun("run", "scripted", "chat", None, "ann"))
        await log.append(run, [StoredFrame(encode(1, RunStart(run_id="run", agent="scripted")))])
        async with service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            seen = numbered(response)
            assert isinstance((await anext(seen))[1], RunStart)
            await log.append(replace(run, last_seq=1), [StoredFrame(encode(2, Done()), is_last=True)])
            assert (await anext(seen))[1] == Done()
        await OwnLog.has_looked_again.wait()
        assert OwnLog.failures["find"] > 2
    await elsewhere.close()
