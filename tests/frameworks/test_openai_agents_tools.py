"""Which tools of the OpenAI Agents SDK are served, and that each of its kinds was decided upon."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callboard import register
from callboard.agents import AgentLike
from callboard.errors import AgentError
from callboard_protocol import Error
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import scenario
from tests.frameworks.scenarios import says
from tests.frameworks.stage import perform

if TESTS_RUN:
    import agents
    from agents import Agent, AsyncComputer, ComputerTool, FunctionTool, Model, Tool, ToolSearchTool, handoff
    from agents.sandbox import SandboxAgent

    from callboard.frameworks.openai_agents import from_openai_agents
    from callboard.frameworks.openai_agents.hooked_agents import RUN_BY_OPENAI, RUN_LOCALLY, UNSUPPORTED
    from tests.frameworks.openai_agents_stage import UNTRACED, Made

    class Screen(AsyncComputer):
        """A computer that does nothing."""

        async def screenshot(self) -> str:
            return ""

        async def click(self, *_: Any, **__: Any) -> None: ...
        async def double_click(self, *_: Any, **__: Any) -> None: ...
        async def scroll(self, *_: Any, **__: Any) -> None: ...
        async def type(self, *_: Any, **__: Any) -> None: ...
        async def wait(self) -> None: ...
        async def move(self, *_: Any, **__: Any) -> None: ...
        async def keypress(self, *_: Any, **__: Any) -> None: ...
        async def drag(self, *_: Any, **__: Any) -> None: ...

    SCREEN = ComputerTool(Screen())

ROOT = Path(__file__).resolve().parents[2]


class Unheard:
    """A tool class that Callboard does not know."""

    name = "unheard"


UNHEARD: Any = Unheard()


def modules() -> Iterator[ModuleType]:
    """All modules of the SDK that can be imported with the installed packages."""
    for found in pkgutil.walk_packages(agents.__path__, "agents.", onerror=lambda _: None):
        # Extensions for other programs, each with its own requirements, and modules that only print.
        if not found.name.startswith(("agents.extensions", "agents.voice", "agents.repl")):
            with suppress(ImportError):
                yield importlib.import_module(found.name)


def test_every_tool_class_of_sdk_is_classified() -> None:
    kinds = {typing.get_origin(one) or one for one in typing.get_args(Tool)}
    decided = {*RUN_LOCALLY, *RUN_BY_OPENAI, *UNSUPPORTED}
    assert kinds == decided - {SandboxAgent}
    assert not set(RUN_LOCALLY) & set(RUN_BY_OPENAI)


def test_every_agent_and_tool_class_in_sdk_packages_is_classified() -> None:
    classes = {one for module in modules() for one in vars(module).values() if isinstance(one, type)}
    own = {one for one in classes if one.__module__.startswith("agents.")}
    tools = {one for one in own if issubclass(one, (*RUN_LOCALLY, *RUN_BY_OPENAI, ComputerTool))}
    # Tools of the sandbox, whose agents are refused. They would be made during a run, unseen by Callboard.
    made_in_runs = {one for one in tools if one.__module__.startswith("agents.sandbox.")}
    assert tools - made_in_runs == {*RUN_LOCALLY, *RUN_BY_OPENAI, ComputerTool}
    assert {one for one in own if issubclass(one, Agent)} == {Agent, SandboxAgent}


def test_every_class_is_in_how_to() -> None:
    told = (ROOT / "docs" / "how-to" / "other-frameworks.md").read_text()
    assert [
        one.__name__ for one in (*RUN_LOCALLY, *RUN_BY_OPENAI, *UNSUPPORTED) if f"`{one.__name__}`" not in told
    ] == []


def inside(agent: Agent[Any]) -> Agent[Any]:
    return Agent("Leader", tools=[agent.as_tool("ask", "Asks.")])


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Agent("Clerk", tools=[SCREEN]), r"'computer_use_preview' \(ComputerTool\) of the agent 'Clerk'"),
    (lambda: Agent("Clerk", tools=[UNHEARD]), r"'unheard' \(Unheard\)"),
    (lambda: Agent("Clerk", tools=[ToolSearchTool(execution="client")]), r"'tool_search' \(ToolSearchTool\)"),
    (lambda: SandboxAgent("Clerk"), r"'Clerk' \(SandboxAgent\)"),
    (lambda: Agent("Desk", handoffs=[Agent("Clerk", tools=[SCREEN])]), r"of the agent 'Clerk'"),
    (lambda: inside(Agent("Clerk", tools=[SCREEN])), r"of the agent 'Clerk'"),
    (lambda: inside(SandboxAgent("Clerk")), r"'Clerk' \(SandboxAgent\)"),
]


@pytest.mark.parametrize(("make", "named"), REFUSALS)
def test_unsupported_tool_is_refused_at_registration(make: Callable[[], Agent[Any]], named: str) -> None:
    with pytest.raises(AgentError, match=rf"{named}.* cannot be served: "):
        register(from_openai_agents(make()))


def test_an_agent_behind_a_handoff_of_its_own_is_refused_too() -> None:
    clerk = Agent[Any]("Clerk", tools=[SCREEN])
    with pytest.raises(AgentError, match="of the agent 'Clerk'"):
        from_openai_agents(Agent("Desk", handoffs=[handoff(clerk)]))


async def test_unsupported_agent_of_factory_is_refused_in_run(tmp_path: Path) -> None:
    def make(model: Model) -> AgentLike:
        return from_openai_agents(
            lambda _: Agent("Clerk", model=model, tools=[SCREEN]), agent_id="agent", run_config=UNTRACED
        )

    seen, _ = await perform(Made(make), scenario([says("Hello.")]), tmp_path)
    [error] = seen.events[1:]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "'computer_use_preview' (ComputerTool)" in error.message
    assert seen.requests == []


def test_mutual_handoffs_are_checked_once() -> None:
    ping = Agent[Any]("Ping", tools=[FunctionTool("ring", "Rings.", {}, _ring, strict_json_schema=False)])
    ping.handoffs = [Agent("Pong", handoffs=[ping])]
    assert register(from_openai_agents(ping)).agent_id == "Ping"


async def _ring(*_: Any) -> str:
    return "ding"
