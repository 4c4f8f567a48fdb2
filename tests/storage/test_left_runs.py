"""Frames and rows are written side by side: where a killed server left either ahead, the next makes them agree."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from callboard import Agent, Skill, tool
from callboard._history import ChatJournal, HistoryCall, Turn
from callboard._runs.left_run import pack_request
from callboard.storage import LoggedFrame, LoggedRun, Store
from callboard_protocol import (
    CallEvent,
    Done,
    Event,
    Message,
    RunRequest,
    RunStart,
    ToolCallComplete,
    ToolCallStart,
    encode,
)
from tests.fakes.openai_server import OpenAIServer, chunks, finish, text
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


@tool(read_only=True)
async def look(seat: int) -> str:
    """Look whether a seat is free.

    Args:
        seat: Its number.
    """
    raise AssertionError("it has run before")


@asynccontextmanager
async def carried_on(
    folder: Path, model: OpenAIServer, left: Sequence[Event], write: Callable[[ChatJournal], Awaitable[None]]
) -> AsyncIterator[list[tuple[int, Event]]]:
    """All events of a run whose server was killed once these were in its log, and the journal written like this."""
    url = f"sqlite:///{folder / 'callboard.db'}"
    asked = RunRequest.model_validate(
        request(agent="careful", run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
    )
    store = await Store.open(url)
    log = store.run_log("gone")
    run = await log.begin(LoggedRun("run", "careful", "chat", "message", "ann"), pack_request(asked))
    await log.append(run, [LoggedFrame(encode(seq, event)) for seq, event in enumerate(left, 1)])
    journal = store.journal(Turn("chat", "run", "message", "ann", "hi", place=1))
    await journal.begin()
    await write(journal)
    await store.close()
    agent = Agent("careful", skills=[Skill("seats", "Sells seats.", tools=[sell, look])])
    async with serving(folder, agent, database_url=url, model_base_url=model.base_url, model="m") as service:
        async with service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            yield [one async for one in numbered(response)]


SELL = HistoryCall("c1", "sell", '{"seat": 7}')
STARTED = ToolCallStart(tool_call_id="c1", tool_name="sell", tool_args={"seat": 7}, round_index=0, sequence_index=0)
COMPLETED = ToolCallComplete(tool_call_id="c1", tool_name="sell", result="Sold.", duration_ms=5)


@pytest.mark.parametrize("seen", [(), (Message(content="I se"),), (Message(content="I sell it. "), STARTED)])
async def test_what_was_written_of_a_call_before_its_event_was_kept_is_seen_as_it_was(
    tmp_path: Path, seen: Sequence[Event]
) -> None:
    async def sold(journal: ChatJournal) -> None:
        await journal.call_started(SELL, "I sell it. ")
        await journal.call_ended("c1", "Sold.", None, 5)

    left = [RunStart(run_id="run", agent="careful"), *seen]
    async with OpenAIServer([ANSWER]) as model, carried_on(tmp_path, model, left, sold) as found:
        check(found)
        events = [event for _, event in found]
        said = "".join(event.content for event in events if isinstance(event, Message))
        assert said == "I sell it. Seat 7 is yours."
        assert [event.type for event in events if isinstance(event, CallEvent)] == [
            "tool_call_start",
            "tool_call_complete",
        ]
        assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["Sold."]
        assert told(model.requests[0])[-2:] == [("assistant", "I sell it. "), ("tool", "Sold.")]


async def test_what_was_seen_of_a_calls_end_before_it_was_written_is_told_to_the_model(tmp_path: Path) -> None:
    async def selling(journal: ChatJournal) -> None:
        await journal.call_started(SELL, "")

    left = [RunStart(run_id="run", agent="careful"), STARTED, COMPLETED]
    async with OpenAIServer([ANSWER]) as model, carried_on(tmp_path, model, left, selling) as found:
        check(found)
        assert told(model.requests[0])[-1] == ("tool", "Sold.")


async def test_a_look_that_had_ended_is_told_once(tmp_path: Path) -> None:
    async def looked(journal: ChatJournal) -> None:
        await journal.call_started(HistoryCall("c1", "look", '{"seat": 7}'), "")
        await journal.call_ended("c1", "Free.", None, 5)

    start = ToolCallStart(tool_call_id="c1", tool_name="look", tool_args={"seat": 7})
    left = [RunStart(run_id="run", agent="careful"), start]
    async with OpenAIServer([ANSWER]) as model, carried_on(tmp_path, model, left, looked) as found:
        check(found)
        assert [role for role, _ in told(model.requests[0])][-3:] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("seen", [(), (Message(content="Seat 7"),), (Message(content="Seat 7 is yours."),)])
async def test_an_answer_that_was_written_and_not_seen_to_its_end_is_told_and_not_asked_for_again(
    tmp_path: Path, seen: Sequence[Event]
) -> None:
    async def answered(journal: ChatJournal) -> None:
        await journal.call_started(SELL, "")
        await journal.call_ended("c1", "Sold.", None, 5)
        await journal.finish("Seat 7 is yours.", is_answered=True)

    left = [RunStart(run_id="run", agent="careful"), STARTED, COMPLETED, *seen]
    async with OpenAIServer([]) as model, carried_on(tmp_path, model, left, answered) as found:
        check(found)
        events = [event for _, event in found]
        said = "".join(event.content for event in events if isinstance(event, Message))
        assert (said, events[-1]) == ("Seat 7 is yours.", Done())
        assert model.requests == []
