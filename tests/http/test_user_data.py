"""Export and deletion of a user's data; after the deletion nothing is left, also not of runs that were going on."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import select, update

from callboard._application import retention
from callboard.agents import RunContext
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import chats, metadata
from callboard_protocol import Done, Event, Message, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, Service, database_of, numbered, request, serving


async def looks(context: RunContext) -> AsyncIterator[Event]:
    async for event in begins_to_look(context):
        yield event
    yield Message(content="That is all.")


async def begins_to_look(context: RunContext) -> AsyncIterator[Event]:
    name = context.user.name if context.user else ""
    yield Message(content=f"Let me look, {name}.")
    yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"of": name})
    yield ToolCallComplete(tool_call_id="a", result=f"seen {name}")


async def never_ends(context: RunContext) -> AsyncIterator[Event]:
    async for event in begins_to_look(context):
        yield event
    await asyncio.Event().wait()


LOOKS = ScriptedAgent(looks)
NEVER_ENDS = ScriptedAgent(never_ends, "endless")


def body(user: str, **fields: Any) -> dict[str, Any]:
    return request(chat_id=f"{user}-chat", user={"id": user, "name": user}, **fields)


async def exported(service: Service, user: str) -> list[Any]:
    answer = await service.client.get("/v1/user-data", params={"user_id": user})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-store")
    return [json.loads(line) for line in answer.text.splitlines()]


async def check_nothing_names(database: Database, user: str) -> None:
    for table in metadata.sorted_tables:
        for row in await database.fetch(select(table)):
            assert user not in repr(tuple(row)), table.name


@pytest.mark.parametrize("query", ["", "?user_id=", "?user_id=ann&all=true"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_user_routes_require_a_user_id(tmp_path: Path, method: str, query: str) -> None:
    async with serving(tmp_path, LOOKS) as service:
        await service.events(request(chat_id="nobody's"))
        answer = await service.client.request(method, f"/v1/user-data{query}")
        assert answer.status_code == 422
        assert (await service.client.get("/v1/chats/nobody's/messages")).status_code == 200


FORGOTTEN = dict.fromkeys(("memory", "attribute", "self_note", "record", "response_item"), 0) | {
    "chat": 1,
    "run": 1,
}


@pytest.mark.parametrize("servers", [1, 2])
async def test_a_run_that_goes_on_is_ended_at_any_server_and_writes_nothing_more(tmp_path: Path, servers: int) -> None:
    async with AsyncExitStack() as closing:
        services = [await closing.enter_async_context(serving(tmp_path, NEVER_ENDS, LOOKS)) for _ in range(servers)]
        here, there = services[0], services[-1]
        await here.events(body("bob"))
        sent = body("anneliese", agent="endless", run_id="r")
        answer = await closing.enter_async_context(there.client.stream("POST", "/v1/runs", json=sent))
        events = numbered(answer)
        async for _, event in events:
            if isinstance(event, ToolCallComplete):
                break
        forgotten = await here.client.delete("/v1/user-data", params={"user_id": "anneliese"})
        assert forgotten.json() == {"user_id": "anneliese", "forgotten": FORGOTTEN}
        assert [event async for _, event in events][-1] == Done(finish_reason="cancelled")
        if servers == 1:
            # Nor is it in the memory of the server.
            gone = await here.client.get("/v1/runs/r/events", params={"user_id": "anneliese"})
            assert gone.status_code == 404
        await check_nothing_names(database_of(here), "anneliese")
        assert len(await exported(here, "bob")) == 5


async def test_the_inspector_of_no_server_shows_what_was_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path, LOOKS) as here, serving(tmp_path, LOOKS) as there:
        for service in (here, there):
            for chat_id in ("anneliese-chat", None):
                await service.events({**body("anneliese"), "chat_id": chat_id})
            await service.events(body("bob"))
        for service in (here, there):
            assert "anneliese" in (await service.client.get("/inspect/")).text
        await here.client.delete("/v1/user-data", params={"user_id": "anneliese"})
        here_now = (await here.client.get("/inspect/")).text
        assert "anneliese" not in here_now
        assert "bob-chat" in here_now
        # What was kept nowhere, nobody can know to be forgotten elsewhere.
        with anyio.fail_after(20):
            while "anneliese-chat" in (await there.client.get("/inspect/")).text:
                pass
        assert "bob-chat" in (await there.client.get("/inspect/")).text


async def test_no_byte_is_left_in_the_file_of_what_a_user_said(tmp_path: Path) -> None:
    said = (b"zebrafinch", b"pelicanbeak", b"ostrichplume")

    async def tells(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"of": "pelicanbeak"})
        yield ToolCallComplete(tool_call_id="a", result="seen zebrafinch " * 2_000)
        yield Message(content="An ostrichplume.")

    async with serving(tmp_path, ScriptedAgent(tells), keep_run_seconds=0) as service:
        question = [{"role": "user", "content": "Where is the flamingoask?"}]
        for number in range(12):
            sent = {**body("anneliese"), "chat_id": f"chat-{number % 5}", "messages": question}
            await service.events(sent)
            await service.events({**body("bob"), "chat_id": f"bob-{number}"})
        await service.state.store.memories("anneliese").add("likes the ostrichplume")
        before = {word: count_bytes(tmp_path, word) for word in (*said, b"flamingoask")}
        assert all(before.values())
        await service.client.delete("/v1/user-data", params={"user_id": "anneliese"})
        # While the server runs, in its file, its log and its indexes: bob has said the same words, and keeps his.
        assert count_bytes(tmp_path, b"flamingoask") == 0
        bob = await exported(service, "bob")
        assert sum(line.get("content") == "An ostrichplume." for line in bob) == 12
        await service.client.delete("/v1/user-data", params={"user_id": "bob"})
        assert {word: count_bytes(tmp_path, word) for word in said} == dict.fromkeys(said, 0)


def count_bytes(folder: Path, word: bytes) -> int:
    return sum(file.read_bytes().count(word) for file in folder.rglob("*") if file.is_file())


async def test_chats_are_dropped_in_the_background_once_their_days_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, LOOKS) as service:
        for user in ("anneliese", "bob"):
            await service.events(body(user))
        old = update(chats).where(chats.c.user_id == "anneliese").values(updated_at=time.time() - 31 * 86_400)
        await database_of(service).execute(old)
    monkeypatch.setattr(retention, "FIRST_ROUND_SECONDS", 0)
    async with serving(tmp_path, LOOKS, retention_days=30) as service:
        with anyio.fail_after(20):
            while await exported(service, "anneliese"):
                pass
        assert len(await exported(service, "bob")) == 5
