"""What an agent of Agno takes back, what its tools tell of themselves, and agents in its tools."""

from collections.abc import AsyncIterator, Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.run.agent import CustomEvent

from callboard._agents import AgentLike
from callboard.frameworks.agno import from_agno
from callboard_protocol import ToolCallError, Usage
from tests.fakes.openai_server import Answer, Body, Chunks, text
from tests.frameworks.agno_agents import Made, add, scenario, solo
from tests.frameworks.scenario import ADD, calls, says
from tests.frameworks.stage import perform

HALF = Chunks((text("Half an answer"),), "cut")


class Kept(OpenAIChat):
    """A model that keeps its client where Agno copies it, as it does with fallbacks."""

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenAIChat:
        return copy(self)


@pytest.mark.parametrize("kind", ["retries", "fallbacks", "runs"])
async def test_a_draft_in_which_the_model_failed_is_taken_back_when_it_is_asked_again(
    kind: str, tmp_path: Path
) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        asked = model()
        options = dict[str, Any]()
        match kind:
            case "retries":
                asked.retries = 2
                asked.delay_between_retries = 0
            case "fallbacks":
                options["fallback_models"] = [Kept(id="m", async_client=model().async_client) for _ in range(2)]
            case "runs":
                options |= {"retries": 2, "delay_between_retries": 0}
        return from_agno(Agent(id="agent", model=asked, telemetry=False, **options))

    seen, _ = await perform(Made(make), scenario([HALF, HALF, says("A whole answer.")]), tmp_path)
    assert seen.left() == "A whole answer."
    assert len(seen.requests) == 3


async def test_what_was_said_before_a_call_stays(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        asked = model()
        asked.retries = 1
        asked.delay_between_retries = 0
        return from_agno(Agent(id="agent", model=asked, tools=[add], telemetry=False))

    turns = [calls(ADD, before="Let me add. "), HALF, says("It is 5.")]
    seen, _ = await perform(Made(make), scenario(turns), tmp_path)
    assert seen.left() == "Let me add. It is 5."


@dataclass
class Progress(CustomEvent):
    """How far a tool is."""

    message: str | None = None
    progress: int | None = None
    step: str | None = None


async def test_a_custom_event_of_a_tool_is_a_step_of_its_call(tmp_path: Path) -> None:
    async def travel(place: str) -> AsyncIterator[Any]:
        """Goes somewhere."""
        yield Progress(message=f"half way to {place}", progress=50)
        yield Progress(step="nearly there")
        yield f"in {place}"

    seen, _ = await perform(solo(travel), scenario([calls(("travel", '{"place": "Rome"}')), says("There.")]), tmp_path)
    lines = seen.lines(in_order=True)
    assert lines[:3] == [
        "call 1 travel {'place': 'Rome'}",
        "status 1 processing half way to Rome 50",
        "status 1 processing nearly there",
    ]
    assert lines[-2:] == ["say There.", "done stop"]


def asks_another(*tools: Any) -> Made:
    """An agent with a tool that asks another agent, which has these tools."""

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        other = Agent(id="other", model=model(), tools=[*tools], telemetry=False)

        async def ask_other(task: str) -> str:
            """Asks the other agent."""
            return str((await other.arun(task)).content)

        return from_agno(Agent(id="agent", model=model(), tools=[ask_other], telemetry=False))

    return Made(make)


def names(body: Body) -> list[str]:
    """The tools that are offered."""
    return [one["function"]["name"] for one in body.get("tools") or ()]


ASKS = calls(("ask_other", '{"task": "help"}'))


async def test_the_calls_of_an_agent_in_a_tool_are_shown_below_it(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        ended = body["messages"][-1]["role"] == "tool"
        if names(body) == ["add"]:
            return says("I say 5.") if ended else calls(ADD)
        return says("It says 5.") if ended else ASKS

    seen, _ = await perform(asks_another(add), scenario(script), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 ask_other {'task': 'help'}",
        *("status 1 processing add", "call 2 add {'a': 2, 'b': 3}", "result 2 5", "result 1 I say 5."),
        *("say It says 5.", "done stop"),
    ]


async def test_the_requests_of_an_agent_in_a_tool_are_told_of_and_counted(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        if not names(body):
            return says("I say 5.")
        return says("It says 5.") if body["messages"][-1]["role"] == "tool" else ASKS

    seen, _ = await perform(asks_another(), scenario(script), tmp_path)
    assert len(seen.asked) == 3
    assert seen.asked == seen.received
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [45]


async def test_the_calls_of_an_agent_in_a_tool_count(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        messages = body["messages"]
        if names(body) == ["add"]:
            return calls(("add", f'{{"a": {len(messages)}, "b": 1}}'), first=100 + len(messages))
        return ASKS if body.get("tools") else says("It is enough.")

    seen, _ = await perform(asks_another(add), scenario(script), tmp_path)
    lines = seen.lines(in_order=True)
    assert [line.split()[0] for line in lines if line.startswith(("result", "failed 4"))] == [
        *("result", "result", "failed", "result"),
    ]
    assert "failed 4 limit" in lines
    assert lines[-2:] == ["say It is enough.", "done max_turns"]


def asks_another_by_run(*, in_a_thread: bool, stream: bool = False) -> Made:
    """An agent with a tool that asks another agent synchronously, which has the tool `add`."""

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        other = Agent(id="other", name="Other", model=model(), tools=[add], telemetry=False)

        def ask_other(task: str) -> str:
            """Asks the other agent."""
            if stream:
                return "".join(str(event.content) for event in other.run(task, stream=True))
            return str(other.run(task).content)

        async def ask_other_async(task: str) -> str:
            """Asks the other agent."""
            return ask_other(task)

        ask_other_async.__name__ = "ask_other"
        tool = ask_other if in_a_thread else ask_other_async
        return from_agno(Agent(id="agent", model=model(), tools=[tool], telemetry=False))

    return Made(make)


def adds_in_the_tool(body: Body) -> Answer:
    ended = body["messages"][-1]["role"] == "tool"
    if names(body) == ["add"]:
        return says("I say 5.") if ended else calls(ADD)
    return says("It says 5.") if ended else ASKS


@pytest.mark.parametrize("stream", [False, True])
async def test_the_calls_of_an_agent_that_a_tool_runs_in_its_thread_are_shown_and_asked_about(
    stream: bool, tmp_path: Path
) -> None:
    asked = scenario(adds_in_the_tool, reply=True)
    framework = asks_another_by_run(in_a_thread=True, stream=stream)
    seen, _ = await perform(framework, asked, tmp_path, confirm_tools=["add"])
    assert seen.lines(in_order=True) == [
        "call 1 ask_other {'task': 'help'}",
        *("status 1 processing add", "call 2 add {'a': 2, 'b': 3}"),
        *("status 2 pending waiting for approval", "ask 2 Run add?", "status 2 processing approved"),
        *("result 2 5", "result 1 I say 5.", "say It says 5.", "done stop"),
    ]


async def test_an_agent_that_would_hold_up_everything_else_is_refused_by_name(tmp_path: Path) -> None:
    seen, _ = await perform(asks_another_by_run(in_a_thread=False), scenario(adds_in_the_tool), tmp_path)
    [failure] = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert "'Other'" in failure.error
    assert "await agent.arun" in failure.error
