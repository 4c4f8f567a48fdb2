"""A run whose server was killed between two transactions continues from the stored events."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.engine import Engine

from callboard import Agent, Skill, tool
from callboard._history import HistoryCall, RowChange, Turn, TurnRows
from callboard.errors import RunLost
from callboard.runs.left_runs import STOPPED_DURING_ANSWER
from callboard.runs.stored_request import pack_request
from callboard.storage import Store, StoredFrame, StoredRun
from callboard_protocol import (
    CallEvent,
    Done,
    Event,
    Message,
    RunRequest,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    encode,
)
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.runs.killing import told
from tests.runs.promises import check
from tests.serving import numbered, request, serving

ANSWER = chunks(text("Seat 7 is yours."), finish("stop"))


@tool
async def sell(seat: int) -> str:
    """Sell a seat.

    Args:
        seat: Its number.
    """
    raise AssertionError("it has run before")


@tool(requires_confirmation=True)
async def refund(seat: int) -> str:
    """Pay a seat back.

    Args:
        seat: Its number.
    """
    raise AssertionError("the user has not allowed it")


@tool(repeatable=True)
async def reserve(seat: int) -> str:
    """Reserve a seat.

    Args:
        seat: Its number.
    """
    raise AssertionError("the user has not allowed it")


@tool(read_only=True)
async def look(seat: int) -> str:
    """Look whether a seat is free.

    Args:
        seat: Its number.
    """
    raise AssertionError("it has run before")


Append = Callable[[TurnRows], Iterator[tuple[Event | None, Sequence[RowChange]]]]


@asynccontextmanager
async def carried_on(
    folder: Path, model: OpenAIServer, left: Append, **settings: Any
) -> AsyncIterator[list[tuple[int, Event]]]:
    """All events of a run whose server was killed once these events and changes were stored."""
    url = f"sqlite:///{folder / 'callboard.db'}"
    asked = RunRequest.model_validate(
        request(agent="careful", run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
    )
    store = await Store.open(url)
    log = store.stored_runs("gone")
    run = await log.begin(StoredRun("run", "careful", "chat", "message", "ann"), pack_request(asked.model_dump()))
    record = store.record(log, run, Turn("chat", "run", "message", "ann", None, place=1))
    assert record.writer
    seq = 0
    for event, changes in left(record.writer.rows):
        seq += event is not None
        record.append(StoredFrame(encode(seq, event)) if event else None, changes)
    await record.store_now()
    await store.close()
    agent = Agent("careful", skills=[Skill("seats", "Sells seats.", tools=[sell, refund, reserve, look])])
    settings |= {"database_url": url, "model_base_url": model.base_url, "model": "m"}
    async with serving(folder, agent, **settings) as service:
        async with service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            yield [one async for one in numbered(response)]


SELL = HistoryCall("c1", "sell", '{"seat": 7}')
STARTED = ToolCallStart(tool_call_id="c1", tool_name="sell", tool_args={"seat": 7}, round_index=0, sequence_index=0)
COMPLETED = ToolCallComplete(tool_call_id="c1", tool_name="sell", result="Sold.", duration_ms=5)


def asked(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
    yield RunStart(run_id="run", agent="careful"), ()
    yield None, rows.begin("hi")


async def test_an_ended_call_is_sent_to_the_model_and_not_run_again(tmp_path: Path) -> None:
    def sold(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
        yield from asked(rows)
        yield Message(content="I sell it. "), ()
        yield STARTED, rows.start_call(SELL, "I sell it. ")
        yield COMPLETED, rows.end_call("c1", "Sold.", None, 5)

    async with OpenAIServer([ANSWER]) as model, carried_on(tmp_path, model, sold) as found:
        check(found)
        events = [event for _, event in found]
        said = "".join(event.content for event in events if isinstance(event, Message))
        assert said == "I sell it. Seat 7 is yours."
        assert [event.type for event in events if isinstance(event, CallEvent)] == [
            "tool_call_start",
            "tool_call_complete",
        ]
        assert told(model.requests[0])[-2:] == [("assistant", "I sell it. "), ("tool", "Sold.")]


@pytest.mark.parametrize(
    "start",
    [
        ToolCallStart(tool_call_id="c1", tool_name="refund", tool_args={"seat": 7}),
        ToolCallStart(tool_call_id="c1", tool_name="reserve", tool_args={"seat": 7}, from_text=True),
    ],
    ids=lambda start: start.tool_name,
)
async def test_a_call_that_was_started_and_not_yet_asked_about_asks_the_user(
    tmp_path: Path, start: ToolCallStart
) -> None:
    def started(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
        yield from asked(rows)
        yield start, rows.start_call(HistoryCall("c1", start.tool_name, '{"seat": 7}'), "")

    async with (
        OpenAIServer([ANSWER]) as model,
        carried_on(tmp_path, model, started, input_timeout_seconds=0.1) as found,
    ):
        check(found)
        [error] = [event for _, event in found if isinstance(event, ToolCallError)]
        assert error.code == "not_answered"


async def test_a_call_that_was_written_and_not_started_beside_another_gets_an_end(tmp_path: Path) -> None:
    def half_started(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
        yield from asked(rows)
        for call_id in ("c1", "c2"):
            yield ToolCallArgsDelta(tool_call_id=call_id, tool_name="sell", delta='{"seat": 7}'), ()
        yield STARTED, rows.start_call(SELL, "")

    again = chunks(call("look", '{"seat": 7}', call_id="c2"), finish("tool_calls"))
    async with OpenAIServer([again, ANSWER]) as model, carried_on(tmp_path, model, half_started) as found:
        check(found)
        events = [event for _, event in found[4:]]
        ended = [(event.type, event.tool_call_id) for event in events if isinstance(event, CallEvent)][:2]
        assert ended == [("tool_call_error", "c1"), ("tool_call_error", "c2")]
        # Clients have a card with this id, so the next call gets another one.
        assert [event.tool_call_id for event in events if isinstance(event, ToolCallStart)] not in ([], ["c2"])


async def test_a_run_is_not_continued_while_its_history_cannot_be_read(tmp_path: Path) -> None:
    refused: list[str] = []

    def refuse(*given: Any) -> None:
        # Only the query of the history joins chats with their messages. The first two are refused.
        if "FROM chats LEFT OUTER JOIN messages" in given[2] and len(refused) < 2:
            refused.append(given[2])
            raise sqlite3.OperationalError("disk I/O error")

    def sold(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
        yield from asked(rows)
        yield STARTED, rows.start_call(SELL, "")
        yield COMPLETED, rows.end_call("c1", "Sold.", None, 5)

    sqlalchemy.event.listen(Engine, "before_cursor_execute", refuse)
    try:
        async with OpenAIServer([ANSWER]) as model, carried_on(tmp_path, model, sold) as found:
            assert len(refused) == 2
            assert told(model.requests[0])[-1] == ("tool", "Sold.")
            assert isinstance(found[-1][1], Done)
    finally:
        sqlalchemy.event.remove(Engine, "before_cursor_execute", refuse)


async def test_a_run_that_lacks_only_its_last_event_gets_it_without_a_model_request(tmp_path: Path) -> None:
    def answered(rows: TurnRows) -> Iterator[tuple[Event | None, Sequence[RowChange]]]:
        yield from asked(rows)
        yield STARTED, rows.start_call(SELL, "")
        yield COMPLETED, rows.end_call("c1", "Sold.", None, 5)
        yield Message(content="Seat 7 is yours."), ()
        yield None, rows.finish("Seat 7 is yours.", is_answered=True, ending=Done().model_dump_json())

    async with OpenAIServer([]) as model, carried_on(tmp_path, model, answered) as found:
        check(found)
        events = [event for _, event in found]
        said = "".join(event.content for event in events if isinstance(event, Message))
        assert (said, events[-1]) == ("Seat 7 is yours.", Done())
        assert model.requests == []


async def test_a_left_run_that_was_ended_without_the_servers_knowledge_is_not_ended_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'callboard.db'}"
    store = await Store.open(url)
    # Without its request, the run can only be ended.
    await store.stored_runs("gone").begin(StoredRun("run", "careful", "chat", "message", "ann"))
    await store.close()
    async with serving(tmp_path, Agent("careful"), database_url=url) as service:
        ended = (await service.state.store.stored_runs("other").find(["run"]))["run"]
        # The commit has succeeded, and its confirmation was lost: the server tries once more.
        with pytest.raises(RunLost):
            await service.state.runs._factory.end_left_run(ended, STOPPED_DURING_ANSWER)
        async with service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            assert [event async for _, event in numbered(response)] == [STOPPED_DURING_ANSWER]
