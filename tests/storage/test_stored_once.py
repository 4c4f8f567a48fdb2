"""Arguments and results are stored once, and a second time in the run's events as long as these are kept."""

from collections.abc import AsyncIterator
from pathlib import Path

from sqlalchemy import Connection, func, select

from callboard.agents import RunContext
from callboard.storage.sql.tables import events, metadata
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, database_of, request, serving

ARGUMENT, RESULT = "zebrafinch", "pelicanbeak"


async def looks(_: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"of": ARGUMENT})
    yield ToolCallComplete(tool_call_id="a", result=f"seen {RESULT}")
    yield Message(content="It is there.")


def count(connection: Connection) -> dict[str, dict[str, int]]:
    """Return how often each text is stored, by table."""
    found: dict[str, dict[str, int]] = {ARGUMENT: {}, RESULT: {}}
    for table in metadata.sorted_tables:
        stored = str([tuple(row) for row in connection.execute(select(table))])
        for text, places in found.items():
            if times := stored.count(text):
                places[table.name] = times
    return found


async def test_arguments_and_results_are_stored_once_and_in_the_events_while_these_are_kept(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, ScriptedAgent(looks)) as service:
        await service.events(request(chat_id="chat"))
        database = database_of(service)
        assert await database.read(count) == {
            ARGUMENT: {"events": 1, "messages": 1},
            RESULT: {"events": 1, "messages": 1},
        }
        assert await service.state.store.stored_runs("server").drop(ended_before_seconds=-1, max_user_bytes=10**9) == 1
        assert await database.scalar(select(func.count()).select_from(events)) == 0
        assert await database.read(count) == {ARGUMENT: {"messages": 1}, RESULT: {"messages": 1}}
