"""Any server of the database can read a run, and ends the run if its server is dead."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from callboard import Agent, tool
from callboard._endpoint_rules import NO_ANSWER
from callboard._history import HistoryCall, Turn
from callboard.agents import RunContext
from callboard.errors import RunLost
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql.tables import run_inputs, runs
from callboard.storage.values import GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallStart,
    UnreadMessage,
    UserMessage,
    encode,
)
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.runs.promises import check
from tests.scraping import scrape
from tests.serving import ScriptedAgent, Service, database_of, numbered, request, serving
from tests.storage.conftest import new_database
from tests.storage.trouble import locked_by_another_program, refusals
from tests.storage.turns import RecordedSteps

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.needs("postgresql")),
        pytest.param("postgresql redis", marks=pytest.mark.needs("postgresql", "redis")),
    ]
)
async def database_url(request: pytest.FixtureRequest, database: Path) -> str:
    """The URL of a new and empty database, whose servers may notify each other through a Redis."""
    kind, _, beside = request.param.partition(" ")
    if beside:
        request.getfixturevalue("redis_url")
    return await new_database(request, kind, database)


@dataclass
class Play:
    """An agent that waits in the middle of its answer and counts its runs."""

    going_on: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0

    async def script(self, _: RunContext) -> AsyncIterator[Event]:
        self.runs += 1
        yield Message(content="Let me look. ")
        yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"n": 1})
        await self.going_on.wait()
        yield ToolCallComplete(tool_call_id="a", result="found")
        yield Message(content="There it is.")


@asynccontextmanager
async def two_servers(folder: Path, database_url: str, play: Play) -> AsyncIterator[tuple[Service, Service]]:
    async with (
        serving(folder / "one", ScriptedAgent(play.script), database_url=database_url) as one,
        serving(folder / "other", ScriptedAgent(play.script), database_url=database_url) as other,
    ):
        yield one, other


def body(**fields: Any) -> dict[str, Any]:
    return request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"}, **fields)


TAKING_ITS_ID: list[dict[str, Any]] = [
    {"chat_id": "another chat"},
    {"user": {"id": "bob"}, "chat_id": "another chat"},
    # None of these runs would be stored.
    {"user": {"id": "bob"}},
    {"user": {"id": "bob"}, "chat_id": None, "message_id": None},
    {"user": None, "chat_id": None, "message_id": None},
    {"user": {"id": "bob"}, "task": "title_generation"},
]
"""The changes to the request of a run with which another user, or another chat, would take the id of the run."""


async def read_bytes(service: Service, after: int = 0) -> bytes:
    response = await service.client.get("/v1/runs/run/events", params={"after": after, "user_id": "ann"})
    assert response.status_code == 200, response.text
    return response.content


async def test_of_several_servers_one_runs_a_run_and_all_send_the_same_events(
    tmp_path: Path, database_url: str
) -> None:
    play = Play()
    async with two_servers(tmp_path, database_url, play) as (one, other):

        async def ask_other() -> tuple[bool, bool]:
            state = (await other.client.get("/v1/runs/run", params={"user_id": "ann"})).json()
            return state["ended"], state["listened_to"]

        own = asyncio.create_task(one.events(body()))
        seen: list[tuple[int, Event]] = []
        async with other.client.stream("POST", "/v1/runs", json=body()) as response:
            async for seq, event in numbered(response):
                seen.append((seq, event))
                if isinstance(event, ToolCallStart):
                    assert await ask_other() == (False, True)
                    # A server that starts takes no call of others for one that a crash has left.
                    async with serving(tmp_path / "third", ScriptedAgent(play.script), database_url=database_url):
                        play.going_on.set()
        assert [event for _, event in seen] == await own
        assert await ask_other() == (True, False)
        for after in range(len(seen)):
            assert await read_bytes(other, after) == await read_bytes(one, after)
        [call] = await one.state.store.chats("ann").timeline("chat")
        assert (call.result, call.error_code) == ("found", None)
    assert play.runs == 1
    assert isinstance(seen[-1][1], Done)
    check(seen)


async def test_ids_of_calls_are_kept_while_no_other_server_uses_the_database(tmp_path: Path, database_url: str) -> None:
    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="the model's", tool_name="look")
        yield ToolCallComplete(tool_call_id="the model's", result="seen")

    def serve(name: str) -> AbstractAsyncContextManager[Service]:
        return serving(tmp_path / name, ScriptedAgent(script), database_url=database_url)

    async def find_call_id(service: Service, chat_id: str) -> str:
        events = await service.events(request(chat_id=chat_id))
        [call_id] = [event.tool_call_id for event in events if isinstance(event, ToolCallStart)]
        return call_id

    async with serve("one") as one:
        assert await find_call_id(one, "alone") == "the model's"
        async with serve("other") as other:
            assert await find_call_id(other, "shared") != "the model's"


@ON_SQLITE
async def test_a_run_of_another_server_is_visible_only_to_its_user_and_its_id_is_taken(
    tmp_path: Path, database_url: str
) -> None:
    play = Play()
    play.going_on.set()
    async with two_servers(tmp_path, database_url, play) as (one, other):
        await one.events(body())
        for user in ({"user_id": "bob"}, {}):
            assert (await other.client.get("/v1/runs/run/events", params=user)).status_code == 404
        for changed in TAKING_ITS_ID:
            refused = await other.client.post("/v1/runs", json={**body(), **changed})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_conflict"), changed
        assert await read_bytes(other) == await read_bytes(one)
    assert play.runs == 1


@ON_SQLITE
async def test_a_run_whose_events_are_gone_is_not_started_again(tmp_path: Path, database_url: str) -> None:
    play = Play()
    play.going_on.set()
    async with two_servers(tmp_path, database_url, play) as (one, other):
        await one.events(body())
        assert await one.state.store.stored_runs("server").drop(ended_before_seconds=-1, max_user_bytes=10**9) == 1
        refused = await other.client.post("/v1/runs", json=body())
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_conflict")
        assert "its events are deleted" in refused.json()["error"]["message"]
        await other.events({**body(), "run_id": "another"})
    assert play.runs == 2


LOOK = chunks(text("I look. "), call("look", "{}", call_id="c1"), finish("tool_calls"))
SAID = [{"role": "assistant", "content": NO_ANSWER}, {"role": "user", "content": "Also the last row.\n\nBe quick."}]


@asynccontextmanager
async def two_servers_of_an_agent(
    folder: Path, database_url: str, model: OpenAIServer, going_on: asyncio.Event
) -> AsyncIterator[tuple[Service, Service]]:
    """Two servers of an agent whose tool `look` waits until the event."""

    @tool
    async def look() -> str:
        """Look."""
        await going_on.wait()
        return "found"

    settings = {"database_url": database_url, "model_base_url": model.base_url, "model": "m"}
    async with (
        serving(folder / "one", Agent("scripted", tools=[look]), **settings) as one,
        serving(folder / "other", Agent("scripted", tools=[look]), **settings) as other,
    ):
        yield one, other


async def say(service: Service, content: str, run_id: str = "run", user: str = "ann") -> httpx.Response:
    return await service.client.post(f"/v1/runs/{run_id}/messages", params={"user_id": user}, json={"content": content})


async def test_messages_to_a_run_are_read_in_order_after_the_round_and_replayed_there(
    tmp_path: Path, database_url: str
) -> None:
    answers = [LOOK, LOOK, chunks(text("There."), finish("stop")), chunks(text("Yes."), finish("stop"))]
    going_on = asyncio.Event()
    async with (
        OpenAIServer(answers) as model,
        two_servers_of_an_agent(tmp_path, database_url, model, going_on) as (one, other),
    ):
        seen: list[tuple[int, Event]] = []
        async with one.client.stream("POST", "/v1/runs", json=body()) as response:
            async for seq, event in numbered(response):
                seen.append((seq, event))
                if isinstance(event, ToolCallStart) and not going_on.is_set():
                    assert (await say(other, "No.", user="bob")).status_code == 404
                    accepted = [await say(other, "Also the last row."), await say(one, "Be quick.")]
                    assert [one.status_code for one in accepted] == [202, 202]
                    going_on.set()
        check(seen)
        said = [event for _, event in seen if isinstance(event, UserMessage)]
        assert [one.message_id for one in said] == [one.json()["message_id"] for one in accepted]
        late = await say(other, "And now?")
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run_ending")
        roles = [[message["role"] for message in asked["messages"]] for asked in model.requests[:3]]
        assert roles[1] == ["user", "assistant", "tool", "assistant", "user"]
        assert model.requests[1]["messages"][-2:] == SAID
        assert roles[2] == [*roles[1], "assistant", "tool"]
        # A client that sends only the text of the answer, with its id.
        answer = {"role": "assistant", "content": "I look. I look. There.", "id": "message"}
        asked = [*body()["messages"], answer, {"role": "user", "content": "Sure?"}]
        await other.events({**body(), "run_id": "next", "message_id": "next", "messages": asked})
        assert model.requests[-1]["messages"][3:5] == SAID
        assert [message["role"] for message in model.requests[-1]["messages"]] == [*roles[2], "assistant", "user"]
        rows = (await one.client.get("/v1/chats/chat/messages?user_id=ann")).json()["messages"]
        assert [row["content"] for row in rows if row["role"] == "user"][1:3] == ["Also the last row.", "Be quick."]
        assert "Also the last row." in (await one.client.get("/v1/user-data?user_id=ann")).text
        assert (await other.client.delete("/v1/user-data?user_id=ann")).is_success
        assert not await database_of(one).fetch(select(run_inputs))


async def test_every_message_that_any_server_accepts_is_read_also_at_the_end_of_the_run(
    tmp_path: Path, database_url: str
) -> None:
    going_on = asyncio.Event()
    async with (
        OpenAIServer(lambda _: chunks(text("Done."), finish("stop"))) as model,
        two_servers_of_an_agent(tmp_path, database_url, model, going_on) as (one, other),
    ):
        for number in range(3):
            run_id = f"run-{number}"
            model.is_asked.clear()
            model.may_answer.clear()
            asking = asyncio.create_task(one.events({**body(), "run_id": run_id, "message_id": run_id}))
            await model.is_asked.wait()
            first = await say(other, "first", run_id)
            model.may_answer.set()
            later = await asyncio.gather(*(say((one, other)[n % 2], str(n), run_id) for n in range(12)))
            events = await asking
            accepted = [one.json()["message_id"] for one in (first, *later) if one.status_code == 202]
            assert all(one.status_code in (202, 409) for one in later)
            read = [event.message_id for event in events if isinstance(event, UserMessage)]
            assert read == sorted(accepted)
            assert {"role": "assistant", "content": "Done."} in model.requests[-1]["messages"]
            assert model.requests[-1]["messages"][-1]["role"] == "user"
            assert isinstance(events[-1], Done)


async def test_a_message_that_a_server_has_accepted_before_it_stopped_is_read(
    tmp_path: Path, database_url: str
) -> None:
    async with OpenAIServer(lambda _: chunks(text("Done."), finish("stop"))) as model:
        model.may_answer.clear()
        settings = {"database_url": database_url, "model_base_url": model.base_url, "model": "m"}
        async with serving(tmp_path / "one", Agent("scripted"), **settings) as one:
            asking = asyncio.create_task(one.events(body()))
            await model.is_asked.wait()
            async with serving(tmp_path / "other", Agent("scripted"), **settings) as other:
                assert (await say(other, "Be quick.")).status_code == 202
            model.may_answer.set()
            assert [one.content for one in await asking if isinstance(one, UserMessage)] == ["Be quick."]


@pytest.mark.parametrize("fields", [{}, {"chat_id": None}])
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_message_that_the_agent_does_not_read_is_sent_back_before_the_end(
    tmp_path: Path, fields: dict[str, Any], is_stopped: bool
) -> None:
    play = Play()
    async with serving(tmp_path, ScriptedAgent(play.script)) as service:
        seen: list[tuple[int, Event]] = []
        async with service.client.stream("POST", "/v1/runs", json={**body(), **fields}) as response:
            async for seq, event in numbered(response):
                seen.append((seq, event))
                if isinstance(event, ToolCallStart):
                    accepted = await say(service, "My key is sk-123456789012345678901234. \x00")
                    # There is a limit for all messages together.
                    for content, status in (("", 422), (" \n", 422), ("x" * 65_500, 413)):
                        assert (await say(service, content)).status_code == status
                    if is_stopped:
                        await service.client.post("/v1/runs/run/cancel", params={"user_id": "ann"})
                    play.going_on.set()
        check(seen)
        [unread] = [event for _, event in seen if isinstance(event, UnreadMessage)]
        assert unread.message_id == accepted.json()["message_id"]
        assert unread.content == "My key is sk-123456789012345678901234. \ufffd"
        assert (await say(service, "Too late.")).status_code == 409


RUN = StoredRun("run", "agent", "chat", "message", "ann")


def frames(*contents: bytes, is_last: bool = False) -> list[StoredFrame]:
    return [StoredFrame(content, is_last=is_last and content == contents[-1]) for content in contents]


async def test_events_of_an_earlier_owner_are_refused_after_a_takeover(store: Store) -> None:
    gone = store.stored_runs("gone")
    heir = store.stored_runs("heir")
    async with gone.open(60, print):
        run = await gone.begin(RUN)
        await gone.append(run, frames(b"1", b"2"))
        assert await heir.take_over() == []
    assert await heir.take_over() == [replace(run, epoch=2, last_seq=2, losses=1)]
    assert await heir.take_over() == []
    # Also where the run returns to its first server.
    [again] = await gone.take_over()
    for refused, log in ((replace(run, last_seq=2), gone), (replace(again, epoch=2), heir)):
        with pytest.raises(RunLost):
            await log.append(refused, frames(b"3"))
    await gone.append(again, frames(b"end", is_last=True))
    assert await heir.read("run", 0, 1_000) == [b"1", b"2", b"end"]
    assert await heir.find(["run"]) == {"run": replace(again, last_seq=3, is_ended=True)}


async def test_call_rows_of_an_earlier_owner_are_refused_after_a_takeover(store: Store) -> None:
    heir = store.stored_runs("heir")
    steps = await RecordedSteps.open(store, Turn("chat", "run", "message", "ann", "hello"), "gone")
    await steps.begin()
    await steps.call_started(HistoryCall("a", "pay", "{}", 0, 0), "")
    [taken] = await heir.take_over()
    record = store.record(heir, taken, Turn("chat", "run", "message", "ann", None))
    await record.writer.restore()
    record.append(StoredFrame(b"end"), record.writer.rows.end_call("a", "Error: lost", "interrupted", None))
    await record.store()
    # Neither the call's end nor another call is stored by the server that has lost the run.
    await steps.call_ended("a", "paid", None, 5)
    await steps.call_started(HistoryCall("b", "pay", "{}", 1, 0), "")
    assert not steps.record.has_stored_all
    [call] = await store.chats("ann").timeline("chat")
    assert (call.tool_call_id, call.error_code) == ("a", "interrupted")


async def test_frames_that_are_written_once_more_after_a_lost_commit_are_there_once(store: Store) -> None:
    log = store.stored_runs("server")
    run = await log.begin(RUN)
    for _ in range(2):
        await log.append(run, frames(b"1", b"2"))
    assert await log.read("run", 0, 1_000) == [b"1", b"2"]


async def test_only_the_server_of_a_run_that_did_not_begin_forgets_it(store: Store) -> None:
    log = store.stored_runs("server")
    await log.begin(RUN)
    await store.stored_runs("other").delete("run")
    assert set(await log.find(["run"])) == {"run"}
    await log.delete("run")
    assert await log.find(["run"]) == {}


async def test_runs_that_ended_are_forgotten_after_their_time_and_the_oldest_of_a_user_with_too_large_logs(
    store: Store,
) -> None:
    log = store.stored_runs("server")
    for number, user in enumerate(["ann", "ann", "ann", "bob", None]):
        run = await log.begin(replace(RUN, run_id=f"run {number}", user_id=user))
        await log.append(run, [StoredFrame(b"x" * 60, files={"file": "y" * 40}, is_last=True)])
    going_on = await log.begin(replace(RUN, run_id="going on"))
    await log.append(going_on, frames(b"x" * 1_000))
    assert await log.drop(ended_before_seconds=60, max_user_bytes=200) == 1
    names = [*(f"run {number}" for number in range(5)), "going on"]
    assert set(await log.find(names)) == {*names} - {"run 0"}
    assert (await log.file("run 0", "file"), await log.file("run 1", "file")) == (None, "y" * 40)
    assert await log.drop(ended_before_seconds=-1, max_user_bytes=200) == 4
    assert set(await log.find(names)) == {"going on"}
    assert await log.read("run 1", 0, 1_000) == []


async def test_a_question_has_one_answer_whoever_gives_it(store: Store) -> None:
    owner = store.stored_runs("owner")
    other = store.stored_runs("other")
    run = await owner.begin(RUN)
    await owner.append(run, [StoredFrame(b"1", question="sure?")])
    assert await owner.signals(["run"]) == {}
    taken = await asyncio.gather(
        *(log.answer("run", "sure?", GivenAnswer(log is other, "phone")) for log in (owner, other) * 5)
    )
    assert taken.count(True) == 1
    assert not await other.answer("run", "never asked", GivenAnswer(True))
    assert not await other.answer("never begun", "sure?", GivenAnswer(True))
    signals = await owner.signals(["run", "never begun"])
    assert list(signals) == ["run"]
    assert signals["run"].answers == {"sure?": GivenAnswer(bool(taken.index(True) % 2), "phone")}
    assert not signals["run"].is_cancelled
    await other.cancel("run")
    assert (await owner.signals(["run"]))["run"].is_cancelled


async def test_a_run_is_cancelled_and_answered_at_any_server(tmp_path: Path, database_url: str) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        question = InputRequest(request_id="q", kind="input", title="Which?")
        yield Message(content=f"You said {await context.ask(question)}.")
        await asyncio.Event().wait()

    # With a long lease, the first server does not know yet that there is another.
    settings = {"database_url": database_url, "lease_seconds": 60.0}
    async with (
        serving(tmp_path / "one", ScriptedAgent(script), **settings) as one,
        serving(tmp_path / "other", ScriptedAgent(script), **settings) as other,
        asyncio.timeout(15),
    ):
        own = asyncio.create_task(one.events(body()))
        seen: list[tuple[int, Event]] = []

        async def ask(service: Service, what: str, given: Any = None, user: str = "ann") -> int:
            answer = await service.client.post(f"/v1/runs/run/{what}", json=given, params={"user_id": user})
            return answer.status_code

        async with other.client.stream("POST", "/v1/runs", json=body()) as response:
            async for number, event in numbered(response):
                seen.append((number, event))
                if isinstance(event, InputRequest):
                    given = {"request_id": "q", "value": "blue"}
                    assert await ask(other, "input", given, user="bob") == 404
                    assert await ask(other, "input", {**given, "request_id": "none"}) == 404
                    assert await ask(other, "input", given) == 202
                    assert [await ask(each, "input", given) for each in (one, other)] == [404, 404]
                if isinstance(event, Message):
                    assert await ask(other, "cancel", user="bob") == 404
                    assert await ask(other, "cancel") == 202
        check(seen)
        assert [event for _, event in seen] == await own
        assert [event.content for _, event in seen if isinstance(event, Message)] == ["You said blue."]
        assert seen[-1][1] == Done(finish_reason="cancelled")


@ON_SQLITE
@pytest.mark.slow
async def test_a_listener_at_another_server_keeps_a_run_alive(tmp_path: Path, database_url: str) -> None:
    play = Play()
    async with (
        serving(tmp_path / "one", ScriptedAgent(play.script), database_url=database_url, detach_grace_seconds=1) as one,
        serving(tmp_path / "other", ScriptedAgent(play.script), database_url=database_url) as other,
    ):
        async with one.client.stream("POST", "/v1/runs", json=body()) as own:
            await anext(own.aiter_bytes())
            url = "/v1/runs/run/events?user_id=ann&after=2"
            async with other.client.stream("GET", url) as followed:
                events = numbered(followed)
                assert isinstance((await anext(events))[1], ToolCallStart)
                await own.aclose()
                ending = asyncio.ensure_future(anext(events))
                # Longer than the grace: it is the listener elsewhere that keeps the run alive now.
                await asyncio.wait({ending}, timeout=2.5)
                assert not ending.done()
                play.going_on.set()
                rest = [(await ending)[1], *[event async for _, event in events]]
        assert [event.type for event in rest] == ["tool_call_complete", "message", "done"]


@ON_SQLITE
async def test_a_file_of_a_run_is_there_at_any_server(tmp_path: Path, database_url: str) -> None:
    url = "data:text/plain;base64," + b64encode(b"long " * 20_000).decode()

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="write")
        yield ToolCallComplete(tool_call_id="a", result="written", files=({"name": "a.txt", "url": url},))

    async with (
        serving(tmp_path / "one", ScriptedAgent(script), database_url=database_url) as one,
        serving(tmp_path / "other", ScriptedAgent(script), database_url=database_url) as other,
    ):
        [complete] = [event for event in await one.events(body()) if isinstance(event, ToolCallComplete)]
        path = complete.files[0]["url"]
        for service in (one, other):
            assert (await service.client.get(path, params={"user_id": "ann"})).content == b"long " * 20_000
            assert (await service.client.get(path, params={"user_id": "bob"})).status_code == 404
            assert (await service.client.get(f"{path}0", params={"user_id": "ann"})).status_code == 404


@ON_SQLITE
async def test_of_two_users_who_begin_a_run_with_one_id_at_once_one_has_it_and_no_row_is_left_of_the_other(
    tmp_path: Path, database_url: str, database: Path
) -> None:
    play = Play()
    async with serving(tmp_path, ScriptedAgent(play.script), database_url=database_url) as service:
        with refusals(1) as is_refused:
            async with locked_by_another_program(database):
                stored = asyncio.create_task(service.client.post("/v1/runs", json=body()))
                await is_refused.wait()
                unstored = request(run_id="run", user={"id": "bob"})
                async with service.client.stream("POST", "/v1/runs", json=unstored) as response:
                    await anext(numbered(response))
                assert not stored.done()
        for refused in (await stored, await service.client.post("/v1/runs", json=body())):
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_conflict")
        assert await service.state.store.stored_runs("server").find(["run"]) == {}
        play.going_on.set()
        assert (await service.client.get("/v1/runs/run?user_id=bob")).status_code == 200
    assert play.runs == 1


@ON_SQLITE
async def test_a_run_that_cannot_be_stored_is_begun_by_neither_of_two_servers(
    tmp_path: Path, database_url: str, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 0.1)
    play = Play()
    play.going_on.set()
    async with two_servers(tmp_path, database_url, play) as (one, other):
        async with locked_by_another_program(database):
            refused = await one.client.post("/v1/runs", json=body())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage")
        assert isinstance((await other.events(body()))[-1], Done)
    assert play.runs == 1


@ON_SQLITE
async def test_a_server_that_has_lost_a_run_starts_no_tool_and_shows_how_it_goes_on(
    tmp_path: Path, database_url: str
) -> None:
    is_lost = asyncio.Event()

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look. ")
        await is_lost.wait()
        yield ToolCallStart(tool_call_id="a", tool_name="pay")
        raise AssertionError("the tool has run")

    async with serving(tmp_path, ScriptedAgent(script), database_url=database_url) as service:
        heir = service.state.store.stored_runs("heir")
        async with service.client.stream("POST", "/v1/runs", json=body()) as response:
            async for _, event in numbered(response):
                if isinstance(event, Message):
                    await database_of(service).execute(update(runs).values(owner="heir", epoch=2))
                    is_lost.set()
        assert isinstance(event, Message)
        [left] = (await heir.find(["run"])).values()
        last = encode(left.last_seq + 1, Done())
        await heir.append(left, [StoredFrame(last, is_last=True)])
        assert await read_bytes(service, after=2) == last
        seen_by_prometheus = await scrape(service.client)
        assert seen_by_prometheus.sum("callboard_runs_left_total", agent="scripted") == 1
        assert seen_by_prometheus.sum("callboard_runs_total") == 0
