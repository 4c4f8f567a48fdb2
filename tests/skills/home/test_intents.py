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


async def test_its_intents_are_tools_of_the_skill(assistant: HomeAssistantServer, store: Store) -> None:
    async with running(HomeAssistantIntents(f"{assistant.url}/", TOKEN), store) as opened:
        assert {tool.name for tool in opened.current_tools()} == {f"home_{intent['name']}" for intent in INTENTS}
        assert "action_done" in await ToolRunner(opened, store).text("home_HassTurnOn", name="Bed Light")
        assert assistant.states["light.bed_light"]["state"] == "on"
        with pytest.raises(ToolError, match="MatchFailedError"):
            await ToolRunner(opened, store).text("home_HassTurnOn", name="Nothing")


async def test_refused_token_leaves_skill_without_tools(assistant: HomeAssistantServer, store: Store) -> None:
    async with running(HomeAssistantIntents(assistant.url, "not-the-token"), store) as opened:
        assert opened.current_tools() == ()


def test_no_intents_before_application_starts() -> None:
    skill = HomeAssistantIntents("http://home.local", TOKEN)
    assert (skill.current_tools(), skill.current_prompt()) == ((), "")


async def test_prompt_lists_arguments_of_available_intents(assistant: HomeAssistantServer, store: Store) -> None:
    async with running(HomeAssistantIntents(assistant.url, TOKEN), store) as opened:
        prompt = opened.current_prompt()
    assert "`area` (a room) or `floor` means everything in it" in prompt
    assert "- home_HassLightSet: name, or area or floor, and one of brightness" in prompt
    assert "HassSetVolume" not in prompt


async def test_read_only_intents_are_no_changes(assistant: HomeAssistantServer, store: Store) -> None:
    async with running(HomeAssistantIntents(assistant.url, TOKEN), store) as opened:
        changing = {tool.name for tool in opened.current_tools() if tool.does_change({})}
        assert changing == {"home_HassTurnOn", "home_HassTurnOff", "home_HassLightSet"}


FILLED: dict[str, object] = {"area": "", "floor": None, "domain": [], "color": " "}


@pytest.mark.parametrize(
    ("intent", "arguments", "sent"),
    [
        ("HassTurnOn", {}, {}),
        ("HassLightSet", {"brightness": 40, "temperature": 0}, {"brightness": 40}),
        ("HassLightSet", {"brightness": 0, "temperature": 2700}, {"temperature": 2700}),
        ("HassLightSet", {"brightness": 0}, {"brightness": 0}),
        ("HassLightSet", {"brightness": 0, "temperature": 0}, {"brightness": 0}),
    ],
)
async def test_empty_arguments_are_not_sent_to_intents(
    assistant: HomeAssistantServer, store: Store, intent: str, arguments: dict[str, object], sent: dict[str, object]
) -> None:
    async with running(HomeAssistantIntents(assistant.url, TOKEN), store) as opened:
        await ToolRunner(opened, store).text(f"home_{intent}", name="Bed Light", **FILLED | arguments)
    assert assistant.called == [(intent, "light.bed_light", {"name": "Bed Light", **sent})]
