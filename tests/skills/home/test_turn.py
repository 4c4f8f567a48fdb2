"""The tool within a turn: the user's consent, and the limit over all calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import HomeAssistant, HomeAssistantIntents
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer
from tests.loop.conftest import wants
from tests.serving import request, serving

Call = dict[str, Any]


async def played(folder: Path, agent: Agent, answer: object = None) -> list[Event]:
    """The events of a run in which the user gives this answer to every question."""
    async with serving(folder, agent) as service:
        return await service.events_with_answer(request(agent="house", run_id="r", chat_id="c"), answer)


OPEN: Call = {"action": "set", "targets": ["garage door"], "command": "open"}
LOOK: Call = {"action": "query", "area": "garage"}


async def test_confirm_home_asks_only_about_changes(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    agent = naming(assistant, [("home", LOOK), ("home", OPEN)], confirm=("home",))
    events = await played(tmp_path, agent, answer=True)
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert asked.tool_call_id == "1"
    assert assistant.called == [("cover.open_cover", "cover.garage_door", {})]


def naming(home: HomeAssistantServer, calls: Sequence[tuple[str, Call]], **fields: Any) -> Agent:
    """An agent with all tools of the house, whose model makes one of these calls in each round."""

    def script(asked: ModelRequest) -> list[ModelDelta]:
        made = sum(message["role"] == "assistant" for message in asked.messages)
        if made == len(calls):
            return [TextDelta("Done.")]
        name, arguments = calls[made]
        return [wants(name, arguments, call_id=f"{made}")]

    skills = (HomeAssistant(home.url, TOKEN), HomeAssistantIntents(home.url, TOKEN))
    return Agent("house", skills=skills, model=ScriptedModel(script), **fields)


async def outcomes(
    folder: Path, assistant: HomeAssistantServer, *calls: tuple[str, Call]
) -> list[ToolCallComplete | ToolCallError]:
    events = await played(folder, naming(assistant, calls))
    return [event for event in events if isinstance(event, ToolCallComplete | ToolCallError)]


def codes(ended: Sequence[ToolCallComplete | ToolCallError]) -> list[str]:
    return [event.code if isinstance(event, ToolCallError) else "done" for event in ended]


async def test_changes_of_both_skills_count_together(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    names = ("Bed Light", "Kitchen Lights", "Ceiling Lights", "AC", "Decorative Lights")
    intents = [("home_HassTurnOn", {"name": name}) for name in names]
    ended = await outcomes(tmp_path, assistant, *intents[:2], ("home", OPEN), *intents[2:], ("home_GetLiveContext", {}))
    assert codes(ended) == ["done", "done", "done", "limit", "limit", "limit", "done"]
    assert len(assistant.called) == 3


def put(assistant: HomeAssistantServer, area_id: str, lights: int, **entry: Any) -> None:
    for number in range(lights):
        assistant.add(f"light.more_{number}", f"More {number}", area_id=area_id)
        assistant.entries[f"light.more_{number}"] = {**(assistant.entries[f"light.more_{number}"] or {}), **entry}


def area(assistant: HomeAssistantServer, floor: str) -> None:
    """Add an area on its own floor."""
    assistant.floors.append({"floor_id": floor, "name": floor.title(), "aliases": []})
    assistant.areas.append({"area_id": "loft", "name": "Loft", "aliases": [], "floor_id": floor})


@pytest.mark.parametrize("where", [{"floor": "attic"}, {"area": "loft", "domain": ["light"]}])
async def test_intent_for_area_or_floor_counts_each_entity(
    tmp_path: Path, assistant: HomeAssistantServer, where: Call
) -> None:
    area(assistant, "attic")
    put(assistant, "loft", 4)
    ended = await outcomes(tmp_path, assistant, ("home_HassTurnOff", where), ("home_HassTurnOn", {"name": "AC"}))
    assert codes(ended) == ["limit", "done"]
    assert [entity_id for _, entity_id, _ in assistant.called] == ["switch.ac"]


async def test_count_is_corrected_to_actual_changes(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    area(assistant, "attic")
    put(assistant, "loft", 2)
    wide = ("home_HassLightSet", {"area": "Loft", "brightness": 20})
    ended = await outcomes(tmp_path, assistant, wide, ("home", OPEN), ("home_HassTurnOn", {"name": "AC"}))
    assert codes(ended) == ["done", "done", "limit"]


async def test_unexposed_entities_do_not_count(tmp_path: Path, assistant: HomeAssistantServer) -> None:
    area(assistant, "attic")
    put(assistant, "loft", 5, options={"conversation": {"should_expose": False}})
    assistant.add("light.shown", "Shown", area_id="loft")
    ended = await outcomes(tmp_path, assistant, ("home_HassTurnOn", {"area": "Loft", "domain": ["light"]}))
    assert codes(ended) == ["done"]
    assert [entity_id for _, entity_id, _ in assistant.called] == ["light.shown"]
