"""`/metrics` counts runs as their clients saw them end, and calls as the database has them.

Runs end well and badly, are stopped, and go on at another server after theirs was killed.
"""

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from callboard_protocol import Decoder, Done, Error, Event, decode
from tests import processes
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Refusal, call, chunks, finish, text, usage
from tests.scraping import Scrape, scrape
from tests.serving import request

pytestmark = pytest.mark.timeout(240)

TIMES = 3
"""How often each kind of run is played."""

AGENTS = """
import asyncio
from callboard import Agent, Skill, register, tool
from callboard_protocol import ToolCallStart

@tool
async def look(shelf: int) -> str:
    \"""Look at a shelf.\"""
    if shelf == 13:
        raise ValueError("there is no such shelf")
    if shelf == 99:
        await asyncio.Event().wait()
    return "books"

register(Agent("librarian", skills=[Skill("shelves", "Looks.", tools=[look])]))

class Forgetful:
    agent_id = "forgetful"
    name = "Forgetful"
    description = ""
    on_owner_loss = "end"

    async def run(self, context):
        yield ToolCallStart(tool_call_id=context.claim_tool_call_id("a"), tool_name="look", tool_args={})
        await asyncio.Event().wait()

register(Forgetful())
"""


class Model:
    """A model that follows the instruction in its prompt; hanging answers continue when `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = False

    def answer(self, body: Body) -> Answer:
        [*_, asked] = [message["content"] for message in body["messages"] if message["role"] == "user"]
        has_called = body["messages"][-1]["role"] == "tool"
        match asked:
            case "refused":
                return Refusal(401)
            case "hanging" if not self.goes_on:
                return chunks(text("Once "), ending="hang")
            case "well" if not has_called:
                calls = [call("look", f'{{"shelf": {shelf}}}', index=at) for at, shelf in enumerate((1, 13, 2))]
                return chunks(*calls, call("invented", "{}", index=3), finish("tool_calls"), usage(10, 5))
            case "in a call" if not has_called:
                return chunks(call("look", '{"shelf": 99}'), finish("tool_calls"), usage(10, 5))
            case _:
                return chunks(text("There."), finish("stop"), usage(20, 3))


class Library:
    """A server, and its client."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def play(self, asked: str, number: int, until: str = "", *, cancel: bool = False) -> Event | None:
        """Return the last event of a run; None if the stream is left after `until`, before the end."""
        run_id = f"{asked}-{cancel}-{number}".replace(" ", "-")
        body = request(
            agent="forgetful" if asked == "forgetful" else "librarian",
            run_id=run_id,
            chat_id=run_id,
            message_id="m",
            messages=[{"role": "user", "content": asked}],
        )
        async with self.client.stream("POST", "/v1/runs", json=body) as response:
            return await self._read(run_id, response, until, cancel=cancel)

    async def follow(self, run_id: str) -> Event | None:
        """Return the last event of a run of another server."""
        async with self.client.stream("GET", f"/v1/runs/{run_id}/events") as response:
            return await self._read(run_id, response)

    async def _read(
        self, run_id: str, response: httpx.Response, until: str = "", *, cancel: bool = False
    ) -> Event | None:
        decoder = Decoder()
        async for piece in response.aiter_bytes():
            for frame in decoder.feed(piece):
                event = decode(frame)
                if isinstance(event, Done | Error):
                    return event
                if until and event is not None and event.type == until:
                    if not cancel:
                        return None
                    await self.client.post(f"/v1/runs/{run_id}/cancel")
        raise AssertionError("a stream without an end")


@asynccontextmanager
async def library(folder: Path, model: OpenAIServer) -> AsyncIterator[tuple[Library, int]]:
    agents = folder / "librarian.py"
    agents.write_text(AGENTS)
    places = dict.fromkeys(("MAX_RUNS", "MAX_USER_RUNS"), "500")
    settings = {"AGENTS": str(agents), "MODEL_BASE_URL": model.base_url, "MODEL": "m", **places}
    with processes.serving(folder / "data", **settings) as (url, process):
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            yield Library(client), process.pid


def name(event: Event | None) -> str:
    match event:
        case Done(finish_reason=reason):
            return reason
        case Error(code=code):
            return code
        case _:
            raise AssertionError(f"no end: {event}")


def counted(scrapes: list[Scrape], metric: str, label: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in scrapes:
        for value in one.values_of(metric, label):
            found[value] += int(one.sum(metric, **{label: value}))
    return +found


async def test_all_that_happened_is_counted_once(tmp_path: Path) -> None:
    model = Model()
    ends: list[Event | None] = []
    scrapes: list[Scrape] = []
    async with OpenAIServer(model.answer) as served:
        async with library(tmp_path, served) as (first, pid):
            for number in range(TIMES):
                ends += await asyncio.gather(
                    first.play("well", number),
                    first.play("refused", number),
                    first.play("hanging", number, "message", cancel=True),
                    first.play("in a call", number, "tool_call_start", cancel=True),
                )
            for number in range(TIMES):
                ends_here = await asyncio.gather(
                    first.play("hanging", number, "message"),
                    first.play("in a call", number, "tool_call_start"),
                    first.play("forgetful", number, "tool_call_start"),
                )
                assert not any(ends_here)
            scrapes.append(await scrape(first.client))
            os.kill(pid, 9)
        model.goes_on = True
        async with library(tmp_path, served) as (second, _):
            for number in range(TIMES):
                ends += await asyncio.gather(
                    second.follow(f"hanging-False-{number}"),
                    second.follow(f"in-a-call-False-{number}"),
                    second.follow(f"forgetful-False-{number}"),
                )
                ends.append(await second.play("well", number + TIMES))
            scrapes.append(await scrape(second.client))
    assert scrapes[0].sum("callboard_runs_open") == 3 * TIMES
    assert scrapes[1].sum("callboard_runs_open") == 0
    assert scrapes[1].sum("callboard_runs_taken_over_total") == 3 * TIMES
    assert len(ends) == 8 * TIMES
    assert counted(scrapes, "callboard_runs_total", "ending") == Counter(map(name, ends))
    with closing(sqlite3.connect(tmp_path / "data" / "callboard.db")) as connection:
        calls = connection.execute(
            "SELECT coalesce(error_code, 'ok'), count(*) FROM messages WHERE role = 'tool' GROUP BY 1"
        )
        stored = Counter(dict(calls.fetchall()))
    assert counted(scrapes, "callboard_tool_calls_total", "outcome") == stored
    assert stored == {
        "ok": 4 * TIMES,
        "tool_failed": 2 * TIMES,
        "unknown_tool": 2 * TIMES,
        "cancelled": TIMES,
        "interrupted": 2 * TIMES,
    }
