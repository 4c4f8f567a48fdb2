"""The rows of one turn."""

from typing import Any

import pytest
from sqlalchemy import select

from callboard._history import HistoryCall, Turn, TurnRows
from callboard._history.turn_rows import MAX_EVENTS
from callboard.storage import Store
from callboard.storage.sql.database import ROWS_PER_PAGE
from callboard.storage.sql.run_record import TurnWriter
from callboard.storage.sql.tables import messages, tool_events
from tests.measuring import measuring_memory
from tests.storage.turns import StoredSteps

TURN = Turn(chat_id="chat", run_id="run", message_id="m1", user_id="ann", user_content="What is new?")


async def rows(store: Store) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in await store.database.fetch(select(messages).order_by(messages.c.id))]


async def test_a_turn_is_stored_in_the_order_of_its_events(store: Store) -> None:
    journal = StoredSteps(store, TURN)
    await journal.begin()
    await journal.call_started(HistoryCall("a", "search", '{"q": "x"}', 0, 0), "Let me look.")
    await journal.call_started(HistoryCall("b", "time", "", 0, 1), "")
    await journal.call_ended("b", "noon", None, 5)
    await journal.call_ended("a", "[]", None, 5)
    await journal.call_started(HistoryCall("c", "fetch", "{broken", 1, 0), "One more.")
    await journal.call_ended("c", "Error: no", "tool_failed", 5)
    await journal.finish("That is all.", is_answered=True)

    stored = await rows(store)
    assert [(row["role"], row["content"], row["tool_call_id"], row["tool_output"]) for row in stored] == [
        ("user", "What is new?", None, None),
        ("assistant", "Let me look.", None, None),
        ("tool", None, "a", "[]"),
        ("tool", None, "b", "noon"),
        ("assistant", "One more.", None, None),
        ("tool", None, "c", "Error: no"),
        ("assistant", "That is all.", None, None),
    ]
    assert [(row["round_index"], row["sequence_index"]) for row in stored if row["role"] == "tool"] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert [row["arguments"] for row in stored if row["role"] == "tool"] == ['{"q": "x"}', "", "{broken"]
    assert [row["error_code"] for row in stored if row["role"] == "tool"] == [None, None, "tool_failed"]
    assert {row["message_id"] for row in stored} == {"m1"}


async def test_of_too_many_statuses_the_first_and_the_last_are_kept(store: Store) -> None:
    journal = StoredSteps(store, TURN)
    await journal.begin()
    await journal.call_started(HistoryCall("a", "search", "{}", 0, 0), "")
    for number in range(MAX_EVENTS + 30):
        await journal.call_progressed("a", "processing", str(number), None)
    kept = [int(row.message) for row in await store.database.fetch(select(tool_events).order_by(tool_events.c.id))]
    assert kept == [*range(MAX_EVENTS // 2), *range(MAX_EVENTS // 2 + 30, MAX_EVENTS + 30)]


async def test_a_call_does_not_end_before_its_start_when_the_clock_is_set_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = StoredSteps(store, TURN)
    await journal.begin()
    await journal.call_started(HistoryCall("a", "draw", "{}", 0, 0), "")
    monkeypatch.setattr("time.time", lambda: 1.0)
    await journal.call_ended("a", "drawn", None, 5)
    [_, _, call] = await rows(store)
    assert call["ended_at"] == call["started_at"] > 1.0


async def test_a_long_chat_is_read_whole_and_a_round_has_its_calls_of_the_next_page(store: Store) -> None:
    steps = TurnWriter(store.database, TurnRows(TURN))
    calls = [HistoryCall(f"call {number}", "look", "{}", 0, number) for number in range(2 * ROWS_PER_PAGE)]
    changes = [*steps.rows.begin("What is new?"), *(row for call in calls for row in steps.rows.start_call(call, ""))]
    await store.database.write(lambda connection: steps.write(connection, changes))
    ids = [call.tool_call_id for call in calls]
    question, first_round, *tools = await store.chats("ann").messages("chat")
    assert (question.tool_calls, [tool.tool_call_id for tool in tools]) == (None, ids)
    assert [call["id"] for call in first_round.tool_calls or ()] == ids


def test_finished_turn_keeps_no_texts() -> None:
    turn = TurnRows(TURN)
    with measuring_memory() as memory:
        turn.start_call(HistoryCall("a", "search", "{}", 0, 0), "x" * 1_000_000)
        turn.finish("y" * 1_000_000, is_answered=True)
    assert memory.kept_bytes < 100_000
