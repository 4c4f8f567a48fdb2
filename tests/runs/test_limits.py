"""The limits of runs: slots, time, text and memory; and the memory that ended runs free."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from callboard.agents import RunContext
from callboard.errors import TooManyRuns
from callboard.runs import run as run_module
from callboard.runs.files import RunFiles
from callboard.runs.limits import MemoryBudget, RunMemory, RunSlots
from callboard.runs.log import EventLog
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)
from tests.scraping import scrape_until
from tests.serving import ScriptedAgent, numbered, request, serving


async def test_full_user_is_refused_and_another_user_still_gets_a_slot() -> None:
    slots = RunSlots(total=3, per_user=2, wait_seconds=0)
    await slots.acquire("mallory")
    await slots.acquire("mallory")
    with pytest.raises(TooManyRuns, match="2 runs of this user"):
        await slots.acquire("mallory")
    await slots.acquire("ann")
    with pytest.raises(TooManyRuns, match="3 runs are under way"):
        await slots.acquire("bob")
    slots.release("mallory")
    await slots.acquire("bob")


async def test_queue_is_served_in_order_and_skips_users_at_their_limit() -> None:
    slots = RunSlots(total=2, per_user=1, wait_seconds=600)
    await slots.acquire("mallory")
    await slots.acquire("ann")
    order: list[str] = []

    async def wait(user: str) -> None:
        await slots.acquire(user)
        order.append(user)

    waiting = [asyncio.create_task(wait(user)) for user in ("mallory", "bob", "cleo")]
    await anyio.wait_all_tasks_blocked()
    slots.release("ann")
    await waiting[1]
    waiting[2].cancel()
    await asyncio.gather(waiting[2], return_exceptions=True)
    slots.release("mallory")
    await waiting[0]
    assert order == ["bob", "mallory"]
    with pytest.raises(TooManyRuns):
        await RunSlots(total=0, per_user=1, wait_seconds=0.001).acquire("ann")


async def test_eleventh_waiting_request_of_a_user_is_refused() -> None:
    slots = RunSlots(total=0, per_user=0, wait_seconds=600)
    waiting = [asyncio.create_task(slots.acquire("mallory")) for _ in range(11)]
    (refused,), others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(refused.exception(), TooManyRuns)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_run_beyond_its_timeout_ends_with_an_error_that_names_the_setting(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="so far")
        yield ToolCallStart(tool_call_id="a", tool_name="tool")
        await asyncio.Event().wait()

    async with serving(tmp_path, ScriptedAgent(script), run_timeout_seconds=0.2) as service:
        events = await service.events(request())
    assert [event.type for event in events] == ["run_start", "message", "tool_call_start", "tool_call_error", "error"]
    assert isinstance(events[-1], Error)
    assert (events[-1].code, "CALLBOARD_RUN_TIMEOUT_SECONDS" in events[-1].message) == ("run_timeout", True)


async def test_answer_beyond_the_text_limit_ends_with_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAX_TEXT_CHARS", 10_000)

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="tool")
        while True:
            yield Message(content="on and on ")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await service.events(request())
    said = "".join(event.content for event in events if isinstance(event, Message))
    assert 10_000 <= len(said) < 20_000
    assert isinstance(events[-2], ToolCallError)
    assert events[-1] == Done(finish_reason="length")


class Marker:
    """Stands for the objects of an agent."""


async def test_ended_run_frees_its_recorder_and_the_objects_of_its_agent(tmp_path: Path) -> None:
    kept: list[weakref.ref[object]] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        marker = Marker()
        context.options["marker"] = marker
        # Methods of the recorder and of the call tracker.
        owners = [getattr(context, name).__self__ for name in ("emit", "claim_tool_call_id")]
        kept.extend(map(weakref.ref, (marker, *owners)))
        yield ToolCallStart(tool_call_id="a", tool_name="tool")
        yield ToolCallComplete(tool_call_id="a", result="result")
        yield Message(content="said")
        if context.messages[-1]["content"] == "fail":
            raise ZeroDivisionError

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        gc.collect()
        gc.disable()
        try:
            for content in ("hi", "fail"):
                await service.events(request(chat_id="c", messages=[{"role": "user", "content": content}]))
            assert kept
            assert [one for one in kept if one() is not None] == []
        finally:
            gc.enable()


def appended(log: EventLog, count: int) -> None:
    for _ in range(count):
        log.append(Message(content="x" * 900))


def test_log_drops_its_oldest_frames_if_user_or_server_exceeds_the_memory_budget() -> None:
    budget = MemoryBudget(max_bytes=30_000, max_user_bytes=20_000)
    logs = {user: EventLog(memory=RunMemory(budget, user)) for user in ("mallory", "ann")}
    appended(logs["mallory"], 100)
    appended(logs["ann"], 100)
    kept = {user: sum(map(len, log._frames)) for user, log in logs.items()}
    assert 18_000 < kept["mallory"] <= 20_000
    assert kept["ann"] <= 12_000
    assert all(log.last_seq == 100 for log in logs.values())


def test_files_dropped_after_their_run_is_forgotten_are_counted_once() -> None:
    budget = MemoryBudget()
    memory = RunMemory(budget, "ann")
    files = RunFiles("run", memory)
    files.link({"url": "data:text/plain;base64,YQ=="})
    assert budget.used_bytes > 0
    memory.close()
    files.drop_stored()
    assert budget.used_bytes == 0


async def test_slow_listener_gets_a_whole_run_that_is_neither_stored_nor_kept(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for _ in range(150):
            yield Message(content="x" * 50_000)

    async with serving(tmp_path, ScriptedAgent(script), keep_run_seconds=0) as service:
        async with service.client.stream("POST", "/v1/runs", json=request()) as response:
            events = numbered(response)
            await anext(events)
            await scrape_until(service.client, lambda seen: seen.sum("callboard_runs_total") == 1)
            assert [event async for _, event in events][-1] == Done()


async def test_oldest_ended_runs_of_a_user_over_the_memory_budget_are_evicted(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for number in range(100):
            yield ToolCallComplete(tool_call_id=f"call_{number}", result="x" * 60_000)

    async with serving(tmp_path, ScriptedAgent(script), run_memory_mib=64) as service:
        await service.events(request(run_id="ann", user={"id": "ann"}))
        for number in range(4):
            await service.events(request(run_id=f"r{number}", user={"id": "mallory"}))
        status = {}
        for run_id, user in (("ann", "ann"), *((f"r{number}", "mallory") for number in range(4))):
            params = {"user_id": user, "after": "300"}
            status[run_id] = (await service.client.get(f"/v1/runs/{run_id}/events", params=params)).status_code
    assert status == {"ann": 200, "r0": 404, "r1": 404, "r2": 200, "r3": 200}
