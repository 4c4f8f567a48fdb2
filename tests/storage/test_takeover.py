"""The rules of a takeover: what becomes of a run whose server was killed or has stopped, by the state of the run."""

import asyncio
import re
import sqlite3
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import update
from sqlalchemy.engine import Engine

from callboard import Agent, Skill, tool
from callboard._history import HistoryCall, RowChange, Turn, TurnRows
from callboard.agents import AgentLike, RunContext
from callboard.errors import RunLost
from callboard.runs.conversation import pack_request
from callboard.runs.left_runs import NOT_STARTED, STOPPED_DURING_ANSWER
from callboard.runs.runs import MAX_LOSSES
from callboard.storage import Store
from callboard.storage.rows import INTERRUPTED_CALL
from callboard.storage.sql.tables import runs
from callboard.storage.values import GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    RunRequest,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    ToolStatusData,
    UnreadMessage,
    UserMessage,
    encode,
)
from callboard_protocol.events import APPROVAL_PREFIX
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.processes import run
from tests.runs.promises import check
from tests.scraping import scrape
from tests.serving import ScriptedAgent, Service, numbered, request, serving
from tests.storage.conftest import new_database

# ---------------------------------------------------------------------------------------------- the state of the run


class Seats:
    """The agent of one server, and the calls that its tools have run. The tool `stuck` never returns."""

    def __init__(self, stuck: str = "") -> None:
        self.ran: list[str] = []
        self.is_stuck = asyncio.Event()
        self._stuck = stuck

    async def _note(self, name: str, seat: int) -> None:
        self.ran.append(f"{name} {seat}")
        if name == self._stuck:
            self.is_stuck.set()
            await asyncio.Event().wait()

    def agent(self) -> Agent:
        @tool
        async def sell(seat: int) -> str:
            """Sell a seat."""
            await self._note("sell", seat)
            return f"Seat {seat} is sold."

        @tool(read_only=True)
        async def look(seat: int) -> str:
            """Look whether a seat is free."""
            await self._note("look", seat)
            return f"Seat {seat} is free."

        @tool(repeatable=True)
        async def reserve(seat: int) -> str:
            """Reserve a seat."""
            await self._note("reserve", seat)
            return f"Seat {seat} is reserved."

        @tool(requires_confirmation=True)
        async def refund(seat: int) -> str:
            """Pay a seat back."""
            await self._note("refund", seat)
            return f"Seat {seat} is paid back."

        @tool
        async def give(seat: int) -> str:
            """Give whoever sits there a present."""
            await self._note("give", seat)
            return f"Seat {seat} is happy."

        seats = Skill("seats", "Sells seats.", tools=[sell, look, reserve, refund])
        return Agent("careful", skills=[seats, Skill("presents", "Gives.", tools=[give], max_tool_calls=1)])


def calls(*names: str, said: str = "", seat: int = 7) -> Answer:
    """An answer of the model: calls of these tools for a seat and the seats after it."""
    wanted = [
        call(name, f'{{"seat": {seat + place}}}', index=place, call_id=f"c{seat + place}")
        for place, name in enumerate(names)
    ]
    return chunks(text(said, reasoning_content="Free?"), *wanted, finish("tool_calls"))


def says(*pieces: str) -> Answer:
    """An answer of the model that is not completed."""
    return chunks(*map(text, pieces), ending="hang")


ANSWER = chunks(text("Seat 7 is yours."), finish("stop"))
WEATHER = {"openwebui_tools": [{"name": "weather", "description": "Tells the weather."}]}


def is_(kind: type[Event], said: str = "") -> Callable[[Event], bool]:
    """Return what recognises an event of this class, with this text."""
    return lambda event: isinstance(event, kind) and said in event.model_dump_json()


async def nothing(_: Store) -> None:
    """Nobody does anything while no server runs."""


def given(value: object, request_id: str = f"{APPROVAL_PREFIX}c7") -> Callable[[Store], Awaitable[None]]:
    """A client answers a question while no server runs."""

    async def answer(store: Store) -> None:
        assert await store.stored_runs("client").answer("run", request_id, GivenAnswer(value))

    return answer


async def cancelled(store: Store) -> None:
    """A client cancels the run while no server runs."""
    await store.stored_runs("client").cancel("run")


def changed(**values: Any) -> Callable[[Store], Awaitable[None]]:
    """The row of the run gets other values."""

    async def change(store: Store) -> None:
        await store.database.execute(update(runs).values(**values))

    return change


DONE = Done()


@dataclass(frozen=True)
class State:
    """The state of a run when its server goes, and what the next server makes of it.

    `answers` are the model's before the server goes, `later` those at the next server; `moment` is the last event
    before, and `stuck` is the tool that is running then. `after` are the types of the events of the next server,
    and `ran` the calls that its tools run. `told` ends what its model is told first, None if it is not asked.
    """

    answers: Sequence[Answer]
    moment: Callable[[Event], bool]
    after: str
    ran: Sequence[str] = ()
    told: str | None = "hi"
    later: Sequence[Answer] = (ANSWER,)
    stuck: str = ""
    meanwhile: Callable[[Store], Awaitable[None]] = nothing
    replies: Mapping[type[Event], object] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    last: Event = DONE
    said: Sequence[str] = ("Seat 7 is yours.",)
    """The assistant's texts of the chat in the end."""
    results: Sequence[str] | None = None
    """The arguments and results of the chat's calls in the end, where the model is not told them."""


INTERRUPTED = f"Error: {INTERRUPTED_CALL}"
HALF = is_(Message, "Seat 7 is")
STARTS = is_(ToolCallStart)
ENDS = is_(ToolCallComplete)
ASKS = is_(InputRequest)
SOLD = (calls("sell", said="I sell it. "), says("Seat 7 is"))
KEPT = ("I sell it. ", "Seat 7 is")
AGREES: Mapping[type[Event], object] = {InputRequest: True}
CANCELLED = Done(finish_reason="cancelled")
UNTOLD = ("tool:status", "reasoning", "tool_call_args_delta")
"""Types of events that the table leaves out."""

STATES = {
    # Text and calls that the model had not finished are taken back, and the model is asked once more.
    "before the first word": State([says()], is_(RunStart), "message done"),
    "in the arguments": State(
        [chunks(call("sell", '{"seat"', call_id="c1"), ending="hang")], is_(ToolCallArgsDelta), "rewind message done"
    ),
    "after a call": State([calls("sell"), says()], ENDS, "message done", told="Seat 7 is sold."),
    "in a text after a call": State(
        SOLD, HALF, "rewind message done", told="Seat 7 is sold.", said=("I sell it. ", "Seat 7 is yours.")
    ),
    # An open call does not run again, unless that is safe.
    "in a call": State([calls("sell")], STARTS, "tool_call_error message done", told=INTERRUPTED, stuck="sell"),
    "in a call that only reads, counted once": State(
        [calls("look")],
        STARTS,
        "tool_call_complete message done",
        ["look 7"],
        "Seat 7 is free.",
        stuck="look",
        settings={"max_user_calls_per_day": 1},
    ),
    "in a call beside one that has ended": State(
        [calls("sell", "reserve")],
        ENDS,
        "tool_call_complete message done",
        ["reserve 8"],
        "Seat 8 is reserved.",
        stuck="reserve",
    ),
    "in an approved call with changed arguments": State(
        [calls("refund")],
        is_(ToolStatus, "changed"),
        "tool_call_error message done",
        told=INTERRUPTED,
        stuck="refund",
        replies={InputRequest: {"arguments": {"seat": 8}}},
        results=[f'{{"seat":8}} {INTERRUPTED}'],
    ),
    # A question is asked again, by the same id, and its answer counts.
    "at a question": State(
        [calls("refund")],
        ASKS,
        "input_request tool_call_complete message done",
        ["refund 7"],
        "Seat 7 is paid back.",
        replies=AGREES,
    ),
    "at a question, answered meanwhile": State(
        [calls("refund")],
        ASKS,
        "tool_call_complete message done",
        ["refund 8"],
        'It ran with {"seat":8}\n\nSeat 8 is paid back.',
        meanwhile=given({"arguments": {"seat": 8}}),
    ),
    "at a request for a tool of Open WebUI, answered meanwhile": State(
        [calls("weather")],
        is_(ToolRequest),
        "tool_call_complete message done",
        told="Sunny.",
        asked=WEATHER,
        meanwhile=given({"text": "Sunny."}, "tool:c7"),
    ),
    # What has counted before counts on.
    "before the calls of a skill exceed its limit": State(
        [calls("give"), says("And")],
        is_(Message, "And"),
        "rewind tool_call_start tool_call_error message done",
        told="Seat 7 is happy.",
        later=[calls("give", seat=8), ANSWER],
    ),
    # A run that cannot be continued ends: its calls are closed, its text stays.
    "cancelled meanwhile": State(SOLD, HALF, "done", told=None, meanwhile=cancelled, last=CANCELLED, said=KEPT),
    "older than a run may be": State(
        SOLD,
        HALF,
        "error",
        told=None,
        meanwhile=changed(begun_at=runs.c.begun_at - 3600),
        last=STOPPED_DURING_ANSWER,
        said=KEPT,
    ),
    "lost too often": State(
        SOLD, HALF, "error", told=None, meanwhile=changed(losses=MAX_LOSSES), last=STOPPED_DURING_ANSWER, said=KEPT
    ),
    "after a call of a function of the client": State(
        [calls("ring", "sell")],
        STARTS,
        "tool_call_error error",
        told=None,
        stuck="sell",
        asked={"functions": [{"name": "ring"}]},
        last=STOPPED_DURING_ANSWER,
        said=(),
        results=[f'{{"seat": 7}} Error: {NOT_STARTED}', f'{{"seat": 8}} {INTERRUPTED}'],
    ),
}


class Play:
    """A run whose server goes in a state, and which the next server ends."""

    def __init__(self, folder: Path, state: State) -> None:
        self.seen: list[tuple[int, Event]] = []
        self.rows: list[dict[str, Any]] = []
        self.first = Seats(state.stuck)
        self.next = Seats()
        self._folder = folder
        self._state = state

    async def play(self, model: OpenAIServer, how: str) -> list[Event]:
        """Return the events of the next server; `how` says how the first one goes."""
        settings = {"model_base_url": model.base_url, "model": "m", "input_timeout_seconds": 30.0}
        gone = self._folder / "gone"
        after = self._folder / "next" if how == "killed" else gone
        async with serving(gone, self.first.agent(), drain_seconds=0, **settings) as service:
            names = {"agent": "careful", "run_id": "run", "chat_id": "chat", "message_id": "message"}
            asked = request(**names, user={"id": "ann"}, **self._state.asked)
            await self._read(service, "POST", "/v1/runs", asked, self._state.moment)
            if self._state.stuck:
                await self.first.is_stuck.wait()
            if isinstance(self.seen[-1][1], RunStart):
                await model.hanging.wait()
            await wait_until_stored(service, self.seen[-1][0])
            if how == "killed":
                copy(gone / "callboard.db", after / "callboard.db")
        count = len(self.seen)
        store = await Store.open(f"sqlite:///{after / 'callboard.db'}")
        await self._state.meanwhile(store)
        await store.close()
        async with serving(after, self.next.agent(), **settings, **self._state.settings) as service:
            await self._read(service, "GET", f"/v1/runs/run/events?user_id=ann&after={count}")
            self.rows = (await service.client.get("/v1/chats/chat/messages?user_id=ann")).json()["messages"]
            scraped = await scrape(service.client)
            assert scraped.sum("callboard_runs_taken_over_total", agent="careful") == 1
            assert scraped.sum("callboard_runs_total", agent="careful") == 1
        return [event for _, event in self.seen[count:]]

    async def _read(
        self,
        service: Service,
        method: str,
        url: str,
        body: Any = None,
        is_last: Callable[[Event], bool] = lambda _: False,
    ) -> None:
        async with service.client.stream(method, url, json=body) as response:
            assert response.status_code == 200, await response.aread()
            async for one in numbered(response):
                self.seen.append(one)
                if is_last(one[1]):
                    return
                if isinstance(one[1], InputRequest | ToolRequest):
                    answer = {"request_id": one[1].request_id, "value": self._state.replies[type(one[1])]}
                    given = await service.client.post("/v1/runs/run/input?user_id=ann", json=answer)
                    assert given.status_code == 202


def copy(database: Path, other: Path) -> None:
    """Copy a database as a kill of its server would leave it now: with what is committed."""
    other.parent.mkdir()
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)


async def wait_until_stored(service: Service, seq: int) -> None:
    stored_runs = service.state.store.stored_runs("any")
    while (await stored_runs.find(["run"]))["run"].last_seq < seq:
        pass


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "killed") for name in STATES),
        # A server that stops ends what goes on in its agents, which must not count as an end.
        *(
            (name, "stopped")
            for name in ("in a text after a call", "in a call", "at a question", "cancelled meanwhile")
        ),
    ],
)
async def test_run_continues_from_its_state_and_no_call_runs_twice(tmp_path: Path, name: str, how: str) -> None:
    state = STATES[name]
    async with OpenAIServer([*state.answers, *state.later]) as model:
        play = Play(tmp_path, state)
        after = await play.play(model, how)
    check(play.seen)
    assert " ".join(event.type for event in after if event.type not in UNTOLD) == state.after
    assert after[-1] == state.last
    assert play.next.ran == list(state.ran)
    told = [one["messages"] for one in model.requests[len(state.answers) :]]
    assert bool(told) == (state.told is not None)
    if told:
        assert str(told[0][-1]["content"]).endswith(str(state.told))
        # The calls of a round stay in one message, also where one of them ends at the next server.
        assert [one["reasoning_content"] for one in told[0] if one.get("tool_calls")] in ([], ["Free?"])
    events = [event for _, event in play.seen]
    # Whoever was asked before may still answer.
    assert len({event.request_id for event in events if isinstance(event, InputRequest | ToolRequest)}) <= 1
    rounds = [event.round_index or 0 for event in events if isinstance(event, ToolCallStart)]
    assert max(rounds, default=0) == state.after.count("tool_call_start")
    assert [row["content"] for row in play.rows if row["role"] == "assistant" and row["content"]] == list(state.said)
    results = [f"{row['arguments']} {row['tool_output']}" for row in play.rows if row["role"] == "tool"]
    assert state.results in (None, results)


async def test_each_message_that_a_killed_server_has_accepted_is_read_once(tmp_path: Path) -> None:
    seen: list[tuple[int, Event]] = []
    async with OpenAIServer([calls("look"), says("Seat"), ANSWER]) as model:
        settings = {"model_base_url": model.base_url, "model": "m"}
        names = {"agent": "careful", "run_id": "run", "chat_id": "chat", "message_id": "message"}
        model.may_answer.clear()
        async with serving(tmp_path / "gone", Seats().agent(), drain_seconds=0, **settings) as service:

            async def say(content: str) -> None:
                said = await service.client.post("/v1/runs/run/messages?user_id=ann", json={"content": content})
                assert said.status_code == 202

            async with service.client.stream("POST", "/v1/runs", json=request(**names, user={"id": "ann"})) as response:
                async for one in numbered(response):
                    seen.append(one)
                    if isinstance(one[1], RunStart):
                        await model.is_asked.wait()
                        await say("By the window.")
                        model.may_answer.set()
                    if isinstance(one[1], Message):
                        await say("And quickly.")
                        break
            await wait_until_stored(service, seen[-1][0])
            copy(tmp_path / "gone" / "callboard.db", tmp_path / "next" / "callboard.db")
        async with serving(tmp_path / "next", Seats().agent(), **settings) as service:
            url = f"/v1/runs/run/events?user_id=ann&after={len(seen)}"
            async with service.client.stream("GET", url) as response:
                seen += [one async for one in numbered(response)]
            rows = (await service.client.get("/v1/chats/chat/messages?user_id=ann")).json()["messages"]
    check(seen)
    shown = [event.type for _, event in seen if isinstance(event, UserMessage | Message | Rewind)]
    assert shown == ["user_message", "message", "rewind", "user_message", "message"]
    told = model.requests[2]["messages"]
    assert told[:-1] == model.requests[1]["messages"][:-1]
    assert told[-1] == {"role": "user", "content": "By the window.\n\nAnd quickly."}
    texts = [row["content"] for row in rows if row["role"] != "tool" and row["content"]]
    assert texts == ["hi", "By the window.", "And quickly.", "Seat 7 is yours."]


# ------------------------------------------------------------------------------------------------ agents by hand


@dataclass(frozen=True)
class Own(ScriptedAgent):
    """An agent by hand that says what becomes of its runs."""

    on_owner_loss: str = "continue"


async def leave(folder: Path, agent: AgentLike, is_last: Callable[[Event], bool]) -> list[tuple[int, Event]]:
    """Return the events of a run up to the last before its server is killed; the database is then in `next`."""
    async with serving(folder / "gone", agent, drain_seconds=0) as service:
        body = request(run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
        seen = []
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for one in numbered(response):
                seen.append(one)
                if is_last(one[1]):
                    break
        await wait_until_stored(service, seen[-1][0])
        copy(folder / "gone" / "callboard.db", folder / "next" / "callboard.db")
    return seen


async def read_rest(folder: Path, agent: AgentLike, after: int = 0, **settings: Any) -> list[tuple[int, Event]]:
    """Return the events of the run at the next server."""
    async with serving(folder, agent, **settings) as service:
        async with service.client.stream("GET", f"/v1/runs/run/events?user_id=ann&after={after}") as response:
            assert response.status_code == 200
            return [one async for one in numbered(response)]


async def talks(context: RunContext) -> AsyncIterator[Event]:
    """Begin two calls of which one never ends and write text beside; where they have ended, only write."""
    if context.messages[-1]["role"] == "tool":
        yield Message(content="I do not know.")
        return
    for call_id in ("a", "b"):
        yield ToolCallStart(tool_call_id=call_id, tool_name="sell")
    yield Message(content="It is free. ")
    yield ToolCallComplete(tool_call_id="b", result="free")
    yield Message(content="I wait for ")
    yield ToolStatus(tool_call_id="a", data=ToolStatusData(status="processing"))
    await asyncio.Event().wait()


async def test_text_written_while_a_call_was_open_is_taken_back_before_the_call_ends(tmp_path: Path) -> None:
    seen = await leave(tmp_path, Own(talks), is_(ToolStatus))
    rest = await read_rest(tmp_path / "next", Own(talks), len(seen))
    check([*seen, *rest])
    # A `rewind` keeps the text before the end of another call.
    assert [event.type for _, event in rest] == ["rewind", "tool_call_error", "message", "done"]


@pytest.mark.parametrize("agent", [ScriptedAgent(talks), Own(talks, on_owner_loss="end")], ids=["unsaid", "end"])
async def test_run_of_an_agent_that_does_not_say_that_it_can_continue_is_ended(
    tmp_path: Path, agent: AgentLike
) -> None:
    seen = await leave(tmp_path, agent, is_(ToolStatus))
    store = await Store.open(f"sqlite:///{tmp_path / 'next' / 'callboard.db'}")
    message_id, _ = await store.stored_runs("client").add_message("run", "Hurry.")
    await store.close()
    rest = await read_rest(tmp_path / "next", agent, len(seen))
    check([*seen, *rest])
    [(_, closed), (_, unread), (_, last)] = rest
    assert unread == UnreadMessage(message_id=str(message_id), content="Hurry.")
    assert isinstance(closed, ToolCallError)
    assert isinstance(last, Error)
    assert (closed.code, last.code, "'scripted' cannot continue" in last.message) == (
        "interrupted",
        "interrupted",
        True,
    )


# --------------------------------------------------------------------------------- killed between two transactions


Append = Callable[[TurnRows], Iterator[tuple[Event | None, Sequence[RowChange]]]]


@asynccontextmanager
async def left_run(folder: Path, packed: bytes | None = None) -> AsyncIterator[tuple[str, StoredRun, Store]]:
    """Begin a run of a server that is gone; `packed` is its request, if not the usual one."""
    url = f"sqlite:///{folder / 'callboard.db'}"
    body = request(agent="careful", run_id="run", chat_id="chat", message_id="message", user={"id": "ann"})
    store = await Store.open(url)
    packed = packed or pack_request(RunRequest.model_validate(body).model_dump())
    yield (
        url,
        await store.stored_runs("gone").begin(StoredRun("run", "careful", "chat", "message", "ann"), packed),
        store,
    )
    await store.close()


async def go_on(folder: Path, model: OpenAIServer, left: Append, **settings: Any) -> list[Event]:
    """Return all events of a run whose server was killed once these events and changes were stored."""
    async with left_run(folder) as (url, run, store):
        record = store.record(store.stored_runs("gone"), run, Turn("chat", "run", "message", "ann", None, place=1))
        seq = 0
        for event, changes in left(record.writer.rows):
            seq += event is not None
            record.append(StoredFrame(encode(seq, event)) if event else None, changes)
        await record.store()
    settings |= {"database_url": url, "model_base_url": model.base_url, "model": "m"}
    found = await read_rest(folder, Seats().agent(), **settings)
    check(found)
    return [event for _, event in found]


SELL = HistoryCall("c1", "sell", '{"seat": 7}')
STARTED = ToolCallStart(tool_call_id="c1", tool_name="sell", tool_args={"seat": 7}, round_index=0, sequence_index=0)
COMPLETED = ToolCallComplete(tool_call_id="c1", tool_name="sell", result="Sold.", duration_ms=5)
Changes = Iterator[tuple[Event | None, Sequence[RowChange]]]


def asked(rows: TurnRows) -> Changes:
    yield RunStart(run_id="run", agent="careful"), ()
    yield None, rows.begin("hi")


def sold(rows: TurnRows) -> Changes:
    yield from asked(rows)
    yield STARTED, rows.start_call(SELL, "")
    yield COMPLETED, rows.end_call("c1", "Sold.", None, 5)


@pytest.mark.parametrize(
    "start",
    [
        ToolCallStart(tool_call_id="c1", tool_name="sell", tool_args={"seat": 7}, asks_first=True),
        ToolCallStart(tool_call_id="c1", tool_name="sell", tool_args={"seat": 7}, asks_first=True, from_text=True),
        ToolCallStart(tool_call_id="c1", tool_name="reserve", tool_args={"seat": 7}, from_text=True),
    ],
    ids=["asks", "asks, from text", "repeatable, from text"],
)
async def test_a_call_that_was_started_and_not_yet_asked_about_asks_the_user(
    tmp_path: Path, start: ToolCallStart
) -> None:
    def started(rows: TurnRows) -> Changes:
        yield from asked(rows)
        yield start, rows.start_call(HistoryCall("c1", start.tool_name, '{"seat": 7}'), "")

    async with OpenAIServer([ANSWER]) as model:
        found = await go_on(tmp_path, model, started, input_timeout_seconds=0.1)
    assert [event.code for event in found if isinstance(event, ToolCallError)] == ["not_answered"]


async def test_a_call_that_was_written_and_not_started_beside_another_gets_an_end(tmp_path: Path) -> None:
    def half_started(rows: TurnRows) -> Changes:
        yield from asked(rows)
        for call_id in ("c1", "c2"):
            yield ToolCallArgsDelta(tool_call_id=call_id, tool_name="sell", delta='{"seat": 7}'), ()
        yield STARTED, rows.start_call(SELL, "")

    again = chunks(call("look", '{"seat": 7}', call_id="c2"), finish("tool_calls"))
    async with OpenAIServer([again, ANSWER]) as model:
        found = (await go_on(tmp_path, model, half_started))[4:]
    ended = [(event.type, event.tool_call_id) for event in found if isinstance(event, CallEvent)][:2]
    assert ended == [("tool_call_error", "c1"), ("tool_call_error", "c2")]
    # Clients have a card with this id, so the next call gets another one.
    assert [event.tool_call_id for event in found if isinstance(event, ToolCallStart)] not in ([], ["c2"])


async def test_a_run_that_lacks_only_its_last_event_gets_it_without_a_model_request(tmp_path: Path) -> None:
    def answered(rows: TurnRows) -> Changes:
        yield from sold(rows)
        yield Message(content="Seat 7 is yours."), ()
        yield None, rows.finish("Seat 7 is yours.", is_answered=True, ending=Done().model_dump_json())

    async with OpenAIServer([]) as model:
        found = await go_on(tmp_path, model, answered)
    assert found[-2:] == [Message(content="Seat 7 is yours."), Done()]
    assert model.requests == []


async def test_a_run_is_not_continued_while_its_history_cannot_be_read(tmp_path: Path) -> None:
    refused: list[str] = []

    def refuse(*given: Any) -> None:
        # Only the query of the history joins chats with their messages. The first two are refused.
        if "FROM chats LEFT OUTER JOIN messages" in given[2] and len(refused) < 2:
            refused.append(given[2])
            raise sqlite3.OperationalError("disk I/O error")

    sqlalchemy.event.listen(Engine, "before_cursor_execute", refuse)
    try:
        async with OpenAIServer([ANSWER]) as model:
            found = await go_on(tmp_path, model, sold)
    finally:
        sqlalchemy.event.remove(Engine, "before_cursor_execute", refuse)
    assert len(refused) == 2
    assert model.requests[0]["messages"][-1]["content"] == "Sold."
    assert isinstance(found[-1], Done)


@pytest.mark.parametrize("packed", [b"no request", zlib.compress(b'{"agent": "careful", "messages": [{"role": "x"}]}')])
@pytest.mark.parametrize("frame", [encode(1, RunStart(run_id="run", agent="careful")), b"id: 1\ndata: {{\n\n"])
async def test_a_run_that_cannot_be_read_is_ended(tmp_path: Path, packed: bytes, frame: bytes) -> None:
    async with left_run(tmp_path, packed) as (url, run, store):
        await store.stored_runs("gone").append(run, [StoredFrame(frame)])
    assert await read_rest(tmp_path, Seats().agent(), 1, database_url=url) == [(2, STOPPED_DURING_ANSWER)]


async def test_a_left_run_that_was_ended_without_the_servers_knowledge_is_not_ended_again(tmp_path: Path) -> None:
    async with left_run(tmp_path, b"no request") as (url, _, _):
        pass
    async with serving(tmp_path, Seats().agent(), database_url=url) as service:
        ended = (await service.state.store.stored_runs("other").find(["run"]))["run"]
        # The commit has succeeded, and its confirmation was lost: the server tries once more.
        with pytest.raises(RunLost):
            await service.state.runs._factory.end_left_run(ended, STOPPED_DURING_ANSWER)
        async with service.client.stream("GET", "/v1/runs/run/events?user_id=ann") as response:
            assert [event async for _, event in numbered(response)] == [STOPPED_DURING_ANSWER]


# ------------------------------------------------------------------------------------------------------- restored


def run_printed(folder: Path, command: str, file: Path, url: str) -> None:
    """Run PostgreSQL's commands that `callboard backup` or `callboard restore` prints."""
    printed = run(folder, command, str(file), DATABASE_URL=url).stderr
    [commands] = re.findall("itself: run (.+), with the password", printed)
    subprocess.run(commands, shell=True, check=True, capture_output=True)


@pytest.mark.needs("postgresql")
async def test_a_restored_postgresql_has_its_rows_and_no_request_of_a_run_that_was_active(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = await new_database(request, "postgresql", tmp_path / "unused")
    store = await Store.open(url)
    await store.stored_runs("gone").begin(StoredRun("run", "careful", "chat", "message", "ann"), b"its request")
    await asyncio.to_thread(run_printed, tmp_path, "backup", tmp_path / "copy.dump", url)
    await store.close()
    await asyncio.to_thread(run_printed, tmp_path, "restore", tmp_path / "copy.dump", url)
    store = await Store.open(url)
    [left] = await store.stored_runs("heir").take_over()
    assert (left.run_id, await store.stored_runs("heir").load_request("run")) == ("run", None)
    await store.close()
