"""Endpoints that refuse a request unless it has what they sent before, in a turn and on later turns.

Each is as strict as the one that it is named after. What else a model client learns from refusals is proven in
`tests/models`.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, OpenAICompatible, Skill, tool
from callboard._formats import ToolFormat
from callboard_protocol import Done, Event, Message
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, Refusal, call, chunks, finish, text
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
    """DeepSeek's rule: the reasoning of all answers of a turn with calls."""
    called = [message["reasoning_content"] for message, _ in calls_of(messages)]
    if called == ["Storm? I look."] * len(called) and all(
        message.get("reasoning_content") for message in messages if message["role"] == "assistant"
    ):
        return ""
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


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
    "Gemini 3, the signature in a chunk of its own": Endpoint(
        need_signature, chunks(asks(), details(extra_content=SIGNATURE), finish("tool_calls"))
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
        need_reasoning,
        chunks(*(text(None, reasoning_content=said) for said in ("Storm? ", "I look.")), asks(), finish("tool_calls")),
    ),
    "LiteLLM, Anthropic": Endpoint(
        need_blocks, chunks(*(text("", thinking_blocks=[one]) for one in BLOCKS), asks(), finish("tool_calls"))
    ),
    "OpenRouter": Endpoint(
        need_reasoning_details,
        chunks(*(text("", reasoning_details=[entry]) for entry in REASONING), asks(), finish("tool_calls")),
    ),
    "LiteLLM": Endpoint(need_own_ids, chunks(asks(call_id=LONG_ID), finish("tool_calls"))),
    # https://github.com/LibreChat-AI/agents/pull/124
    "Anthropic, white space before the call": Endpoint(need_words, chunks(text("\n\n"), asks(), finish("tool_calls"))),
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
) -> AsyncIterator[Service]:
    """A server whose agent asks that endpoint."""
    endpoint = OpenAICompatible(server.base_url, model=model, max_retries=0)
    skill = Skill("words", "Words.", tools=(look_up,))
    agent = Agent("scripted", skills=(skill,), model=endpoint, tool_format=tool_format)
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
    return said.strip() == "It is wind." and events[-1] == Done(finish_reason="stop")


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


@pytest.mark.parametrize("name", ["Gemini 3", "OpenRouter", "LiteLLM"])
async def test_another_model_is_sent_none_of_it(tmp_path: Path, name: str) -> None:
    async with strict(ENDPOINTS[name]) as server, strict(ENDPOINTS["Mistral, without ids"]) as mistral:
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


@pytest.mark.parametrize("name", ["container exec", "", "Look the word up, please. " * 3])
async def test_chat_continues_after_a_call_whose_name_the_endpoint_refuses(tmp_path: Path, name: str) -> None:
    """https://github.com/pydantic/pydantic-ai/issues/4585"""
    calls = chunks(call(name, '{"word": "storm"}', call_id="call_1"), finish("tool_calls"))
    async with strict(Endpoint(need_names, calls)) as server, asking(tmp_path, server) as service:
        for message_id, *earlier in (("m1",), ("m2", "m1"), ("m3", "m1", "m2")):
            assert answered(await ask(service, message_id, *earlier))
    assert len(list(calls_of(server.requests[-1]["messages"]))) == 3


CONTINUED: list[Body] = [
    {"role": "user", "content": "What is a storm?"},
    {"role": "assistant", "content": "It is"},
]
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
SURE: Body = {"role": "user", "content": "Sure?"}
HISTORIES: dict[str, list[Body]] = {
    "an answer that is empty": [{"role": "assistant", "content": ""}, SURE],
    "two answers": [*CONTINUED[1:], {"role": "assistant", "content": "wind."}, SURE],
    "a question that was sent again": [SURE],
    # Open WebUI sends an empty text with a picture.
    "pictures": [
        {"role": "user", "content": " "},
        {"role": "user", "content": [{"type": "text", "text": ""}, PICTURE]},
    ],
    "a late word of the system": [*CONTINUED[1:], {"role": "system", "content": "Be brief."}, SURE],
    "white space beside a call": [{**CALLED[1], "content": " "}, CALLED[2], SURE],
    "a turn that was stopped after its call": [*CALLED[1:], SURE],
}


@pytest.mark.parametrize("tool_format", ["native", "auto", "hermes", "react"])
async def test_messages_come_in_the_order_of_the_strictest_endpoint(tmp_path: Path, tool_format: ToolFormat) -> None:
    answer = "Final Answer: It is wind." if tool_format == "react" else "It is wind."

    def reply(body: Body) -> Answer:
        reason = need_turns(body["messages"]) or need_nine(body["messages"]) or need_words(body["messages"])
        return Refusal(400, reason) if reason else chunks(text(answer), finish("stop"))

    async with OpenAIServer(reply) as server, asking(tmp_path, server, tool_format=tool_format) as service:
        for name, later in HISTORIES.items():
            messages = [{"role": "user", "content": "What is a storm?"}, *later]
            assert answered(await service.events(request(messages=messages))), name
            sent = str(server.requests[-1]["messages"])
            words = [message["content"] for message in messages if isinstance(message.get("content"), str)]
            assert all(word in sent for word in words), name


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
