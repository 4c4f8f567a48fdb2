"""What the model's endpoint says, as OpenAI's clients are told it: its refusals, its failures, what it counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard.agents import Agent, RunContext
from callboard.errors import ModelRateLimited
from callboard_protocol import Error, Event, Message, ToolCallStart
from tests.fakes.openai_server import OpenAIServer, Refusal, chunks, finish, text
from tests.http.test_openai_requests import Ask, both, complete
from tests.openai_client import asking
from tests.serving import ScriptedAgent, request

TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream begins with the first word, or not at all, however busy the machine is."""
    monkeypatch.setattr("callboard._openai.streams.BEGINNING_SECONDS", 60.0)


patient = pytest.mark.usefixtures("is_patient")

REFUSALS = [
    (TOO_LONG, "context_length_exceeded"),
    ("the request exceeds the available context size", "context_length_exceeded"),
    ("The prompt is too long: 5000 tokens", "context_length_exceeded"),
    ("cannot decode the image of the context", "model_refused"),
]


@both
@patient
@streamed_or_not
@pytest.mark.parametrize(("words", "code"), REFUSALS)
async def test_a_request_that_the_endpoint_refuses_is_a_bad_request_with_its_code(
    tmp_path: Path, ask: Ask, stream: bool, words: str, code: str
) -> None:
    async with OpenAIServer([Refusal(400, words)]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (_, client):
            with pytest.raises(openai.BadRequestError, match=words) as caught:
                await ask(client, "naked", stream=stream)
    assert (caught.value.code, caught.value.type) == (code, "invalid_request_error")


async def test_the_endpoints_own_code_is_passed_on(tmp_path: Path) -> None:
    mid_stream = Error(message="no such voice", code="model_refused", upstream_code="invalid_voice")

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield mid_stream

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        with pytest.raises(openai.BadRequestError) as caught:
            await complete(client)
    assert caught.value.code == "invalid_voice"


async def test_the_pipe_is_told_what_the_endpoint_refused_and_what_to_do(tmp_path: Path) -> None:
    async with OpenAIServer([Refusal(400, TOO_LONG)]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (service, _):
            *_, last = await service.events(request(agent="naked"))
    assert isinstance(last, Error)
    assert (last.code, last.upstream_code) == ("model_refused", "context_length_exceeded")
    assert "maximum context length is 4096 tokens" in last.message
    assert "Begin a new chat, or set CALLBOARD_HISTORY_TOKENS" in last.message


@both
@patient
async def test_a_failure_before_the_first_word_is_a_status_and_no_stream(tmp_path: Path, ask: Ask) -> None:
    runs: list[RunContext] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        runs.append(context)
        raise ModelRateLimited("slow down")
        yield Message(content="")

    async with asking(tmp_path, ScriptedAgent(script)) as (service, client):
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            await ask(client, stream=True)
        body: Any = {
            "model": "scripted",
            "messages": [{"role": "user", "content": "hi"}],
            "input": "hi",
            "stream": True,
        }
        for route in ("chat/completions", "responses"):
            answer = await service.client.post(f"/v1/{route}", json=body)
            assert answer.status_code == 429
            assert answer.headers["content-type"] == "application/json"
    assert caught.value.code == "model_rate_limited"
    assert len(runs) == 3


@patient
async def test_calls_that_the_client_is_not_told_of_are_no_word(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look_up")
        raise ModelRateLimited("slow down")

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        with pytest.raises(openai.BadRequestError, match=r"slow down.* must not repeat") as caught:
            await complete(client, stream=True)
    assert caught.value.code == "model_rate_limited"


@pytest.mark.parametrize("activity", ["none", None])
@pytest.mark.parametrize("words", ["", "I look it up."])
@pytest.mark.parametrize(
    ("route", "code"), [("chat/completions", "tools_already_run"), ("responses", "invalid_prompt")]
)
async def test_a_stream_that_fails_after_a_call_is_not_repeated(
    tmp_path: Path, route: str, code: str, words: str, activity: str | None
) -> None:
    has_begun = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=words)
        yield ToolCallStart(tool_call_id="a", tool_name="look_up")
        await has_begun.wait()
        raise ModelRateLimited("slow down")

    asked: Any = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "stream": True}
    async with asking(tmp_path, ScriptedAgent(script)) as (service, _):
        body = asked | ({"callboard": {"tool_activity": activity}} if activity else {})
        async with service.client.stream("POST", f"/v1/{route}", json=body) as answer:
            has_begun.set()
            lines = [line[6:] async for line in answer.aiter_lines() if line.startswith("data: {")]
    last = json.loads(lines[-1])
    error = last["error"] if "error" in last else last["response"]["error"]
    assert error["code"] == code
    assert "slow down Tools of this request have already run" in error["message"]
    assert error.get("type", "invalid_request_error") == "invalid_request_error"


@both
@patient
async def test_a_client_that_leaves_before_the_first_word_ends_the_run(tmp_path: Path, ask: Ask) -> None:
    begun = asyncio.Event()
    cancelled = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        yield Message(content="never")

    async with asking(tmp_path, ScriptedAgent(script), detach_grace_seconds=600) as (_, client):
        answer = asyncio.ensure_future(ask(client, stream=True))
        await begun.wait()
        answer.cancel()
        await cancelled.wait()


@both
async def test_a_stream_begins_before_the_model_answers(tmp_path: Path, ask: Ask) -> None:
    may_fail = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        await may_fail.wait()
        raise ModelRateLimited("slow down")
        yield Message(content="")

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        stream = await ask(client, stream=True)
        may_fail.set()
        if ask is complete:
            with pytest.raises(openai.APIError, match="slow down"):
                async for _ in stream:
                    pass
        else:
            assert [event async for event in stream][-1].response.error.message == "slow down"


async def counted(client: AsyncOpenAI, ask: Ask, stream: bool) -> Any:
    fields: Any = {"stream_options": {"include_usage": True}} if stream and ask is complete else {}
    answer = await ask(client, "naked", stream=stream, **fields)
    if not stream:
        return answer.usage
    *_, last = [part async for part in answer]
    return last.usage if ask is complete else last.response.usage


@both
@streamed_or_not
@pytest.mark.parametrize(
    "told",
    [{"prompt_tokens_details": {"cached_tokens": 30}}, {"prompt_cache_hit_tokens": 30}],
    ids=["openai", "deepseek"],
)
async def test_cached_and_reasoning_tokens_are_passed_on(
    tmp_path: Path, ask: Ask, stream: bool, told: dict[str, Any]
) -> None:
    tokens = {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60, **told}
    tokens["completion_tokens_details"] = {"reasoning_tokens": 15}
    counts = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": tokens}
    async with OpenAIServer([chunks(text("Hi"), finish("stop"), counts)]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (_, client):
            usage = await counted(client, ask, stream)
    read, written = (
        (usage.prompt_tokens_details, usage.completion_tokens_details)
        if ask is complete
        else (usage.input_tokens_details, usage.output_tokens_details)
    )
    assert (usage.total_tokens, read.cached_tokens, written.reasoning_tokens) == (60, 30, 15)
