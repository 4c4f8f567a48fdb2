"""Agents that are written by hand, as their pages describe them."""

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

from callboard.agents import DescribedTool, Description
from callboard_protocol import Event
from tests.serving import ScriptedAgent, serving


class Described(ScriptedAgent):
    """An agent with a method `describe`, which returns `given`."""

    given: object = None

    def describe(self) -> object:
        return self.given


async def no_events() -> AsyncIterator[Event]:
    return
    yield


async def read_page(folder: Path, given: object) -> str:
    Described.given = given
    async with serving(folder, Described(lambda _: no_events())) as service:
        return unescape((await service.client.get("/inspect/agent?id=scripted")).text)


async def test_an_agent_without_a_framework_is_shown_by_its_own_description(tmp_path: Path) -> None:
    page = await read_page(tmp_path, Description("You count.", tools=[DescribedTool("count", "Counts sheep.")]))
    assert "You count." in page
    assert "Counts sheep." in page


async def test_a_describe_method_with_another_result_is_ignored(tmp_path: Path) -> None:
    assert "the agent does not describe itself" in await read_page(tmp_path, "a sheep")
