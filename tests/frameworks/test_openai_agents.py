"""Features of the OpenAI Agents SDK only: errors, timeouts and policies of its tools, their results, and guardrails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callboard import report_status
from callboard.agents import RunContext
from callboard.models import ScriptedModel
from callboard_protocol import Error, ToolCallComplete, ToolCallError, ToolStatus
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, OpenAIServer, chunks, text
from tests.frameworks.scenario import scenario
from tests.frameworks.scenarios import ADD, ADDED, calls, says
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agents import (
        AgentHooks,
        FunctionTool,
        GuardrailFunctionOutput,
        ModelRetrySettings,
        ModelSettings,
        RunContextWrapper,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrailData,
        ToolOutputFileContent,
        ToolOutputGuardrailData,
        function_tool,
        input_guardrail,
        tool_input_guardrail,
        tool_output_guardrail,
    )

    from tests.frameworks.openai_agents_stage import add, offered, solo

KABOOM = ("kaboom", '{"reason": "no fuel"}')

kaboom = Toolbox().plain("kaboom")


def explain(_: RunContextWrapper[Any], error: Exception) -> str:
    return f"Sorry: {type(error).__name__}"


async def raise_at_once(_: Any, arguments: str) -> str:
    raise ValueError(f"no {arguments}")


FAILING: dict[str, tuple[Callable[[], FunctionTool], str]] = {
    "default": (lambda: function_tool(kaboom), "Error: ValueError: kaboom: no fuel"),
    "none": (lambda: function_tool(kaboom, failure_error_function=None), "Error: ValueError: kaboom: no fuel"),
    "its own": (lambda: function_tool(kaboom, failure_error_function=explain), "Sorry: ValueError"),
    "made by hand": (
        lambda: FunctionTool("kaboom", "Fails.", {}, raise_at_once, strict_json_schema=False),
        'Error: ValueError: no {"reason": "no fuel"}',
    ),
}


@pytest.mark.parametrize("kind", FAILING)
async def test_failing_tool_does_not_end_run_and_error_function_writes_message(kind: str, tmp_path: Path) -> None:
    make, told = FAILING[kind]
    seen, _ = await perform(solo(make()), scenario([calls(KABOOM), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1] == f"tool {told}"
    [error] = [event.error for event in seen.events if isinstance(event, ToolCallError)]
    assert error == told.removeprefix("Error: ")


async def test_timeout_of_tool_itself_applies(tmp_path: Path) -> None:
    toolbox = Toolbox()
    tool = function_tool(toolbox.plain("wait"), timeout=0.05)
    seen, _ = await perform(solo(tool), scenario([calls(("wait", "{}")), says("Too long.")]), tmp_path)
    assert seen.lines(in_order=True)[2:] == ["failed 1 timeout", "say Too long.", "done stop"]
    assert seen.sent()[-1] == "tool Error: wait did not end within 0.05 s and was stopped."
    assert toolbox.stopped.is_set()


async def test_stopped_tool_has_ended_when_run_ends() -> None:
    ended = asyncio.Event()

    @function_tool
    async def tidy() -> None:
        """Tidies up after itself."""
        report_status("processing", "tidying")
        try:
            await asyncio.Event().wait()
        finally:
            # Takes many iterations of the event loop, as closing a connection does.
            for _ in range(20):
                await asyncio.sleep(0)
            ended.set()

    context = RunContext("run_1", [{"role": "user", "content": "go"}], str, ScriptedModel())
    async with OpenAIServer([calls(("tidy", "{}"))]) as server:
        async with solo(tidy).agent(server.base_url, (), Toolbox()) as agent:
            events = agent.run(context)
            assert isinstance(events, AsyncGenerator)
            while not isinstance(await anext(events), ToolStatus):
                pass
            await events.aclose()
        assert ended.is_set()


async def test_the_model_is_told_which_tools_there_are(tmp_path: Path) -> None:
    seen, _ = await perform(solo(add), scenario([calls(("fly", "{}")), says("No.")]), tmp_path)
    assert seen.sent()[-1] == "tool Error: There is no tool 'fly'. The tools are: add."


async def test_tool_result_can_be_answer(tmp_path: Path) -> None:
    seen, _ = await perform(solo(add, tool_use_behavior="stop_on_first_tool"), scenario([calls(ADD)]), tmp_path)
    assert seen.lines(in_order=True) == [*ADDED, "say 5", "done stop"]


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def test_a_structured_answer_is_shown_once(tmp_path: Path) -> None:
    seen, _ = await perform(solo(output_type=Weather), scenario([says('{"city": "Rome"}')]), tmp_path)
    assert seen.lines(in_order=True) == ['say {"city": "Rome"}', "done stop"]


async def test_file_in_tool_result_is_shown(tmp_path: Path) -> None:
    @function_tool
    async def report() -> ToolOutputFileContent:
        """Reports."""
        return ToolOutputFileContent(file_data="eA==", filename="report.pdf")

    seen, _ = await perform(solo(report), scenario([calls(("report", "{}")), says("Here.")]), tmp_path)
    [ended] = [event for event in seen.events if isinstance(event, ToolCallComplete)]
    [file] = ended.files
    assert (file["type"], file["name"]) == ("file", "report.pdf")


async def test_call_refused_by_guardrail_fails_with_its_message(tmp_path: Path) -> None:
    @tool_input_guardrail
    def forbid(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not today")

    guarded = function_tool(Toolbox().plain("add"), tool_input_guardrails=[forbid])
    seen, _ = await perform(solo(guarded), scenario([calls(ADD), says("No.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say No.", "done stop"]
    assert [event.error for event in seen.events if isinstance(event, ToolCallError)] == ["not today"]


async def test_result_replaced_by_guardrail_is_not_shown(tmp_path: Path) -> None:
    @tool_output_guardrail
    def hide(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("a secret")

    guarded = function_tool(Toolbox().plain("add"), tool_output_guardrails=[hide])
    seen, _ = await perform(solo(guarded), scenario([calls(ADD), says("No.")]), tmp_path)
    assert "result 1 a secret" in seen.lines(in_order=True)


async def test_a_tripped_guardrail_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    @input_guardrail
    async def forbid(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput("not today", tripwire_triggered=True)

    seen, _ = await perform(solo(input_guardrails=[forbid]), scenario([says("Yes!")]), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "Guardrail" in error.message


async def test_own_hooks_are_called_and_agent_is_unchanged(tmp_path: Path) -> None:
    heard: list[object] = []

    class Listening(AgentHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            heard.append(result)

    seen, _ = await perform(solo(add, hooks=Listening()), scenario([calls(ADD), says("5.")]), tmp_path)
    assert heard == [5]
    assert seen.lines(in_order=True) == [*ADDED, "say 5.", "done stop"]
    assert add.timeout_seconds is None
    assert add.__wrapped__.__name__ == "add"


@pytest.mark.parametrize("before", [[], [calls(ADD)]], ids=["at the start", "after a call"])
async def test_partial_answer_is_taken_back_on_retry(before: list[Answer], tmp_path: Path) -> None:
    again = ModelRetrySettings(max_retries=2, policy=lambda _: True, backoff={"initial_delay": 0, "jitter": False})
    halves = [chunks(text("Half an answer"), ending="cut")] * 2
    retried = solo(add, model_settings=ModelSettings(retry=again))
    seen, _ = await perform(retried, scenario([*before, *halves, says("It is 5.")]), tmp_path)
    assert seen.left() == "It is 5."


async def test_required_tool_choice_is_dropped_without_tools(tmp_path: Path) -> None:
    must = solo(add, model_settings=ModelSettings(tool_choice="required"), reset_tool_choice=False)
    rounds = [calls(("add", f'{{"a": {n}, "b": 1}}'), first=n) for n in range(4)]
    seen, _ = await perform(must, scenario([*rounds, says("Enough.")]), tmp_path)
    assert seen.lines(in_order=True)[-2:] == ["say Enough.", "done max_turns"]
    assert not offered(seen.requests[-1])
    assert "tool_choice" not in seen.requests[-1]


async def test_required_tool_choice_is_dropped_for_background_task(tmp_path: Path) -> None:
    must = solo(add, model_settings=ModelSettings(tool_choice="required"))
    seen, _ = await perform(must, scenario([says("A title")], task="title_generation"), tmp_path)
    assert seen.lines(in_order=True) == ["say A title", "done stop"]
    assert not offered(seen.requests[0])
    assert "tool_choice" not in seen.requests[0]
