"""Teams of Agno: the members' calls among the leader's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike
from callboard_protocol import ToolCallArgsDelta
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, Body
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agno.agent import Agent
    from agno.models.message import Message
    from agno.models.openai import OpenAIChat
    from agno.team import Team
    from agno.tools import tool
    from agno.workflow import Step, Workflow

    from callboard.frameworks.agno import from_agno
    from tests.frameworks.agno_agents import Made, add


def asks_member(member_tool: tuple[str, str]) -> Callable[[Body], Answer]:
    """A leader that delegates once, and a member that calls its tool once."""

    def script(body: Body) -> Answer:
        tools = {one["function"]["name"] for one in body.get("tools") or ()}
        ended = body["messages"][-1]["role"] == "tool"
        if "delegate_task_to_member" in tools:
            delegation = ("delegate_task_to_member", '{"member_id": "adder", "task": "2 + 3"}')
            return says("The crew says 5.") if ended else calls(delegation)
        return says("I say 5.") if ended else calls(member_tool)

    return script


def crew(*tools: Any, **fields: Any) -> Made:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        adder = Agent(id="adder", name="Adder", role="Adds", model=model(), tools=[*tools], telemetry=False)
        return from_agno(Team(id="agent", name="Crew", members=[adder], model=model(), telemetry=False, **fields))

    return Made(make)


async def test_member_calls_are_shown_below_leader_call_without_member_text(tmp_path: Path) -> None:
    seen, _ = await perform(crew(add), scenario(asks_member(ADD)), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 delegate_task_to_member {'member_id': 'adder', 'task': '2 + 3'}",
        *("call 2 in 1 add {'a': 2, 'b': 3}", "result 2 5"),
        *("result 1 I say 5.", "say The crew says 5.", "done stop"),
    ]
    assert "add" not in {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert len(seen.asked) == 4
    assert seen.asked == seen.received


@pytest.mark.parametrize("in_team", [True, False])
async def test_a_tool_may_pass_on_the_events_of_a_workflow(in_team: bool, tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        worker = Agent(id="worker", name="Worker", model=model(), telemetry=False)
        flow = Workflow(name="flow", steps=[Step(name="work", agent=worker)], telemetry=False)

        async def run_flow(task: str) -> AsyncIterator[Any]:
            """Runs the flow."""
            async for event in flow.arun(task, stream=True, stream_events=True):
                yield event

        agent = Agent(id="adder", name="Adder", role="Adds", model=model(), tools=[run_flow], telemetry=False)
        team = Team(id="agent", name="Crew", members=[agent], model=model(), telemetry=False)
        return from_agno(team if in_team else agent, agent_id="agent")

    def script(body: Body) -> Answer:
        return asks_member(("run_flow", '{"task": "x"}'))(body) if body.get("tools") else says("Worked.")

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    number = 2 if in_team else 1
    lines = seen.lines(in_order=True)
    assert f"result {number} Worked." in lines
    assert lines[-2:] == ["say The crew says 5." if in_team else "say I say 5.", "done stop"]
    assert seen.left() == lines[-2].removeprefix("say ")


async def test_delegation_has_no_timeout(tmp_path: Path) -> None:
    # The delegation has begun before the member's tool, so the same limit would end it first.
    made = crew(Toolbox().plain("wait"))
    seen, _ = await perform(made, scenario(asks_member(("wait", "{}"))), tmp_path, tool_timeout_seconds=0.5)
    assert seen.lines(in_order=True)[3:] == [
        *("failed 2 timeout", "result 1 I say 5.", "say The crew says 5.", "done stop"),
    ]


async def test_leader_gets_whole_chat(tmp_path: Path) -> None:
    seen, _ = await perform(crew(add), scenario([says("Hello."), says("Again.")], turns=("go", "once more")), tmp_path)
    assert seen.sent() == ["user go", "assistant Hello.", "user once more"]


async def test_leader_gets_additional_input_before_chat(tmp_path: Path) -> None:
    examples = [Message(role="user", content="1 + 1"), Message(role="assistant", content="It is 2.")]
    script = [says("Hello."), says("Again.")]
    seen, _ = await perform(crew(add, additional_input=examples), scenario(script, turns=("go", "once more")), tmp_path)
    assert seen.sent() == ["user 1 + 1", "assistant It is 2.", "user go", "assistant Hello.", "user once more"]


async def test_a_members_tool_can_need_approval(tmp_path: Path) -> None:
    toolbox = Toolbox()
    wipe = tool(requires_confirmation=True)(toolbox.plain("wipe"))
    seen, _ = await perform(crew(wipe), scenario(asks_member(("wipe", '{"disk": "C"}')), reply=True), tmp_path)
    assert toolbox.wiped == ["C"]
    lines = seen.lines(in_order=True)
    assert "ask 2 Run wipe?" in lines
    assert "result 2 C is empty" in lines
    assert lines[-2:] == ["say The crew says 5.", "done stop"]


async def test_direct_answer_of_member_is_shown_once(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        adder = Agent(id="adder", name="Adder", model=model(), tools=[add], telemetry=False)
        team = Team(id="agent", members=[adder], model=model(), respond_directly=True, telemetry=False)
        return from_agno(team)

    seen, _ = await perform(Made(make), scenario(asks_member(ADD)), tmp_path)
    said = [line for line in seen.lines(in_order=True) if line.startswith("say")]
    assert said == ["say I say 5."]


async def test_a_team_may_be_a_member_of_a_team(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        tools = str(body.get("tools"))
        ended = body["messages"][-1]["role"] == "tool"
        if "delegate_task_to_member" not in tools:
            return says("I say 5.") if ended else calls(ADD)
        if "Crew leader" in str(body["messages"][0]):
            delegation = ("delegate_task_to_member", '{"member_id": "pair", "task": "2 + 3"}')
            return says("The crew says 5.") if ended else calls(delegation)
        delegation = ("delegate_task_to_member", '{"member_id": "adder", "task": "add 2 and 3"}')
        return says("The pair says 5.") if ended else calls(delegation)

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        adder = Agent(id="adder", name="Adder", model=model(), tools=[add], telemetry=False)
        pair = Team(id="pair", name="Pair", members=[adder], model=model(), telemetry=False)
        leader = "Crew leader"
        return from_agno(
            Team(id="agent", name="Crew", members=[pair], model=model(), instructions=leader, telemetry=False)
        )

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 delegate_task_to_member {'member_id': 'pair', 'task': '2 + 3'}",
        "call 2 in 1 delegate_task_to_member {'member_id': 'adder', 'task': 'add 2 and 3'}",
        *("call 3 in 2 add {'a': 2, 'b': 3}", "result 3 5"),
        # Agno's own behaviour: an inner team's text to its leader includes the text of its member.
        *("result 2 I say 5.", "result 1 I say 5.The pair says 5.", "say The crew says 5.", "done stop"),
    ]
