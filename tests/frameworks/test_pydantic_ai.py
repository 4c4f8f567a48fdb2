"""What only pydantic-ai has: dependencies, structured answers, retries of tools, deferred calls, capabilities."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Base64Bytes, BaseModel

from callboard_protocol import InputRequest, Source, ToolCallArgsDelta, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import Refusal
from tests.frameworks.pydantic_ai_agents import Made, add, solo
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import Framework, Performance, perform
from tests.frameworks.toolbox import PICTURE, PICTURE_URL, Toolbox


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


def errors(seen: Performance) -> list[str]:
    return [event.error for event in seen.events if isinstance(event, ToolCallError)]


def with_model(model: Any) -> Framework:
    """An agent with this model instead of the endpoint's."""
    return Made(lambda _: solo().make(model))


async def test_prompt_instructions_and_client_message_are_one_system_message(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Answer in verse."}
    kind = solo(add, instructions="Be kind.", system_prompt="You can add.")
    script = scenario([calls(ADD), says("5."), says("I am.")], before=[system], turns=["go", "and now?"])
    seen, _ = await perform(kind, script, tmp_path)
    for request in seen.requests:
        [whole] = [one["content"] for one in request["messages"] if one["role"] == "system"]
        assert whole == "You can add.\n\nBe kind.\n\nAnswer in verse."
    assert seen.sent() == ["user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant 5.", "user and now?"]


async def test_a_picture_by_its_address_is_sent_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    picture = [
        {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,broken"}},
    ]
    seen, _ = await perform(solo(), scenario([says("Nice.")], before=[{"role": "user", "content": picture}]), tmp_path)
    parts = [
        part for one in seen.requests[0]["messages"] if isinstance(one["content"], list) for part in one["content"]
    ]
    shown = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert shown == ["https://pictures.example/a.png"]


# --- Answers ---------------------------------------------------------------------------------------------------------


async def test_a_structured_answer_is_shown_once_and_its_call_is_not(tmp_path: Path) -> None:
    first_wrong = [calls(ADD), calls(("final_result", '{"town": 1}')), calls(("final_result", '{"city": "Rome"}'))]
    seen, _ = await perform(solo(add, output_type=Weather), scenario(first_wrong), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 add {'a': 2, 'b': 3}", "result 1 5", 'say {"city":"Rome"}', "done stop"),
    ]
    written = {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert written == {"add"}


async def test_answer_of_wrong_type_is_taken_back(tmp_path: Path) -> None:
    from pydantic_ai import PromptedOutput

    kind = solo(output_type=PromptedOutput(Weather), retries=2)
    seen, _ = await perform(kind, scenario([says("It is Rome."), says('{"city": "Rome"}')]), tmp_path)
    assert seen.left() == '{"city": "Rome"}'


async def test_last_failure_of_fallback_models_is_reported(tmp_path: Path) -> None:
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel

    async def overloaded(*_: Any) -> AsyncIterator[str]:
        raise ModelHTTPError(503, "first")
        yield ""

    first = FunctionModel(stream_function=overloaded)
    made = Made(lambda model: solo().make(FallbackModel(first, model)))
    seen, _ = await perform(made, scenario([Refusal(401, "wrong key")]), tmp_path)
    assert seen.lines(in_order=True) == ["error model_unauthorized"]
    (tmp_path / "alone").mkdir()
    seen, _ = await perform(with_model(first), scenario([]), tmp_path / "alone")
    assert seen.lines(in_order=True) == ["error model_error"]


async def test_pictures_and_citations_of_an_answer_are_shown(tmp_path: Path) -> None:
    from pydantic_ai import BinaryContent
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

    class Remembered(AbstractCapability[Any]):
        """Returns a remembered answer without a model request."""

        async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
            page = WebCitationSource("https://example.org/owls", title="Owls", excerpts=["They see at night."])
            cited = [Citation(sources=[page, DocumentCitationSource(title="Field notes")])]
            picture = FilePart(BinaryContent(PICTURE, media_type="image/png"))
            raise SkipModelRequest(ModelResponse(parts=[picture, TextPart("Owls.", citations=cited)]))

    seen, _ = await perform(solo(capabilities=[Remembered()]), scenario([]), tmp_path)
    assert seen.left() == "Owls."
    first, second = [event for event in seen.events if isinstance(event, Source)]
    assert first.source == {"name": "Owls", "url": "https://example.org/owls"}
    assert first.document == ("They see at night.",)
    assert second.source == {"name": "Field notes"}
    [shown] = [event for event in seen.events if isinstance(event, ToolCallComplete)]
    assert [dict(file) for file in shown.files] == [{"type": "image", "url": PICTURE_URL}]


async def test_provider_side_tool_is_shown(tmp_path: Path) -> None:
    from pydantic_ai.messages import NativeToolCallPart, NativeToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def search(*_: Any) -> AsyncIterator[Any]:
        yield {0: NativeToolCallPart("web_search", '{"query": "Rome"}', "s1", provider_name="function")}
        yield {1: NativeToolReturnPart("web_search", ["a page"], "s1", provider_name="function")}
        yield "It is a city."

    seen, _ = await perform(with_model(FunctionModel(stream_function=search)), scenario([]), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 web_search {'query': 'Rome'}",
        'result 1 ["a page"]',
        *("say It is a city.", "done stop"),
    ]


# --- Tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "retries"), [("tool", 0), ("tool", None), ("toolset", 1)])
async def test_retries_of_tool_limit_its_runs(retries: int | None, kind: str, tmp_path: Path) -> None:
    from pydantic_ai import ModelRetry, Tool
    from pydantic_ai.toolsets import FunctionToolset

    ran: list[int] = []

    def guess(number: int) -> str:
        """Guesses."""
        ran.append(number)
        raise ModelRetry("too low")

    script = [calls(("guess", f'{{"number": {number}}}'), first=number) for number in range(3)]
    if kind == "tool":
        made = solo(Tool(guess, max_retries=retries))
    else:
        made = solo(toolsets=[FunctionToolset([guess], max_retries=retries)])
    seen, _ = await perform(made, scenario([*script, says("I give up.")]), tmp_path)
    # As often as it takes if the author sets no limit: by itself pydantic-ai would end the run.
    may_run = 3 if retries is None else retries + 1
    assert ran == list(range(may_run))
    failed = [event.code for event in seen.events if isinstance(event, ToolCallError)]
    assert failed == ["tool_failed"] * may_run + ["limit"] * (3 - may_run)
    assert errors(seen)[0] == "too low"
    assert seen.lines(in_order=True)[-2:] == ["say I give up.", "done stop"]


@pytest.mark.parametrize("wanted", [("fly", "{}"), ("add", '{"a": "two"}')])
async def test_model_that_never_calls_correctly_reaches_limit(wanted: tuple[str, str], tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Any:
        return calls(wanted, first=len(body["messages"])) if body.get("tools") else says("I give up.")

    seen, _ = await perform(solo(add), scenario(script), tmp_path)
    assert seen.lines(in_order=True)[-2:] == ["say I give up.", "done max_turns"]
    if wanted[0] == "add":
        assert errors(seen)[0].startswith("a: Input should be a valid integer")
        assert errors(seen)[0].endswith("; b: Field required")


async def test_event_emitted_by_tool_is_status_of_its_call(tmp_path: Path) -> None:
    from pydantic_ai import CustomEvent, RunContext

    @dataclass(kw_only=True)
    class TravelProgress(CustomEvent):
        message: str
        progress: int | None = None

    async def travel(ctx: RunContext[None], place: str) -> str:
        """Goes somewhere."""
        await ctx.emit(TravelProgress(message=f"half way to {place}", progress=50))
        return f"in {place}"

    turns = [calls(("travel", '{"place": "Rome"}')), says("There.")]
    seen, _ = await perform(solo(travel), scenario(turns), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 travel {'place': 'Rome'}", "status 1 processing half way to Rome 50", "result 1 in Rome"),
        *("say There.", "done stop"),
    ]


async def test_tool_result_is_shown_as_sent_to_model(tmp_path: Path) -> None:
    from pydantic_ai import BinaryContent

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

    def paint() -> tuple[str, BinaryContent]:
        """Paints."""
        return "A cat, painted", BinaryContent(PICTURE, media_type="image/png")

    wanted = calls(("draw", "{}"), ("measure", "{}"), ("paint", "{}"))
    seen, _ = await perform(solo(draw, measure, paint), scenario([wanted, says("There.")]), tmp_path)
    lines = seen.lines(in_order=False)
    assert {"result 1 a cat", "files 1 image file", 'result 2 {"city":"Rome"}', "files 3 image"} < set(lines)
    assert lines[-1] == "done stop"
    [painted] = [line for line in lines if line.startswith("result 3")]
    assert "A cat, painted" in painted
    assert PICTURE_URL.partition(",")[2] not in painted


async def test_argument_of_bytes_can_be_shown(tmp_path: Path) -> None:
    def save(data: Base64Bytes) -> str:
        """Saves."""
        return f"{len(data)} bytes"

    asked = scenario([calls(("save", '{"data": "//79/A=="}')), says("Done.")], reply=True)
    seen, _ = await perform(solo(save), asked, tmp_path, confirm_tools=["save"])
    assert seen.lines(in_order=True)[-3:] == ["result 1 4 bytes", "say Done.", "done stop"]


async def test_result_that_cannot_be_json_fails_call(tmp_path: Path) -> None:
    def find() -> Any:
        """Finds."""
        return object()

    seen, _ = await perform(solo(find), scenario([calls(("find", "{}")), says("Nothing.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say Nothing.", "done stop"]
    assert "cannot be written as JSON" in seen.sent()[-1]


# --- Approvals, questions, and calls that are run elsewhere ----------------------------------------------------------

WIPE = calls(("wipe", '{"disk": "C"}'))


def needing_approval(toolbox: Toolbox) -> Any:
    from pydantic_ai import Tool

    return Tool(toolbox.plain("wipe"), requires_approval=True)


async def test_a_tool_can_ask_for_approval_itself(tmp_path: Path) -> None:
    from pydantic_ai import ApprovalRequired, RunContext

    def wipe(ctx: RunContext[None], disk: str) -> str:
        """Wipes a disk."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"{disk} is empty"

    seen, _ = await perform(solo(wipe), scenario([WIPE, says("So be it.")], reply=True), tmp_path)
    assert sum(isinstance(event, InputRequest) for event in seen.events) == 1
    assert seen.sent()[-1] == "tool C is empty"
    assert seen.lines(in_order=True)[-2:] == ["say So be it.", "done stop"]


async def test_call_without_approval_runs_before_question(tmp_path: Path) -> None:
    toolbox = Toolbox()
    both = calls(("wipe", '{"disk": "C"}'), ADD)
    seen, _ = await perform(solo(needing_approval(toolbox), add), scenario([both, says("Gone.")], reply=True), tmp_path)
    assert seen.lines(in_order=True)[:4] == [
        *("call 1 add {'a': 2, 'b': 3}", "result 1 5", "call 2 wipe {'disk': 'C'}"),
        "status 2 pending waiting for approval",
    ]
    assert toolbox.wiped == ["C"]


async def test_user_is_not_asked_about_call_that_cannot_run(tmp_path: Path) -> None:
    wrong = calls(("wipe", '{"disk": 3}'))
    made = solo(needing_approval(Toolbox()))
    seen, _ = await perform(made, scenario([wrong, says("Oh.")], reply=True), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 wipe {'disk': 3}", "failed 1 invalid_args", "say Oh.", "done stop"]


async def test_agent_capability_decides_before_user(tmp_path: Path) -> None:
    from pydantic_ai.capabilities import HandleDeferredToolCalls
    from pydantic_ai.tools import DeferredToolResults, ToolDenied

    async def judge(ctx: Any, requests: Any) -> DeferredToolResults:
        denied: Any = {call.tool_call_id: ToolDenied("no wiping") for call in requests.approvals}
        return DeferredToolResults(approvals=denied)

    toolbox = Toolbox()
    judged = solo(needing_approval(toolbox), capabilities=[HandleDeferredToolCalls(judge)])
    seen, _ = await perform(judged, scenario([WIPE, says("As you wish.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 denied", "say As you wish.", "done stop"]
    assert (errors(seen), toolbox.wiped) == (["no wiping"], [])


async def test_external_call_fails_and_run_continues(tmp_path: Path) -> None:
    from pydantic_ai import ToolDefinition
    from pydantic_ai.toolsets import ExternalToolset

    made = solo(toolsets=[ExternalToolset[None]([ToolDefinition(name="later")])])
    seen, _ = await perform(made, scenario([calls(("later", '{"disk": "C"}')), says("Not here.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say Not here.", "done stop"]
    assert "outside of its agent" in seen.sent()[-1]


class Seats(BaseModel):
    seats: int
    row: Literal["stalls", "balcony"]


class Party(BaseModel):
    guests: list[Seats]


def ask_user() -> Any:
    from pydantic_ai import CallDeferred

    raise CallDeferred(kind="question")


def choose_seats(play: str) -> Seats:
    """Ask which seats the user wants."""
    return Seats.model_validate(ask_user())


def choose_colour() -> Literal["red", "blue"]:
    """Ask for a colour."""
    ask_user()
    return "red"


def ask_name(first: str, second: str) -> str:
    """Ask for a name."""
    return str(ask_user())


def invite() -> Party:
    """Ask who comes."""
    return Party.model_validate(ask_user())


@pytest.mark.parametrize(
    ("tool", "arguments", "reply", "asked", "told"),
    [
        (choose_seats, '{"play": "Hamlet"}', {"seats": "2", "row": "2"}, "Hamlet", '{"seats":2,"row":"balcony"}'),
        (choose_colour, "{}", "2", "Ask for a colour.", "blue"),
        (ask_name, '{"first": "a", "second": "b"}', "Viola", "first: a\nsecond: b", "Viola"),
        (choose_seats, '{"play": "Hamlet"}', False, "Hamlet", "the question was declined"),
        (choose_seats, '{"play": "Hamlet"}', None, "Hamlet", "no answer came in time"),
        (invite, "{}", None, None, "invite cannot ask the user, because the field 'guests'"),
    ],
)
async def test_a_deferred_question_is_asked_and_its_answer_is_the_result(
    tool: Any, arguments: str, reply: Any, asked: str | None, told: str, tmp_path: Path
) -> None:
    script = scenario([calls((tool.__name__, arguments)), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(tool), script, tmp_path)
    questions = [event for event in seen.events if isinstance(event, InputRequest)]
    assert [question.message for question in questions] == ([] if asked is None else [asked])
    assert [question.kind for question in questions] == ["form" if tool is choose_seats else "input"] * len(questions)
    assert told in seen.sent()[-1]
    assert seen.lines(in_order=True)[-2:] == ["say Fine.", "done stop"]
    is_answered = asked is not None and isinstance(reply, dict | str)
    assert len(errors(seen)) == (not is_answered)
    assert any(line.startswith("result 1 ") for line in seen.lines(in_order=True)) == is_answered
