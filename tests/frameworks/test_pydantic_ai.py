"""Features of pydantic-ai only: dependencies, structured answers, provider-side tools, its own retries."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callboard.agents import RunContext as CallboardRun
from callboard_protocol import Error, ToolCallArgsDelta, ToolCallComplete, ToolCallError
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Refusal
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import CHAT_ID, perform
from tests.frameworks.toolbox import PICTURE, PICTURE_URL

if TESTS_RUN:
    from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext, Tool
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.messages import NativeToolCallPart, NativeToolReturnPart
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import BuiltinToolCallsReturns, FunctionModel
    from pydantic_ai.toolsets import FunctionToolset

    from callboard.frameworks.pydantic_ai import from_pydantic_ai
    from tests.frameworks.pydantic_ai_agents import Made, add, solo


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def test_factories_of_agent_and_deps_get_run_context(tmp_path: Path) -> None:
    def whose(ctx: RunContext[str]) -> str:
        """Says whose run it is."""
        return ctx.deps

    async def user(context: CallboardRun) -> str:
        return context.user.id if context.user else "nobody"

    made = Made(
        lambda model: from_pydantic_ai(
            lambda context: Agent(model, deps_type=str, tools=[whose], instructions=f"You are in {context.chat_id}."),
            agent_id="agent",
            deps=user,
        )
    )
    seen, _ = await perform(made, scenario([calls(("whose", "{}")), says("Yours.")]), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 whose {}", "result 1 u1", "say Yours.", "done stop"]
    assert seen.requests[0]["messages"][0]["content"] == f"You are in {CHAT_ID}."


async def test_prompt_instructions_and_client_message_are_one_system_message(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Answer in verse."}
    kind = solo(add, instructions="Be kind.", system_prompt="You can add.")
    turns = ["go", "and now?"]
    seen, _ = await perform(
        kind, scenario([calls(ADD), says("5."), says("I am.")], before=[system], turns=turns), tmp_path
    )
    for request in seen.requests:
        [whole] = [one["content"] for one in request["messages"] if one["role"] == "system"]
        assert whole == "You can add.\n\nBe kind.\n\nAnswer in verse."
    assert seen.sent() == ["user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant 5.", "user and now?"]


async def test_a_picture_by_its_address_is_sent_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    picture = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PICTURE_URL}},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,broken"}},
    ]
    seen, _ = await perform(solo(), scenario([says("Nice.")], before=[{"role": "user", "content": picture}]), tmp_path)
    parts = [
        part for one in seen.requests[0]["messages"] if isinstance(one["content"], list) for part in one["content"]
    ]
    shown = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert shown == [PICTURE_URL, "https://pictures.example/a.png"]


async def test_a_structured_answer_is_shown_once_and_its_call_is_not(tmp_path: Path) -> None:
    first_wrong = [calls(ADD), calls(("final_result", '{"town": 1}')), calls(("final_result", '{"city": "Rome"}'))]
    seen, _ = await perform(solo(add, output_type=Weather), scenario(first_wrong), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 add {'a': 2, 'b': 3}", "result 1 5", 'say {"city":"Rome"}', "done stop"),
    ]
    written = {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert written == {"add"}


async def test_answer_that_never_validates_ends_run_with_reason(tmp_path: Path) -> None:
    wrong = scenario([calls(("final_result", '{"town": 1}'))] * 2)
    seen, _ = await perform(solo(output_type=Weather), wrong, tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "retries" in error.message


async def test_last_failure_of_fallback_models_is_reported(tmp_path: Path) -> None:
    async def overloaded(*_: Any) -> AsyncIterator[str]:
        raise ModelHTTPError(503, "first")
        yield ""

    first = FunctionModel(stream_function=overloaded)
    made = Made(lambda model: from_pydantic_ai(Agent(FallbackModel(first, model), name="agent")))
    seen, _ = await perform(made, scenario([Refusal(401, "wrong key")]), tmp_path)
    assert seen.lines(in_order=True) == ["error model_unauthorized"]
    alone = Made(lambda _: from_pydantic_ai(Agent(first, name="agent")))
    (tmp_path / "alone").mkdir()
    seen, _ = await perform(alone, scenario([]), tmp_path / "alone")
    assert seen.lines(in_order=True) == ["error model_error"]


async def test_call_with_model_retry_is_shown_as_failure(tmp_path: Path) -> None:
    def guess(number: int) -> str:
        """Guesses."""
        if number < 5:
            raise ModelRetry("too low")
        return "right"

    script = [calls((("guess"), f'{{"number": {number}}}'), first=number) for number in (3, 4, 5)]
    # As often as it takes: by itself pydantic-ai would end the run.
    seen, _ = await perform(solo(guess), scenario([*script, says("Five.")]), tmp_path)
    assert [line for line in seen.lines(in_order=True) if not line.startswith("call")] == [
        *("failed 1 tool_failed", "failed 2 tool_failed", "result 3 right", "say Five.", "done stop"),
    ]
    assert [event.error for event in seen.events if isinstance(event, ToolCallError)] == ["too low", "too low"]


@pytest.mark.parametrize("kind", ["tool", "toolset"])
@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_retries_of_tool_limit_its_runs(retries: int, kind: str, tmp_path: Path) -> None:
    ran: list[int] = []

    def guess(number: int) -> str:
        """Guesses."""
        ran.append(number)
        raise ModelRetry("too low")

    script = [calls(("guess", f'{{"number": {number}}}'), first=number) for number in range(retries + 3)]
    if kind == "tool":
        made = solo(Tool(guess, max_retries=retries))
    else:
        made = solo(toolsets=[FunctionToolset([guess], max_retries=retries)])
    seen, _ = await perform(made, scenario([*script[:3], says("I give up.")]), tmp_path)
    assert ran == list(range(min(retries + 1, 3)))
    failed = [event.code for event in seen.events if isinstance(event, ToolCallError)]
    assert failed == (["tool_failed"] * (retries + 1) + ["limit"] * 2)[:3]
    assert seen.lines(in_order=True)[-2:] == ["say I give up.", "done stop"]


async def test_a_picture_in_a_tuple_is_shown_as_one_in_a_list(tmp_path: Path) -> None:
    def paint() -> tuple[str, BinaryContent]:
        """Paints."""
        return "A cat, painted", BinaryContent(PICTURE, media_type="image/png")

    seen, _ = await perform(solo(paint), scenario([calls(("paint", "{}")), says("Painted.")]), tmp_path)
    [ended] = [event for event in seen.events if isinstance(event, ToolCallComplete)]
    assert [file["type"] for file in ended.files] == ["image"]
    assert "A cat, painted" in ended.result
    assert base64.b64encode(PICTURE).decode()[:20] not in ended.result
    assert base64.b64encode(PICTURE).decode()[:20] not in seen.sent()[-2]


@pytest.mark.parametrize("wanted", [("fly", "{}"), ("add", '{"a": "two"}')])
async def test_model_that_never_calls_correctly_reaches_limit(wanted: tuple[str, str], tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Any:
        return calls(wanted, first=len(body["messages"])) if body.get("tools") else says("I give up.")

    seen, _ = await perform(solo(add), scenario(script), tmp_path)
    assert seen.lines(in_order=True)[-2:] == ["say I give up.", "done max_turns"]


async def test_validation_errors_are_reported_as_text(tmp_path: Path) -> None:
    seen, _ = await perform(solo(add), scenario([calls(("add", '{"a": "two"}')), says("No.")]), tmp_path)
    [error] = [event.error for event in seen.events if isinstance(event, ToolCallError)]
    assert error.startswith("a: Input should be a valid integer")
    assert error.endswith("; b: Field required")


async def test_tool_result_is_shown_as_sent_to_model(tmp_path: Path) -> None:
    def draw() -> list[str | BinaryContent]:
        """Draws."""
        return [
            "a cat",
            BinaryContent(PICTURE, media_type="image/png"),
            BinaryContent(b"%PDF", media_type="application/pdf"),
        ]

    def measure() -> Weather:
        """Measures."""
        return Weather(city="Rome")

    wanted = calls(("draw", "{}"), ("measure", "{}"))
    seen, _ = await perform(solo(draw, measure), scenario([wanted, says("There.")]), tmp_path)
    lines = seen.lines(in_order=False)
    assert "result 1 a cat" in lines
    assert "files 1 image file" in lines
    assert 'result 2 {"city":"Rome"}' in lines
    assert lines[-1] == "done stop"


async def test_result_that_cannot_be_json_fails_call(tmp_path: Path) -> None:
    def find() -> Any:
        """Finds."""
        return object()

    seen, _ = await perform(solo(find), scenario([calls(("find", "{}")), says("Nothing.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say Nothing.", "done stop"]
    assert "cannot be written as JSON" in seen.sent()[-1]


async def test_provider_side_tool_is_shown(tmp_path: Path) -> None:
    async def search(*_: Any) -> AsyncIterator[BuiltinToolCallsReturns | str]:
        yield {0: NativeToolCallPart("web_search", '{"query": "Rome"}', "s1", provider_name="function")}
        yield {1: NativeToolReturnPart("web_search", ["a page"], "s1", provider_name="function")}
        yield "It is a city."

    made = Made(lambda _: from_pydantic_ai(Agent(FunctionModel(stream_function=search), name="agent")))
    seen, _ = await perform(made, scenario([]), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 web_search {'query': 'Rome'}",
        'result 1 ["a page"]',
        *("say It is a city.", "done stop"),
    ]
