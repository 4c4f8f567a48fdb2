"""Tools that the user allows always in a chat: they run without a question there, and nowhere else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.runs.grants import Grants
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError, ToolRequest, ToolStatus
from tests.http.test_consent import Shop
from tests.loop.conftest import wants
from tests.serving import Service, numbered, request, serving
from tests.waiting import parked_run

ADA = {"id": "ada"}


async def ask(service: Service, answer: Any, **fields: Any) -> list[Event]:
    """Return the events of a run in which a piano is bought if the user agrees."""
    body = request(**{"agent": "shop", "chat_id": "c", "user": ADA} | fields)
    events: list[Event] = []
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        run_id = response.headers["X-Callboard-Run"]
        async for _, event in numbered(response):
            events.append(event)
            if isinstance(event, ToolRequest):
                sent = {"request_id": event.request_id, "value": {"text": "bought"}}
                assert (await service.client.post(f"/v1/runs/{run_id}/input?user_id=ada", json=sent)).is_success
            if isinstance(event, InputRequest):
                sent = {"request_id": event.request_id, "value": answer}
                user = body.get("user")
                path = f"/v1/runs/{run_id}/input" + (f"?user_id={user['id']}" if user else "")
                assert (await service.client.post(path, json=sent)).status_code == 202
    return events


def questions(events: list[Event]) -> list[InputRequest]:
    return [event for event in events if isinstance(event, InputRequest)]


async def list_grants(service: Service, user_id: str = "ada") -> list[dict[str, Any]]:
    found = (await service.client.get("/v1/chats/c/grants", params={"user_id": user_id})).json()["grants"]
    return [dict(one) for one in found]


def steps(events: list[Event]) -> list[str]:
    return [event.data.message for event in events if isinstance(event, ToolStatus)]


async def test_tool_that_is_always_allowed_runs_without_a_question_until_it_is_revoked(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        first = await ask(service, "always")
        second = await ask(service, False)
        [grant] = await list_grants(service)
        of_tool = {"agent_id": "shop", "tool_name": "buy"}
        await service.client.delete("/v1/chats/c/grants", params={"user_id": "bob", **of_tool})
        assert await list_grants(service) == [grant]
        revoked = await service.client.delete("/v1/chats/c/grants", params={"user_id": "ada", **of_tool})
        assert await list_grants(service) == []
        third = await ask(service, False)
    assert revoked.status_code == 204
    [question] = questions(first)
    assert question.remember
    assert steps(first)[-1] == steps(second)[-1] == "allowed always in this chat"
    assert questions(second) == []
    assert [event.tool_name for event in second if isinstance(event, ToolCallComplete)] == ["buy", "buy"]
    assert (grant["agent_id"], grant["tool_name"]) == ("shop", "buy")
    assert len(questions(third)) == 1
    assert [bought for bought in shop.bought if bought[1] > 10] == [("a <b>piano</b>", 900)] * 2


async def test_tool_that_settings_name_cannot_be_allowed_always_and_is_allowed_no_more(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        await ask(service, "always")
    async with serving(tmp_path, shop.agent, forbid_always="b*") as service:
        assert await list_grants(service) == []
        [question] = questions(await ask(service, "always"))
    assert not question.remember
    assert [bought for bought in shop.bought if bought[1] > 10] == [("a <b>piano</b>", 900)]


@pytest.mark.parametrize("elsewhere", [{"chat_id": "d"}, {"chat_id": "d", "user": {"id": "bob"}}, {"agent": "twin"}])
async def test_grant_holds_for_no_other_chat_user_or_agent(tmp_path: Path, elsewhere: dict[str, Any]) -> None:
    shop = Shop().agent
    async with serving(tmp_path, shop, replace(shop, agent_id="twin")) as service:
        await ask(service, "always")
        assert len(questions(await ask(service, False, **elsewhere))) == 1


def a_workspace_tool(tool_id: str) -> dict[str, Any]:
    """A tool of Open WebUI's workspace with the name of the shop's own, which Open WebUI is set to ask about."""
    return {"openwebui_tools": [{"name": "buy", "id": tool_id, "asks_first": True}]}


async def test_grant_holds_for_no_tool_of_the_same_name_from_elsewhere(tmp_path: Path) -> None:
    async with serving(tmp_path, Shop().agent) as service:
        await ask(service, "always")

    def script(asked: ModelRequest) -> list[ModelDelta]:
        if asked.messages[-1]["role"] == "tool":
            return [TextDelta("Done.")]
        return [wants("buy", {"thing": "a piano"}, call_id="foreign")]

    async with serving(tmp_path, Agent("shop", model=ScriptedModel(script))) as service:
        assert len(questions(await ask(service, "always", **a_workspace_tool("buyer")))) == 1
        assert questions(await ask(service, False, **a_workspace_tool("buyer"))) == []
        assert len(questions(await ask(service, False, **a_workspace_tool("thief")))) == 1
        found = await Grants(service.state.store, "ada", "c").list()
    assert [grant.tool_name for grant in found] == ["buy"]


@pytest.mark.parametrize("fields", [{"chat_id": None}, {"user": None}])
async def test_always_is_no_answer_if_it_cannot_be_remembered(tmp_path: Path, fields: dict[str, Any]) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        [question] = questions(await ask(service, "always", **fields))
    assert not question.remember
    assert shop.bought == [("a pen", 1)]


async def test_refusal_of_a_waiting_call_counts_if_its_tool_was_allowed_always_since(tmp_path: Path) -> None:
    async with parked_run(tmp_path) as parked:
        [refund] = parked.agent.tools
        await Grants(parked.service.state.store, "ann", "chat").add("till", "refund", refund.fingerprint)
        client = parked.service.client
        [waiting] = (await client.get("/v1/approvals?user_id=ann")).json()["approvals"]
        refused = {"request_id": waiting["request_id"], "value": False}
        response = await client.post("/v1/runs/run/input?user_id=ann", json=refused)
        events = await parked.read_rest()
    assert response.status_code == 202
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["denied"]
    assert parked.paid == []
