"""How long it takes to build a model's messages from a long chat: one query, and replay.

The chat has five calls a turn in two rounds, each with a result of 2 kB, and text before, between and after. It is in
the database, and the client sends it back.
"""

import gc
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from callboard._history import replay
from callboard.storage import Store
from callboard.storage.sql.tables import chats, messages
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table
from tests.bench.statements import counted

Row = dict[str, Any]

ROUNDS = (2, 3)
CALLS_PER_TURN = sum(ROUNDS)
RESULT_CHARS = 2_000
ROWS_PER_INSERT = 1_000
TURNS = {FULL: (1_000, 2_000, 4_000), SMOKE: (10, 20, 40)}
REPETITIONS = {FULL: 7, SMOKE: 1}
MAX_SECONDS = 0.150
# Four times the work; the rest is noise.
MAX_GROWTH = 5.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One chat read and replayed several times, in seconds."""

    queries: int
    seconds: list[tuple[float, float]]

    @property
    def totals(self) -> list[float]:
        return [sum(both) for both in self.seconds]

    def row(self, turns: int) -> tuple[object, ...]:
        loads, replays = zip(*self.seconds, strict=True)
        times = (*map(statistics.median, (loads, replays, self.totals)), min(self.totals))
        return f"{turns:,}", f"{turns * CALLS_PER_TURN:,}", self.queries, *map(milliseconds, times)


async def measure(folder: Path, size: Size) -> list[Target]:
    """Print the table; the targets are those of the fewest turns."""
    fewest, *_, most = TURNS[size]
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'long.db'}")
    try:
        readings = {turns: await _read(store, turns, REPETITIONS[size]) for turns in TURNS[size]}
    finally:
        await store.close()
    headings = ("turns", "calls", "queries", "load ms", "replay ms", "total ms", "fastest ms")
    print_table("Replay of a long chat", headings, [reading.row(turns) for turns, reading in readings.items()])
    # The fastest: how the work grows, not how busy the machine was.
    growth = min(readings[most].totals) / min(readings[fewest].totals)
    seconds = statistics.median(readings[fewest].totals)
    what = f"load and replay of {fewest:,} turns with {fewest * CALLS_PER_TURN:,} calls"
    return [
        Target("queries to load a chat", max(reading.queries for reading in readings.values()), 1, "queries"),
        Target(what, seconds * 1000, MAX_SECONDS * 1000, "ms"),
        Target("the same for four times the turns", growth, MAX_GROWTH, "times as long"),
    ]


async def _read(store: Store, turns: int, repetitions: int) -> Reading:
    chat_id = f"chat of {turns}"
    await fill(store, chat_id, turns)
    sent = branch(turns)
    with counted() as statements:
        await store.chats(None).history(chat_id)
    return Reading(statements.executed, [await _time(store, chat_id, sent) for _ in range(repetitions)])


async def _time(store: Store, chat_id: str, sent: list[Row]) -> tuple[float, float]:
    with _settled():
        began = time.perf_counter()
        history = await store.chats(None).history(chat_id)
        loaded = time.perf_counter()
        replayed = replay(sent, history.calls)
        ended = time.perf_counter()
    if replayed.messages != sent:
        raise AssertionError("replay lost or changed something: these results were sent as they are stored")
    return loaded - began, ended - loaded


@contextmanager
def _settled() -> Iterator[None]:
    """Have the garbage collector look only at objects of this block.

    All others, those that were imported and other chats, take it 80 ms, in some runs and not in others.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


# --- The chat -------------------------------------------------------------------------------------------------------


async def fill(store: Store, chat_id: str, turns: int) -> None:
    """Write the chat at once: turn by turn it would take minutes."""
    rows = list(_rows(chat_id, turns))

    def write(connection: Connection) -> None:
        connection.execute(insert(chats).values(id=chat_id, user_id=None, created_at=0.0, updated_at=0.0))
        for start in range(0, len(rows), ROWS_PER_INSERT):
            connection.execute(insert(messages), rows[start : start + ROWS_PER_INSERT])

    await store.database.write(write)


def branch(turns: int) -> list[Row]:
    """Return the messages as the pipe sends them, results included, and a new question."""
    sent: list[Row] = []
    for turn in range(turns):
        sent.append({"role": "user", "content": f"Question {turn}?"})
        for round_index, numbers in enumerate(_rounds(turn)):
            content = f"Round {round_index} of turn {turn}."
            sent.append({"role": "assistant", "content": content, "tool_calls": [_call(n) for n in numbers]})
            sent += [{"role": "tool", "tool_call_id": _call_id(n), "content": _result(n)} for n in numbers]
        sent.append({"role": "assistant", "content": f"Answer {turn}."})
    return [*sent, {"role": "user", "content": "And now?"}]


def _rows(chat_id: str, turns: int) -> Iterator[Row]:
    for turn in range(turns):
        yield _row(chat_id, turn, "user", content=f"Question {turn}?")
        for round_index, numbers in enumerate(_rounds(turn)):
            calls = json.dumps([_call(number) for number in numbers])
            text = f"Round {round_index} of turn {turn}."
            yield _row(chat_id, turn, "assistant", content=text, tool_calls=calls, round_index=round_index)
            for index, number in enumerate(numbers):
                place = {"round_index": round_index, "sequence_index": index}
                yield _row(chat_id, turn, "tool", **place, **_tool_fields(number))
        yield _row(chat_id, turn, "assistant", content=f"Answer {turn}.")


def _row(chat_id: str, turn: int, role: str, **values: object) -> Row:
    # Every row has every column: rows of one shape go into the database as one statement.
    columns = {column.name: None for column in messages.columns if column.name != "id"}
    identity = {"chat_id": chat_id, "run_id": f"run-{turn}", "message_id": f"message-{turn}", "role": role}
    return {**columns, **identity, "created_at": float(turn), **values}


def _tool_fields(number: int) -> Row:
    function = _call(number)["function"]
    return {
        "tool_call_id": _call_id(number),
        "tool_name": function["name"],
        "arguments": function["arguments"],
        "tool_output": _result(number),
        "started_at": float(number),
        "ended_at": float(number),
        "duration_ms": 12,
    }


def _rounds(turn: int) -> Iterator[range]:
    start = turn * CALLS_PER_TURN
    for size in ROUNDS:
        yield range(start, start + size)
        start += size


def _call(number: int) -> Row:
    arguments = json.dumps({"path": f"/books/{number}", "lines": 40})
    return {"id": _call_id(number), "type": "function", "function": {"name": "read_file", "arguments": arguments}}


def _call_id(number: int) -> str:
    return f"call_{number:024d}"


def _result(number: int) -> str:
    return f"Result {number}. ".ljust(RESULT_CHARS, "x")
