"""A client's request does not delay other clients, however large or malformed it or the chat that it reads is.

What is measured is the processor's time that the server's process spends between another's request and its answer:
unlike the time on a clock it does not depend on what else the machine does. `tests/bench` measures by the clock.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from callboard._history import Turn
from callboard.agents import RunContext
from callboard.storage.sql.tables import messages, tool_events
from callboard_protocol import Event, Message
from tests.garbage import set_aside_what_is_there
from tests.http.hostile import Body, hostile_bodies
from tests.serving import ScriptedAgent, Service, database_of, serving
from tests.storage.turns import StoredSteps

pytestmark = pytest.mark.slow

MOST_SECONDS = 1.0
"""Four times what is promised: it counts the work of other threads too, and a busy processor does less in a second.

What is not linear takes longer; `tests/bench` compares with the promise.
"""
BODIES = hostile_bodies()

CALLS = 30_000
EVENTS = 60_000
LARGE = 8
LARGE_RESULT = "я" * 4_000_000


async def hello(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="hello")


async def post(service: Service, body: Body) -> int:
    """The status of the answer to this request, which is written piece by piece: a client costs no time of its own."""
    path, content = body
    url = service.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(content)}", "Connection: close")
    try:
        writer.write("\r\n".join((f"POST {path} HTTP/1.1", *head, "", "")).encode())
        for piece in pieces(content):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # Refused before it was sent: what was answered is there to be read.
    status = int((await reader.readline()).split()[1])
    while await reader.read(64 * 1024):
        pass
    writer.close()
    return status


def pieces(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(view), 64 * 1024):
        yield bytes(view[start : start + 64 * 1024])


async def longest_hold(service: Service, hostile: "asyncio.Task[int]") -> float:
    """The most seconds of work between a request of a second client and its answer, until the hostile one is met."""
    longest = 0.0
    while not hostile.done():
        started = time.process_time()
        assert (await service.client.get("/v1/models")).status_code == 200
        longest = max(longest, time.process_time() - started)
    return longest


@pytest.mark.parametrize("name", list(BODIES))
async def test_no_body_holds_up_another_client(tmp_path: Path, name: str) -> None:
    body = BODIES[name]()
    async with serving(tmp_path, ScriptedAgent(hello)) as service:
        assert (await service.client.get("/v1/models")).status_code == 200
        set_aside_what_is_there()
        hostile = asyncio.create_task(post(service, body))
        held = await longest_hold(service, hostile)
        status = await hostile
    print(f"{name}: {status} {held * 1000:.0f} ms")
    assert status < 500
    assert held < MOST_SECONDS


async def fill(service: Service) -> None:
    """Write a chat of many calls, some of them with large results, each with some of the steps."""
    await StoredSteps(service.state.store, Turn("huge", "run", None, None, "hello")).begin()
    common: dict[str, object] = {
        "chat_id": "huge",
        "run_id": "run",
        "role": "tool",
        "tool_name": "search",
        "arguments": '{"q": 1}',
    }
    common |= {"round_index": 0, "sequence_index": 0, "started_at": 1.0, "ended_at": 2.0, "created_at": 1.0}
    rows = [
        {**common, "tool_call_id": f"c{number}", "tool_output": LARGE_RESULT if number < LARGE else "found " * 20}
        for number in range(CALLS)
    ]

    def write(connection: Connection) -> None:
        connection.execute(insert(messages), rows)
        ids = connection.scalars(select(messages.c.id).where(messages.c.role == "tool")).all()
        event = {"status": "processing", "message": "reading", "progress": 50.0, "created_at": 1.5}
        steps = [{**event, "tool_message_id": ids[number % CALLS]} for number in range(EVENTS)]
        connection.execute(insert(tool_events), steps)

    await database_of(service).write(write)


async def get(service: Service, path: str) -> int:
    """The status of the answer, of which nothing is kept: a client that parses it would cost time of its own."""
    async with service.client.stream("GET", path) as response:
        async for _ in response.aiter_raw():
            pass
        return response.status_code


@pytest.mark.parametrize(
    "path", ["/v1/chats/huge/messages", "/v1/chats/huge/timeline", "/v1/tool-calls?chat_id=huge&limit=200"]
)
async def test_no_reading_of_a_huge_chat_holds_up_another_client(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, ScriptedAgent(hello)) as service:
        await fill(service)
        assert (await service.client.get("/v1/models")).status_code == 200
        set_aside_what_is_there()
        reading = asyncio.create_task(get(service, path))
        held = await longest_hold(service, reading)
        assert await reading == 200
    print(f"{path}: {held * 1000:.0f} ms")
    assert held < MOST_SECONDS


async def test_a_chat_of_several_pages_is_read_whole_and_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(hello)) as service:
        await fill(service)
        content = await service.client.get("/v1/chats/huge/timeline")
        calls = json.loads(content.content)["tool_calls"]
        assert [call["tool_call_id"] for call in calls] == [f"c{number}" for number in range(CALLS)]
        assert {len(call["events"]) for call in calls} == {EVENTS // CALLS}
        told = (await service.client.get("/v1/chats/huge/messages")).json()["messages"]
        assert [message["tool_call_id"] for message in told] == [None, *(f"c{number}" for number in range(CALLS))]
