"""Agno: text that is taken back, progress of tools, and agents inside tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike
from callboard_protocol import ToolCallError
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Chunks, text
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import perform

if TESTS_RUN:
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat
    from agno.run.agent import CustomEvent

    from callboard.frameworks.agno import from_agno
    from tests.frameworks.agno_agents import Made, add, asks_another_and_waits, solo

    class Kept(OpenAIChat):
        """A model that keeps its client when Agno copies it, which Agno does with fallbacks."""

        def __deepcopy__(self, memo: dict[int, Any]) -> OpenAIChat:
            return copy(self)

    @dataclass
    class Progress(CustomEvent):
        """The progress of a tool."""

        message: str | None = None
        progress: int | None = None
        step: str | None = None


HALF = Chunks((text("Half an answer"),), "cut")


@pytest.mark.parametrize("kind", ["retries", "fallbacks", "runs"])
async def test_text_of_failed_request_is_taken_back_on_retry(kind: str, tmp_path: Path) -> None:
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


async def test_text_before_call_is_kept(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        asked = model()
        asked.retries = 1
        asked.delay_between_retries = 0
        return from_agno(Agent(id="agent", model=asked, tools=[add], telemetry=False))

    turns = [calls(ADD, before="Let me add. "), HALF, says("It is 5.")]
    seen, _ = await perform(Made(make), scenario(turns), tmp_path)
    assert seen.left() == "Let me add. It is 5."


async def test_custom_event_of_tool_is_status_of_its_call(tmp_path: Path) -> None:
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
    assert lines[3:] == ["result 1 in Rome", "say There.", "done stop"]
    assert seen.sent()[-1] == "tool in Rome"


async def test_blocking_run_of_agent_is_refused_by_name(tmp_path: Path) -> None:
    script = [calls(("ask_other", '{"task": "help"}')), says("It cannot.")]
    seen, _ = await perform(asks_another_and_waits(in_a_thread=False), scenario(script), tmp_path)
    [failure] = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert "'Other'" in failure.error
    assert "await agent.arun" in failure.error
