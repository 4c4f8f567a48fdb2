"""A stopping server loses nothing: its runs may end within the drain time, and the next server continues the others."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard import Agent, Skill, tool
from callboard.errors import RunLost
from callboard.models import Finish, ModelDelta, ModelRequest, ScriptedModel, TextDelta, ToolCallDelta
from callboard.runs.runs import MAX_LOSSES
from callboard.storage import Store, StoredFrame, StoredRun
from callboard.testing import Call, FakeModel
from callboard_protocol import (
    TERMINAL,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.processes import serving as forked
from tests.runs.killing import Killing, told
from tests.runs.promises import check, read
from tests.serving import ScriptedAgent, Service, numbered, request, serving
from tests.storage.test_carried_on_runs import AGENT, ANSWER, SOLD, answers
from tests.storage.test_shared_runs import Play, body, two_servers

pytestmark = pytest.mark.timeout(120)

TERM = signal.SIGTERM
INT = signal.SIGINT
HOPS = MAX_LOSSES + 1
CHATS = ("ann", "bob", "cid")


# ------------------------------------------------------------------------------------------- a server by itself


@dataclass
class Stopped(Killing):
    """The same, where the server is told to stop."""

    drain_seconds: float = 0
    code: int | None = None

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"DRAIN_SECONDS": str(self.drain_seconds)}

    async def read_until_it_stops(self, is_moment: Callable[[Event], bool], *signals: signal.Signals) -> None:
        """Read the stream to its end; at the moment send the signals, each once the server has heard the one before."""
        with forked(self.folder, **self._settings()) as (url, process):
            async with httpx.AsyncClient(timeout=None) as client:
                asked = request(agent="careful", run_id="run", chat_id="chat", message_id="m", user={"id": "ann"})
                async with client.stream("POST", f"{url}/v1/runs", json=asked) as response:
                    async for one in numbered(response):
                        self.seen.append(one)
                        if is_moment(one[1]):
                            for place, number in enumerate(signals):
                                while place and (await client.get(f"{url}/ready")).status_code != 503:
                                    pass
                                os.kill(process.pid, number)
            self.code = process.wait()


async def test_after_a_stop_in_the_middle_of_a_text_the_restarted_server_completes_the_text(tmp_path: Path) -> None:
    async with OpenAIServer(answers(SOLD, chunks(text("Seat 7 is"), ending="hang"), ANSWER)) as model:
        play = Stopped(tmp_path, model, AGENT)
        await play.read_until_it_stops(lambda event: event == Message(content="Seat 7 is"), signal.SIGTERM)
        assert play.code == -signal.SIGTERM
        assert not isinstance(play.events[-1], TERMINAL)
        messages = await play.go_on()
    check(play.seen)
    *_, taken_back, said, last = play.events
    assert isinstance(taken_back, Rewind)
    assert isinstance(said, Message)
    assert said.content == "Seat 7 is yours."
    assert last == Done()
    assert play.ran == ["sell 7"]
    assert told(model.requests[2]) == told(model.requests[1])
    assert messages[-1]["content"] == "Seat 7 is yours."


async def test_a_call_that_exceeds_the_drain_time_is_stopped_reported_and_not_run_again(tmp_path: Path) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([waiting, chunks(text("I do not know."), finish("stop"))]) as model:
        play = Stopped(tmp_path, model, AGENT, drain_seconds=0.2)
        await play.read_until_it_stops(lambda event: isinstance(event, ToolCallStart), signal.SIGTERM)
        assert isinstance(play.events[-1], ToolCallStart)
        await play.go_on()
    check(play.seen)
    *_, closed, said, last = play.events
    assert isinstance(closed, ToolCallError)
    assert closed.code == "interrupted"
    assert isinstance(said, Message)
    assert last == Done()
    assert play.ran == ["wait 7"]
    role, content = told(model.requests[1])[-1]
    assert role == "tool"
    assert "not known" in content


@pytest.mark.parametrize("signals", [[INT], [TERM, TERM], [TERM, INT]])
async def test_ctrl_c_and_a_second_signal_do_not_wait(tmp_path: Path, signals: list[signal.Signals]) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([waiting, ANSWER]) as model:
        play = Stopped(tmp_path, model, AGENT, drain_seconds=3600)
        await play.read_until_it_stops(lambda event: isinstance(event, ToolCallStart), *signals)
        assert isinstance(play.events[-1], ToolCallStart)
        await play.go_on()
    check(play.seen)
    assert isinstance(play.events[-1], Done)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_nothing_runs_is_immediate(tmp_path: Path, number: signal.Signals) -> None:
    with forked(tmp_path, DRAIN_SECONDS="3600") as (_, process):
        process.send_signal(number)
        process.wait()
    assert list(tmp_path.glob("*-server-*")) == []


# ------------------------------------------------------------------------------------------------- while it drains


async def stop(service: Service) -> "asyncio.Task[None]":
    """Tell the server to stop; return once balancers can see it, with what ends when its runs are left."""
    stopping = asyncio.create_task(service.app.stop())
    while (await service.client.get("/ready")).status_code != 503:
        pass
    return stopping


async def test_a_draining_server_serves_its_runs_and_takes_no_new_ones(
    tmp_path: Path,
) -> None:
    @tool(requires_confirmation=True)
    async def sell() -> str:
        """Sell a seat."""
        return "sold"

    seats = Skill("seats", "Sells.", tools=(sell,))
    agents = [Agent(name, skills=(seats,), model=FakeModel([Call("sell")], "Sold.")) for name in ("one", "other")]
    async with serving(tmp_path, *agents, drain_seconds=3600) as service:
        assert (await service.client.get("/ready")).json() == {"status": "ready"}
        asked = {name: asyncio.Event() for name in ("one", "other")}
        questions: dict[str, str] = {}

        async def listen(name: str) -> list[tuple[int, Event]]:
            seen = []
            ours = request(agent=name, run_id=name, chat_id=name)
            async with service.client.stream("POST", "/v1/runs", json=ours) as response:
                async for one in numbered(response):
                    seen.append(one)
                    if isinstance(one[1], InputRequest):
                        questions[name] = one[1].request_id
                        asked[name].set()
            return seen

        listeners = [asyncio.create_task(listen(name)) for name in asked]
        for event in asked.values():
            await event.wait()
        stopping = await stop(service)

        refused = await service.client.post("/v1/runs", json=request(agent="one", chat_id="third"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert int(refused.headers["Retry-After"]) > 0
        assert (await service.client.get("/health")).status_code == 200
        attached = asyncio.create_task(service.events(request(agent="one", run_id="one", chat_id="one")))
        resumed = asyncio.create_task(service.client.get("/v1/runs/other/events"))
        assert (await service.client.post("/v1/runs/other/cancel")).status_code == 202
        answer = {"request_id": questions["one"], "value": True}
        assert (await service.client.post("/v1/runs/one/input", json=answer)).status_code == 202
        one, other = await asyncio.gather(*listeners)
        assert [event for _, event in one] == await attached
        assert read((await resumed).content) == other
        await stopping
    assert one[-1][1] == Done()
    assert [event.result for _, event in one if isinstance(event, ToolCallComplete)] == ["sold"]
    assert other[-1][1] == Done(finish_reason="cancelled")


async def test_an_unstored_run_ends_with_an_error(tmp_path: Path) -> None:
    async def script(_: Any) -> AsyncIterator[Event]:
        yield Message(content="Well…")
        await asyncio.Event().wait()

    agent = ScriptedAgent(script)
    async with serving(tmp_path, agent, drain_seconds=0) as service:
        begun: asyncio.Queue[None] = asyncio.Queue()

        async def listen(**fields: Any) -> list[Event]:
            events = []
            async with service.client.stream("POST", "/v1/runs", json=request(**fields)) as response:
                async for _, event in numbered(response):
                    events.append(event)
                    if isinstance(event, Message):
                        begun.put_nowait(None)
            return events

        # A chat that is not saved, a background task, and an agent of which nobody knows whether it can go on.
        asked: tuple[dict[str, Any], ...] = ({}, {"chat_id": "c", "task": "title_generation"}, {"chat_id": "d"})
        listeners = [asyncio.create_task(listen(**fields)) for fields in asked]
        for _ in asked:
            await begun.get()
        await service.app.stop()
        for events in await asyncio.gather(*listeners):
            assert isinstance(events[-1], Error)
            assert events[-1].code == "interrupted"


async def test_followers_of_another_servers_run_are_disconnected_and_resume_there(
    tmp_path: Path, database_url: str
) -> None:
    play = Play()
    begun = asyncio.Event()

    async def listen(service: Service) -> bytes:
        seen = b""
        async with service.client.stream("POST", "/v1/runs", json=body()) as response:
            async for chunk in response.aiter_bytes():
                seen += chunk
                if b"tool_call_start" in seen:
                    begun.set()
        return seen

    async with two_servers(tmp_path, database_url, play) as (one, other):
        own = asyncio.create_task(listen(one))
        await begun.wait()
        begun.clear()
        following = asyncio.create_task(listen(other))
        await begun.wait()
        await other.app.stop()
        followed = await following
        play.going_on.set()
        after: dict[str, Any] = {"after": read(followed)[-1][0], "user_id": "ann"}
        rest = await one.client.get("/v1/runs/run/events", params=after)
        assert followed + rest.content == await own
        refused = await other.client.get("/v1/runs/run/events", params=after)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")


# ------------------------------------------------------------------------------------------------ rolling restarts


@dataclass
class Steady:
    """An agent that works in steps; each odd one is held up until its server is stopped."""

    ran: list[tuple[str, int]] = field(default_factory=list)
    held_up: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def make_agent(self) -> Agent:
        @tool
        async def work(chat: str, step: int) -> str:
            """Work.

            Args:
                chat: Whose it is.
                step: Which it is.
            """
            self.ran.append((chat, step))
            if step % 2:
                async with self._held_up(chat):
                    await asyncio.Event().wait()
            return f"done {step}"

        return Agent("steady", skills=(Skill("work", "Works.", tools=(work,)),), model=ScriptedModel(self._script))

    @asynccontextmanager
    async def _held_up(self, chat: str) -> AsyncIterator[None]:
        async with self.changed:
            self.held_up.add(chat)
            self.changed.notify_all()
        try:
            yield
        finally:
            self.held_up.discard(chat)

    def _script(self, asked: ModelRequest) -> Iterator[ModelDelta]:
        [chat] = [message["content"] for message in asked.messages if message["role"] == "user"]
        step = 1 + sum(message["role"] == "tool" for message in asked.messages)
        if step > 2 * HOPS:
            yield TextDelta("All is done.")
            return
        yield TextDelta(f"Step {step}. ")
        arguments = f'{{"chat": "{chat}", "step": {step}}}'
        yield ToolCallDelta(0, id=f"{chat}-{step}", name="work", arguments=arguments)
        yield Finish("tool_calls")

    async def wait_until_all_are_held_up(self) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.held_up) == len(CHATS))


@dataclass
class Fleet:
    """The servers behind a balancer, which asks them whether they take runs; who is cut off asks for another."""

    client: httpx.AsyncClient
    servers: list[Service] = field(default_factory=list)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the answer, not read yet, of a server that is ready."""
        while True:
            for server in tuple(self.servers):
                address = server.client.base_url
                if (await self.client.get(address.join("/ready"))).status_code == 200:
                    return await self.client.send(
                        self.client.build_request(method, address.join(path), **options), stream=True
                    )

    async def listen(self, chat: str) -> bytes:
        """Return a run's whole stream, however many connections it takes."""
        asked = {"agent": "steady", "run_id": chat, "chat_id": chat, "messages": [{"role": "user", "content": chat}]}
        response = await self.send("POST", "/v1/runs", json=asked)
        seen = b""
        while True:
            assert response.status_code == 200
            async for chunk in response.aiter_bytes():
                seen += chunk
            await response.aclose()
            after, last = read(seen)[-1]
            if isinstance(last, TERMINAL):
                return seen
            response = await self.send("GET", f"/v1/runs/{chat}/events", params={"after": after})


@pytest.mark.slow
async def test_a_rolling_restart_loses_nothing_to_the_byte_however_often(tmp_path: Path, database_url: str) -> None:
    steady = Steady()

    async def start(number: int) -> tuple[Service, AsyncExitStack]:
        settings = {"database_url": database_url, "drain_seconds": 0, "max_tool_calls_per_turn": 2 * HOPS + 1}
        stack = AsyncExitStack()
        service = await stack.enter_async_context(serving(tmp_path / str(number), steady.make_agent(), **settings))
        fleet.servers.append(service)
        return service, stack

    async with httpx.AsyncClient(timeout=None) as client:
        fleet = Fleet(client)
        server, stack = await start(0)
        listeners = [asyncio.create_task(fleet.listen(chat)) for chat in CHATS]
        for number in range(1, HOPS + 1):
            await steady.wait_until_all_are_held_up()
            following = await start(number)
            fleet.servers.remove(server)
            await server.app.stop()
            await stack.aclose()
            server, stack = following
        seen = await asyncio.gather(*listeners)
        async with stack:
            for chat, stream in zip(CHATS, seen, strict=True):
                kept = await server.client.get(f"/v1/runs/{chat}/events")
                assert kept.content == stream
                check(read(stream))
                assert isinstance(read(stream)[-1][1], Done)
    assert sorted(steady.ran) == [(chat, step) for chat in CHATS for step in range(1, 2 * HOPS + 1)], "each ran once"


# ------------------------------------------------------------------------------------------------------- its parts


async def test_a_released_run_can_be_taken_by_any_server_and_its_owner_cannot_write(store: Store) -> None:
    here = store.stored_runs("here")
    heir = store.stored_runs("heir")
    frames = [StoredFrame(b"1")]
    async with here.open(60, lambda _: None):
        run = await here.begin(StoredRun("run", "agent", "chat", "message", "ann"))
        assert await heir.take_over() == []
        await here.hand_over(run)
        with pytest.raises(RunLost):
            await here.append(run, frames)
        with pytest.raises(RunLost):
            await here.hand_over(run)
        [taken] = await heir.take_over()
        assert (taken.losses, taken.epoch > run.epoch) == (0, True)
        await heir.append(taken, frames)
        # One that is lost counts: what kills each server that runs it is given up.
        [taken] = await here.take_over()
        assert taken.losses == 1


async def test_a_run_that_is_stored_incompletely_ends_with_an_error(tmp_path: Path, database: Path) -> None:
    going_on = asyncio.Event()

    async def script(_: Any) -> AsyncIterator[Event]:
        yield Message(content="Well. ")
        await going_on.wait()
        yield Message(content="And so on. ")
        await asyncio.Event().wait()

    @dataclass(frozen=True)
    class Going(ScriptedAgent):
        on_owner_loss: str = "continue"

    url = f"sqlite+aiosqlite:///{database}"
    async with serving(tmp_path, Going(script), drain_seconds=0, database_url=url) as service:
        events: list[Event] = []
        async with service.client.stream("POST", "/v1/runs", json=body()) as response:
            async for _, event in numbered(response):
                events.append(event)
                if event == Message(content="Well. "):
                    with closing(sqlite3.connect(database)) as connection:
                        connection.execute("ALTER TABLE events RENAME TO lost")
                    going_on.set()
                if event == Message(content="And so on. "):
                    stopping = asyncio.create_task(service.app.stop())
        await stopping
    assert isinstance(events[-1], Error)
    assert events[-1].code == "interrupted"
