"""The audit log has a line for each call and for each decision, without secrets and results."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from callboard import Agent, Skill, tool
from callboard._named_keys import add_named_key
from callboard.errors import ToolError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard_protocol import Done, Event, InputRequest
from tests.loop.conftest import wants
from tests.serving import Service, numbered, request, serving

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


def audited(lines: list[Any], tool_call_id: str) -> list[dict[str, Any]]:
    """Return the lines about a call, without the fields that all lines of its run share."""
    found = [line for line in lines if line.get("logger") == "audit" and line["tool_call_id"] == tool_call_id]
    shared = ("logger", "log_level", "tool_call_id", "user_id", "agent", "chat_id", "run_id")
    return [{name: value for name, value in line.items() if name not in shared} for line in found]


@pytest.mark.parametrize("chat_id", ["c", None])
@pytest.mark.parametrize(
    ("value", "decision"),
    [(True, "allowed"), (False, "denied"), ("yes", "not_answered"), (None, "not_answered")],
)
async def test_calls_and_decisions_are_logged_with_user_and_keys_and_without_secrets(
    tmp_path: Path, chat_id: str | None, value: object, decision: str
) -> None:
    keys = tmp_path / "keys"
    key = add_named_key(keys, "open-webui")
    shopping = Shop()
    with capture_logs() as lines:
        async with serving(tmp_path, shopping.agent, api_key=KEY, api_keys_file=keys) as service:
            service.client.headers["Authorization"] = f"Bearer {key}"
            await shop(service, value, chat_id=chat_id)
    call = {"event": "call", "key": "open-webui"}
    big, decided = audited(lines, "big")
    assert big == {**call, "tool": "buy", "arguments": '{"thing": "a piano", "euros": 900}'}
    assert decided == {
        "event": "decision",
        "key": "open-webui",
        "tool": "buy",
        "decision": decision,
        "decided_by": "open-webui",
    }
    assert ("a piano" in shopping.bought) == (decision == "allowed")
    # No user was asked about these calls; a tool that reports that it was approved is not believed.
    assert audited(lines, "small") == [{**call, "tool": "buy", "arguments": '{"thing": "[secret]", "euros": 1}'}]
    assert audited(lines, "bad") == [{**call, "tool": "fail", "arguments": '{"how": "badly"}'}]
    written = [line for line in lines if line.get("logger") == "audit"]
    assert {(one["user_id"], one["agent"], one["chat_id"], one["run_id"]) for one in written} == {
        ("ann", "shop", chat_id, "r")
    }
    assert KEY not in repr(written)
    assert key not in repr(written)
    assert "bought" not in repr(written)


@pytest.mark.parametrize("is_answered", ["where it runs", "at another server", "once another server goes on with it"])
async def test_a_decision_names_its_own_key_and_each_call_is_logged_once(tmp_path: Path, is_answered: str) -> None:
    keys = tmp_path / "keys"
    began, agreed = ({"Authorization": f"Bearer {add_named_key(keys, name)}"} for name in ("open-webui", "phone"))
    shared = {"api_keys_file": keys, "database_url": f"sqlite:///{tmp_path / 'shared.db'}"}
    body = request(agent="shop", chat_id="c", message_id="m", run_id="r", user={"id": "ann"})
    async with AsyncExitStack() as outer, AsyncExitStack() as first:
        lines = outer.enter_context(capture_logs())
        other = await outer.enter_async_context(serving(tmp_path / "other", Shop().agent, **shared))
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
        call, decision = audited(lines, str(question.tool_call_id))
    assert (call["event"], call["key"]) == ("call", "open-webui")
    assert (decision["decision"], decision["key"], decision["decided_by"]) == ("allowed", "open-webui", "phone")


async def first_question(answer: httpx.Response) -> InputRequest:
    async for _, event in numbered(answer):
        if isinstance(event, InputRequest):
            return event
    raise AssertionError("nothing was asked")


async def test_a_call_of_an_openai_client_whose_user_cannot_be_asked_is_logged_as_not_asked(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with serving(tmp_path, Shop().agent) as service:
            body = {"model": "shop", "messages": [{"role": "user", "content": "hi"}]}
            headers = {"X-OpenWebUI-User-Id": "ann"}
            answer = await service.client.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200
    decisions = [line for line in lines if line["event"] == "decision"]
    assert [(line["user_id"], line["decision"], line["decided_by"]) for line in decisions] == [
        ("ann", "not_asked", None)
    ]
