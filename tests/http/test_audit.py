"""The audit has each call's user, approval and end, is written before the tool runs, and has no secrets."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard import Agent, Skill, tool
from callboard._named_keys import add_named_key
from callboard.agents import RunContext
from callboard.errors import ToolError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.storage import AuditEntry, AuditFilter
from callboard.storage.sql import database, run_record
from callboard_protocol import Done, Error, Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.loop.conftest import wants
from tests.processes import run as run_command
from tests.processes import serving as serving_process
from tests.serving import ScriptedAgent, Service, database_of, numbered, request, serving
from tests.storage.trouble import locked_by_another_program

KEY = "a-key-that-nobody-may-read"


class Shop:
    """An agent that is asked to buy two things, of which one needs consent, and fails at a third."""

    def __init__(self) -> None:
        self.bought: list[str] = []

        @tool(requires_confirmation=lambda arguments: arguments["euros"] > 10)
        async def buy(thing: str, euros: int) -> str:
            """Buys something."""
            self.bought.append(thing)
            return f"bought {thing}"

        @tool
        async def fail(how: str) -> str:
            """Fails."""
            from callboard import report_status

            report_status("processing", "approved")
            raise ToolError(f"failed {how}")

        def script(asked: ModelRequest) -> list[ModelDelta]:
            if any(message["role"] == "tool" for message in asked.messages):
                return [TextDelta("Done.")]
            return [
                wants("buy", {"thing": "a piano", "euros": 900}, index=0, call_id="big"),
                wants("buy", {"thing": KEY, "euros": 1}, index=1, call_id="small"),
                wants("fail", {"how": "badly"}, index=2, call_id="bad"),
            ]

        self.agent = Agent("shop", skills=[Skill("s", "Buys.", tools=(buy, fail))], model=ScriptedModel(script))


async def shop(service: Service, value: object, **fields: Any) -> list[Event]:
    """The events of a run in which every question gets `value`."""
    events: list[Event] = []
    body = request(agent="shop", user={"id": "ann"}, **{"run_id": "r", **fields})
    async with service.client.stream("POST", "/v1/runs", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for _, event in numbered(answer):
            events.append(event)
            if isinstance(event, InputRequest):
                sent = {"request_id": event.request_id, "value": value}
                await service.client.post(f"/v1/runs/{body['run_id']}/input", json=sent, params={"user_id": "ann"})
    return events


async def audited(service: Service, **wanted: Any) -> list[AuditEntry]:
    found = service.state.store.audit().read(AuditFilter(**wanted))
    return [entry async for page in found for entry in page]


def told(entries: list[AuditEntry], tool_call_id: str) -> list[tuple[str, str | None, str | None]]:
    return [(entry.kind, entry.arguments, entry.outcome) for entry in entries if entry.tool_call_id == tool_call_id]


@pytest.mark.parametrize("chat_id", ["c", None])
async def test_each_call_is_there_with_its_arguments_its_consent_and_its_end(
    tmp_path: Path, chat_id: str | None
) -> None:
    keys = tmp_path / "keys"
    key = add_named_key(keys, "open-webui")
    async with serving(tmp_path, Shop().agent, audit=True, api_key=KEY, api_keys_file=keys) as service:
        service.client.headers["Authorization"] = f"Bearer {key}"
        await shop(service, True, chat_id=chat_id)
        entries = await audited(service)
    assert told(entries, "big") == [
        ("call", '{"thing": "a piano", "euros": 900}', None),
        ("approved", None, None),
        ("ended", None, "complete"),
    ]
    # The arguments are masked as everywhere.
    assert told(entries, "small") == [
        ("call", '{"thing": "[secret]", "euros": 1}', None),
        ("ended", None, "complete"),
    ]
    # A tool that says of itself that it was approved is not believed.
    assert told(entries, "bad") == [("call", '{"how": "badly"}', None), ("ended", None, "tool_failed")]
    for entry in entries:
        who = (entry.user_id, entry.key, entry.agent_id, entry.chat_id, entry.run_id)
        assert who == ("ann", "open-webui", "shop", chat_id, "r")
        assert entry.at is not None
        assert KEY not in repr(entry)
        assert key not in repr(entry)


@pytest.mark.parametrize("is_answered", ["where it runs", "at another server", "once another server goes on with it"])
async def test_who_agrees_is_told_by_their_own_key_and_who_began_the_run_by_theirs(
    tmp_path: Path, is_answered: str
) -> None:
    keys = tmp_path / "keys"
    began, agreed = ({"Authorization": f"Bearer {add_named_key(keys, name)}"} for name in ("open-webui", "phone"))
    shared = {"audit": True, "api_keys_file": keys, "database_url": f"sqlite:///{tmp_path / 'shared.db'}"}
    body = request(agent="shop", chat_id="c", message_id="m", run_id="r", user={"id": "ann"})
    async with serving(tmp_path / "other", Shop().agent, **shared) as other, AsyncExitStack() as first:
        one = await first.enter_async_context(serving(tmp_path / "one", Shop().agent, drain_seconds=0, **shared))
        at = one if is_answered == "where it runs" else other
        async with one.client.stream("POST", "/v1/runs", json=body, headers=began) as answer:
            question = await first_question(answer)
        if is_answered == "once another server goes on with it":
            await first.aclose()
        sent = {"request_id": question.request_id, "value": True}
        taken = await at.client.post("/v1/runs/r/input?user_id=ann", json=sent, headers=agreed)
        assert taken.status_code == 202
        async with at.client.stream("GET", "/v1/runs/r/events?user_id=ann", headers=agreed) as answer:
            assert isinstance([event async for _, event in numbered(answer)][-1], Done)
        told = [
            (entry.kind, entry.key) for entry in await audited(other) if entry.tool_call_id == question.tool_call_id
        ]
    assert told == [("call", "open-webui"), ("approved", "phone"), ("ended", "open-webui")]


async def first_question(answer: httpx.Response) -> InputRequest:
    async for _, event in numbered(answer):
        if isinstance(event, InputRequest):
            return event
    raise AssertionError("nothing was asked")


@pytest.mark.parametrize(("value", "outcome"), [(False, "denied"), ("yes", "not_answered"), (None, "not_answered")])
async def test_what_was_not_agreed_to_is_not_said_to_be(tmp_path: Path, value: object, outcome: str) -> None:
    shopping = Shop()
    async with serving(tmp_path, shopping.agent, audit=True) as service:
        await shop(service, value, chat_id="c")
        entries = await audited(service)
    assert [(kind, ending) for kind, _, ending in told(entries, "big")] == [("call", None), ("ended", outcome)]
    assert "a piano" not in shopping.bought


async def test_a_call_that_cannot_be_written_into_the_audit_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(database, "PATIENCE_IN_TROUBLE_SECONDS", 0.1)
    shopping = Shop()
    async with serving(tmp_path, shopping.agent, audit=True) as service:
        file = database_of(service).file
        assert file
        async with locked_by_another_program(file):
            monkeypatch.setattr(run_record, "PATIENCE_SECONDS", 0.1)
            events = await shop(service, True)
        assert isinstance(events[-1], Error)
        assert events[-1].code == "storage"
        assert shopping.bought == []
        # Without it, nothing is held up for that.
        await shop(service, True, chat_id="later", run_id="later")
        assert len(shopping.bought) == 2


async def test_calls_of_agents_by_hand_and_of_openais_clients_are_there_too(tmp_path: Path) -> None:
    async def looks(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"of": "it"})
        yield ToolCallComplete(tool_call_id="a", result="seen")
        yield Message(content="There.")

    async with serving(tmp_path, ScriptedAgent(looks), audit=True) as service:
        body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
        answer = await service.client.post("/v1/chat/completions", json=body, headers={"X-OpenWebUI-User-Id": "ann"})
        assert answer.status_code == 200
        found = await audited(service, user_id="ann", tool_name="look")
        assert [(entry.kind, entry.outcome) for entry in found] == [("call", None), ("ended", "complete")]


async def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, Shop().agent) as service:
        await shop(service, True, chat_id="c")
        assert await audited(service) == []


async def test_a_user_has_their_entries_and_once_forgotten_leaves_them_empty(tmp_path: Path) -> None:
    async with serving(tmp_path, Shop().agent, audit=True) as service:
        await shop(service, True, chat_id="c")
        mine = {"user_id": "ann"}
        exported = (await service.client.get("/v1/user-data", params=mine)).text.splitlines()
        assert "approved" in [json.loads(line).get("event") for line in exported]
        forgotten = (await service.client.delete("/v1/user-data", params=mine)).json()["forgotten"]
        assert forgotten["audited_arguments"] == 3
        left = await audited(service)
        assert [entry.kind for entry in left][-1] == "forgotten"
        assert {entry.arguments for entry in left} == {None}
        assert "piano" not in (await service.client.get("/v1/user-data", params=mine)).text


def test_the_command_reads_it_also_what_a_server_was_killed_in(tmp_path: Path) -> None:
    with serving_process(tmp_path, AUDIT="true", DRAIN_SECONDS="0") as (url, process):
        body = {
            "agent": "demo",
            "chat_id": "c",
            "user": {"id": "ann"},
            "messages": [{"role": "user", "content": "slow"}],
        }
        with httpx.stream("POST", f"{url}/v1/runs", json=body, timeout=None) as answer:
            assert any("tool_call_start" in line for line in answer.iter_lines())
            process.send_signal(signal.SIGKILL)
            process.wait()

    def read(*options: str) -> list[dict[str, Any]]:
        done = run_command(tmp_path, "audit", *options, AUDIT="true")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    [entry] = read("--user", "ann", "--tool", "generate_image")
    assert (entry["kind"], entry["agent_id"], entry["chat_id"]) == ("call", "demo", "c")
    assert json.loads(entry["arguments"])["prompt"] == "an empty stage at dawn"
    assert entry["at"].endswith("+00:00")
    assert read("--user", "bob") == read("--kind", "ended") == read("--until", "2020-01-01") == []
    assert read("--since", "2020-01-01T00:00+02:00", "--agent", "demo", "--chat", "c") == [entry]
    assert run_command(tmp_path, "audit", "--since", "yesterday").returncode == 2
    assert run_command(tmp_path, "audit", "--kind", "other").returncode == 2
