"""Who sees the agents: entries in a real Open WebUI, their descriptions and suggestions, and what admins change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import install_pipe
from tests.e2e.conftest import OpenWebUI, install
from tests.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

SUGGESTIONS = ["Show me everything", "Something slow", "Ask me before you delete", "A picture"]


def add_user(admin: install_pipe.OpenWebUI, name: str) -> tuple[str, install_pipe.OpenWebUI]:
    """The id of a new user with the role "user", and the API for that user."""
    body = {"name": name, "email": f"{name}@example.org", "password": "Password-1", "role": "user"}
    user = admin.ask("POST", "/api/v1/auths/add", body, doing="add a user")
    return user["id"], install_pipe.OpenWebUI(admin.url, token=user["token"])


def list_agents(webui: install_pipe.OpenWebUI, function_id: str) -> dict[str, Any]:
    """The models of that pipe that are listed there, by the agents' ids."""
    models = webui.ask("GET", "/api/models", doing="list the models")["data"]
    ids = {model["id"].partition(".")[2]: model for model in models}
    return {agent: model for agent, model in ids.items() if model["id"].partition(".")[0] == function_id}


async def test_a_group_sees_the_agents_and_nobody_else_does(
    open_webui: OpenWebUI, server: Server, admin: install_pipe.OpenWebUI
) -> None:
    group = admin.ask("POST", "/api/v1/groups/create", {"name": "Family", "description": ""}, doing="add a group")
    member_id, member = add_user(admin, "member")
    _, stranger = add_user(admin, "stranger")
    admin.ask("POST", f"/api/v1/groups/id/{group['id']}/users/add", {"user_ids": [member_id]}, doing="add a member")
    installed = await asyncio.to_thread(install, open_webui, server, "family", ACCESS="group:Family")
    assert installed.audience == "the group Family"
    assert installed.checked.startswith("a new user with the role 'user' sees ")
    assert installed.checked.endswith(" answers")
    assert list_agents(stranger, "family") == {}
    demo = list_agents(member, "family")["demo"]
    assert demo["name"] == "Demo"
    assert demo["info"]["meta"]["description"].startswith("Shows what tool calls look like")
    assert [one["content"] for one in demo["info"]["meta"]["suggestion_prompts"]] == SUGGESTIONS
    entries = {entry["id"]: entry for entry in admin.ask("GET", "/api/v1/models/base", doing="list entries")}
    assert entries["family.demo"]["meta"]["profile_image_url"].startswith("data:image/png;base64,")
    users = admin.ask("GET", "/api/v1/users/all", doing="list the users")["users"]
    assert not [user for user in users if user["name"] == "Callboard's check"]
