"""`GET /v1/models`: which agents it lists, with which fields."""

from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent, load_all_agents
from callboard.settings import Settings
from callboard_protocol import Message
from tests.serving import request, serving


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["demo", "own", "home"]),
        ({"model_base_url": "http://127.0.0.1:1/v1"}, ["demo", "assistant", "naked", "own", "home"]),
    ],
)
async def test_built_in_agents_that_need_a_model_are_listed_once_there_is_one(
    tmp_path: Path, settings: dict[str, Any], expected: list[str]
) -> None:
    built_in = load_all_agents(Settings(**settings), {}).registry
    async with serving(tmp_path, *built_in, Agent("own"), Agent("home"), **settings) as service:
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert [one["id"] for one in listed] == expected


async def test_an_agent_that_is_not_listed_says_how_to_connect_a_model(tmp_path: Path) -> None:
    async with serving(tmp_path, *load_all_agents(Settings(), {}).registry) as service:
        events = await service.events(request(agent="naked"))
        assert "CALLBOARD_MODEL_BASE_URL" in "".join(event.content for event in events if isinstance(event, Message))


async def test_each_agent_has_its_suggestions_and_its_icon(tmp_path: Path) -> None:
    icon = "data:image/png;base64,QUJD"
    cook = Agent("cook", "Cooks.", suggestions=["What is in the fridge?"], icon=icon)
    async with serving(tmp_path, cook, Agent("other")) as service:
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert (listed[0]["suggestions"], listed[0]["icon"]) == (["What is in the fridge?"], icon)
        assert (listed[0]["name"], listed[0]["description"]) == ("cook", "Cooks.")
        assert listed[0]["created"] > 0
        assert listed[1].keys().isdisjoint({"suggestions", "icon"})
