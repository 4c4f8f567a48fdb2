"""Observers get each model request of an agent, in every framework."""

from dataclasses import replace
from pathlib import Path

import pytest

from callboard.models import TokenUsage
from callboard.observers import ModelAnswered, ModelAsked, RunPrepared
from callboard_protocol import Done, Error, Message, RunStart, ToolCallArgsDelta, ToolCallComplete, ToolCallStart, Usage
from tests.fakes.openai_server import Answer, Body, Refusal, Script, call, chunks, finish, text, usage
from tests.frameworks.columns import FRAMEWORKS, Column
from tests.frameworks.scenario import Scenario, calls, says
from tests.frameworks.stage import Performance, perform

WITHOUT_REASONS = {"Agno", "OpenAI Agents"}
"""The frameworks that do not pass on why a model's answer ended."""

SCRIPT = [
    chunks(call("add", '{"a": 1, "b": 2}', call_id="c1"), finish("tool_calls"), usage(10, 5)),
    chunks(text("It is "), text("3."), finish("stop"), usage(20, 3)),
]


def scenario(script: Script, task: str | None = None) -> Scenario:
    return Scenario("of observers", script, [], ["add"], before=[{"role": "system", "content": "Be brief."}], task=task)


def answers_in(seen: Performance) -> list[ModelAnswered]:
    return [what for what in seen.observed if isinstance(what, ModelAnswered)]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_observers_get_each_request_in_order(framework: Column, tmp_path: Path) -> None:
    seen, _ = await perform(framework, scenario(SCRIPT), tmp_path)
    told = [what for what in seen.observed if not isinstance(what, Message | ToolCallArgsDelta | Usage)]
    assert [type(what) for what in told] == [
        RunStart,
        RunPrepared,
        ModelAsked,
        ModelAnswered,
        ToolCallStart,
        ToolCallComplete,
        ModelAsked,
        ModelAnswered,
        Done,
    ]
    assert seen.asked == seen.received
    answers = answers_in(seen)
    assert [(one.model, one.usage, one.error) for one in answers] == [
        ("m", TokenUsage(10, 5, 15), None),
        ("m", TokenUsage(20, 3, 23), None),
    ]
    reasons = [None, None] if framework.name in WITHOUT_REASONS else ["tool_calls", "stop"]
    assert [one.finish_reason for one in answers] == reasons
    assert all(one.first_seconds is not None and 0 < one.first_seconds <= one.seconds for one in answers)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_observers_get_failed_request(framework: Column, tmp_path: Path) -> None:
    seen, _ = await perform(framework, scenario([Refusal(401)]), tmp_path)
    [answered] = answers_in(seen)
    assert (answered.error, answered.first_seconds, answered.usage) == ("ModelUnauthorized", None, None)
    assert isinstance(seen.observed[-1], Error)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_observers_get_request_of_stopped_run(framework: Column, tmp_path: Path) -> None:
    endless = scenario([chunks(text("Once "), ending="hang")])
    seen, _ = await perform(framework, replace(endless, stop_at="text"), tmp_path)
    [answered] = answers_in(seen)
    assert answered.error in ("CancelledError", "GeneratorExit")
    assert answered.first_seconds is not None


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_observers_get_request_of_background_task(framework: Column, tmp_path: Path) -> None:
    script = [chunks(text("A title"), finish("stop"), usage(20, 3))]
    seen, _ = await perform(framework, scenario(script, task="title_generation"), tmp_path)
    assert seen.asked == seen.received
    [answered] = answers_in(seen)
    assert (answered.usage, answered.error) == (TokenUsage(20, 3, 23), None)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_observers_get_last_request_after_call_limit(framework: Column, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        if not body.get("tools"):
            return says("Enough.")
        return calls(("add", f'{{"a": {len(body["messages"])}, "b": 1}}'), first=len(body["messages"]))

    seen, _ = await perform(framework, scenario(script), tmp_path)
    assert seen.asked == seen.received
    assert seen.asked[-1].tools == 0
    assert [answered.usage for answered in answers_in(seen)] == [TokenUsage(10, 5, 15)] * len(seen.received)
