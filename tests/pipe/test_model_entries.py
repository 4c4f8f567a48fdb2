"""Entries of agents among Open WebUI's models, without which only admins see an agent."""

import logging
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.pipe.loader import provide_open_webui
from tests.pipe.scripted_server import ScriptedServer, answer_json
from tests.pipe.test_stream import a_pipe

ICON = "data:image/png;base64,QUJD"
AGENTS = [
    {"id": "cook", "name": "Cook", "description": "Cooks.", "suggestions": ["What is left?"], "icon": ICON},
    {"id": "guard", "name": "Guard"},
]
PREFIX = "callboard_under_test"


@dataclass
class OpenWebUI:
    """Open WebUI's tables of models, groups and users, as functions see them."""

    entries: dict[str, Any] = field(default_factory=dict)
    inserted: list[tuple[str, str]] = field(default_factory=list)

    def modules(self) -> dict[str, dict[str, Any]]:
        groups = [types.SimpleNamespace(id="g1", name="Family"), types.SimpleNamespace(id="g2", name="Work")]
        models = types.SimpleNamespace(
            get_base_models=self.method(lambda: list(self.entries.values())),
            insert_new_model=self.method(self.insert),
        )
        users = types.SimpleNamespace(get_super_admin_user=self.method(lambda: types.SimpleNamespace(id="admin")))
        return {
            "models.models": {"Models": models, "ModelForm": types.SimpleNamespace},
            "models.groups": {"Groups": types.SimpleNamespace(get_groups=self.method(lambda **_: groups))},
            "models.users": {"Users": users},
        }

    def method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def as_coroutine(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **named)

        return as_coroutine

    def insert(self, entry: Any, user_id: str) -> None:
        self.inserted.append((entry.id, user_id))
        self.entries[entry.id] = entry


@pytest.fixture
def open_webui(monkeypatch: pytest.MonkeyPatch) -> OpenWebUI:
    webui = OpenWebUI()
    provide_open_webui(monkeypatch, webui.modules())
    return webui


def listing(server: ScriptedServer, access: str) -> Any:
    """A pipe with that valve, whose server lists the agents."""
    server.on("GET", "models", answer_json({"data": AGENTS}))
    pipe = a_pipe(server.url)
    pipe.valves.ACCESS = access
    return pipe


@pytest.mark.parametrize(
    ("access", "grants"),
    [
        ("admins", []),
        ("everyone", [{"principal_type": "user", "principal_id": "*", "permission": "read"}]),
        ("group:Work", [{"principal_type": "group", "principal_id": "g2", "permission": "read"}]),
    ],
)
async def test_an_agent_gets_its_entry_once(
    server: ScriptedServer, open_webui: OpenWebUI, access: str, grants: list[dict[str, str]]
) -> None:
    pipe = listing(server, access)
    await pipe.pipes()
    await pipe.pipes()
    assert open_webui.inserted == [(f"{PREFIX}.cook", "admin"), (f"{PREFIX}.guard", "admin")]
    cook, guard = open_webui.entries.values()
    assert (cook.name, cook.access_grants) == ("Cook", grants)
    assert cook.meta == {
        "description": "Cooks.",
        "profile_image_url": ICON,
        "suggestion_prompts": [{"content": "What is left?", "title": ["What is left?", ""]}],
    }
    assert guard.meta == {"description": "", "profile_image_url": None, "suggestion_prompts": None}


async def test_existing_entry_is_unchanged(server: ScriptedServer, open_webui: OpenWebUI) -> None:
    theirs = types.SimpleNamespace(id=f"{PREFIX}.cook", name="Our cook", access_grants=[])
    open_webui.entries[theirs.id] = theirs
    await listing(server, "everyone").pipes()
    assert open_webui.entries[theirs.id] is theirs
    assert open_webui.inserted == [(f"{PREFIX}.guard", "admin")]


@pytest.mark.parametrize("access", ["", "group:Nobody"])
async def test_empty_or_unknown_access_lists_the_agents_without_entries(
    server: ScriptedServer, open_webui: OpenWebUI, access: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    agents = await listing(server, access).pipes()
    assert [agent["id"] for agent in agents] == ["cook", "guard"]
    assert open_webui.inserted == []
    assert ("everyone, admins or group:NAME" in caplog.text) == bool(access)


async def test_agents_are_listed_even_if_entries_cannot_be_added(server: ScriptedServer) -> None:
    agents = await listing(server, "everyone").pipes()
    assert [agent["id"] for agent in agents] == ["cook", "guard"]
