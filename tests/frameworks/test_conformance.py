"""Every scenario runs through the built-in loop and every adapter, and a listener sees the same events."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from callboard.agents import AgentLike
from callboard.calls.approval import TOOL_CHANGED
from callboard_protocol import InputRequest, ToolCallError
from tests.fakes.openai_server import Body
from tests.frameworks.columns import FRAMEWORKS, Column
from tests.frameworks.scenario import INSTRUCTIONS, calls, says, scenario
from tests.frameworks.scenarios import SCENARIOS, Scenario
from tests.frameworks.stage import is_system, perform
from tests.frameworks.toolbox import Toolbox


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "_"))
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_events_equal_those_of_scenario(framework: Column, scenario: Scenario, tmp_path: Path) -> None:
    tasks = asyncio.all_tasks()
    seen, toolbox = await perform(
        framework,
        scenario,
        tmp_path,
        confirm_tools=scenario.confirm_tools,
        tool_timeout_seconds=scenario.tool_timeout_seconds,
    )
    assert asyncio.all_tasks() == tasks
    deviation = framework.deviations.get(scenario.name)
    expected = list((deviation and deviation.expected) or scenario.expected)
    assert seen.lines(in_order=scenario.in_order) == expected
    assert seen.asked == seen.received
    if (sent := (deviation and deviation.sent) or scenario.sent) is not None:
        assert seen.sent() == list(sent)
    said = " ".join(event.error for event in seen.events if isinstance(event, ToolCallError))
    assert all(words in said for words in scenario.errors_say)
    assert toolbox.wiped == (["C"] if scenario.reply is True else [])
    assert toolbox.stopped.is_set() == ("wait" in scenario.tools)
    for request in seen.requests:
        assert_instructed(request, scenario)
    told = [
        [call["id"] for message in request["messages"] for call in message.get("tool_calls") or ()]
        for request in seen.requests
    ]
    has_own_ids = any(ids != seen.started[: len(ids)] for ids in told)
    assert has_own_ids == bool(deviation and deviation.own_ids)


def assert_instructed(request: Body, scenario: Scenario) -> None:
    """The agent's instructions come before the client's; a background task has no instructions and no tools."""
    system = "".join(message["content"] for message in request["messages"] if is_system(message))
    if scenario.task:
        assert (system, request.get("tools")) == ("", None)
        return
    wanted = [INSTRUCTIONS, *(message["content"] for message in scenario.before if is_system(message))]
    places = [system.find(words) for words in wanted]
    assert places[0] >= 0
    assert places == sorted(places)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_tool_that_is_always_allowed_asks_again_when_it_has_changed(framework: Column, tmp_path: Path) -> None:
    class NextRelease:
        def agent(
            self, base_url: str, tools: Sequence[str], toolbox: Toolbox
        ) -> AbstractAsyncContextManager[AgentLike]:
            toolbox.plain("wipe").__doc__ = "Wipes a disk, and its copies."
            return framework.agent(base_url, tools, toolbox)

    wipe = scenario([calls(("wipe", '{"disk": "C"}')), says("Done.")], tools=["wipe"], reply="always")
    asked: list[str] = []
    for release in (framework, framework, NextRelease()):
        seen, toolbox = await perform(release, wipe, tmp_path)
        asked += [event.message for event in seen.events if isinstance(event, InputRequest)]
        assert toolbox.wiped == ["C"]
    assert asked == ["disk: C", f"{TOOL_CHANGED}\n\ndisk: C"]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_every_deviation_differs_from_its_scenario(framework: Column) -> None:
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}
    assert set(framework.deviations) <= set(scenarios)
    for name, deviation in framework.deviations.items():
        usual = scenarios[name]
        assert deviation.reason
        differs = list(deviation.expected or usual.expected) != list(usual.expected)
        assert differs or deviation.sent not in (None, usual.sent) or deviation.own_ids
