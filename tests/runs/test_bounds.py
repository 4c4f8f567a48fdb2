"""What runs may take: places, time, text and memory, and what they let go of at their end."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard._agents import RunContext
from callboard._runs import run as run_module
from callboard._runs.files import RunFiles
from callboard._runs.holdings import Account, Holdings
from callboard._runs.log import EventLog
from callboard._runs.places import Places
from callboard.errors import TooManyRuns
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.scraping import scrape_until
from tests.serving import ScriptedAgent, numbered, request, serving


async def test_of_one_user_so_many_run_and_another_still_finds_a_place() -> None:
    places = Places(total=3, per_user=2, wait_seconds=0)
    await places.take("mallory")
    await places.take("mallory")
    with pytest.raises(TooManyRuns, match="2 runs of this user"):
        await places.take("mallory")
    await places.take("ann")
    with pytest.raises(TooManyRuns, match="3 runs are under way"):
        await places.take("bob")
    places.give_back("mallory")
    await places.take("bob")


async def test_who_finds_no_place_waits_in_turn_and_past_a_user_who_has_a_share() -> None:
    places = Places(total=2, per_user=1, wait_seconds=600)
    await places.take("mallory")
    await places.take("ann")
    order: list[str] = []

    async def wait(user: str) -> None:
        await places.take(user)
        order.append(user)

    waiting = [asyncio.create_task(wait(user)) for user in ("mallory", "bob", "cleo")]
    await anyio.wait_all_tasks_blocked()
    places.give_back("ann")
    await waiting[1]
    waiting[2].cancel()
    await asyncio.gather(waiting[2], return_exceptions=True)
    places.give_back("mallory")
    await waiting[0]
    assert order == ["bob", "mallory"]
    with pytest.raises(TooManyRuns):
        await Places(total=0, per_user=1, wait_seconds=0.001).take("ann")


async def test_the_queue_is_short() -> None:
    places = Places(total=0, per_user=0, wait_seconds=600)
    waiting = [asyncio.create_task(places.take("mallory")) for _ in range(11)]
    (refused,), others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(refused.exception(), TooManyRuns)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_a_run_waits_for_its_place_and_is_then_answered(tmp_path: Path) -> None:
    ends = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="hello")
        await ends.wait()

    async with serving(tmp_path, ScriptedAgent(script), max_runs=1, run_queue_seconds=600) as service:
        async with service.client.stream("POST", "/v1/runs", json=request()) as response:
            events = numbered(response)
            await anext(events)
            second = asyncio.create_task(service.events(request()))
            await scrape_until(service.client, lambda seen: seen.sum("callboard_runs_waiting") == 1)
            ends.set()
            assert [event.type async for _, event in events] == ["message", "done"]
        assert [event.type for event in await second] == ["run_start", "message", "done"]


async def test_a_run_that_takes_too_long_is_ended_in_words(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="so far")
        yield ToolCallStart(tool_call_id="a", tool_name="tool")
        await asyncio.Event().wait()

    async with serving(tmp_path, ScriptedAgent(script), run_timeout_seconds=0.2) as service:
        events = await service.events(request())
    assert [event.type for event in events] == ["run_start", "message", "tool_call_start", "tool_call_error", "error"]
    assert isinstance(events[-1], Error)
    assert (events[-1].code, "CALLBOARD_RUN_TIMEOUT_SECONDS" in events[-1].message) == ("run_timeout", True)


async def test_an_answer_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Stands for all that a run's agent holds."""


async def test_at_its_end_a_run_lets_go_of_what_it_was_about(tmp_path: Path) -> None:
    kept: list[weakref.ref[object]] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        marker = Marker()
        context.options["marker"] = marker
        recorder = getattr(context.claim_tool_call_id, "__self__")  # noqa: B009 # a method of the recorder's
        kept.extend((weakref.ref(marker), weakref.ref(recorder)))
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


def test_a_log_lets_go_of_its_beginning_where_its_user_or_the_server_has_no_room() -> None:
    holdings = Holdings(max_bytes=30_000, max_user_bytes=20_000)
    logs = {user: EventLog(account=Account(holdings, user)) for user in ("mallory", "ann")}
    appended(logs["mallory"], 100)
    appended(logs["ann"], 100)
    kept = {user: sum(map(len, log._frames)) for user, log in logs.items()}
    assert 18_000 < kept["mallory"] <= 20_000
    assert kept["ann"] <= 12_000
    assert all(log.last_seq == 100 for log in logs.values())


def test_files_that_are_stored_after_their_run_is_forgotten_are_not_taken_off_twice() -> None:
    holdings = Holdings()
    account = Account(holdings, "ann")
    files = RunFiles("run", account)
    files.link({"url": "data:text/plain;base64,YQ=="})
    assert holdings.taken_bytes > 0
    account.close()
    files.drop_stored()
    assert holdings.taken_bytes == 0


async def test_ended_runs_are_forgotten_oldest_first_where_there_is_no_room(tmp_path: Path) -> None:
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


async def test_what_no_text_can_hold_ends_no_run(tmp_path: Path) -> None:
    """Lone surrogates, as a JSON text with half an emoji makes them, in every text of every kind of event."""

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="said \ud800.")
        yield Status(content="at \udfff work")
        yield ToolCallStart(
            tool_call_id="a", tool_name="se\ud800arch", tool_args={"qu\ud800ery": ["x\ud800", {"a": "\0"}]}
        )
        yield ToolStatus(tool_call_id="a", data=ToolStatusData(status="pro\ud800cessing", message="hal\ud800f"))
        yield ToolCallComplete(tool_call_id="a", result="found \ud800")
        yield ToolCallError(tool_call_id="b", error="lost \ud800")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await service.events(request(chat_id="chat"))
        assert isinstance(events[-1], Done)
        [start] = [event for event in events if isinstance(event, ToolCallStart) and event.tool_name == "se\ufffdarch"]
        assert start.tool_args == {"qu\ufffdery": ["x\ufffd", {"a": "\ufffd"}]}
        assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["found \ufffd"]


async def test_arguments_without_an_end_end_their_run_with_words(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="search", tool_args=endless)
        yield Message(content="never said")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        events = await service.events(request(chat_id="chat"))
        assert isinstance(events[-1], Error)
        assert events[-1].code == "agent_error"
        assert "nested too deeply" in events[-1].message
