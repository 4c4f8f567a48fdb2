"""What both routes of OpenAI's API share: who asks, what is passed on, what is refused, and how runs end."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard.agents import Agent, RunContext
from callboard.errors import ModelRateLimited, ModelUnauthorized
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Memory
from callboard_protocol import Error, Event, Message, ToolCallStart
from tests.fakes.openai_server import OpenAIServer, Refusal, chunks, finish, text
from tests.http.test_consent import Shop
from tests.loop.conftest import wants
from tests.openai_client import EVERYTHING, QUESTION, asking
from tests.serving import ScriptedAgent, Service, request

OPEN_WEBUI = {
    "X-OpenWebUI-User-Id": "u",
    "X-OpenWebUI-User-Name": "Ad%C3%A8le",
    "X-OpenWebUI-User-Email": "a@example.org",
    "X-OpenWebUI-User-Role": "admin",
    "X-OpenWebUI-Chat-Id": "chat",
    "X-OpenWebUI-Message-Id": "message",
    "X-OpenWebUI-Task": "",
}

Ask = Callable[..., Awaitable[Any]]


async def complete(client: AsyncOpenAI, model: str = "scripted", **fields: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=QUESTION, **fields)


async def respond(client: AsyncOpenAI, model: str = "scripted", **fields: Any) -> Any:
    return await client.responses.create(model=model, input=QUESTION, **fields)


both = pytest.mark.parametrize("ask", [complete, respond])


class Listener:
    """An agent that only remembers what it was given."""

    def __init__(self) -> None:
        self.contexts: list[RunContext] = []
        self.agent = ScriptedAgent(self.run)

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        self.contexts.append(context)
        yield Message(content="I see.")


def in_chat(chat_id: str) -> dict[str, Any]:
    return {"extra_headers": {**OPEN_WEBUI, "X-OpenWebUI-Chat-Id": chat_id}}


# Open WebUI fills no placeholder that it does not know, such as a misspelled one.
UNFILLED = {"X-OpenWebUI-User-Id": "{{USERID}}", "X-OpenWebUI-Task": "{{TASKS}}", "X-OpenWebUI-Chat-Id": "{{CHAT}}"}
TITLE = {"callboard": {"chat_id": "other", "task": "title_generation"}}
ASKERS: list[tuple[dict[str, Any], tuple[str | None, str | None, str | None]]] = [
    ({"extra_headers": OPEN_WEBUI}, ("u", "chat", None)),
    ({"user": "eve", "extra_body": TITLE, **in_chat("chat")}, ("u", "other", "title_generation")),
    # The chat is another user's: the answer comes, and nothing of it is kept there.
    ({"user": "eve", "extra_headers": {"X-OpenWebUI-Chat-Id": "chat"}}, ("body:eve", None, None)),
    *[(in_chat(chat_id), ("u", None, None)) for chat_id in ("local:abc", "temporary:abc", "channel:abc")],
    ({"extra_headers": UNFILLED}, (None, None, None)),
]


@both
async def test_headers_and_body_say_who_asks_in_which_chat(tmp_path: Path, ask: Ask) -> None:
    listener = Listener()
    async with asking(tmp_path, listener.agent) as (_, client):
        for fields, _ in ASKERS:
            await ask(client, **fields)
    contexts = listener.contexts
    assert [(context.user and context.user.id, context.chat_id, context.task) for context in contexts] == [
        asker for _, asker in ASKERS
    ]
    user = contexts[0].user
    assert user
    assert (user.name, user.email, user.role) == ("Adèle", "a@example.org", "admin")
    assert contexts[0].message_id == "message"


@both
async def test_a_name_in_a_body_opens_nothing_of_the_user_whom_open_webui_vouches_for(tmp_path: Path, ask: Ask) -> None:
    told: list[str] = []

    def search_memory(request: ModelRequest) -> list[ModelDelta]:
        if request.messages[-1]["role"] == "user":
            return [wants("memory", {"action": "search"})]
        told.append(request.messages[-1]["content"])
        return [TextDelta("I see.")]

    agent = Agent("keeper", skills=(Memory(),), model=ScriptedModel(search_memory))
    async with asking(tmp_path, agent) as (service, client):
        await service.state.store.memories("u").add("Allergic to nuts")
        await service.state.store.memories("body:u").add("Plays chess")
        await ask(client, "keeper", extra_headers=OPEN_WEBUI, user="other")
        await ask(client, "keeper", user="u")
        with pytest.raises(openai.BadRequestError, match="no user's id begins with body:"):
            await ask(client, "keeper", extra_headers={"X-OpenWebUI-User-Id": "body:u"})
    vouched, named = told
    assert ("nuts" in vouched, "chess" in vouched) == (True, False)
    assert ("nuts" in named, "chess" in named) == (False, True)


async def calls_of(service: Service, user_id: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = (await service.client.get(f"/v1/tool-calls?user_id={user_id}")).json()["tool_calls"]
    return calls


async def test_parameters_of_a_completion_reach_the_model(tmp_path: Path) -> None:
    given = {
        "temperature": 0.5,
        "max_completion_tokens": 50,
        "stop": ["."],
        "seed": 7,
        "response_format": {"type": "json_object"},
        "verbosity": "low",
        "prompt_cache_key": "key",
    }
    own = {
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "chat_template_kwargs": {"enable_thinking": False},
        "provider": {"order": ["a"]},
    }
    kept = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "n": 1,
        "extra_body": {"models": ["other"], "extra_headers": {"a": "b"}, **own},
    }
    async with OpenAIServer([chunks(text("{}"), finish("stop"))]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (_, client):
            await complete(client, "naked", logprobs=True, tools=[], **given, **kept)
    sent = endpoint.requests[-1]
    assert sent.pop("messages")
    assert sent == {"model": "m", "stream": True, "stream_options": {"include_usage": True}, **given, **own}


async def test_parameters_of_a_chat_in_open_webui_reach_the_model(tmp_path: Path) -> None:
    given = {"reasoning_effort": "low", "top_k": 40, "repeat_penalty": 1.1}
    own = {"model": "other", "stream": False, "tool_choice": "required", "seed": None}
    async with OpenAIServer([chunks(text("Hi"), finish("stop"))]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (service, _):
            await service.events(request(agent="naked", options={**given, **own, "logit_bias": "5: 100, 413:-100"}))
            wrong = request(agent="naked", options={"logit_bias": "much"})
            refused = await service.client.post("/v1/runs", json=wrong)
    sent = endpoint.requests[-1]
    assert sent.pop("messages")
    assert sent == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        **given,
        "logit_bias": {"5": 100, "413": -100},
    }
    assert "write it as 5432:100" in refused.json()["error"]["message"]


async def test_parameters_of_a_response_reach_the_model_under_the_names_it_knows(tmp_path: Path) -> None:
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    async with OpenAIServer([chunks(text("{}"), finish("stop"))]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (_, client):
            await respond(
                client,
                "naked",
                top_p=0.5,
                max_output_tokens=50,
                reasoning={"effort": "low"},
                text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
                truncation="auto",
                include=["reasoning.encrypted_content"],
                # Codex sends them.
                extra_body={"min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}, "client_metadata": {}},
            )
    sent = endpoint.requests[-1]
    assert sent.pop("messages")
    assert sorted(sent) == [
        "chat_template_kwargs",
        "max_tokens",
        "min_p",
        "model",
        "reasoning_effort",
        "response_format",
        "stream",
        "stream_options",
        "top_p",
        "verbosity",
    ]
    assert (sent["top_p"], sent["max_tokens"], sent["reasoning_effort"]) == (0.5, 50, "low")
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}


@both
async def test_a_question_of_the_run_is_answered_at_once_with_nothing(tmp_path: Path, ask: Ask) -> None:
    shop = Shop(confirm=("*",))
    async with asking(tmp_path, shop.agent, input_timeout_seconds=600) as (_, client):
        await ask(client, "shop")
    assert shop.bought == []
    assert all("it was not approved" in told and "cannot be asked" in told for told in shop.told)


@both
async def test_an_unknown_agent_is_a_model_that_is_not_found(tmp_path: Path, ask: Ask) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        with pytest.raises(openai.NotFoundError) as caught:
            await ask(client, "nobody")
    assert (caught.value.code, caught.value.type) == ("unknown_agent", "invalid_request_error")
    assert "The agents are: scripted." in str(caught.value)


@both
async def test_a_wrong_key_is_an_authentication_error(tmp_path: Path, ask: Ask) -> None:
    async with asking(tmp_path, EVERYTHING, api_key="another") as (_, client):
        with pytest.raises(openai.AuthenticationError, match="CALLBOARD_API_KEY") as caught:
            await ask(client)
    assert (caught.value.code, caught.value.type) == ("unauthorized", "authentication_error")


FORCED: Any = {"type": "function", "name": "f", "function": {"name": "f"}}
TWICE: Any = [{"type": "function", "name": "f", "function": {"name": "f"}}] * 2
NAMELESS: Any = [{"type": "function", "function": {}}]
NO_OBJECT: Any = [{"type": "function", "name": "f", "parameters": {"type": "string"}}]
REFUSED: list[tuple[Ask, dict[str, Any], str]] = [
    (complete, {"n": 2}, "n is 2"),
    (complete, {"tool_choice": "required"}, "tools offers none"),
    (complete, {"tool_choice": FORCED}, "f, which tools does not offer"),
    (complete, {"tool_choice": "perhaps"}, "use none, auto, required"),
    (complete, {"tools": TWICE}, "tools.1: there are two functions"),
    (complete, {"tools": NAMELESS * 129}, "no more than 128"),
    (complete, {"tools": NAMELESS}, "tools.0: name: Field required"),
    (complete, {"function_call": {"name": "f"}}, "use tools and tool_choice"),
    (complete, {"extra_body": {"messages": []}}, "messages: Value error, must not be empty"),
    (complete, {"extra_body": {"messages": [{"role": "model"}]}}, "messages.0.role: Input should be 'system', 'd"),
    (complete, {"extra_body": {"callboard": {"tool_activity": "items"}}}, "use none or status or details"),
    (complete, {"extra_body": {"callboard": {"activity": "none"}}}, "callboard.activity: Extra inputs"),
    (complete, {"extra_headers": {"X-Callboard-Tool-Activity": "loud"}}, "tool_activity: Input should be"),
    (complete, {"extra_headers": {"X-OpenWebUI-User-Id": "x" * 300}}, "id: String should have at most 255"),
    (complete, {"user": "x" * 300}, "id: String should have at most 255"),
    (respond, {"tool_choice": FORCED}, "f, which tools does not offer"),
    (respond, {"tools": NO_OBJECT}, "schema of type 'object'"),
    (respond, {"previous_response_id": "resp_1"}, "there is no response 'resp_1'"),
    (respond, {"conversation": "conv_1"}, "conversation is not supported"),
    (respond, {"background": True}, "background is not supported"),
    (respond, {"extra_body": {"input": []}}, "input"),
    (respond, {"extra_body": {"input": [{"type": "item_reference", "id": "msg_1"}]}}, "there is no item 'msg_1'"),
    (respond, {"extra_body": {"input": [{"type": "function_call", "name": "f"}]}}, "call_id: Field required"),
    (respond, {"extra_body": {"callboard": {"tool_activity": "details"}}}, "use mcp or items or none"),
]


async def test_what_no_agent_can_do_is_a_bad_request(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        for ask, fields, words in REFUSED:
            with pytest.raises(openai.BadRequestError) as caught:
                await ask(client, **fields)
            assert words in str(caught.value)
            assert (caught.value.code, caught.value.type) == ("invalid_request", "invalid_request_error")


class Failing:
    """An agent that fails, by default in the middle of a call, and counts how often it is asked."""

    def __init__(self, error: Exception | Error, *, calls: bool = True) -> None:
        self.error = error
        self.calls = calls
        self.runs = 0
        self.agent = ScriptedAgent(self.run)

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        self.runs += 1
        yield Message(content="Let me see.")
        if self.calls:
            yield ToolCallStart(tool_call_id="a", tool_name="look_up")
        if isinstance(self.error, Error):
            yield self.error
        else:
            raise self.error


ENDINGS: list[tuple[Exception | Error, type[openai.APIStatusError], int, str]] = [
    (ModelRateLimited("slow down"), openai.RateLimitError, 429, "model_rate_limited"),
    (ModelUnauthorized("slow down"), openai.InternalServerError, 502, "model_unauthorized"),
    (RuntimeError("slow down"), openai.InternalServerError, 500, "agent_error"),
    (Error(message="slow down", code="its own"), openai.InternalServerError, 500, "its own"),
    (
        Error(message="slow down", code="model_refused", upstream_code="invalid_voice"),
        openai.BadRequestError,
        400,
        "invalid_voice",
    ),
]


@both
async def test_a_run_that_fails_is_an_error_and_is_not_run_again(tmp_path: Path, ask: Ask) -> None:
    for number, (error, raised, status, code) in enumerate(ENDINGS):
        failing = Failing(error, calls=False)
        async with asking(tmp_path / str(number), failing.agent) as (_, client):
            with pytest.raises(raised, match="slow down") as caught:
                await ask(client)
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert failing.runs == 1


@both
async def test_a_run_that_fails_after_a_call_has_a_status_that_no_client_repeats(tmp_path: Path, ask: Ask) -> None:
    for number, (error, *_) in enumerate(ENDINGS):
        failing = Failing(error)
        async with asking(tmp_path / str(number), failing.agent) as (_, client):
            with pytest.raises(openai.BadRequestError, match=r"slow down.* must not repeat") as caught:
                await ask(client)
        assert caught.value.type == "invalid_request_error"
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert failing.runs == 1


@both
async def test_a_run_that_is_cancelled_elsewhere_is_no_answer(tmp_path: Path, ask: Ask) -> None:
    waiting = Waiting()
    async with asking(tmp_path, waiting.agent) as (service, client):
        answer = asyncio.ensure_future(ask(client))
        await waiting.begun.wait()
        await service.client.post(f"/v1/runs/{waiting.run_id}/cancel")
        with pytest.raises(openai.ConflictError, match="was cancelled"):
            await answer


class Waiting:
    """An agent that goes on for ever; says when it has begun and when it was cancelled."""

    def __init__(self, *, speaks: bool = True) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.run_id = ""
        self.speaks = speaks
        self.agent = ScriptedAgent(self.run)

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        self.run_id = context.run_id
        if self.speaks:
            yield Message(content="Let me see.")
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@pytest.fixture
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream begins with the first word, or not at all, however busy the machine is."""
    monkeypatch.setattr("callboard._openai.streams.BEGINNING_SECONDS", 60.0)


patient = pytest.mark.usefixtures("is_patient")


@both
@patient
@pytest.mark.parametrize("answer", ["whole", "stream", "stream without a word"])
async def test_a_client_that_leaves_ends_the_run_at_once(tmp_path: Path, ask: Ask, answer: str) -> None:
    waiting = Waiting(speaks=answer != "stream without a word")
    async with asking(tmp_path, waiting.agent, detach_grace_seconds=600) as (_, client):
        if answer == "stream":
            stream = await ask(client, stream=True)
            await waiting.begun.wait()
            await stream.close()
        else:
            asked = asyncio.ensure_future(ask(client, stream=answer != "whole"))
            await waiting.begun.wait()
            asked.cancel()
        await waiting.cancelled.wait()


@both
async def test_a_server_at_its_limit_says_so_as_openai_does(tmp_path: Path, ask: Ask) -> None:
    waiting = Waiting()
    async with asking(tmp_path, waiting.agent, max_runs=1, run_queue_seconds=0) as (_, client):
        answer = await ask(client, stream=True)
        await waiting.begun.wait()
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(client.with_options(max_retries=0))
        await answer.close()
    assert (caught.value.code, caught.value.type) == ("too_many_runs", "rate_limit_error")


async def test_agents_are_models_to_the_client(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        models = [model async for model in await client.models.list()]
        assert models == [await client.models.retrieve("scripted")]
        with pytest.raises(openai.NotFoundError, match="The agents are: scripted"):
            await client.models.retrieve("no/body")
    assert [(model.id, model.owned_by) for model in models] == [("scripted", "callboard")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_stored_response_is_returned_as_it_was_answered(tmp_path: Path, stream: bool) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        answer = await respond(client, stream=stream, instructions="Be brief.", metadata={"a": "b"}, user="u")
        response = [event async for event in answer][-1].response if stream else answer
        assert (response.status, response.model, response.metadata) == ("completed", "scripted", {"a": "b"})
        mine = await client.responses.retrieve(response.id, extra_query={"user": "u"})
        assert mine.model_dump() == response.model_dump()
        unknown = [response.id, response.output[0].id, "resp_1", "resp_%00"]
        unknown.append((await respond(client, store=False)).id)
        for response_id in unknown:
            with pytest.raises(openai.NotFoundError, match="there is no response") as caught:
                await client.responses.retrieve(response_id)
            assert (caught.value.code, caught.value.type) == ("unknown_response", "invalid_request_error")
        with pytest.raises(openai.BadRequestError, match="stream is not supported here"):
            await client.responses.retrieve(response.id, stream=True)
        named: Any = [{"type": "item_reference", "id": response.id}]
        with pytest.raises(openai.BadRequestError, match="there is no item"):
            await client.responses.create(model="scripted", input=named, user="u")


async def test_a_response_is_stored_without_secrets(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING, model_api_key="secret-key-1234") as (_, client):
        response = await respond(client, instructions="The key is secret-key-1234.")
        kept = await client.responses.retrieve(response.id)
    assert "secret-key-1234" not in kept.model_dump_json()


async def test_calls_of_openais_older_form_are_calls(tmp_path: Path) -> None:
    listener = Listener()
    messages: Any = [
        *QUESTION,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": "Again.", "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "f", "content": "two"},
        # OpenAI refuses an empty list.
        {"role": "assistant", "content": "Fruits.", "tool_calls": []},
    ]
    async with asking(tmp_path, listener.agent) as (_, client):
        await client.chat.completions.create(model="scripted", messages=messages)
    *told, last = listener.contexts[0].messages[1:]
    assert last == {"role": "assistant", "content": "Fruits."}
    assert [(message["role"], message["content"]) for message in told] == [
        ("assistant", None),
        ("tool", "one"),
        ("assistant", "Again."),
        ("tool", "two"),
    ]
    assert [message["tool_calls"][0]["function"] for message in told[::2]] == [
        {"name": "f", "arguments": "{}"},
        {"name": "f", "arguments": '{"a": 1}'},
    ]
    assert [message["tool_calls"][0]["id"] for message in told[::2]] == [one["tool_call_id"] for one in told[1::2]]
    assert all("function_call" not in message for message in told)


# ----------------------------------------------------- what the model's endpoint refuses, how it fails, what it counts

TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


@both
@patient
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_request_that_the_endpoint_refuses_is_a_bad_request_with_its_code(
    tmp_path: Path, ask: Ask, stream: bool
) -> None:
    async with OpenAIServer([Refusal(400, TOO_LONG)]) as endpoint:
        async with asking(tmp_path, Agent("naked"), model_base_url=endpoint.base_url, model="m") as (_, client):
            with pytest.raises(openai.BadRequestError, match=TOO_LONG) as caught:
                await ask(client, "naked", stream=stream)
    assert (caught.value.code, caught.value.type) == ("context_length_exceeded", "invalid_request_error")


@both
@patient
async def test_a_failure_before_the_first_word_is_a_status_and_no_stream(tmp_path: Path, ask: Ask) -> None:
    runs: list[RunContext] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        runs.append(context)
        raise ModelRateLimited("slow down")
        yield Message(content="")

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            await ask(client, stream=True)
    assert caught.value.code == "model_rate_limited"
    assert len(runs) == 1


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
@pytest.mark.parametrize(
    ("route", "code"), [("chat/completions", "tools_already_run"), ("responses", "invalid_prompt")]
)
async def test_a_stream_that_fails_after_a_call_is_not_repeated(
    tmp_path: Path, route: str, code: str, activity: str | None
) -> None:
    has_begun = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
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
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
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
