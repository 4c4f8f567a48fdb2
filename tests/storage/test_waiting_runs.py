"""A run whose approval nobody gives is parked, and any server continues it after the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from callboard import Agent, Skill, ToolResult, tool
from callboard._application.retention import drop_expired
from callboard._endpoint_rules import NO_ANSWER
from callboard.calls.approval import ANSWERED_INSTEAD, REFUSED, REFUSED_IN_INSPECTOR, TOOL_CHANGED_SINCE_QUESTION
from callboard.runs.forgetting import END_RUNS_SECONDS, forget_user
from callboard.runs.grants import Grants
from callboard.runs.left_runs import CANNOT_RUN
from callboard.storage import Store
from callboard.storage.sql import run_record
from callboard.storage.sql.tables import chats, messages, run_files, run_inputs, runs
from callboard.storage.sql.tables import events as frames
from callboard.storage.values import ANY_USER, GivenAnswer, StoredFrame, StoredRun
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Parked,
    Source,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.runs.promises import check
from tests.serving import Service, database_of, numbered, request, serving
from tests.storage.trouble import locked_by_another_program

REFUND = chunks(text("I pay it back. "), call("refund", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
TWO_REFUNDS = chunks(
    call("refund", '{"seat": 7}', index=0, call_id="c1"),
    call("refund", '{"seat": 8}', index=1, call_id="c2"),
    finish("tool_calls"),
)
ANSWER = chunks(text("Done."), finish("stop"))


SEAT_AND_ROW = {"properties": {name: {"type": "integer"} for name in ("seat", "row")}, "required": ["seat", "row"]}
NO_ROW = "The arguments do not fit: argument 'row' is missing. Correct them and call the tool again."

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def call_of(seen: Sequence[tuple[int, Event]], seat: int = 7) -> str:
    """Return the id of the call for a seat; servers of one PostgreSQL give ids of their own."""
    return next(
        event.tool_call_id
        for _, event in seen
        if isinstance(event, ToolCallStart) and event.tool_args == {"seat": seat}
    )


def question_of(seen: Sequence[tuple[int, Event]], seat: int = 7) -> str:
    """Return the id of the question whether the call for a seat may run."""
    return f"approve:{call_of(seen, seat)}"


class Till:
    """An agent whose refunds need approval, the refunds that it has paid, and a gate at which its tool `look` waits."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.going_on = asyncio.Event()
        self.needs_approval = True
        self.can_pay = True
        self.description = "Pay a seat back."
        self.parameters: Mapping[str, Any] | None = None

    def agent(self) -> Agent:
        @tool(requires_confirmation=self.needs_approval)
        async def refund(seat: int) -> str:
            """Pay a seat back.

            Args:
                seat: Its number.
            """
            self.paid.append(seat)
            return f"Seat {seat} is paid back."

        @tool(read_only=True)
        async def look(seat: int) -> ToolResult:
            """Look whether a seat is free.

            Args:
                seat: Its number.
            """
            await self.going_on.wait()
            return ToolResult("free", sources=(Source(source={"name": "plan", "url": "https://plan.example/7"}),))

        refund = replace(refund, description=self.description, parameters=self.parameters or refund.parameters)
        tellers = [Skill("refunds", "Pays seats back.", tools=[refund])] if self.can_pay else []
        return Agent("careful", skills=[Skill("seats", "Sells seats.", tools=[look]), *tellers])


@pytest.fixture
def till() -> Till:
    return Till()


Serve = Callable[..., Any]


@pytest.fixture
def answers() -> list[Answer]:
    """The answers of the model."""
    return [REFUND, ANSWER]


@pytest.fixture
async def model(answers: Sequence[Answer]) -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(answers) as endpoint:
        yield endpoint


@pytest.fixture
def serve(tmp_path: Path, database_url: str, model: OpenAIServer, till: Till) -> Serve:
    """Starts a server of the same database, with a folder of its own."""

    @asynccontextmanager
    async def serve_in(name: str, **settings: Any) -> AsyncIterator[Service]:
        values = {"database_url": database_url, "model_base_url": model.base_url, "model": "m", "lease_seconds": 5.0}
        async with serving(tmp_path / name, till.agent(), **{**values, **settings}) as service:
            yield service

    return serve_in


def body(**fields: Any) -> dict[str, Any]:
    user = {"id": "ann", "name": "Ann"}
    values = {"agent": "careful", "run_id": "run", "chat_id": "chat", "message_id": "message", "user": user}
    return request(**{**values, "approvals_wait": True, **fields})


async def answer(
    service: Service, request_id: str, value: object, status: int = 202, run_id: str = "run", **more: Any
) -> None:
    given = {"request_id": request_id, "value": value, **more}
    response = await service.client.post(f"/v1/runs/{run_id}/input?user_id=ann", json=given)
    assert response.status_code == status, response.text


async def read(service: Service, after: int = 0, run_id: str = "run") -> list[tuple[int, Event]]:
    """Read the events of a run until the connection ends."""
    async with service.client.stream("GET", f"/v1/runs/{run_id}/events?user_id=ann&after={after}") as response:
        assert response.status_code == 200
        return [one async for one in numbered(response)]


async def list_approvals(service: Service, user_id: str = "ann") -> list[dict[str, Any]]:
    response = await service.client.get("/v1/approvals", params={"user_id": user_id})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["approvals"]
    return found


async def park(service: Service, **fields: Any) -> list[tuple[int, Event]]:
    """Start the run, say that nobody can be asked, and return the events up to the end of the connection."""
    seen: list[tuple[int, Event]] = []
    async with service.client.stream("POST", "/v1/runs", json=body(**fields)) as response:
        async for one in numbered(response):
            seen.append(one)
            if isinstance(one[1], InputRequest):
                await answer(service, one[1].request_id, None, asked=False, run_id=fields.get("run_id", "run"))
    return seen


async def test_a_run_whose_approval_nobody_can_give_is_parked_and_another_server_runs_the_call_once(
    serve: Serve, till: Till, model: OpenAIServer
) -> None:
    async with serve("one", max_user_calls_per_day=1) as one:
        seen = await park(one)
        assert isinstance(seen[-1][1], Parked)
        assert seen[-1][1].tool_call_ids == (call_of(seen),)
        # Neither a slot nor memory.
        assert list(one.state.runs) == []
        # It stays parked: a client that listens again gets nothing.
        assert await read(one, seen[-1][0]) == []
        said = await one.client.post("/v1/runs/run/messages?user_id=ann", json={"content": "In cash."})
        assert said.status_code == 202
    async with serve("other", max_user_calls_per_day=1) as other:
        assert till.paid == []
        [waiting] = await list_approvals(other)
        assert (waiting["run_id"], waiting["request_id"], waiting["tool_name"]) == ("run", question_of(seen), "refund")
        assert (waiting["arguments"], waiting["message_id"]) == ('{"seat": 7}', "message")
        assert await list_approvals(other, "bob") == []
        taken = await other.client.post("/v1/runs", json=request(agent="careful", run_id="run", user={"id": "bob"}))
        assert taken.status_code == 409
        await answer(other, question_of(seen), True)
        seen += await read(other, seen[-1][0])
        assert await list_approvals(other) == []
        await answer(other, question_of(seen), True, 404)
        assert (await other.state.store.usage("ann").today()).calls == 1
    check(seen)
    events = [event for _, event in seen]
    assert events[-1] == Done()
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert asked.can_wait
    assert till.paid == [7]
    told = [message["content"] for message in model.requests[1]["messages"]]
    assert told[-3:] == ["Seat 7 is paid back.", NO_ANSWER, "In cash."]


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "given", "code", "error"),
    [
        ({"needs_approval": False}, GivenAnswer(False), "denied", REFUSED),
        ({"can_pay": False}, GivenAnswer(False), "denied", REFUSED),
        ({"can_pay": False}, GivenAnswer({"words": "Ask me."}), "denied", f"{ANSWERED_INSTEAD}\n\nAsk me."),
        ({"can_pay": False}, GivenAnswer({"words": "Ask \ud800"}), "denied", f"{ANSWERED_INSTEAD}\n\nAsk \ufffd"),
        ({"can_pay": False}, GivenAnswer({"words": "Ask \x00"}), "denied", f"{ANSWERED_INSTEAD}\n\nAsk \ufffd"),
        ({"description": "Pays twice."}, GivenAnswer(False, in_inspector=True), "denied", REFUSED_IN_INSPECTOR),
        ({"can_pay": False}, GivenAnswer(True), "interrupted", CANNOT_RUN),
        ({"parameters": SEAT_AND_ROW}, GivenAnswer(True), "invalid_args", NO_ROW),
    ],
)
async def test_the_model_is_told_why_a_parked_call_did_not_run_also_if_its_tool_has_changed_or_is_gone(
    serve: Serve, till: Till, model: OpenAIServer, change: Mapping[str, Any], given: GivenAnswer, code: str, error: str
) -> None:
    async with serve("one") as one:
        seen = await park(one)
    vars(till).update(change)
    async with serve("other") as other:
        await (await other.state.runs.find("run", "ann")).answer(question_of(seen), given)
        seen += await read(other, seen[-1][0])
    check(seen)
    [ended] = [event for _, event in seen if isinstance(event, ToolCallError)]
    assert (ended.code, ended.error) == (code, error)
    assert till.paid == []
    assert model.requests[1]["messages"][-1]["content"] == f"Error: {error}"


@ON_SQLITE
@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_whose_tool_has_changed_since_its_question_asks_again(
    serve: Serve, till: Till, waits: bool
) -> None:
    async with serve("one") as one:
        seen = await park(one) if waits else await leave_question_open(one)
    till.description = "Pay a seat back twice."
    reason = ""
    async with serve("other") as other:
        if waits:
            await answer(other, question_of(seen), True)
        async with other.client.stream("GET", f"/v1/runs/run/events?user_id=ann&after={seen[-1][0]}") as response:
            async for found in numbered(response):
                seen.append(found)
                if isinstance(found[1], InputRequest):
                    reason = found[1].message
                    assert till.paid == []
                    await answer(other, found[1].request_id, True)
    check(seen)
    assert TOOL_CHANGED_SINCE_QUESTION in reason
    assert till.paid == [7]


async def leave_question_open(service: Service, *, approvals_wait: bool = False) -> list[tuple[int, Event]]:
    """Start a run, and return the events up to its question."""
    seen: list[tuple[int, Event]] = []
    async with service.client.stream("POST", "/v1/runs", json=body(approvals_wait=approvals_wait)) as response:
        async for found in numbered(response):
            seen.append(found)
            if isinstance(found[1], InputRequest):
                break
    return seen


@ON_SQLITE
@pytest.mark.parametrize("settings", [{"input_timeout_seconds": 0.05}, {"detach_grace_seconds": 0.05}])
async def test_a_run_is_parked_when_the_time_is_over_or_nobody_listens_and_ends_without_a_listener(
    serve: Serve, till: Till, settings: dict[str, float]
) -> None:
    async with serve("one", **settings) as one:
        await leave_question_open(one, approvals_wait=True)
        [run] = one.state.runs
        await run.wait()
        [waiting] = await list_approvals(one)
        await answer(one, waiting["request_id"], True)
        assert (await read(one))[-1][1] == Done()
    assert till.paid == [7]


@pytest.mark.parametrize("answers", [[TWO_REFUNDS, ANSWER]])
async def test_two_parked_calls_are_answered_one_after_the_other(serve: Serve, till: Till, model: OpenAIServer) -> None:
    async with serve("one") as one:
        seen = await park(one)
        assert {one["request_id"] for one in await list_approvals(one)} == {question_of(seen, 7), question_of(seen, 8)}
        await answer(one, question_of(seen, 8), True)
        seen += await read(one, seen[-1][0])
        assert isinstance(seen[-1][1], Parked)
        assert seen[-1][1].tool_call_ids == (call_of(seen),)
        assert till.paid == [8]
    async with serve("other") as other:
        await answer(other, question_of(seen), False)
        seen += await read(other, seen[-1][0])
    check(seen)
    assert till.paid == [8]
    paid, refused = sorted(str(one["content"]) for one in model.requests[1]["messages"] if one["role"] == "tool")[::-1]
    assert paid == "Seat 8 is paid back."
    assert "refused" in refused


async def ask(service: Service, run_id: str, questions: int) -> list[Event]:
    """Start a run of the chat, and return its events; after so many questions, answer the first with `always`."""
    events: list[Event] = []
    async with service.client.stream("POST", "/v1/runs", json=body(run_id=run_id)) as response:
        async for _, event in numbered(response):
            events.append(event)
            asked = [one.request_id for one in events if isinstance(one, InputRequest)]
            if isinstance(event, InputRequest) and len(asked) == questions:
                await answer(service, asked[0], "always", run_id=run_id)
    return events


@pytest.mark.parametrize("answers", [[TWO_REFUNDS, REFUND, TWO_REFUNDS, ANSWER, ANSWER, ANSWER]])
async def test_always_answers_all_open_and_waiting_questions_of_the_tool_in_the_chat(serve: Serve, till: Till) -> None:
    async with serve("one") as one, serve("other") as other:
        seen = await park(one)
        elsewhere = await park(one, run_id="elsewhere", chat_id="another")
        events = await ask(other, "live", questions=2)
        seen += await read(one, seen[-1][0])
        check(seen)
        assert [one["run_id"] for one in await list_approvals(one)] == ["elsewhere"]
    assert events[-1] == seen[-1][1] == Done()
    assert isinstance(elsewhere[-1][1], Parked)
    assert sorted(till.paid) == [7, 7, 8, 8]


@ON_SQLITE
@pytest.mark.parametrize("answers", [[REFUND, REFUND, ANSWER]])
async def test_always_answers_no_question_about_the_tool_as_it_was(serve: Serve, till: Till) -> None:
    async with serve("one") as one:
        await park(one)
    till.description = "Pay a seat back twice."
    async with serve("other") as other:
        assert (await ask(other, "live", questions=1))[-1] == Done()
        assert [one["run_id"] for one in await list_approvals(other)] == ["run"]
    assert till.paid == [7]


@pytest.mark.parametrize("answers", [[TWO_REFUNDS, ANSWER]])
async def test_approvals_are_listed_in_pages_the_newest_first(serve: Serve, till: Till) -> None:
    async with serve("one") as one:
        seen = await park(one)
        pages: list[dict[str, Any]] = []
        query = {"user_id": "ann", "limit": "1"}
        while not pages or pages[-1]["next_cursor"]:
            pages.append((await one.client.get("/v1/approvals", params=query)).json())
            query["cursor"] = pages[-1]["next_cursor"]
        others = (await one.client.get("/v1/approvals?user_id=ann&chat_id=other")).json()
        for wrong in ({"limit": "0"}, {"limit": "201"}, {"cursor": "x"}, {"page": "2"}):
            assert (await one.client.get("/v1/approvals", params=wrong)).status_code == 422
        assert (await one.state.store.waiting_approvals(ANY_USER, 1)).next_cursor == pages[0]["next_cursor"]
    listed = [[approval["tool_call_id"] for approval in page["approvals"]] for page in pages]
    assert listed == [[call_of(seen, 8)], [call_of(seen, 7)]]
    assert others["approvals"] == []


def lock(doors: list[str]) -> Agent:
    @tool(requires_confirmation=True, secrets=["pin"])
    async def open_door(pin: str) -> str:
        """Open the door.

        Args:
            pin: The secret number.
        """
        doors.append(pin)
        return "open"

    return Agent("careful", skills=[Skill("doors", "Opens doors.", tools=[open_door])])


OPEN_DOOR = chunks(call("open_door", '{"pin": "4711"}', call_id="c1"), finish("tool_calls"))


BOTH = chunks(
    call("refund", '{"seat": 7}', index=0, call_id="c1"), call("look", '{"seat": 8}', index=1, call_id="c2"),
    finish("tool_calls"),
)  # fmt: skip


@ON_SQLITE
@pytest.mark.parametrize("answers", [[BOTH, ANSWER]])
async def test_a_run_is_not_parked_before_its_other_calls_have_ended_with_their_sources(
    serve: Serve, till: Till
) -> None:
    async with serve("one") as one:
        seen: list[Event] = []
        async with one.client.stream("POST", "/v1/runs", json=body()) as response:
            async for _, event in numbered(response):
                seen.append(event)
                if isinstance(event, InputRequest):
                    await answer(one, event.request_id, None, asked=False)
                    till.going_on.set()
    assert [type(event) for event in seen[-3:]] == [ToolCallComplete, Source, Parked]


DAYS = 31 * 86_400


async def age(service: Service) -> None:
    """Let the run and its chat be 31 days old, and the time come to drop what is too old."""
    database = database_of(service)
    await database.execute(update(chats).values(updated_at=chats.c.updated_at - DAYS))
    await database.execute(update(runs).values(ended_at=runs.c.ended_at - DAYS, begun_at=runs.c.begun_at - DAYS))
    await drop_expired(service.state.store, service.app._board.settings)


async def delete(service: Service) -> None:
    assert (await service.client.delete("/v1/chats/chat?user_id=ann")).is_success


async def forget_in_terminal(service: Service) -> None:
    """As `callboard forget` does, beside the server."""
    store = service.state.store
    assert isinstance(store, Store)
    async with asyncio.timeout(END_RUNS_SECONDS / 2):
        await forget_user(store, store.stored_runs("terminal"), "ann", None)


WAYS_TO_DELETE: list[Any] = [
    pytest.param(delete, False, id="chat"),
    pytest.param(forget_in_terminal, True, id="callboard forget"),
    pytest.param(age, False, id="retention"),
]


@pytest.mark.parametrize(("remove", "of_user"), WAYS_TO_DELETE)
async def test_a_parked_run_is_gone_with_its_chat_and_its_call_never_runs(
    serve: Serve, till: Till, remove: Callable[[Service], Awaitable[None]], of_user: bool
) -> None:
    async with serve("one", retention_days=30) as one:
        seen = await park(one)
        await Grants(one.state.store, "ann", "chat").add("careful", "refund", till.agent().tools[-1].fingerprint)
        await Grants(one.state.store, "ann", "other chat").add("careful", "refund", till.agent().tools[-1].fingerprint)
        await remove(one)
        assert await list_approvals(one) == []
        given = {"request_id": question_of(seen), "value": True}
        refused = await one.client.post("/v1/runs/run/input?user_id=ann", json=given)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_run")
        assert "its chat was deleted" in refused.json()["error"]["message"]
        for table in (runs, frames, run_inputs, run_files, messages):
            assert await database_of(one).fetch(select(table)) == []
        assert await Grants(one.state.store, "ann", "chat").list() == []
        # A grant of another chat goes with its user only.
        is_stored = bool(await Grants(one.state.store, "ann", "other chat").list())
        assert is_stored == (not of_user)
    assert till.paid == []


LOOK = chunks(call("look", '{"seat": 8}', call_id="c2"), finish("tool_calls"))


RUN = StoredRun("run", "agent", "chat", "message", "ann")


async def test_an_answer_that_was_stored_before_the_run_is_parked_releases_it(store: Store) -> None:
    log = store.stored_runs("one")
    other = store.stored_runs("other")
    run = await log.begin(RUN, b"request")
    await log.append(run, [StoredFrame(b"1", question="sure?")])
    await log.let_wait("run", "sure?")
    assert await other.answer("run", "sure?", GivenAnswer(True))
    await log.let_wait("run", "sure?")
    released: list[bool] = []
    log.on_released = lambda: released.append(True)
    await log.append(
        StoredRun("run", "agent", "chat", "message", "ann", last_seq=1), [StoredFrame(b"2", waits_for=["sure?"])]
    )
    assert released == [True]
    [taken] = await other.take_over()
    assert (taken.losses, taken.is_ended) == (0, False)


async def test_answers_and_parking_at_the_same_moment_never_leave_an_answered_run_parked(store: Store) -> None:
    log = store.stored_runs("one")
    other = store.stored_runs("other")
    for number in range(20):
        run = replace(RUN, run_id=f"run {number}")
        await log.begin(run, b"request")
        await log.append(run, [StoredFrame(b"1", question="sure?")])
        await log.let_wait(run.run_id, "sure?")
        _, is_first = await asyncio.gather(
            log.append(replace(run, last_seq=1), [StoredFrame(b"2", waits_for=["sure?"])]),
            other.answer(run.run_id, "sure?", GivenAnswer(True)),
        )
        assert is_first
        [taken] = await other.take_over()
        assert taken.run_id == run.run_id


async def test_run_that_cannot_be_parked_says_that_its_call_has_not_run(
    tmp_path: Path, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    async with (
        OpenAIServer([BOTH]) as model,
        serving(tmp_path, till.agent(), model_base_url=model.base_url, model="m") as service,
        AsyncExitStack() as locked,
        service.client.stream("POST", "/v1/runs", json=body()) as response,
    ):
        async for _, event in numbered(response):
            seen.append(event)
            if isinstance(event, InputRequest):
                await answer(service, event.request_id, None, asked=False)
                await locked.enter_async_context(locked_by_another_program(tmp_path / "callboard.db"))
                # Not before: on a busy machine an earlier event may take as long.
                monkeypatch.setattr(run_record, "PATIENCE_SECONDS", 0.1)
                till.going_on.set()
            if isinstance(event, Status):
                await locked.aclose()
    async with serving(tmp_path, till.agent()) as service:
        assert await list_approvals(service) == []
    assert Parked not in map(type, seen)
    [failed] = [event for event in seen if isinstance(event, ToolCallError)]
    assert failed.code == "not_asked"
    assert isinstance(seen[-1], Error)
    assert seen[-1].message.startswith("The database failed, so the calls cannot wait for approval")
    assert till.paid == []


async def cancel(service: Service, _: str) -> None:
    assert (await service.client.post("/v1/runs/run/cancel?user_id=ann")).status_code == 202


async def use_up_tokens(service: Service, question: str) -> None:
    await service.state.store.usage("ann").add_tokens(1000)
    await answer(service, question, True)


async def approve(service: Service, question: str) -> None:
    await answer(service, question, True)


NO_ACCESS = "You may not use the agent 'careful': ask an admin for a role or group that may use it."


async def approve_when_old(service: Service, question: str) -> None:
    await age(service)
    await answer(service, question, True)


@ON_SQLITE
@pytest.mark.parametrize(
    ("settings", "decide", "ending", "paid"),
    [
        ({}, cancel, "cancelled", []),
        ({"agent_access": ("careful=role:admin",)}, approve, NO_ACCESS, []),
        ({"max_user_tokens_per_day": 1000}, use_up_tokens, "You have used all 1,000 tokens of today.", []),
        # The time in which it was parked does not count as its age.
        ({"retention_days": 60, "result_retention_days": 1}, approve_when_old, "stop", [7]),
    ],
    ids=["cancelled", "no access any more", "no tokens left", "approved after a month"],
)
async def test_a_parked_call_runs_only_if_its_run_may_go_on(
    serve: Serve, till: Till, settings: dict[str, Any], decide: Any, ending: str, paid: list[int]
) -> None:
    async with serve("one") as one:
        seen = await park(one)
    async with serve("other", **settings) as other:
        await decide(other, question_of(seen))
        seen += await read(other, seen[-1][0])
        assert await list_approvals(other) == []
    check(seen)
    last = seen[-1][1]
    assert isinstance(last, Done | Error)
    assert (last.finish_reason if isinstance(last, Done) else last.message).startswith(ending)
    assert till.paid == paid


LOOK = chunks(call("look", '{"seat": 8}', call_id="c2"), finish("tool_calls"))


@ON_SQLITE
@pytest.mark.parametrize("answers", [[REFUND, LOOK, ANSWER, ANSWER]])
async def test_an_approved_run_waits_until_its_user_has_a_place_for_it(serve: Serve, till: Till) -> None:
    async with serve("one", max_user_runs=1, run_queue_seconds=0) as one:
        seen = await park(one)
        async with one.client.stream("POST", "/v1/runs", json=body(run_id="2", message_id="2")) as other:
            async for _, event in numbered(other):
                if isinstance(event, ToolCallStart):
                    break
            await answer(one, question_of(seen), True)
            async with asyncio.timeout(20):
                while not one.state.runs.queued:
                    await list_approvals(one)
            assert till.paid == []
            till.going_on.set()
            seen += await read(one, seen[-1][0])
    assert seen[-1][1] == Done()
    assert till.paid == [7]


@pytest.mark.parametrize("answers", [[OPEN_DOOR, chunks(text("Done."), ending="hang")]])
async def test_the_question_of_a_call_with_a_secret_is_closed_at_every_server_if_nobody_can_be_asked(
    tmp_path: Path, model: OpenAIServer
) -> None:
    doors: list[str] = []
    async with serving(tmp_path, lock(doors), model_base_url=model.base_url, model="m") as service:
        async with service.client.stream("POST", "/v1/runs", json=body()) as response:
            async for _, event in numbered(response):
                if isinstance(event, InputRequest):
                    asked = event.request_id
                    assert not event.can_wait
                    break
            await answer(service, asked, None, asked=False)
        [run] = service.state.runs
        # Its log, because a listener would keep the run.
        ended = await anext(one async for one in run.log.events() if isinstance(one, ToolCallError))
        assert (ended.code, await list_approvals(service), run.ended) == ("not_asked", [], False)
        assert not await service.state.store.stored_runs("other").answer("run", asked, GivenAnswer(True))
    assert doors == []


@pytest.mark.parametrize("answers", [[OPEN_DOOR, ANSWER]])
async def test_a_call_whose_secret_argument_is_not_stored_is_not_asked_about_again_after_a_restart(
    tmp_path: Path, model: OpenAIServer
) -> None:
    doors: list[str] = []
    settings: dict[str, Any] = {"model_base_url": model.base_url, "model": "m", "drain_seconds": 0.0}
    async with serving(tmp_path, lock(doors), **settings) as service:
        seen = await leave_question_open(service)
    async with serving(tmp_path, lock(doors), **settings) as service:
        seen += await read(service, seen[-1][0])
    assert [event.code for _, event in seen if isinstance(event, ToolCallError)] == ["interrupted"]
    assert isinstance(seen[-1][1], Done)
    assert doors == []
