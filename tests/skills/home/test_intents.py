"""Home Assistant's own tools, by its MCP server."""

from contextlib import AbstractAsyncContextManager

import pytest

from callboard.calls import Services
from callboard.errors import ToolError
from callboard.models import ScriptedModel
from callboard.skills import HomeAssistantIntents, Skill
from callboard.storage import Store
from tests.fakes.home_assistant import INTENTS, TOKEN, HomeAssistantServer
from tests.skills.calling import ToolRunner


def running(skill: Skill, store: Store) -> AbstractAsyncContextManager[Skill]:
    """The skill while an application runs."""
    return skill.open(Services(store, ScriptedModel(lambda _: [])))


async def test_intents_are_tools_that_the_prompt_explains_while_home_assistant_lets_us_in(
    assistant: HomeAssistantServer, store: Store
) -> None:
    skill = HomeAssistantIntents(f"{assistant.url}/", TOKEN)
    assert (skill.current_tools(), skill.current_prompt()) == ((), "")
    async with running(skill, store) as opened:
        tools = opened.current_tools()
        assert {tool.name for tool in tools} == {f"home_{intent['name']}" for intent in INTENTS}
        changing = {tool.name for tool in tools if tool.does_change({})}
        assert changing == {"home_HassTurnOn", "home_HassTurnOff", "home_HassLightSet"}
        assert "action_done" in await ToolRunner(opened, store).text("home_HassTurnOn", name="Bed Light")
        assert assistant.states["light.bed_light"]["state"] == "on"
        with pytest.raises(ToolError, match="MatchFailedError"):
            await ToolRunner(opened, store).text("home_HassTurnOn", name="Nothing")
        prompt = opened.current_prompt()
    assert "`area` (a room) or `floor` means everything in it" in prompt
    assert "- home_HassLightSet: name, or area or floor, and one of brightness" in prompt
    assert "HassSetVolume" not in prompt
    async with running(HomeAssistantIntents(assistant.url, "not-the-token"), store) as opened:
        assert opened.current_tools() == ()


FILLED: dict[str, object] = {"area": "", "floor": None, "domain": [], "color": " "}


@pytest.mark.parametrize(
    ("intent", "arguments", "sent"),
    [
        ("HassLightSet", {"brightness": 40, "temperature": 0}, {"brightness": 40}),
        ("HassLightSet", {"brightness": 0, "temperature": 2700}, {"temperature": 2700}),
        ("HassLightSet", {"brightness": 0, "temperature": 0}, {"brightness": 0}),
    ],
)
async def test_empty_arguments_are_not_sent_to_intents(
    assistant: HomeAssistantServer, store: Store, intent: str, arguments: dict[str, object], sent: dict[str, object]
) -> None:
    async with running(HomeAssistantIntents(assistant.url, TOKEN), store) as opened:
        await ToolRunner(opened, store).text(f"home_{intent}", name="Bed Light", **FILLED | arguments)
    assert assistant.called == [(intent, "light.bed_light", {"name": "Bed Light", **sent})]


async def test_an_area_and_a_brightness_mean_its_lights(assistant: HomeAssistantServer, store: Store) -> None:
    asked = {"area": "Living Room", "brightness": 40}
    async with running(HomeAssistantIntents(assistant.url, TOKEN), store) as opened:
        await ToolRunner(opened, store).text("home_HassLightSet", **asked)
    lights = ["light.ceiling_lights", "light.living_room_rgbww_lights"]
    assert [entity_id for _, entity_id, _ in assistant.called] == lights
