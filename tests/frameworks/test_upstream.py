"""The model endpoint's usage and refusals, through every adapter."""

from pathlib import Path

import pytest

from callboard_protocol import Error, Usage
from tests.fakes.openai_server import Refusal, chunks, finish, text
from tests.frameworks.columns import FRAMEWORKS
from tests.frameworks.scenario import scenario
from tests.frameworks.stage import Framework, perform

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)

COUNTED = {
    "id": "c",
    "object": "chat.completion.chunk",
    "choices": [],
    "usage": {
        "prompt_tokens": 40,
        "completion_tokens": 20,
        "total_tokens": 60,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 15},
    },
}


@every_framework
async def test_cached_and_reasoning_tokens_are_counted(framework: Framework, tmp_path: Path) -> None:
    answer = chunks(text("Hi"), finish("stop"), COUNTED)
    seen, _ = await perform(framework, scenario(lambda _: answer), tmp_path)
    [usage] = [event for event in seen.events if isinstance(event, Usage)]
    assert usage == Usage(input_tokens=40, output_tokens=20, total_tokens=60, cached_tokens=30, reasoning_tokens=15)


@every_framework
async def test_refused_request_is_distinguished_from_failed_one(framework: Framework, tmp_path: Path) -> None:
    refusal = Refusal(400, "This model's maximum context length is 4096 tokens.")
    seen, _ = await perform(framework, scenario(lambda _: refusal), tmp_path)
    [error] = [event for event in seen.events if isinstance(event, Error)]
    assert (error.code, error.upstream_code) == ("model_refused", "context_length_exceeded")
    assert "maximum context length is 4096 tokens" in error.message
