"""Access to agents by role and group; if signatures are required, only signed roles and groups count."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentAccess, RunContext
from callboard.errors import SettingsError
from callboard.settings import load_settings
from callboard_protocol import Done, Event, Message
from tests.http.test_signed_users import SECRET, signed
from tests.serving import ScriptedAgent, request, serving


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
