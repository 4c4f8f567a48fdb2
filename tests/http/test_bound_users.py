"""A caller bound to one user can read and write for that user only, on every route."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard import Agent, Callboard, Principal, RunContext, Settings, Skill
from callboard.agents import AgentLike
from callboard.testing.serving import listening
from callboard_protocol import Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, numbered, request

PEOPLE = {"ada": ("member", "Accounts"), "bob": ("member",)}


async def by_name(connection: HTTPConnection) -> Principal | None:
    """`Bearer ada` is Ada's own; `Bearer service` may ask for everybody."""
    name = connection.headers.get("authorization", "").removeprefix("Bearer ")
    if name == "service":
        return Principal("service")
    return Principal(name, user_id=name, roles=PEOPLE[name]) if name in PEOPLE else None


async def says_who(context: RunContext) -> AsyncIterator[Event]:
    user = context.user
    yield ToolCallStart(tool_call_id="look", tool_name="look", tool_args={})
    yield ToolCallComplete(tool_call_id="look", result=f"records of {user.id if user else 'nobody'}")
    yield Message(content=user.model_dump_json() if user else "nobody")


async def who_asks(request: Request) -> Response:
    return JSONResponse(request.query_params.get("user_id", ""))


NOTES = Skill("notes", "Keeps notes.", routes=[Route("/all", who_asks)])
AGENTS: list[AgentLike] = [ScriptedAgent(says_who), ScriptedAgent(says_who, "accountant"), Agent("a", skills=[NOTES])]


@asynccontextmanager
async def served(tmp_path: Path, *agents: AgentLike, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    board = Callboard(
        agents or AGENTS, authenticate=by_name, settings=Settings(data_dir=tmp_path, **settings), store=None
    )
    async with listening(board.asgi()) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


def of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def chat(path: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    asked = "input" if path == "responses" else "messages"
    return f"/v1/{path}", {"model": "scripted", asked: [{"role": "user", "content": "hi"}], **fields}


@pytest.mark.parametrize("claimed", [None, {"id": "bob", "role": "admin", "email": "r@x"}])
async def test_the_run_is_the_callers_whatever_the_body_says_of_their_role(
    tmp_path: Path, claimed: dict[str, str] | None
) -> None:
    async with served(tmp_path) as client:
        answer = await client.post("/v1/runs", json=request(user=claimed), headers=of("bob"))
    assert answer.status_code == 200
    assert "records of bob" in answer.text
    assert r"\"role\":\"member\",\"groups\":[]" in answer.text
    assert "admin" not in answer.text
    assert "r@x" not in answer.text


FOR_ADA: list[tuple[str, str, Any, dict[str, str]]] = [
    ("POST", "/v1/runs", request(user={"id": "ada"}), {}),
    ("POST", *chat("chat/completions", user="ada"), {}),
    ("POST", *chat("responses", user="ada"), {}),
    ("POST", *chat("chat/completions"), {"X-OpenWebUI-User-Id": "ada"}),
    ("POST", *chat("responses"), {"X-OpenWebUI-User-Id": "ada"}),
    ("GET", "/v1/responses/resp_1?user=ada", None, {}),
    ("GET", "/v1/runs/r?user_id=ada", None, {}),
    ("GET", "/v1/runs/r/events?user_id=ada", None, {}),
    ("GET", "/v1/runs/r/files/f?user_id=ada", None, {}),
    ("POST", "/v1/runs/r/cancel?user_id=ada", {}, {}),
    ("POST", "/v1/runs/r/input?user_id=ada", {"request_id": "q", "value": True}, {}),
    ("GET", "/v1/chats/c/messages?user_id=ada", None, {}),
    ("GET", "/v1/chats/c/timeline?user_id=bob&user_id=ada", None, {}),
    ("DELETE", "/v1/chats/c?user_id=ada", None, {}),
    ("DELETE", "/v1/chats?user_id=ada", None, {}),
    ("GET", "/v1/approvals?user_id=ada", None, {}),
    ("GET", "/v1/tool-calls?user_id=ada", None, {}),
    ("GET", "/v1/tool-calls/look?chat_id=c&user_id=ada", None, {}),
    ("GET", "/v1/user-data?user_id=ada", None, {}),
    ("DELETE", "/v1/user-data?user_id=ada", None, {}),
    ("GET", "/skills/notes/all?user_id=ada", None, {}),
]


async def test_a_request_that_names_another_user_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.post("/v1/runs", json=request(chat_id="c", run_id="r", user={"id": "ada"}), headers=of("service"))
        for method, path, body, headers in FOR_ADA:
            answer = await client.request(method, path, json=body, headers=of("bob") | headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "user_refused"), path
            assert "'bob'" in answer.json()["error"]["message"]
        kept = await client.get("/v1/chats/c/messages?user_id=ada", headers=of("service"))
        assert kept.status_code == 200, "and nothing was done"


OF_ADA = [
    ("GET", "/v1/runs/r"),
    ("GET", "/v1/runs/r/events"),
    ("POST", "/v1/runs/r/cancel"),
    ("GET", "/v1/chats/c/messages"),
    ("GET", "/v1/chats/c/timeline"),
    ("GET", "/v1/tool-calls/look?chat_id=c"),
    ("DELETE", "/v1/chats/c"),
]


async def test_request_without_a_user_reads_the_callers_data_only(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.post("/v1/runs", json=request(chat_id="c", run_id="r"), headers=of("ada"))
        for method, path in OF_ADA:
            assert (await client.request(method, path, headers=of("bob"))).status_code == 404, path
            assert (await client.request(method, path, headers=of("ada"))).status_code in (200, 202, 204), path


async def test_lists_and_user_data_are_limited_to_the_caller(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.post("/v1/runs", json=request(chat_id="c"), headers=of("ada"))
        for name, calls in (("ada", 1), ("bob", 0)):
            assert len((await client.get("/v1/tool-calls", headers=of(name))).json()["tool_calls"]) == calls
            assert ("records of ada" in (await client.get("/v1/user-data", headers=of(name))).text) == bool(calls)
            assert (await client.get("/skills/notes/all", headers=of(name))).json() == name
        assert (await client.delete("/v1/chats", headers=of("bob"))).status_code == 204
        assert (await client.get("/v1/chats/c/messages", headers=of("ada"))).status_code == 200
        assert (await client.delete("/v1/user-data", headers=of("ada"))).json()["user_id"] == "ada"
        assert (await client.get("/v1/chats/c/messages", headers=of("ada"))).status_code == 404


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize("fields", [{"user": ""}, {"user": "bob"}])
async def test_openais_routes_answer_the_caller(tmp_path: Path, path: str, fields: dict[str, str]) -> None:
    async with served(tmp_path) as client:
        url, body = chat(path, **fields)
        answer = await client.post(url, json=body, headers=of("bob"))
        assert r"\"id\":\"bob\"" in answer.text
        if path == "responses":
            kept = f"/v1/responses/{answer.json()['id']}"
            assert (await client.get(kept, headers=of("bob"))).status_code == 200
            assert (await client.get(kept, headers=of("ada"))).status_code == 404


async def test_agent_access_uses_the_roles_of_the_principal(tmp_path: Path) -> None:
    async with served(tmp_path, agent_access="accountant=group:Accounts,scripted=role:member") as client:
        claimed = {"id": "bob", "groups": ["Accounts"]}
        refused = await client.post("/v1/runs", json=request(agent="accountant", user=claimed), headers=of("bob"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "agent_refused")
        listed = [one["id"] for one in (await client.get("/v1/models", headers=of("bob"))).json()["data"]]
        assert listed == ["scripted", "a"]
        assert (await client.post("/v1/runs", json=request(agent="accountant"), headers=of("ada"))).status_code == 200


async def test_question_of_another_users_run_cannot_be_answered(tmp_path: Path) -> None:
    async def asks(context: RunContext) -> AsyncIterator[Event]:
        question = InputRequest(request_id="q", kind="confirmation", title="Pay?", timeout_seconds=60)
        yield Message(content=f"Paid: {await context.ask(question)}")

    async with served(tmp_path, ScriptedAgent(asks)) as client:
        body = {"request_id": "q", "value": True}
        said: list[str] = []
        async with client.stream("POST", "/v1/runs", json=request(run_id="r"), headers=of("ada")) as stream:
            async for _, event in numbered(stream):
                if isinstance(event, InputRequest):
                    for name, status in (("bob", 404), ("ada", 202)):
                        answer = await client.post("/v1/runs/r/input", json=body, headers=of(name))
                        assert answer.status_code == status
                if isinstance(event, Message):
                    said.append(event.content)
    assert said == ["Paid: True"]


async def test_the_inspector_opens_for_one_users_caller_only_if_it_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        assert (await client.get("/inspect/", headers=of("service"))).status_code == 200
        client.cookies.clear()
        assert (await client.get("/inspect/", headers=of("bob"))).status_code == 401
    async with served(tmp_path, inspect_keys="ada") as client:
        assert (await client.get("/inspect/", headers=of("bob"))).status_code == 401
        assert (await client.get("/inspect/", headers=of("ada"))).status_code == 200


@pytest.mark.parametrize("user_id", ["", "a\nb", "x" * 256])
def test_principal_with_an_invalid_user_id_raises(user_id: str) -> None:
    with pytest.raises(ValueError, match="cannot have user_id"):
        Principal("bob", user_id=user_id)


def test_principal_with_a_string_as_roles_raises() -> None:
    with pytest.raises(TypeError, match=r"roles=\('admin',\)"):
        Principal("bob", user_id="bob", roles="admin")
