"""The statements and transactions that a run costs the database."""

from collections.abc import AsyncIterator
from pathlib import Path

from sqlalchemy import select

from callboard import Agent, tool
from callboard.agents import RunContext
from callboard.storage.sql.tables import messages
from callboard_protocol import Event, ToolCallComplete, ToolCallStart
from tests.bench.statements import counted
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import ScriptedAgent, Service, database_of, request, serving


async def say_nothing(_: RunContext) -> AsyncIterator[Event]:
    return
    yield


async def test_a_run_that_says_nothing_costs_fifteen_statements_in_three_transactions(tmp_path: Path) -> None:
    costs = []
    async with serving(tmp_path, ScriptedAgent(say_nothing)) as service:
        # Several, because the server regularly looks for left runs, which may fall into one of them.
        for chat_id in ("first", "second", "third"):
            with counted() as cost:
                await service.events(request(chat_id=chat_id, user={"id": "ann"}))
            costs.append((cost.executed, cost.committed))
    assert min(costs) == (15, 3)


async def count_started(service: Service) -> int:
    """The calls whose start is in the database."""
    return len(await database_of(service).fetch(select(messages.c.id).where(messages.c.role == "tool")))


async def test_the_calls_of_an_answer_run_when_all_are_stored_and_share_transactions(tmp_path: Path) -> None:
    calls = range(20)
    started = []

    @tool
    async def look(place: int) -> str:
        """Look."""
        started.append(await count_started(service))
        return f"seen {place}"

    made = chunks(*(call("look", f'{{"place": {n}}}', index=n, call_id=f"c{n}") for n in calls), finish("tool_calls"))
    async with OpenAIServer([made, chunks(text("Done."), finish("stop"))]) as model:
        agent = Agent("looker", tools=[look])
        async with serving(tmp_path, agent, model_base_url=model.base_url, model="m") as service:
            with counted() as cost:
                await service.events(request(agent="looker", chat_id="chat"))
    assert started == [len(calls)] * len(calls)
    assert cost.committed < len(calls)


async def test_an_agent_of_its_own_goes_on_when_the_start_that_it_has_yielded_is_stored(tmp_path: Path) -> None:
    started = []

    async def act(_: RunContext) -> AsyncIterator[Event]:
        for number in range(3):
            yield ToolCallStart(tool_call_id=f"c{number}", tool_name="look")
            started.append(await count_started(service))
            yield ToolCallComplete(tool_call_id=f"c{number}", result="seen")

    async with serving(tmp_path, ScriptedAgent(act)) as service:
        await service.events(request(chat_id="chat"))
    assert started == [1, 2, 3]


async def test_the_end_of_a_call_and_the_next_start_share_a_transaction(tmp_path: Path) -> None:
    calls = 20

    async def act(_: RunContext) -> AsyncIterator[Event]:
        for number in range(calls):
            yield ToolCallStart(tool_call_id=f"c{number}", tool_name="look")
            yield ToolCallComplete(tool_call_id=f"c{number}", result="seen")

    async with serving(tmp_path, ScriptedAgent(act)) as service:
        with counted() as cost:
            await service.events(request(chat_id="chat"))
    # One for each start, and a few for the beginning and the end of the run. A busy machine may add some.
    assert calls <= cost.committed < 1.5 * calls
