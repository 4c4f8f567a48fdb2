"""A long chat, twice: as the database keeps it, and as the client sends it back.

Five calls a turn in two rounds, each with a result of about 2 kB, and text before, between and after.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, insert

from callboard.storage import Store
from callboard.storage.sql.tables import chats, messages

Row = dict[str, Any]
Result = Callable[[int], str]

ROUNDS = (2, 3)
CALLS_PER_TURN = sum(ROUNDS)
RESULT_CHARS = 2_000
ROWS_PER_INSERT = 1_000


def plain_result(number: int) -> str:
    """A page of text."""
    return f"Result {number}. ".ljust(RESULT_CHARS, "x")


def search_result(number: int) -> str:
    """Five sources, as a search tool returns them: JSON that replay has to read."""
    sources = [
        {"source_number": number * 5 + index, "title": f"Page {index}", "url": f"https://example.org/{number}/{index}"}
        for index in range(5)
    ]
    room = (RESULT_CHARS - len(json.dumps(sources))) // len(sources) - len(', "text": ""')
    return json.dumps([{**source, "text": "x" * room} for source in sources])


async def fill(store: Store, chat_id: str, turns: int, result: Result) -> None:
    """Write the chat at once: the journal would take minutes, and is not what is measured."""
    rows = list(_rows(chat_id, turns, result))

    def write(connection: Connection) -> None:
        connection.execute(insert(chats).values(id=chat_id, user_id=None, created_at=0.0, updated_at=0.0))
        for start in range(0, len(rows), ROWS_PER_INSERT):
            connection.execute(insert(messages), rows[start : start + ROWS_PER_INSERT])

    await store.database.write(write)


def branch(turns: int, result: Result) -> list[Row]:
    """The messages as the pipe sends them, results included, and a new question."""
    sent: list[Row] = []
    for turn in range(turns):
        sent.append({"role": "user", "content": f"Question {turn}?"})
        for round_index, numbers in enumerate(_rounds(turn)):
            content = f"Round {round_index} of turn {turn}."
            sent.append({"role": "assistant", "content": content, "tool_calls": [_call(n) for n in numbers]})
            sent += [{"role": "tool", "tool_call_id": _call_id(n), "content": result(n)} for n in numbers]
        sent.append({"role": "assistant", "content": f"Answer {turn}."})
    return [*sent, {"role": "user", "content": "And now?"}]


def _rows(chat_id: str, turns: int, result: Result) -> Iterator[Row]:
    for turn in range(turns):
        yield _row(chat_id, turn, "user", content=f"Question {turn}?")
        for round_index, numbers in enumerate(_rounds(turn)):
            calls = json.dumps([_call(number) for number in numbers])
            text = f"Round {round_index} of turn {turn}."
            yield _row(chat_id, turn, "assistant", content=text, tool_calls=calls, round_index=round_index)
            for index, number in enumerate(numbers):
                place = {"round_index": round_index, "sequence_index": index}
                yield _row(chat_id, turn, "tool", **place, **_tool_fields(number, result))
        yield _row(chat_id, turn, "assistant", content=f"Answer {turn}.")


def _row(chat_id: str, turn: int, role: str, **values: object) -> Row:
    # Every row has every column: rows of one shape go into the database as one statement.
    columns = {column.name: None for column in messages.columns if column.name != "id"}
    identity = {"chat_id": chat_id, "run_id": f"run-{turn}", "message_id": f"message-{turn}", "role": role}
    return {**columns, **identity, "created_at": float(turn), **values}


def _tool_fields(number: int, result: Result) -> Row:
    function = _call(number)["function"]
    return {
        "tool_call_id": _call_id(number),
        "tool_name": function["name"],
        "arguments": function["arguments"],
        "tool_output": result(number),
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
