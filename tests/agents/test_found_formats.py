"""Which format a model is read in is found: its endpoint is asked once it has written a call in its text."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard._formats import CallStyles, FormatChoice, ModelDescriptions, ModelKey, ToolFormat
from callboard.agents import Agent
from callboard.calls import tool
from callboard.models import OpenAICompatible
from callboard.skills import Skill
from callboard_protocol import Event, Reasoning, ToolCallStart
from tests.agents.conftest import ContextFor, play, text_of
from tests.fakes.model_servers import llama_cpp, vllm
from tests.fakes.openai_server import Body, Chunks, OpenAIServer, Page, Refusal, Silence, call, chunks, finish, text

HERMES = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
NEMOTRON = '<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>'
QWEN_WORDS = '{"name": <function-name>, "arguments": <args-json-object>}'
NEMOTRON_WORDS = "{{- '<TOOLCALL>[' -}}"


@tool(read_only=True)
def now() -> str:
    """Tells the time."""
    return "12:00"


CLOCK = Agent("a", skills=(Skill("clock", "Tells the time.", "", (now,)),))


def says(*answers: str) -> Callable[[Body], Chunks]:
    """Answer so, one after another; natively where the text is `natively`."""
    left = list(answers)

    def answer(_: Body) -> Chunks:
        said = left.pop(0)
        if said == "natively":
            return chunks(call("now", "{}", call_id="c"), finish("tool_calls"))
        return chunks(text(said), finish("stop"))

    return answer


class Turns:
    """Turns with one model, and what was logged of its format."""

    def __init__(self, server: OpenAIServer, name: str, context_for: ContextFor, formats: FormatChoice) -> None:
        self.server = server
        self.formats = formats
        self.model = OpenAICompatible(server.base_url, api_key="sk-the-key", model=name)
        self.key = ModelKey(name, server.base_url)
        self._context_for = context_for

    async def play(self, agent: Agent = CLOCK) -> list[Event]:
        """Play one turn, and wait for what it asked of the endpoint."""
        events = await play(agent, self._context_for("What is the time?", model=self.model, formats=self.formats))
        await self.formats.call_styles.descriptions.wait(self.key)
        return events

    async def format(self) -> str:
        return (await self.formats.for_model(self.model, self.key.name)).name


@asynccontextmanager
async def turns(
    context_for: ContextFor,
    script: Callable[[Body], Chunks],
    pages: Mapping[str, Page] | None = None,
    name: str = "my-model",
    formats: FormatChoice | None = None,
) -> AsyncIterator[Turns]:
    async with OpenAIServer(script, pages=pages) as server:
        made = Turns(server, name, context_for, formats or FormatChoice())
        try:
            yield made
        finally:
            await made.formats.call_styles.descriptions.aclose()
            await made.model.aclose()


def told(logs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(log["format"], log["because"]) for log in logs if log["event"] == "format_found"]


ENDPOINTS = {
    "llama.cpp": (llama_cpp(NEMOTRON_WORDS), "its chat template (llama.cpp)"),
    "vLLM, by its files": (
        vllm(model="my-model", root="/m/nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
        "its other name nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    ),
}


@pytest.mark.parametrize(("pages", "because"), ENDPOINTS.values(), ids=ENDPOINTS.keys())
async def test_a_model_without_native_calls_is_read_as_its_endpoint_tells(
    context_for: ContextFor, pages: dict[str, Page], because: str
) -> None:
    async with turns(context_for, says(NEMOTRON, "It is 12.", NEMOTRON, "Done."), pages) as model:
        with capture_logs() as logs:
            assert await model.format() == "auto"
            await model.play()
            assert await model.format() == "nemotron_nano"
            await model.play()
        assert told(logs) == [("nemotron_nano", because)]


async def test_a_template_goes_before_a_name(context_for: ContextFor) -> None:
    async with turns(context_for, says(NEMOTRON, "12."), llama_cpp(NEMOTRON_WORDS), name="qwen3-8b") as model:
        await model.play()
        assert await model.format() == "nemotron_nano"


async def test_where_nothing_tells_calls_at_the_end_are_rescued_as_before_and_the_log_says_so(
    context_for: ContextFor,
) -> None:
    async with turns(context_for, says(HERMES, "12.", HERMES, "12."), llama_cpp("{{ messages }}")) as model:
        with capture_logs() as logs:
            for _ in range(2):
                assert any(isinstance(event, ToolCallStart) for event in await model.play())
        assert await model.format() == "auto"
        assert told(logs) == [("auto", "neither its chat template nor its name tells one")]


async def test_a_model_that_writes_as_another_family_is_not_read_as_its_own(context_for: ContextFor) -> None:
    async with turns(context_for, says(HERMES, "12."), llama_cpp(NEMOTRON_WORDS), name="qwen3-8b") as model:
        with capture_logs() as logs:
            await model.play()
        assert await model.format() == "auto"
        [(_, because)] = told(logs)
        assert because == "its chat template (llama.cpp) says nemotron_nano, and it wrote hermes"


async def test_a_call_in_a_fence_is_rescued_again_because_it_does_not_show_the_syntax_of_the_model(
    context_for: ContextFor,
) -> None:
    fenced = '```json\n{"tool_calls": [{"name": "now", "arguments": {}}]}\n```'
    async with turns(context_for, says(fenced, "12.", fenced, "12."), name="qwen3-8b") as model:
        for _ in range(2):
            assert any(isinstance(event, ToolCallStart) for event in await model.play())
        assert await model.format() == "auto"


@pytest.mark.parametrize(
    ("chosen", "answers"),
    [
        ("auto", ["natively", HERMES]),
        ("hermes", ["natively", "12."]),
        ("native", [HERMES]),
        ("react", [HERMES, "12."]),
    ],
)
async def test_without_a_call_in_text_or_with_a_format_that_was_chosen_nobody_asks(
    context_for: ContextFor, chosen: ToolFormat, answers: list[str]
) -> None:
    async with turns(context_for, says(*answers), llama_cpp(QWEN_WORDS), formats=FormatChoice(chosen)) as model:
        await model.play()
        assert model.server.asked == []


async def test_an_endpoint_that_told_nothing_is_asked_again_after_a_while_and_logged_once(
    context_for: ContextFor,
) -> None:
    now_seconds = 0.0
    pages: dict[str, Page] = {"GET /props": Refusal(503, "loading")}
    formats = FormatChoice(call_styles=CallStyles(ModelDescriptions(lambda: now_seconds)))
    async with turns(context_for, says(*[NEMOTRON, "12."] * 4), pages, formats=formats) as model:
        with capture_logs() as logs:
            await model.play()
            now_seconds = 601.0
            await model.play()
        assert len(told(logs)) == 1
        pages.update(llama_cpp(NEMOTRON_WORDS))
        await model.play()
        assert await model.format() == "auto"
        now_seconds = 1202.0
        await model.play()
        assert await model.format() == "nemotron_nano"


async def test_the_answer_does_not_wait_for_the_endpoint(context_for: ContextFor) -> None:
    pages = dict.fromkeys(["GET /props", "POST /api/show", "POST /tokenize"], Silence())
    async with turns(context_for, says(HERMES, "12."), pages) as model:
        context = context_for("What is the time?", model=model.model, formats=model.formats)
        async with asyncio.timeout(2):
            assert text_of(await play(CLOCK, context)) == "12."
        assert "GET /props" in [one.route for one in model.server.asked]


async def test_runs_side_by_side_ask_once_and_later_ones_do_not(context_for: ContextFor) -> None:
    answers = (HERMES, HERMES, HERMES, "12.", "12.", "12.", HERMES, "12.")
    async with turns(context_for, says(*answers), llama_cpp(QWEN_WORDS)) as model:
        await asyncio.gather(*(model.play() for _ in range(3)))
        await model.play()
        assert [one.route for one in model.server.asked].count("GET /props") == 1


async def test_two_endpoints_may_have_different_models_of_one_name(context_for: ContextFor) -> None:
    formats = FormatChoice()
    async with (
        turns(context_for, says(NEMOTRON, "12."), llama_cpp(NEMOTRON_WORDS), formats=formats) as first,
        turns(context_for, says("natively", "12."), formats=formats) as second,
    ):
        await first.play()
        await second.play()
        assert await first.format() == "nemotron_nano"
        assert await second.format() == "auto"
        assert [one.route for one in second.server.asked] == []


async def test_of_a_family_that_was_chosen_the_endpoint_tells_whether_its_prompt_opens_the_thought(
    context_for: ContextFor,
) -> None:
    pages = llama_cpp(QWEN_WORDS, prompt=f"{QWEN_WORDS}<|im_start|>assistant\n<think>\n")
    formats = FormatChoice("hermes")
    script = says(HERMES, "12.", f"I look.\n</think>\n\n{HERMES}", "So.\n</think>\n\n12.")
    async with turns(context_for, script, pages, formats=formats) as model:
        with capture_logs() as logs:
            await model.play()
            events = await model.play()
        assert "".join(event.content for event in events if isinstance(event, Reasoning)).split() == ["I", "look.So."]
        assert text_of(events) == "12."
        assert await model.format() == "hermes"
        assert [one.route for one in model.server.asked].count("GET /props") == 1
        assert told(logs) == []
