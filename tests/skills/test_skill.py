"""A skill is created once, and its open resources belong to the application that opened it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, Skill, ToolContext, tool
from callboard.agents.registry import Registry
from callboard.calls import Services, StatusChannel
from callboard.errors import AgentError
from callboard.skills import SkillState
from callboard_protocol import ToolCallComplete
from tests.calls.calling import run_tool
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import request, serving


class Counter(Skill):
    """Counts from 1 in each application."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        super().__init__("counter", "Counts.", lifespan=self._open)

    @asynccontextmanager
    async def _open(self, _services: Services) -> AsyncIterator[SkillState]:
        counted = 0

        @tool
        def count() -> int:
            """Count on."""
            nonlocal counted
            counted += 1
            return counted

        yield SkillState(tools=(count,), prompt_fragment="You can count.")
        self.closed.append(counted)


async def test_applications_share_no_state_of_skill(tmp_path: Path) -> None:
    counter = Counter()
    agent = Agent("scripted", skills=[counter])
    asked = chunks(call("count", "{}", call_id="c"), finish("tool_calls"))
    answers = [asked, chunks(text("There."), finish("stop"))] * 3
    counted: list[list[str]] = []
    async with OpenAIServer(answers) as model:
        settings = {"model_base_url": model.base_url, "model": "m"}
        async with (
            serving(tmp_path / "a", agent, **settings) as first,
            serving(tmp_path / "b", agent, **settings) as second,
        ):
            for service in (first, first, second):
                events = await service.events(request())
                counted.append([event.result for event in events if isinstance(event, ToolCallComplete)])
    assert counted == [["1"], ["2"], ["1"]]
    assert sorted(counter.closed) == [1, 2]
    assert "You can count." in str(model.requests[0]["messages"][0])
    assert agent.tools == ()


async def test_agents_of_application_share_opened_skill(services: Services) -> None:
    counter = Counter()
    registry = Registry([Agent("one", skills=[counter]), Agent("two", skills=[counter])])
    async with registry.open(services) as opened:
        [one, two] = opened
        assert isinstance(one, Agent)
        assert isinstance(two, Agent)
        assert one.skills == two.skills
        [counting] = one.tools
        assert (counting(), counting()) == (1, 2)
    assert counter.closed == [2]


async def test_skill_keys_do_not_appear_in_output(services: Services) -> None:
    skill = Skill("keyed", "Has a key.", secrets=("a-long-secret-key",))
    assert "a-long-secret-key" not in repr(skill)
    async with skill.open(services):
        assert "a-long-secret-key" not in services.redaction("the key is a-long-secret-key")


SCHEMA = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}


async def with_context(name: str, args: Mapping[str, Any], context: ToolContext) -> str:
    return f"{context.tool_name}: {sum(args.values())}"


async def test_execute_runs_schemas() -> None:
    [tool] = Skill("old", "Adds.", tools=[SCHEMA], execute=with_context).copy(max_tool_calls=3).current_tools()
    context = ToolContext("call_1", "add", None, None, StatusChannel(lambda _: None))
    assert (await run_tool(tool, context, a=1, b=2)).text == "add: 3"


async def without_context(name: str, args: dict[str, Any]) -> None: ...


async def with_emitter(name: str, args: dict[str, Any], __event_emitter__: Any = None) -> None: ...


async def with_too_much(name: str, args: dict[str, Any], context: ToolContext, more: int) -> None: ...


@pytest.mark.parametrize("execute", [without_context, with_emitter, with_too_much], ids=lambda one: one.__name__)
def test_execute_with_wrong_parameters_is_refused(execute: Any) -> None:
    with pytest.raises(AgentError, match=r"`execute` of the skill 'old'.*ToolContext"):
        Skill("old", "Adds.", tools=[SCHEMA], execute=execute)
