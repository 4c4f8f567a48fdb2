"""pydantic-ai: text that is taken back, citations, events of tools, and agents inside tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from callboard.agents import AgentLike
from callboard_protocol import Source, ToolCallComplete
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Chunks, text
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import PICTURE, PICTURE_URL

if TESTS_RUN:
    from pydantic_ai import Agent, BinaryContent, CustomEvent, ModelRetry, PromptedOutput, RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import SkipModelRequest
    from pydantic_ai.messages import (
        Citation,
        DocumentCitationSource,
        FilePart,
        ModelResponse,
        TextPart,
        WebCitationSource,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.models.openai import OpenAIChatModel

    from callboard.frameworks.pydantic_ai import from_pydantic_ai
    from tests.frameworks.pydantic_ai_agents import Made, add, solo

    @dataclass(kw_only=True)
    class TravelProgress(CustomEvent):
        """How far a journey is."""

        message: str
        progress: int | None = None

    class Remembered(AbstractCapability[Any]):
        """Returns a remembered answer without a model request."""

        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            page = WebCitationSource("https://example.org/owls", title="Owls", excerpts=["They see at night."])
            cited = [Citation(sources=[page, DocumentCitationSource(title="Field notes")])]
            picture = FilePart(BinaryContent(PICTURE, media_type="image/png"))
            raise SkipModelRequest(ModelResponse(parts=[picture, TextPart("Owls.", citations=cited)]))


HALF = Chunks((text("Half an answer"),), "cut")


async def test_answer_refused_by_validator_is_taken_back(tmp_path: Path) -> None:
    def make(model: OpenAIChatModel) -> AgentLike:
        agent = Agent(model, name="agent", tools=[add], retries=3)

        @agent.output_validator
        def whole(answer: str) -> str:
            if "Half" in answer:
                raise ModelRetry("Say all of it.")
            return answer

        return from_pydantic_ai(agent)

    turns = [calls(ADD, before="Let me add. "), says("Half an answer"), says("Half again"), says("It is 5.")]
    seen, _ = await perform(Made(make), scenario(turns), tmp_path)
    assert seen.left() == "Let me add. It is 5."
    assert len(seen.requests) == 4


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def test_answer_of_wrong_type_is_taken_back(tmp_path: Path) -> None:
    kind = solo(output_type=PromptedOutput(Weather), retries=2)
    seen, _ = await perform(kind, scenario([says("It is Rome."), says('{"city": "Rome"}')]), tmp_path)
    assert seen.left() == '{"city": "Rome"}'


async def test_event_emitted_by_tool_is_status_of_its_call(tmp_path: Path) -> None:
    async def travel(ctx: RunContext[None], place: str) -> str:
        """Goes somewhere."""
        await ctx.emit(TravelProgress(message=f"half way to {place}", progress=50))
        return f"in {place}"

    turns = [calls(("travel", '{"place": "Rome"}')), says("There.")]
    seen, _ = await perform(solo(Tool(travel)), scenario(turns), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 travel {'place': 'Rome'}", "status 1 processing half way to Rome 50", "result 1 in Rome"),
        *("say There.", "done stop"),
    ]


async def test_pictures_and_citations_of_an_answer_are_shown(tmp_path: Path) -> None:
    seen, _ = await perform(solo(capabilities=[Remembered()]), scenario([]), tmp_path)
    assert seen.left() == "Owls."
    first, second = [event for event in seen.events if isinstance(event, Source)]
    assert first.source == {"name": "Owls", "url": "https://example.org/owls"}
    assert first.document == ("They see at night.",)
    assert second.source == {"name": "Field notes"}
    [shown] = [event for event in seen.events if isinstance(event, ToolCallComplete)]
    assert [dict(file) for file in shown.files] == [{"type": "image", "url": PICTURE_URL}]
