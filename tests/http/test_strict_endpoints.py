"""Endpoints that refuse a request unless it has what they sent before, in a turn and on later turns.

Each endpoint here is as strict as the one that it is named after, and speaks its words in a refusal.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, Limits, OpenAICompatible, Skill, tool
from callboard._formats import ToolFormat
from callboard.models.endpoint_quirks import PLACEHOLDER_SIGNATURE
from callboard_protocol import Done, Event, Message, ToolCallError
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, Raw, Refusal, call, chunks, finish, text
from tests.serving import Service, request, serving

USER = {"id": "ann"}
SIGNATURE = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
LONG_ID = "call_#__thought__" + "c2ln" * 300
"""An id of LiteLLM's; `#` is the number of the turn."""

Rule = Callable[[Sequence[Body]], str]
"""Returns why messages are refused, "" if they are not."""


@tool
async def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word}: wind"


def asks(*, call_id: str | None = "call_from_the_endpoint", **beside: Any) -> Body:
    """A chunk with a whole call; `beside` are fields of the call that OpenAI does not have."""
    chunk = call("look_up", '{"word": "storm"}', call_id=call_id)
    chunk["choices"][0]["delta"]["tool_calls"][0] |= beside
    return chunk


def details(**beside: Any) -> Body:
    """A chunk with nothing of the call but these fields."""
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **beside}]}}]}


def as_message(chunk: Body) -> Body:
    """The chunk as a whole message."""
    return {"choices": [{"index": 0, "message": chunk["choices"][0]["delta"]}]}


def calls_of(messages: Sequence[Body]) -> Iterator[tuple[Body, Body]]:
    """Each call with its message."""
    for message in messages:
        for one in message.get("tool_calls") or ():
            yield message, one


def need_signature(messages: Sequence[Body]) -> str:
    if all(one.get("extra_content") == SIGNATURE for _, one in calls_of(messages)):
        return ""
    return "Function call is missing a thought_signature in functionCall parts."


def need_reasoning(messages: Sequence[Body]) -> str:
    for place, message in enumerate(messages):
        if message.get("tool_calls") and message.get("reasoning_content") != "Storm? I look.":
            return (
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
            )
    return ""


REASONING = [
    {"type": "reasoning.text", "text": "Storm? ", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": "I look.", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "signature": "EsUB", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "Zm9v", "id": "rs_1", "index": 1},
]
WHOLE_REASONING = [
    {"type": "reasoning.text", "text": "Storm? I look.", "signature": "EsUB"}
    | {"format": "anthropic-claude-v1", "index": 0},
    REASONING[3],
]


def need_reasoning_details(messages: Sequence[Body]) -> str:
    if all(message.get("reasoning_details") == WHOLE_REASONING for message, _ in calls_of(messages)):
        return ""
    return "messages.1.content.0: Invalid `signature` in `thinking` block"


def need_all_reasoning(messages: Sequence[Body]) -> str:
    if all(message.get("reasoning_content") for message in messages if message["role"] == "assistant"):
        return ""
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


BLOCKS = [
    {"type": "thinking", "thinking": "Storm? ", "signature": None},
    {"type": "thinking", "thinking": "I look.", "signature": None},
    {"type": "thinking", "thinking": "", "signature": "EsUB"},
    {"type": "thinking", "thinking": "Wind.", "signature": "EsUC"},
]
WHOLE_BLOCKS = [
    {"type": "thinking", "thinking": "Storm? I look.", "signature": "EsUB"},
    {"type": "thinking", "thinking": "Wind.", "signature": "EsUC"},
]


def need_blocks(messages: Sequence[Body]) -> str:
    if all(message.get("thinking_blocks") == WHOLE_BLOCKS for message, _ in calls_of(messages)):
        return ""
    return "messages.1.content.0: Invalid `signature` in `thinking` block"


def need_json(messages: Sequence[Body]) -> str:
    told = [(message.get("reasoning_details"), one.get("extra_content")) for message, one in calls_of(messages)]
    expected = ([{"text": "\ufffd"}], {"logprob": None, "text": "\ufffd"})
    return "" if all(one == expected for one in told) else f"The details were {told}"


def need_own_ids(messages: Sequence[Body]) -> str:
    ids = {one["id"] for _, one in calls_of(messages)} | {
        one["tool_call_id"] for one in messages if one["role"] == "tool"
    }
    return "" if ids <= {LONG_ID.replace("#", turn) for turn in "123"} else "Corrupted thought signature."


def need_nine(messages: Sequence[Body]) -> str:
    for _, one in calls_of(messages):
        if not re.fullmatch("[A-Za-z0-9]{9}", one["id"]):
            return f"Tool call id was {one['id']} but must be a-z, A-Z, 0-9, with a length of 9."
    return ""


def need_names(messages: Sequence[Body]) -> str:
    """OpenAI's rule."""
    if all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", one["function"]["name"]) for _, one in calls_of(messages)):
        return ""
    return "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."


def need_turns(messages: Sequence[Body]) -> str:
    """Mistral's order."""
    after = {"system": {"user", "assistant"}, "user": {"assistant"}, "tool": {"assistant", "tool"}}
    for before, message in pairwise(messages):
        allowed = {"tool"} if before.get("tool_calls") else after.get(before["role"], {"user"})
        if message["role"] not in allowed:
            return f"Unexpected role '{message['role']}' after role '{before['role']}'"
        if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
            return "Assistant message must have either content or tool_calls, but not none."
    return ""


def need_words(messages: Sequence[Body]) -> str:
    """Anthropic's rule."""
    contents = [message["content"] for message in messages]
    if any(isinstance(content, str) and content and not content.strip() for content in contents):
        return "messages: text content blocks must contain non-whitespace text"
    parts = (part for content in contents if isinstance(content, list) for part in content)
    if all(part["text"].strip() for part in parts if part["type"] == "text"):
        return ""
    return "messages: text content blocks must be non-empty"


@dataclass(frozen=True)
class Endpoint:
    """An endpoint: its rule, and the answer in which it calls the tool."""

    rule: Rule
    calls: Chunks


ENDPOINTS = {
    "Gemini 3": Endpoint(need_signature, chunks(asks(extra_content=SIGNATURE), finish("tool_calls"))),
    "Gemini 3, the signature before the arguments": Endpoint(
        need_signature,
        chunks(
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "extra_content": SIGNATURE}]}}]},
            call("look_up", '{"word": "storm"}'),
            finish("tool_calls"),
        ),
    ),
    "Gemini 3, the signature after the arguments": Endpoint(
        need_signature, chunks(asks(), details(extra_content=SIGNATURE), finish("tool_calls"))
    ),
    "Gemini 3, the signature in the call once more": Endpoint(
        need_signature, chunks(asks(), asks(extra_content=SIGNATURE), finish("tool_calls"))
    ),
    "Gemini 3, the signature in the whole message": Endpoint(
        need_signature, chunks(asks(), as_message(asks(extra_content=SIGNATURE)), finish("tool_calls"))
    ),
    "Gemini 3, details that are no JSON": Endpoint(
        need_json,
        chunks(
            text("", reasoning_details=[{"text": "\ud83d"}]),
            asks(extra_content={"logprob": float("nan"), "text": "\ud83d"}),
            finish("tool_calls"),
        ),
    ),
    "DeepSeek": Endpoint(
        need_all_reasoning,
        chunks(text(None, reasoning_content="Storm? I look."), asks(), finish("tool_calls")),
    ),
    "LiteLLM, Anthropic": Endpoint(
        need_blocks, chunks(*(text("", thinking_blocks=[one]) for one in BLOCKS), asks(), finish("tool_calls"))
    ),
    "Kimi": Endpoint(
        need_reasoning,
        chunks(
            text(None, reasoning_content="Storm? "),
            text(None, reasoning_content="I look."),
            asks(),
            finish("tool_calls"),
        ),
    ),
    "OpenRouter": Endpoint(
        need_reasoning_details,
        chunks(*(text("", reasoning_details=[entry]) for entry in REASONING), asks(), finish("tool_calls")),
    ),
    "LiteLLM": Endpoint(need_own_ids, chunks(asks(call_id=LONG_ID), finish("tool_calls"))),
    "Mistral": Endpoint(need_nine, chunks(asks(call_id="dnEN4JsJ#"), finish("tool_calls"))),
    "Mistral, without ids": Endpoint(need_nine, chunks(asks(call_id=None), finish("tool_calls"))),
}


def strict(endpoint: Endpoint) -> OpenAIServer:
    """The endpoint: it calls the tool in the first answer of each turn, and answers then."""

    def answer(body: Body) -> Answer:
        if reason := endpoint.rule(body["messages"]):
            return Refusal(400, reason)
        if body["messages"][-1]["role"] != "user":
            return chunks(text("It is wind.", reasoning_content="Wind."), finish("stop"))
        turn = sum(message["role"] == "user" for message in body["messages"])
        return chunks(*json.loads(json.dumps(endpoint.calls.chunks).replace("#", str(turn))))

    return OpenAIServer(answer)


@asynccontextmanager
async def asking(
    folder: Path,
    server: OpenAIServer,
    model: str = "m",
    tool_format: ToolFormat | None = None,
    limits: Limits | None = None,
    max_retries: int = 0,
) -> AsyncIterator[Service]:
    """A server whose agent asks that endpoint."""
    endpoint = OpenAICompatible(server.base_url, model=model, max_retries=max_retries)
    skill = Skill("words", "Words.", tools=(look_up,))
    agent = Agent("scripted", skills=(skill,), model=endpoint, tool_format=tool_format, limits=limits)
    async with serving(folder, agent) as service:
        yield service
    await endpoint.aclose()


async def ask(service: Service, message_id: str, *earlier: str) -> list[Event]:
    """A turn in the chat; `earlier` are the messages of its answers."""
    messages: list[Body] = [{"role": "user", "name": "ann", "content": "What is a storm?"}]
    for one in earlier:
        messages += [{"role": "assistant", "id": one, "content": "It is wind."}, {"role": "user", "content": "Sure?"}]
    return await service.events(request(chat_id="c", message_id=message_id, user=USER, messages=messages))


def answered(events: list[Event]) -> bool:
    said = "".join(event.content for event in events if isinstance(event, Message))
    return said == "It is wind." and events[-1] == Done(finish_reason="stop")


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS.keys())
async def test_what_came_beside_a_call_goes_back_in_the_turn_and_after_a_restart(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with strict(endpoint) as server:
        async with asking(tmp_path, server) as service:
            assert answered(await ask(service, "m1"))
        async with asking(tmp_path, server) as service:
            assert answered(await ask(service, "m2", "m1"))
    assert len(list(calls_of(server.requests[-1]["messages"]))) == 2
    # None was refused.
    assert len(server.requests) == 4


async def test_white_space_before_a_call_is_not_sent_back(tmp_path: Path) -> None:
    """https://github.com/LibreChat-AI/agents/pull/124"""
    async with strict(Endpoint(need_words, chunks(text("\n\n"), asks(), finish("tool_calls")))) as server:
        for message_id, *earlier in (("m1",), ("m2", "m1")):
            async with asking(tmp_path, server) as service:
                assert (await ask(service, message_id, *earlier))[-1] == Done(finish_reason="stop")
    assert len(server.requests) == 4


@pytest.mark.parametrize("name", ["Gemini 3", "Kimi", "OpenRouter", "LiteLLM"])
async def test_another_model_is_sent_none_of_it(tmp_path: Path, name: str) -> None:
    async with strict(ENDPOINTS[name]) as server, strict(ENDPOINTS["Mistral"]) as mistral:
        async with asking(tmp_path, server) as service:
            await ask(service, "m1")
        async with asking(tmp_path, server, "another") as service:
            await ask(service, "m2", "m1")
        async with asking(tmp_path, mistral) as service:
            await ask(service, "m2", "m1")
    for sent in (server.requests[2], mistral.requests[0]):
        [(message, one)] = calls_of(sent["messages"])
        assert set(message) == {"role", "content", "tool_calls"}
        assert set(one) == {"id", "type", "function"}
        assert need_nine(sent["messages"]) == ""


async def test_what_came_beside_an_answer_goes_back_with_it_but_for_its_reasoning(tmp_path: Path) -> None:
    beside: dict[str, Any] = {"extra_content": SIGNATURE, "reasoning_content": "Hm."}
    async with OpenAIServer(lambda _: chunks(text("It is "), text("wind.", **beside), finish("stop"))) as server:
        async with asking(tmp_path, server) as service:
            await ask(service, "m1")
        async with asking(tmp_path, server) as service:
            await ask(service, "m2", "m1")
    before = [message for message in server.requests[1]["messages"] if message["role"] == "assistant"]
    assert before == [{"role": "assistant", "content": "It is wind.", "extra_content": SIGNATURE}]


async def test_ids_that_an_endpoint_uses_again_in_each_answer_are_told_apart(tmp_path: Path) -> None:
    again = Endpoint(lambda _: "", chunks(asks(call_id="call_0"), finish("tool_calls")))
    async with strict(again) as server, asking(tmp_path, server) as service:
        await ask(service, "m1")
        await ask(service, "m2", "m1")
    ids = [one["id"] for _, one in calls_of(server.requests[-1]["messages"])]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 2


@pytest.mark.parametrize("name", ["browser.tabs.open", "container exec", "", "Look the word up, please. " * 3])
async def test_chat_continues_after_a_call_whose_name_the_endpoint_refuses(tmp_path: Path, name: str) -> None:
    """https://github.com/pydantic/pydantic-ai/issues/4585"""
    calls = chunks(call(name, '{"word": "storm"}', call_id="call_1"), finish("tool_calls"))
    async with strict(Endpoint(need_names, calls)) as server, asking(tmp_path, server) as service:
        for message_id, *earlier in (("m1",), ("m2", "m1"), ("m3", "m1", "m2")):
            assert answered(await ask(service, message_id, *earlier))
    assert len(list(calls_of(server.requests[-1]["messages"]))) == 3


HISTORIES: dict[str, list[Body]] = {
    "an answer that is empty": [{"role": "assistant", "content": ""}, {"role": "user", "content": "Again."}],
    "two answers": [
        {"role": "assistant", "content": "It is"},
        {"role": "assistant", "content": "wind."},
        {"role": "user", "content": "Sure?"},
    ],
    "a question that was sent again": [{"role": "user", "content": "Hello?"}],
    "pictures": [
        {"role": "user", "content": " "},
        # Open WebUI sends an empty text with a picture.
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ""},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
    ],
    "a late word of the system": [
        {"role": "assistant", "content": "It is wind."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Sure?"},
    ],
    "white space beside a call": [
        {
            "role": "assistant",
            "content": " ",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "wind"},
        {"role": "user", "content": "Sure?"},
    ],
    "a turn that was stopped after its call": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "wind"},
        {"role": "user", "content": "Sure?"},
    ],
}


@pytest.mark.parametrize("later", HISTORIES.values(), ids=HISTORIES.keys())
@pytest.mark.parametrize("tool_format", ["native", "auto", "hermes", "react"])
async def test_messages_come_in_the_order_of_the_strictest_endpoint(
    tmp_path: Path, tool_format: ToolFormat, later: list[Body]
) -> None:
    answer = "Final Answer: It is wind." if tool_format == "react" else "It is wind."

    def reply(body: Body) -> Answer:
        reason = need_turns(body["messages"]) or need_nine(body["messages"]) or need_words(body["messages"])
        return Refusal(400, reason) if reason else chunks(text(answer), finish("stop"))

    messages = [{"role": "user", "content": "What is a storm?"}, *later]
    async with OpenAIServer(reply) as server, asking(tmp_path, server, tool_format=tool_format) as service:
        assert answered(await service.events(request(messages=messages)))
    sent = str(server.requests[0]["messages"])
    words = [
        message["content"] for message in messages if isinstance(message.get("content"), str) and message["content"]
    ]
    assert all(word in sent for word in words)


GROQ = "for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning' is unsupported)]"
MISTRAL = '{"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 2, "assistant", "reasoning"]}]}'


@pytest.mark.parametrize(("status", "words"), [(400, GROQ), (422, MISTRAL)])
async def test_a_field_that_an_endpoint_sends_but_refuses_is_left_out_from_then_on(
    tmp_path: Path, status: int, words: str
) -> None:
    calls = chunks(text(None, reasoning="Hm."), asks(), finish("tool_calls"))

    def answer(body: Body) -> Answer:
        if any("reasoning" in message for message in body["messages"]):
            return Refusal(status, words)
        return calls if body["messages"][-1]["role"] == "user" else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        assert answered(await ask(service, "m1"))
        assert answered(await ask(service, "m2", "m1"))
    # One request was refused, none after it.
    assert len(server.requests) == 5


def is_unsigned(messages: Sequence[Body]) -> bool:
    return any("extra_content" not in one for _, one in calls_of(messages))


def ends_with_answer(messages: Sequence[Body]) -> bool:
    return bool(messages[-1]["role"] == "assistant")


def lacks_words(messages: Sequence[Body]) -> bool:
    return bool(need_words(messages))


def has_null(messages: Sequence[Body]) -> bool:
    return any(message["content"] is None for message in messages)


REPEATED: list[Body] = [
    {"role": "assistant", "content": "Hello, I know words."},
    {"role": "user", "content": "What is a storm?"},
]
CONTINUED: list[Body] = [
    {"role": "user", "content": "What is a storm?"},
    {"role": "assistant", "content": "It is"},
]
BLANK: list[Body] = [{"role": "user", "content": " "}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CALLED: list[Body] = [
    {"role": "user", "content": "What is a storm?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": [PICTURE]},
]
FILE: Body = {"filename": "storm.txt", "file_data": "data:text/plain;base64,d2luZA=="}
QUESTION: Body = {"type": "text", "text": "What is a storm?"}


@pytest.mark.parametrize(
    "words",
    [
        "Failed to deserialize the JSON body: messages[0]: invalid type: sequence, expected a string",
        "'messages.0.content' : value must be a string",
    ],
    ids=["DeepSeek", "Groq"],
)
async def test_content_that_is_only_text_is_sent_as_one_string(tmp_path: Path, words: str) -> None:
    """https://github.com/QwenLM/qwen-code/pull/2320, https://github.com/gptme/gptme/issues/375"""

    def answer(body: Body) -> Answer:
        is_list = any(isinstance(message["content"], list) for message in body["messages"])
        return Refusal(400, words) if is_list else chunks(text("It is wind."), finish("stop"))

    result = {**CALLED[2], "content": [{"type": "text", "text": "wind"}]}
    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        attached = [{"role": "user", "content": [QUESTION, {"type": "file", "file": FILE}]}]
        assert answered(await service.events(request(messages=attached)))
        assert answered(await service.events(request(messages=[*CALLED[:2], result])))
    [message] = server.requests[0]["messages"]
    assert message["content"].startswith("What is a storm?\n<file")
    assert server.requests[1]["messages"][2]["content"] == "wind"


async def test_text_part_with_another_field_is_sent_as_a_part(tmp_path: Path) -> None:
    cached = {**QUESTION, "cache_control": {"type": "ephemeral"}}
    async with OpenAIServer([chunks(text("It is wind."), finish("stop"))]) as server:
        async with asking(tmp_path, server) as service:
            assert answered(await service.events(request(messages=[{"role": "user", "content": [cached, QUESTION]}])))
    assert server.requests[0]["messages"][0]["content"] == [cached, QUESTION]


DEMANDS: dict[str, tuple[str, list[Body], Callable[[Sequence[Body]], bool]]] = {
    "Kimi's reasoning": (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        CALLED,
        lambda messages: bool(need_all_reasoning(messages)),
    ),
    "DeepSeek's reasoning": (
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        CONTINUED,
        lambda messages: bool(need_all_reasoning(messages)),
    ),
    "Gemini's signature": (
        "Function call is missing a thought_signature in functionCall parts.",
        CALLED,
        is_unsigned,
    ),
    "Mistral's ids": (
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        CALLED,
        lambda messages: bool(need_nine(messages)),
    ),
    "Mistral's order": (
        "Unexpected role 'user' after role 'tool'",
        CALLED,
        lambda messages: bool(need_turns(messages)),
    ),
    "Mistral's end": (
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        CONTINUED,
        ends_with_answer,
    ),
    "Anthropic's end": (
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        CONTINUED,
        ends_with_answer,
    ),
    "Gemma's beginning": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        REPEATED,
        lambda messages: messages[0]["role"] == "assistant",
    ),
    "Kimi's words": (
        "Invalid request: the message at position 0 with role 'user' must not be empty",
        BLANK,
        lambda messages: not str(messages[0]["content"]).strip(),
    ),
    "Anthropic's blank words": (
        "messages: text content blocks must contain non-whitespace text",
        BLANK,
        lacks_words,
    ),
    "Bedrock's words": (
        "The text field in the ContentBlock object at messages.0.content.0 is blank. Add text, and try again.",
        BLANK,
        lacks_words,
    ),
    "Anthropic's words": (
        "messages: text content blocks must be non-empty",
        [{"role": "user", "content": [{"type": "text", "text": " "}]}],
        lacks_words,
    ),
    "LM Studio's content": (
        "Invalid 'content': 'content' field must be a string or an array of objects.",
        CALLED,
        has_null,
    ),
    "xAI's content": ("Each message must have at least one content element", CALLED, has_null),
    "xAI's words": (
        "An empty message was provided. Every message needs at least one non-empty content element",
        BLANK,
        lacks_words,
    ),
    "DeepSeek's end": (
        "The last message of deepseek-reasoner must be a user message, or an assistant message with prefix mode on",
        CONTINUED,
        ends_with_answer,
    ),
    "Perplexity's end": (
        "Last message must have role `user` or `tool`.",
        CONTINUED,
        ends_with_answer,
    ),
    "llama.cpp's end": (
        "Assistant response prefill is incompatible with enable_thinking.",
        CONTINUED,
        ends_with_answer,
    ),
    "Ollama's content": ("invalid message content type: <nil>", CALLED, has_null),
}


@pytest.mark.parametrize(("words", "messages", "is_refused"), DEMANDS.values(), ids=DEMANDS.keys())
async def test_what_an_endpoint_demands_is_learnt_from_its_refusal(
    tmp_path: Path, words: str, messages: list[Body], is_refused: Callable[[Sequence[Body]], bool]
) -> None:
    def answer(body: Body) -> Answer:
        return Refusal(400, words) if is_refused(body["messages"]) else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for _ in range(2):
            assert answered(await service.events(request(messages=messages)))
    assert len(server.requests) == 3


async def test_call_in_a_continued_answer_goes_into_the_message_of_that_answer(tmp_path: Path) -> None:
    """Mistral refuses two assistant messages in a row."""

    def answer(body: Body) -> Answer:
        if reason := need_turns(body["messages"]):
            return Refusal(400, reason)
        if body["messages"][-1]["role"] == "tool":
            return chunks(text("It is wind."), finish("stop"))
        return chunks(asks(call_id="dnEN4JsJ1"), finish("tool_calls"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        assert answered(await service.events(request(messages=CONTINUED)))
    _, message, _ = server.requests[-1]["messages"]
    assert message["content"] == "It is"
    assert len(message["tool_calls"]) == 1


STRICT_WORDS = (
    'litellm.BadRequestError: BedrockException - {"message":"The model returned the following errors: '
    'tools.0.custom.strict: Extra inputs are not permitted"}'
)


async def test_strict_of_a_function_is_left_out_if_it_is_refused_and_never_sent_as_false(tmp_path: Path) -> None:
    """https://github.com/BerriAI/litellm/issues/31582"""

    def answer(body: Body) -> Answer:
        is_strict = any("strict" in one["function"] for one in body["tools"])
        return Refusal(400, STRICT_WORDS) if is_strict else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for strict in (False, True, True):
            function = {"name": "open_door", "parameters": {"type": "object"}, "strict": strict}
            assert answered(await service.events(request(functions=[function])))
    assert len(server.requests) == 4
    assert server.requests[1]["tools"][-1]["function"]["strict"] is True


@pytest.mark.parametrize(
    "words",
    [
        # https://github.com/Gage-Technologies/mistral-go/issues/3
        '{"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 0, "user", "name"]}]}',
        "messages.0.user.name: Extra inputs are not permitted",
        "Only messages of role 'user' can have a name.",
    ],
    ids=["Mistral", "vLLM", "xAI"],
)
async def test_name_of_a_user_is_left_out_from_then_on_if_it_is_refused(tmp_path: Path, words: str) -> None:
    def answer(body: Body) -> Answer:
        is_named = any("name" in message for message in body["messages"])
        return Refusal(422, words) if is_named else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for _ in range(2):
            assert answered(await service.events(request(messages=[{**CALLED[0], "name": "ann"}])))
    assert len(server.requests) == 3


async def test_a_refusal_of_another_name_leaves_the_names_of_users(tmp_path: Path) -> None:
    def answer(body: Body) -> Answer:
        names = [message["name"] for message in body["messages"] if "name" in message]
        if names == ["Ann B"]:
            return Refusal(400, "Invalid 'messages[0].name': string does not match pattern.")
        return chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for name in ("Ann B", "ann"):
            await service.events(request(messages=[{**CALLED[0], "name": name}]))
    assert [one["messages"][-1]["name"] for one in server.requests] == ["Ann B", "ann"]


@pytest.mark.parametrize(
    "words",
    [
        "litellm.UnsupportedParamsError: Anthropic expects the `tools=` param to be passed in.",
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    ],
)
async def test_the_last_question_over_the_limit_of_calls_offers_a_tool_where_an_endpoint_demands_one(
    tmp_path: Path, words: str
) -> None:
    def answer(body: Body) -> Answer:
        if "tools" not in body and any(calls_of(body["messages"])):
            return Refusal(400, words)
        if body.get("tool_choice") == "none":
            return chunks(text("It is wind."), finish("stop"))
        return chunks(*(asks(call_id=f"c{number}") for number in range(2)), finish("tool_calls"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server, limits=Limits(max_tool_calls=1)) as service:
        events = await service.events(request(chat_id="c", user=USER))
        [over] = [event for event in events if isinstance(event, ToolCallError)]
        assert (over.code, over.duration_ms) == ("limit", None), "it never ran"
        assert "".join(event.content for event in events if isinstance(event, Message)) == "It is wind."


LIMITS = {
    "OpenAI": (
        "max_tokens",
        "max_completion_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    "Mistral": (
        "max_completion_tokens",
        "max_tokens",
        '{"detail": [{"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"], '
        '"msg": "Extra inputs are not permitted", "input": 1000}]}',
    ),
}


@pytest.mark.parametrize(("refused", "accepted", "words"), LIMITS.values(), ids=LIMITS.keys())
async def test_limit_of_tokens_is_sent_under_the_name_that_the_endpoint_accepts(
    tmp_path: Path, refused: str, accepted: str, words: str
) -> None:
    def answer(body: Body) -> Answer:
        return Refusal(422, words) if refused in body else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for _ in range(2):
            assert answered(await service.events(request(messages=REPEATED, options={refused: 1000})))
    assert [body.get(accepted) for body in server.requests] == [None, 1000, 1000]


async def test_reasoning_is_off_beside_tools_if_the_endpoint_refuses_both_together(tmp_path: Path) -> None:
    """https://github.com/BerriAI/litellm/pull/34569"""
    words = (
        "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
    )

    def answer(body: Body) -> Answer:
        if "tools" in body and body.get("reasoning_effort") != "none":
            return Refusal(400, words)
        return chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for options in ({}, {"reasoning_effort": "high"}):
            assert answered(await service.events(request(options=options)))
        await service.events(request(task="title_generation"))
    assert [body.get("reasoning_effort") for body in server.requests] == [None, "none", "none", None]


SYSTEM: Body = {"role": "system", "content": "Be brief."}
FORMAT = (
    {"options": {"response_format": {"type": "json_schema", "json_schema": {"name": "wind", "schema": {}}}}},
    "response_format",
    '"name": "wind"',
)
CHOICE = (
    {"functions": [{"name": "open_door", "parameters": {"type": "object"}}], "must_call": True},
    "tool_choice",
    "must be a call",
)
BESIDE_TOOLS: dict[str, tuple[str, Body, str, str]] = {
    "Gemini's format": ("Function calling with a response mime type: 'application/json' is unsupported", *FORMAT),
    "Groq's format": ("json mode cannot be combined with tool/function calling", *FORMAT),
    "DeepSeek's choice": ("Thinking mode does not support this tool_choice", *CHOICE),
    "Kimi's choice": ("tool_choice 'required' is incompatible with thinking enabled", *CHOICE),
    "Qwen's choice": (
        "The tool_choice parameter does not support being set to required or object in thinking mode",
        *CHOICE,
    ),
}


@pytest.mark.parametrize(("words", "asked", "name", "instruction"), BESIDE_TOOLS.values(), ids=BESIDE_TOOLS.keys())
async def test_option_that_is_refused_beside_tools_becomes_an_instruction(
    tmp_path: Path, words: str, asked: Body, name: str, instruction: str
) -> None:
    """https://github.com/vercel/ai/pull/16540, https://github.com/deepseek-ai/DeepSeek-V3/issues/1376"""

    def answer(body: Body) -> Answer:
        return Refusal(400, words) if name in body else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for earlier in ([], [SYSTEM]):
            assert answered(await service.events(request(messages=[*earlier, CALLED[0]], **asked)))
    _, resent, later = [body["messages"] for body in server.requests]
    assert [message["role"] for message in resent] == [message["role"] for message in later] == ["system", "user"]
    assert instruction in resent[0]["content"]
    assert later[0]["content"] == f"Be brief.\n\n{resent[0]['content']}"


NUMBER: Body = {"type": "integer"}
ALTERNATIVES: Body = {
    "type": "object",
    "$defs": {"Named": {"allOf": [{"properties": {"name": {"type": "string"}}}]}},
    "properties": {"door": NUMBER},
    "anyOf": [{"required": ["door"]}, {"properties": {"gate": NUMBER}}, True],
    "allOf": [{"$ref": "#/$defs/Named"}, {"properties": {"lock": {"$ref": "#/anyOf/1/properties/gate", "title": "L"}}}],
    "oneOf": [{"properties": {"key": {"$ref": "#/nothing"}}}],
}


@pytest.mark.parametrize(
    "words",
    [
        "Invalid schema for function 'open_door': schema must have type 'object' and not have "
        "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': anyOf>",
    ],
    ids=["OpenAI", "Anthropic", "Kimi"],
)
async def test_alternatives_for_all_arguments_become_one_list_if_they_are_refused(tmp_path: Path, words: str) -> None:
    def answer(body: Body) -> Answer:
        *_, parameters = (one["function"]["parameters"] for one in body["tools"])
        return Refusal(400, words) if "anyOf" in parameters else chunks(text("It is wind."), finish("stop"))

    functions = [{"name": "open_door", "parameters": ALTERNATIVES}]
    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for _ in range(2):
            assert answered(await service.events(request(functions=functions)))
    _, resent, _ = server.requests
    assert resent["tools"][-1]["function"]["parameters"] == {
        "type": "object",
        "$defs": ALTERNATIVES["$defs"],
        "properties": {"gate": NUMBER, "key": {}, "name": {"type": "string"}, "lock": {**NUMBER, "title": "L"}}
        | {"door": NUMBER},
    }


async def test_nothing_is_learnt_from_the_text_of_a_call_that_an_endpoint_could_not_read(tmp_path: Path) -> None:
    quoted = "Failed to parse input at pos 0: <tool_call><parameter=content>a string</parameter>"
    answers: list[Answer] = [
        Refusal(500, quoted),
        chunks(asks(), finish("tool_calls")),
        chunks(text("It is wind."), finish("stop")),
    ]
    async with OpenAIServer(answers) as server, asking(tmp_path, server) as service:
        assert answered(await service.events(request()))
    assert has_null(server.requests[-1]["messages"])


PARTS: list[Body] = [{"type": "text", "text": "What is a storm?"}, PICTURE]


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    ("messages", "content"),
    [
        ([SYSTEM, CALLED[0]], "Be brief.\n\nWhat is a storm?"),
        ([SYSTEM, {"role": "user", "content": PARTS}], [{"type": "text", "text": "Be brief."}, *PARTS]),
    ],
    ids=["text", "parts"],
)
async def test_system_message_goes_into_the_first_question_if_it_is_refused(
    tmp_path: Path, messages: list[Body], content: object, status: int
) -> None:
    """https://github.com/huggingface/chat-ui/issues/1386, https://github.com/sgl-project/sglang/issues/892"""

    def answer(body: Body) -> Answer:
        if any(message["role"] == "system" for message in body["messages"]):
            return Refusal(status, "System role not supported")
        return chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        for _ in range(2):
            assert answered(await service.events(request(messages=messages)))
    assert [body["messages"] for body in server.requests[1:]] == [[{"role": "user", "content": content}]] * 2


STALE = [
    ("Gemini 3", "c2ln", "Corrupted thought signature."),
    ("LiteLLM", "c2ln", "Invalid thought signature."),
    ("LiteLLM, Anthropic", "EsUB", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    ("OpenRouter", "EsUB", "messages.1: thinking block is bound to a different conversation"),
]


@pytest.mark.parametrize(("name", "signature", "words"), STALE, ids=[name for name, *_ in STALE])
async def test_a_signature_that_an_endpoint_no_longer_accepts_is_left_out_of_the_refused_request(
    tmp_path: Path, name: str, signature: str, words: str
) -> None:
    has_new_key = False

    def answer(body: Body) -> Answer:
        if has_new_key and signature in str(body["messages"]):
            return Refusal(400, words)
        if len(body["messages"]) == 1:
            return ENDPOINTS[name].calls
        return chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        assert answered(await ask(service, "m1"))
        has_new_key = True
        assert answered(await ask(service, "m2", "m1"))
        has_new_key = False
        assert answered(await ask(service, "m3", "m1", "m2"))
    *_, refused, resent, later = server.requests
    assert len(server.requests) == 5
    assert signature in str(refused)
    # Nothing is learnt of the model: the signatures of other chats may be valid.
    assert signature in str(later)
    assert resent["messages"][0]["name"] == "ann"
    [(message, one)] = calls_of(resent["messages"])
    assert set(message) == {"role", "content", "tool_calls"}
    assert one.get("extra_content") == (PLACEHOLDER_SIGNATURE if name == "Gemini 3" else None)
    assert need_nine(resent["messages"]) == ""


TEMPLATE_ERROR = {"message": "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."}


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(500, TEMPLATE_ERROR["message"]),
        Raw([f"event: error\ndata: {json.dumps({'error': TEMPLATE_ERROR})}\n\n".encode()]),
    ],
    ids=["llama.cpp", "LM Studio"],
)
async def test_demand_is_learnt_at_any_status_before_retries(tmp_path: Path, refusal: Answer) -> None:
    """https://github.com/idiap/sdialog/issues/122"""

    def answer(body: Body) -> Answer:
        return refusal if body["messages"][0]["role"] == "assistant" else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server, max_retries=2) as service:
        assert answered(await service.events(request(messages=REPEATED)))
    assert len(server.requests) == 2


async def test_a_refusal_that_comes_in_the_stream_is_learnt_from_as_well(tmp_path: Path) -> None:
    """OpenRouter's stream has begun when the provider refuses the request."""
    words, messages, is_refused = DEMANDS["DeepSeek's reasoning"]
    refusal = {"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": words}}}

    def answer(body: Body) -> Answer:
        return chunks(refusal if is_refused(body["messages"]) else text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        assert answered(await service.events(request(messages=messages)))


async def test_what_is_demanded_and_sent_already_is_not_left_out(tmp_path: Path) -> None:
    """The endpoint contradicts itself: its words come back, and nothing is sent for ever."""
    words = "reasoning_content is missing"
    async with OpenAIServer([ENDPOINTS["Kimi"].calls, Refusal(400, words), Refusal(400, words)]) as server:
        async with asking(tmp_path, server) as service:
            events = await ask(service, "m1")
    assert words in str(events[-1])
    assert len(server.requests) == 2
    [(message, _)] = calls_of(server.requests[1]["messages"])
    assert message["reasoning_content"] == "Storm? I look."


BUSY = {"message": "The content filter is busy", "type": "server_error", "param": None, "code": None}
PROVIDERS = {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": BUSY})}}


@pytest.mark.parametrize("error", [BUSY, PROVIDERS], ids=["the endpoint's", "a provider's"])
async def test_an_error_without_a_parameter_says_nothing_of_null_contents(tmp_path: Path, error: Body) -> None:
    refusal = Raw([json.dumps({"error": error}).encode()], status=400)
    async with OpenAIServer([refusal]) as server, asking(tmp_path, server) as service:
        assert "content filter" in str((await service.events(request(messages=CALLED)))[-1])
    assert len(server.requests) == 1


async def test_requests_at_the_same_time_all_use_what_one_of_them_learns(tmp_path: Path) -> None:
    words, messages, is_refused = DEMANDS["DeepSeek's reasoning"]

    def answer(body: Body) -> Answer:
        return Refusal(400, words) if is_refused(body["messages"]) else chunks(text("It is wind."), finish("stop"))

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        server.may_answer.clear()
        asks = [asyncio.create_task(service.events(request(messages=messages))) for _ in range(2)]
        while len(server.requests) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        server.may_answer.set()
        for events in await asyncio.gather(*asks):
            assert answered(events)


async def test_models_of_one_gateway_do_not_learn_from_each_other(tmp_path: Path) -> None:
    """Gemini demands the field that the other model refuses."""

    def answer(body: Body) -> Answer:
        unsigned = is_unsigned(body["messages"])
        if body["model"] == "gemini" and unsigned:
            return Refusal(400, DEMANDS["Gemini's signature"][0])
        if body["model"] == "other" and not unsigned:
            return Refusal(422, '{"type": "extra_forbidden", "loc": ["body", "messages", 1, "extra_content"]}')
        return chunks(text("It is wind."), finish("stop"))

    names = ("gemini", "other")
    async with OpenAIServer(answer) as server:
        endpoint = OpenAICompatible(server.base_url, max_retries=0)
        agents = [Agent(name, model=endpoint.named(name)) for name in names]
        async with serving(tmp_path, *agents) as service:
            for name in (*names, *names):
                assert answered(await service.events(request(messages=CALLED, agent=name)))
        await endpoint.aclose()
    assert [body["model"] for body in server.requests] == ["gemini", "gemini", "other", "gemini", "other"]


async def test_an_endpoint_that_demands_what_it_refuses_is_not_asked_for_ever(tmp_path: Path) -> None:
    demanded = DEMANDS["Gemini's signature"][0]
    refused = "Unknown name \"extra_content\" at 'messages[1].tool_calls[0]': Cannot find field."

    def answer(body: Body) -> Answer:
        return Refusal(400, demanded if is_unsigned(body["messages"]) else refused)

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        events = await service.events(request(messages=CALLED))
    assert demanded in str(events[-1])
    assert len(server.requests) == 3


async def test_a_field_of_a_call_that_an_endpoint_sends_but_refuses_is_left_out_from_then_on(tmp_path: Path) -> None:
    def answer(body: Body) -> Answer:
        if any("extra_content" in one for _, one in calls_of(body["messages"])):
            return Refusal(400, "Unknown name \"extra_content\" at 'messages[1].tool_calls[0]': Cannot find field.")
        return (
            ENDPOINTS["Gemini 3"].calls
            if body["messages"][-1]["role"] == "user"
            else chunks(text("It is wind."), finish("stop"))
        )

    async with OpenAIServer(answer) as server, asking(tmp_path, server) as service:
        assert answered(await ask(service, "m1"))
        assert answered(await ask(service, "m2", "m1"))
    assert len(server.requests) == 5


FUNCTION: Body = {"type": "function", "name": "look_up_here", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("names", [("look_up_here", "look_up"), ("look_up", "look_up_here")])
async def test_what_came_beside_a_clients_call_goes_back_whichever_way_the_client_sends_it(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """The client sends the whole conversation each time, and the server's calls come before its own in it."""
    first, second = (call(name, "{}", index=place, call_id=f"call_{place}") for place, name in enumerate(names))
    first["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = SIGNATURE

    def answer(body: Body) -> Answer:
        for message in body["messages"]:
            asked = message.get("tool_calls") or [{"extra_content": SIGNATURE, "id": "call_0"}]
            if asked[0].get("extra_content") != SIGNATURE or asked[0]["id"] != "call_0":
                return Refusal(400, "Function call is missing its thought_signature.")
            if len(asked) > 1 and message.get("reasoning_content") != "Storm?":
                return Refusal(400, "No reasoning.")
        is_asked = body["messages"][-1]["role"] == "user" and len(body["messages"]) == 1
        thought = text(None, reasoning_content="Storm?")
        return chunks(*([thought, first, second] if is_asked else [text("It is wind.")]), finish("stop"))

    items: list[Body] = [{"role": "user", "content": "What is a storm?"}]
    async with OpenAIServer(answer) as server:
        for question in ("Sure?", "Really?"):
            async with asking(tmp_path, server) as service:
                body = {"model": "scripted", "user": "ann", "tools": [FUNCTION], "input": items}
                for _ in range(2):
                    response = await service.client.post("/v1/responses", json=body)
                    output = response.json()["output"]
                    items += output
                    items += [
                        {"type": "function_call_output", "call_id": one["call_id"], "output": "wind"}
                        for one in output
                        if one["type"] == "function_call"
                    ]
            assert output[-1]["content"][0]["text"] == "It is wind."
            items.append({"role": "user", "content": question})


@pytest.mark.parametrize("given", ["call_x_" + "a" * 32, "call_f_" + "a" * 32, "toolu_" + "a" * 35])
async def test_ids_that_a_client_sends_are_short_enough_for_every_endpoint(tmp_path: Path, given: str) -> None:
    called = [CALLED[0], {**CALLED[1], "tool_calls": [{**CALLED[1]["tool_calls"][0], "id": given}]}]
    messages = [*called, {"role": "tool", "tool_call_id": given, "content": "wind"}, *CONTINUED[1:], CALLED[0]]
    async with strict(Endpoint(need_nine, chunks(text("It is wind."), finish("stop")))) as server:
        async with asking(tmp_path, server) as service:
            assert answered(await service.events(request(messages=messages)))
    assert len(server.requests) == 1


async def test_an_id_that_a_client_sends_several_times_goes_out_once(tmp_path: Path) -> None:
    messages = [*CALLED, *CALLED, *CALLED, CALLED[0]]
    async with OpenAIServer([chunks(text("It is wind."), finish("stop"))]) as server:
        async with asking(tmp_path, server) as service:
            assert answered(await service.events(request(messages=messages)))
    sent = server.requests[0]["messages"]
    ids = [one["id"] for _, one in calls_of(sent)]
    assert len(set(ids)) == 3
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ids
