"""A client with the key acts only for users that Open WebUI has signed, with the agents of their role and groups."""

import base64
import json
import sys
import time
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from callboard.agents import RunContext
from callboard.agents.registry import AgentAccess
from callboard.errors import SettingsError
from callboard.openwebui.signed_users import CLOCKS_DIFFER_SECONDS
from callboard.settings import Settings, load_settings
from callboard_protocol import Done, Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.http.target import wanted
from tests.pipe.loader import PIPE
from tests.serving import ScriptedAgent, Service, numbered, request, serving

SECRET = "the-secret-that-open-webui-signs-with"
HEADER = "X-OpenWebUI-User-Jwt"
KEY = "the-one-key-of-this-server"


def claims(user: str = "ann", **fields: Any) -> dict[str, Any]:
    """What Open WebUI 0.12.4 signs (open_webui/utils/headers.py)."""
    now = int(time.time())
    known = {"email": "a@example.org", "name": "Ann Öz", "role": "user", "iss": "open-webui"}
    return {"sub": user, **known, "iat": now, "exp": now + 300} | fields


def signed(user: str = "ann", secret: str = SECRET, **fields: Any) -> dict[str, str]:
    return {HEADER: jwt.encode(claims(user, **fields), secret, algorithm="HS256")}


async def says_who(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content=context.user.model_dump_json() if context.user else "nobody")


WHO = ScriptedAgent(says_who)
QUESTION = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with serving(tmp_path, WHO, api_key=KEY, open_webui_jwt_secret=SECRET) as running:
        running.client.headers["Authorization"] = f"Bearer {KEY}"
        yield running


async def ask(service: Service, headers: dict[str, str], **fields: Any) -> httpx.Response:
    return await service.client.post("/v1/runs", json=request(**fields), headers=headers)


def said(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    text = "".join(event["content"] for event in events if event["type"] == "message")
    return text if text == "nobody" else json.loads(text)


async def test_the_user_is_the_one_of_the_token_whatever_the_body_says_of_them(service: Service) -> None:
    body = {"id": "ann", "role": "admin", "name": "Root", "groups": ["Owners"]}
    found = said(await ask(service, signed(), user=body))
    assert found == {"id": "ann", "name": "Ann Öz", "email": "a@example.org", "role": "user", "groups": []}
    assert said(await ask(service, signed(groups=["Cooks"]), user={"id": "ann"}))["groups"] == ["Cooks"]


def _encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def unsigned(algorithm: str) -> str:
    return f"{_encode({'alg': algorithm, 'typ': 'JWT'})}.{_encode(claims())}."


def tampered() -> str:
    head, _, signature = signed("eve")[HEADER].split(".")
    return ".".join([head, _encode(claims("ann")), signature])


def without(name: str) -> str:
    return jwt.encode({key: value for key, value in claims().items() if key != name}, SECRET, algorithm="HS256")


def by_public_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(claims(), key, algorithm="RS256")


LATE = CLOCKS_DIFFER_SECONDS + 5
FORGED: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "no token": lambda: "ann",
    "the user in the clear": lambda: json.dumps(claims()),
    "not signed": lambda: unsigned("none"),
    "not signed, in another spelling": lambda: unsigned("NonE"),
    "no signature": lambda: unsigned("HS256"),
    "another's signature": tampered,
    "another secret": lambda: signed(secret=SECRET + "!")[HEADER],
    "the key as the secret": lambda: signed(secret=KEY.ljust(32, "-"))[HEADER],
    "an empty secret": lambda: ".".join([*signed()[HEADER].split(".")[:2], ""]),
    "another algorithm": lambda: jwt.encode(claims(), SECRET.ljust(64, "-"), algorithm="HS512"),
    "a key of one's own": by_public_key,
    "expired": lambda: signed(iat=int(time.time()) - 900, exp=int(time.time()) - LATE)[HEADER],
    "without an end": lambda: without("exp"),
    "without a beginning": lambda: without("iat"),
    "without a user": lambda: without("sub"),
    "from the future": lambda: signed(iat=int(time.time()) + 600, exp=int(time.time()) + 900)[HEADER],
    "of another issuer": lambda: signed(iss="open-webui.evil")[HEADER],
    "without an issuer": lambda: without("iss"),
    "another user's": lambda: signed("eve")[HEADER],
    "an id that only looks the same": lambda: signed("Ann")[HEADER],
    "too long an id": lambda: signed("a" * 300)[HEADER],
}


async def test_a_token_that_is_not_open_webuis_for_this_user_is_refused(service: Service) -> None:
    for name, forge in FORGED.items():
        token = forge()
        answer = await ask(service, {HEADER: token}, user={"id": "ann", "role": "admin"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized"), name
        # Nothing of the secret, nor of the token, is told.
        assert SECRET not in answer.text
        assert not token or token not in answer.text


async def test_a_request_that_names_a_user_without_a_token_or_with_two_is_refused(service: Service) -> None:
    assert (await ask(service, {}, user={"id": "ann"})).status_code == 401
    twice = [(HEADER, signed()[HEADER]), (HEADER, signed("eve")[HEADER])]
    answer = await service.client.post("/v1/runs", json=request(user={"id": "ann"}), headers=twice)
    assert answer.status_code == 401
    # Nobody is nobody.
    assert said(await ask(service, {})) == "nobody"


async def test_a_token_without_the_key_opens_nothing(service: Service) -> None:
    del service.client.headers["Authorization"]
    assert (await ask(service, signed(), user={"id": "ann"})).status_code == 401


async def test_every_route_accepts_only_the_signed_user(tmp_path: Path) -> None:
    async def asks(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="t", tool_name="look", tool_args="{}")
        yield ToolCallComplete(tool_call_id="t", result="seen", files=({"type": "image", "url": "data:,x"},))
        question = InputRequest(request_id="q", kind="confirmation", title="Sure?", timeout_seconds=600)
        await context.ask(question)

    async with serving(tmp_path, ScriptedAgent(asks), open_webui_jwt_secret=SECRET) as service:
        sent = request(user={"id": "ann"}, chat_id="c", run_id="waiting")
        async with service.client.stream("POST", "/v1/runs", json=sent, headers=signed()) as answer:
            async for _, event in numbered(answer):
                if isinstance(event, InputRequest):
                    break
            for (method, path), one in wanted("none").items():
                if path in ("/health", "/ready", "/metrics", "/oauth/callback") or path.startswith("/v1/models"):
                    continue
                body = {**one.body, "user": {"id": "ann"}} if one.body and path == "/v1/runs" else one.body
                url = httpx.URL(one.path).copy_set_param("user_id", "ann")
                for headers in ({}, signed("eve")):
                    named = {**headers, "X-OpenWebUI-User-Id": "ann"}
                    got = await service.client.request(method, url, json=body, headers=named)
                    assert got.status_code == 401, (method, path)
            mine: dict[str, Any] = {"params": {"user_id": "ann"}, "headers": signed()}
            assert (await service.client.get("/v1/runs/waiting", **mine)).json()["ended"] is False
            assert "seen" in (await service.client.get("/v1/chats/c/timeline", **mine)).text
            assert (await service.client.get("/v1/user-data", **mine)).status_code == 200
            assert (await service.client.post("/v1/runs/waiting/cancel", **mine)).status_code == 202


async def test_openais_routes_take_the_user_of_the_token_and_no_other(service: Service) -> None:
    async def content(headers: dict[str, str], **fields: Any) -> Any:
        body = {"model": "scripted", "messages": QUESTION, **fields}
        answer = await service.client.post("/v1/chat/completions", json=body, headers=headers)
        if answer.status_code != 200:
            return answer.status_code
        text = answer.json()["choices"][0]["message"]["content"]
        return text if text == "nobody" else json.loads(text)["id"]

    assert await content(signed()) == "ann"
    assert await content(signed(), user="eve") == "ann"
    assert await content({**signed(), "X-OpenWebUI-User-Id": "ann"}) == "ann"
    assert await content({**signed(), "X-OpenWebUI-User-Id": "eve"}) == 401
    assert await content({"X-OpenWebUI-User-Id": "ann"}) == 401
    assert await content({HEADER: FORGED["not signed"]()}) == 401
    # Whom a body names nobody has signed for.
    assert await content({}, user="ann") == "nobody"


async def test_without_a_secret_the_named_user_is_trusted(tmp_path: Path) -> None:
    async with serving(tmp_path, WHO) as service:
        assert said(await ask(service, {HEADER: "nonsense"}, user={"id": "ann", "role": "admin"}))["role"] == "admin"


def test_short_signing_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="32 characters") as refused:
        load_settings({"CALLBOARD_OPEN_WEBUI_JWT_SECRET": "hunter2-hunter2"})
    assert "hunter2" not in str(refused.value)
    assert SECRET in Settings(open_webui_jwt_secret=SecretStr(SECRET)).secrets


@pytest.fixture
def _open_webui(request: pytest.FixtureRequest) -> Iterator[None]:
    """As much of Open WebUI as the pipe asks of users: its secret, and the groups, which it looks up asynchronously."""

    async def get_groups_by_member_id(user_id: str) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(name=f"Cooks of {user_id}", id="g1")]

    groups = types.SimpleNamespace(get_groups_by_member_id=get_groups_by_member_id)
    names = {
        "open_webui": {},
        "open_webui.models": {},
        "open_webui.env": {"FORWARD_USER_INFO_HEADER_JWT_SECRET": request.param},
        "open_webui.models.groups": {"Groups": groups},
    }
    for name, members in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    yield
    for name in names:
        del sys.modules[name]


async def through_the_pipe(service: Service) -> str:
    pipe = PIPE.Pipe()
    pipe.valves = pipe.Valves(CALLBOARD_URL=str(service.client.base_url), CALLBOARD_API_KEY=KEY)
    body = {"model": "callboard.scripted", "messages": QUESTION}
    user = {"id": "ann", "name": "Ann Öz", "email": "a@example.org", "role": "user"}
    answer = await pipe.pipe(body, __user__=user, __metadata__={"chat_id": "c"})
    assert isinstance(answer, str)
    # And as the user's own afterwards.
    assert await pipe.forget_chat("ann", "c") is ("Callboard:" not in answer)
    return answer


@pytest.mark.usefixtures("_open_webui")
@pytest.mark.parametrize("_open_webui", [SECRET], indirect=True)
async def test_the_pipe_signs_for_its_user_with_open_webuis_own_secret(service: Service) -> None:
    answer = await through_the_pipe(service)
    assert '"id":"ann"' in answer
    assert "Cooks of ann" in answer


@pytest.mark.usefixtures("_open_webui")
@pytest.mark.parametrize("_open_webui", [None, "another-secret-of-thirty-two-letters"], indirect=True)
async def test_a_pipe_without_that_secret_says_in_the_chat_what_is_missing(service: Service) -> None:
    assert "FORWARD_USER_INFO_HEADER_JWT_SECRET" in await through_the_pipe(service)


# ------------------------------------------------------------------------------------------ which agents a user may use


async def speaks(_context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Here.")


AGENTS = [ScriptedAgent(speaks, name) for name in ("open", "coder", "home", "home_two")]
ACCESS = "coder=group:Developers, coder=role:admin, home*=group:The family: Öz"
FAMILY = {"id": "ann", "groups": ["The family: Öz", "Guests"]}


USERS: list[tuple[dict[str, Any] | None, set[str]]] = [
    (None, {"open"}),
    ({"id": "ann"}, {"open"}),
    ({"id": "ann", "groups": ["developers", "Developers2", "admin"]}, {"open"}),
    ({"id": "ann", "role": "Developers"}, {"open"}),
    ({"id": "ann", "groups": ["Developers"]}, {"open", "coder"}),
    ({"id": "ann", "role": "admin"}, {"open", "coder"}),
    (FAMILY, {"open", "home", "home_two"}),
]


async def test_user_without_the_agents_role_or_group_gets_403(tmp_path: Path) -> None:
    async with serving(tmp_path, *AGENTS, agent_access=ACCESS) as service:
        for user, allowed in USERS:
            for agent in AGENTS:
                before = len(list(service.state.runs))
                answer = await service.client.post("/v1/runs", json=request(agent=agent.agent_id, user=user))
                if agent.agent_id in allowed:
                    assert answer.status_code == 200, (user, agent)
                else:
                    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "agent_refused"), (user, agent)
                    assert "Developers" not in answer.text
                    assert len(list(service.state.runs)) == before


async def test_openais_routes_refuse_users_without_access(tmp_path: Path) -> None:
    async with serving(tmp_path, *AGENTS, agent_access=ACCESS) as service:
        headers = {"X-OpenWebUI-User-Id": "ann", "X-OpenWebUI-User-Role": "user"}
        for path, asked in (("chat/completions", "messages"), ("responses", "input")):
            body = {"model": "coder", asked: [{"role": "user", "content": "hi"}]}
            answer = await service.client.post(f"/v1/{path}", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "agent_refused")


async def test_an_unknown_agents_refusal_names_only_agents_that_the_user_may_use(tmp_path: Path) -> None:
    async with serving(tmp_path, *AGENTS, agent_access=ACCESS, open_webui_jwt_secret=SECRET) as service:
        family = signed(groups=["The family: Öz"])
        for headers, named in ((signed(), "open."), (family, "open, home, home_two.")):
            asked = request(agent="nobody", user={"id": "ann"})
            started = await service.client.post("/v1/runs", json=asked, headers=headers)
            for answer in (started, await service.client.get("/v1/models/nobody", headers=headers)):
                assert answer.status_code == 404
                assert f"The agents are: {named} " in answer.json()["error"]["message"]


async def test_unsigned_role_or_group_is_ignored_when_signatures_are_required(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, *AGENTS, agent_access=ACCESS, open_webui_jwt_secret=SECRET) as service:
        claimed = request(agent="coder", user={"id": "ann", "role": "admin", "groups": ["Developers"]})
        answer = await service.client.post("/v1/runs", json=claimed, headers=signed())
        assert answer.status_code == 403
        for headers in (signed(role="admin"), signed(groups=["Developers"])):
            answer = await service.client.post("/v1/runs", json=claimed, headers=headers)
            assert answer.status_code == 200
        listed = await service.client.get("/v1/models", headers=signed())
        assert [one["id"] for one in listed.json()["data"]] == ["open"]
        # To the pipe, which asks for nobody, all of them.
        assert len((await service.client.get("/v1/models")).json()["data"]) == len(AGENTS)


async def test_run_id_gives_other_users_no_access_to_the_agent(tmp_path: Path) -> None:
    async with serving(tmp_path, *AGENTS, agent_access=ACCESS) as service:
        events = await service.events(request(agent="coder", run_id="r", user={"id": "ann", "role": "admin"}))
        assert isinstance(events[-1], Done)
        answer = await service.client.post(
            "/v1/runs", json=request(agent="coder", run_id="r", user={"id": "eve", "role": "user"})
        )
        assert answer.status_code == 409


@pytest.mark.parametrize("entry", ["coder", "coder=", "coder=admin", "coder=user:ann", "=role:admin", "coder=role:"])
def test_invalid_access_entry_is_a_settings_error(entry: str) -> None:
    with pytest.raises(SettingsError, match="CALLBOARD_AGENT_ACCESS"):
        load_settings({"CALLBOARD_AGENT_ACCESS": f"open=role:user,{entry}"})


def test_access_entries_for_unknown_agents_are_reported() -> None:
    access = AgentAccess.of(["codr=role:admin", "home*=role:admin", "open=role:user"])
    assert access.unknown(["coder", "home_two", "open"]) == ["codr"]
