"""The statements and transactions that a run costs the database."""

from collections.abc import AsyncIterator
from pathlib import Path

from callboard.agents import RunContext
from callboard_protocol import Event
from tests.bench.statements import counted
from tests.serving import ScriptedAgent, request, serving


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
