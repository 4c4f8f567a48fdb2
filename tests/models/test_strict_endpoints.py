"""Endpoints that refuse a request, in the words of public bug reports, and what the model client sends next.

Each endpoint is as strict as can be: it accepts nothing but what a row says.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from callboard._call_ids import nine_characters
from callboard.errors import ModelRefused
from callboard.models import Finish, ModelRequest, OpenAICompatible, ToolsRefused
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, Raw, Refusal, Script, chunks, finish

OK = chunks(finish("stop"))
BLANK: Body = {"role": "user", "content": " "}
QUESTION: Body = {"role": "user", "content": "What is a storm?"}
NAMED = {**QUESTION, "name": "ann"}
SYSTEM: Body = {"role": "system", "content": "Be brief."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOL: Body = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def call(call_id: str = "call_1", /, **fields: Any) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": "{}"}, **fields}


def calling(*calls: Body, content: str | None = None, **fields: Any) -> Body:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **fields}


def result(call_id: str = "call_1") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": "wind"}


NINE = "BQTdZNRNW"
"""The id `call_1` in the form that every endpoint accepts; always the same, as it is computed anew for each request."""

CALLED = [QUESTION, calling(call()), result()]
CONTINUED = [QUESTION, {"role": "assistant", "content": "It is"}]
GREETED = [{"role": "assistant", "content": "Hello, I know words."}, QUESTION]


@dataclass(frozen=True)
class Strict:
    """A refusal, the request that gets it, and the fields of the one that is accepted: None must not be there."""

    refusal: Answer
    asked: ModelRequest
    accepted: Body

    def answer(self, body: Body) -> Answer:
        is_accepted = all(body.get(name) == value for name, value in self.accepted.items())
        return OK if is_accepted else self.refusal


def messages(words: str, asked: Sequence[Body], accepted: Sequence[Body], status: int = 400) -> Strict:
    return Strict(Refusal(status, words), ModelRequest(asked), {"messages": list(accepted)})


def ids(words: str, call_id: str, nine: str) -> Strict:
    return messages(
        words, [QUESTION, calling(call(call_id)), result(call_id)], [QUESTION, calling(call(nine)), result(nine)]
    )


def either(status: int, words: str) -> Strict:
    called = calling(call(), content="I look it up.")
    return messages(words, [QUESTION, called, result()], [QUESTION, calling(call(), content=""), result()], status)


def ends(words: str) -> Strict:
    return messages(words, CONTINUED, [*CONTINUED, {"role": "user", "content": "Go on."}])


def begins(words: str) -> Strict:
    return messages(words, GREETED, [{"role": "user", "content": "Hello."}, *GREETED])


def blank(words: str, asked: Body = BLANK) -> Strict:
    return messages(words, [asked], [{"role": "user", "content": "(empty)"}])


def content(words: str) -> Strict:
    return messages(words, CALLED, [QUESTION, calling(call(), content=""), result()])


def name(words: str) -> Strict:
    return messages(words, [NAMED], [QUESTION], status=422)


def system(words: str) -> Strict:
    accepted = [{"role": "user", "content": "Be brief.\n\nWhat is a storm?"}]
    return messages(words, [SYSTEM, QUESTION], accepted)


def left_out(refusal: Answer, **fields: Any) -> Strict:
    """The endpoint sent the field itself, with an answer that called a tool."""
    return Strict(
        refusal,
        ModelRequest([QUESTION, calling(call(**fields.pop("call", {})), **fields), result()]),
        {"messages": CALLED},
    )


def option(words: str, accepted: Body, status: int = 400, **asked: Any) -> Strict:
    return Strict(Refusal(status, words), ModelRequest([QUESTION], **asked), accepted)


def schema_format(words: str) -> Strict:
    told = 'Your answer to the user must be in this format, without text around it: {"type": "json_object"}'
    accepted = {"response_format": None, "messages": [{"role": "system", "content": told}, QUESTION], "tools": [TOOL]}
    return option(words, accepted, tools=[TOOL], options={"response_format": {"type": "json_object"}})


def must_call(words: str) -> Strict:
    told = "Do not answer in text: your answer must be a call of one of these tools."
    instructed = [{"role": "system", "content": f"Be brief.\n\n{told}"}, QUESTION]
    return Strict(
        Refusal(400, words),
        ModelRequest([SYSTEM, QUESTION], [TOOL], must_call=True),
        {"tool_choice": None, "messages": instructed},
    )


def a_tool(words: str) -> Strict:
    no_tool = {
        "name": "no_tool",
        "description": "Do not call this.",
        "parameters": {"type": "object", "properties": {}},
    }
    return Strict(
        Refusal(400, words),
        ModelRequest(CALLED),
        {"tools": [{"type": "function", "function": no_tool}], "tool_choice": "none"},
    )


NUMBER: Body = {"type": "integer"}
ALTERNATIVES: Body = {
    "type": "object",
    "$defs": {"Named": {"allOf": [{"properties": {"name": {"type": "string"}}}]}},
    "properties": {"door": NUMBER},
    "anyOf": [{"required": ["door"]}, {"properties": {"gate": NUMBER}}, True],
    "allOf": [{"$ref": "#/$defs/Named"}, {"properties": {"lock": {"$ref": "#/anyOf/1/properties/gate", "title": "L"}}}],
    "oneOf": [{"properties": {"key": {"$ref": "#/nothing"}}}],
}
FLAT: Body = {
    "type": "object",
    "properties": {"door": NUMBER, "gate": NUMBER, "lock": NUMBER, "key": {"type": "string"}}
    | {"name": {"type": "string"}},
}


def offering(**fields: Any) -> list[Body]:
    return [{"type": "function", "function": {"name": "open_door", **fields}}]


def flat(words: str) -> Strict:
    return option(words, {"tools": offering(parameters=FLAT)}, tools=offering(parameters=ALTERNATIVES))


SHOWN: list[Body] = [
    {"role": "user", "content": [{"type": "text", "text": "Look:"}, PICTURE]},
    {"role": "assistant", "content": "A storm."},
    QUESTION,
]


def shown_without_pictures() -> list[Body]:
    told = "Look:\n[Here was a picture or a file, which you cannot read.]"
    return [{"role": "user", "content": told}, SHOWN[1]]


LONG_ID = "call_" + "1" * 40
LIMITED = {"max_tokens": 1000, "max_completion_tokens": None}
LIMITED_BY_OTHER_NAME = {"max_tokens": None, "max_completion_tokens": 1000}
SIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
REASONED = {"reasoning_content": " "}
NO_TOOLS_WITH_EFFORT = (
    "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)
TEMPLATE_ERROR = {"message": "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."}
OPENROUTERS = {"code": 400, "message": "Provider returned error", "metadata": {"raw": "Message 0 must not be empty"}}
TWO_CALLS = calling(call(), call("call_2"))

ENDPOINTS: dict[str, Strict] = {
    "Kimi's reasoning": messages(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        CALLED,
        [QUESTION, calling(call(), **REASONED), result()],
    ),
    "DeepSeek's reasoning": messages(
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        CONTINUED,
        [QUESTION, CONTINUED[1] | REASONED],
    ),
    "Gemini's signature, of the first call only": messages(
        "Function call is missing a thought_signature in functionCall parts.",
        [QUESTION, TWO_CALLS, result(), result("call_2")],
        [QUESTION, calling(call(**SIGNED), call("call_2")), result(), result("call_2")],
    ),
    "Mistral's ids": ids("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "call_1", NINE),
    "Mistral's ids in its chat template": ids("Tool call IDs should be 9 alphanumeric characters", "call_1", NINE),
    "OpenAI's ids": ids("Invalid 'messages[1].tool_calls[0].id': string too long.", LONG_ID, nine_characters(LONG_ID)),
    # https://github.com/maximhq/bifrost/issues/5097
    "Anthropic's ids": ids(
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "functions.look_up:0",
        nine_characters("functions.look_up:0"),
    ),
    "Mistral's text beside a call": either(
        400, "Assistant message must have either content or tool_calls, but not both."
    ),
    "Mistral's text beside a call, as a list": either(
        422,
        '{"detail": [{"loc": ["body", "messages", 1], "msg": "either content or tool_calls, but not both"}]}',
    ),
    # https://github.com/pydantic/pydantic-ai/issues/1879
    "Gemini's names": messages(
        "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
        CALLED,
        [*CALLED[:2], {"name": "look_up", **result()}],
    ),
    "Mistral's order": messages(
        "Unexpected role 'user' after role 'tool'",
        [*CALLED, QUESTION],
        [*CALLED, {"role": "assistant", "content": "I have the results."}, QUESTION],
    ),
    "Mistral's end": ends("Expected last role User or Tool (or Assistant with prefix True) but got assistant"),
    "Anthropic's end": ends("This model does not support prefill. The conversation must end with a user message."),
    "DeepSeek's end": ends("The last message of deepseek-reasoner must be a user message, or an assistant message"),
    "Gemma's beginning": messages(
        TEMPLATE_ERROR["message"], [SYSTEM, *GREETED], [SYSTEM, {"role": "user", "content": "Hello."}, *GREETED]
    ),
    "Llama's beginning": begins("The first message must be from the user"),
    "Perplexity's beginning": begins("user and assistant roles should be alternating."),
    "DashScope's beginning": begins("The input messages must start with a user message."),
    # https://github.com/idiap/sdialog/issues/122
    "llama.cpp's beginning, as a temporary failure": messages(
        TEMPLATE_ERROR["message"], GREETED, [{"role": "user", "content": "Hello."}, *GREETED], status=500
    ),
    "LM Studio's beginning, in the stream": Strict(
        Raw([f"event: error\ndata: {json.dumps({'error': TEMPLATE_ERROR})}\n\n".encode()]),
        ModelRequest(GREETED),
        {"messages": [{"role": "user", "content": "Hello."}, *GREETED]},
    ),
    "Anthropic's blank words": blank("messages: text content blocks must contain non-whitespace text"),
    "Anthropic's words": blank(
        "messages: text content blocks must be non-empty",
        {"role": "user", "content": [{"type": "text", "text": " "}]},
    ),
    "Bedrock's words": blank("The text field in the ContentBlock object at messages.0.content.0 is blank."),
    "xAI's words": blank("An empty message was provided. Every message needs at least one non-empty content element"),
    "OpenRouter's words, of a provider and in the stream": Strict(
        chunks({"error": OPENROUTERS}), ModelRequest([BLANK]), {"messages": [{"role": "user", "content": "(empty)"}]}
    ),
    "LM Studio's content": content("Invalid 'content': 'content' field must be a string or an array of objects."),
    "Ollama's content": content("invalid message content type: <nil>"),
    # https://github.com/Gage-Technologies/mistral-go/issues/3
    "Mistral's name": name('{"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 0, "user", "name"]}]}'),
    # https://github.com/NousResearch/hermes-agent/issues/114713
    "OpenCode's name": name('messages[0]: "name" is not supported by this endpoint'),
    "vLLM's name": name("messages.0.user.name: Extra inputs are not permitted"),
    # https://github.com/huggingface/chat-ui/issues/1386, https://github.com/sgl-project/sglang/issues/892
    "Gemma's system message": system("System role not supported"),
    # https://github.com/anthropics/claude-code/issues/61412
    "Anthropic's system message": system("role 'system' is not supported on this model"),
    "Mistral's system message": system("Only user and assistant roles are supported!"),
    "Gemma's system message at Google": system("Developer instruction is not enabled for models/gemma-3-27b-it"),
    "o1-mini's system message, beside a picture": messages(
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        [SYSTEM, {"role": "user", "content": [PICTURE]}],
        [{"role": "user", "content": [{"type": "text", "text": "Be brief."}, PICTURE]}],
    ),
    "Groq's reasoning": left_out(
        Refusal(400, "for 'role:assistant' must be satisfied[('messages.2' : property 'reasoning' is unsupported)]"),
        reasoning="Hm.",
    ),
    "a field of a call": left_out(
        Refusal(400, "Unknown name \"extra_content\" at 'messages[1].tool_calls[0]': Cannot find field."), call=SIGNED
    ),
    "OpenAI's limit": option(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        LIMITED_BY_OTHER_NAME,
        options={"max_tokens": 1000},
    ),
    "Mistral's limit": option(
        '{"detail": [{"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"], '
        '"msg": "Extra inputs are not permitted", "input": 1000}]}',
        LIMITED,
        422,
        options={"max_completion_tokens": 1000},
    ),
    # https://github.com/BerriAI/litellm/pull/34569
    "OpenAI's effort": option(
        NO_TOOLS_WITH_EFFORT, {"reasoning_effort": "none"}, tools=[TOOL], options={"reasoning_effort": "high"}
    ),
    "OpenAI's parallel calls": option(
        "Unknown parameter: 'parallel_tool_calls'", {"parallel_tool_calls": None}, tools=[TOOL], one_call=True
    ),
    "vLLM's cache key": option(
        "Extra inputs are not permitted: prompt_cache_key",
        {"prompt_cache_key": None, "top_k": 40},
        422,
        options={"prompt_cache_key": "key", "top_k": 40},
    ),
    "OpenAI's stop sequences": option(
        "Unsupported parameter: 'stop' is not supported with this model.", {"stop": None}, stops=["\nObservation:"]
    ),
    # https://github.com/vercel/ai/pull/16540
    "Gemini's format": schema_format("Function calling with a response mime type: 'application/json' is unsupported"),
    "Groq's format": schema_format("json mode cannot be combined with tool/function calling"),
    # https://github.com/deepseek-ai/DeepSeek-V3/issues/1376
    "DeepSeek's choice": must_call("Thinking mode does not support this tool_choice"),
    "Kimi's choice": must_call("tool_choice 'required' is incompatible with thinking enabled"),
    "OpenAI's schemas": flat("Invalid schema for function 'open_door': not have 'oneOf'/'anyOf' at the top level."),
    "Kimi's schemas": flat(
        "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': anyOf>"
    ),
    # https://github.com/BerriAI/litellm/issues/31582
    "Bedrock's functions": option(
        'BedrockException - {"message":"tools.0.custom.strict: Extra inputs are not permitted"}',
        {"tools": offering(parameters=FLAT)},
        tools=offering(parameters=FLAT, strict=True),
    ),
    "Anthropic's tools": a_tool("UnsupportedParamsError: Anthropic expects the `tools=` param to be passed in."),
    "Bedrock's tools": a_tool("Bedrock doesn't support tool calling without `tools=` param specified."),
    "Bedrock's choice": must_call("Bedrock doesn't support tool_choice=required. To drop it from the call, set"),
    "a model without eyes, a picture of earlier": messages(
        "This model does not support image input", SHOWN, [*shown_without_pictures(), QUESTION]
    ),
    "a model without eyes, a picture of a result": messages(
        "unknown variant `image_url`, expected `text`",
        [*CALLED, SHOWN[0]],
        [*CALLED, shown_without_pictures()[0]],
    ),
}


async def play(script: Script, *asked: ModelRequest) -> list[Body]:
    """Ask so, one after another, and return the bodies that the endpoint received."""
    async with OpenAIServer(script) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        for request in asked:
            assert [delta async for delta in model.stream(request)] == [Finish("stop")]
    return server.requests


async def be_refused(script: Script, asked: ModelRequest) -> tuple[str, list[Body]]:
    """Ask so, and return the error, and the bodies that the endpoint received."""
    async with OpenAIServer(script) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        with pytest.raises(ModelRefused) as raised:
            [delta async for delta in model.stream(asked)]
    return str(raised.value), server.requests


@pytest.mark.parametrize("strict", ENDPOINTS.values(), ids=ENDPOINTS.keys())
async def test_what_an_endpoint_accepts_is_learnt_from_its_refusal_and_sent_from_then_on(strict: Strict) -> None:
    assert len(await play(strict.answer, strict.asked, strict.asked)) == 3


def beside(**fields: Any) -> list[Body]:
    """A call that the endpoint signed, as it is sent back; `fields` are the signature."""
    return [NAMED, calling(call(**fields.pop("call", {})), **fields), result(), QUESTION]


STALE = {
    "Gemini": ("Corrupted thought signature.", beside(call={"extra_content": {"google": "c2ln"}}), SIGNED),
    "Anthropic": ("Invalid `signature` in `thinking` block", beside(thinking_blocks=[{"signature": "EsUB"}]), {}),
    "OpenRouter": ("thinking block is bound to a different conversation", beside(reasoning_details=["EsUB"]), {}),
}


@pytest.mark.parametrize(("words", "signed", "instead"), STALE.values(), ids=STALE.keys())
async def test_a_signature_that_is_no_longer_accepted_is_left_out_of_the_refused_request_alone(
    words: str, signed: list[Body], instead: Body
) -> None:
    """The signatures of other chats may be valid."""
    unsigned = [NAMED, calling(call(NINE, **instead)), result(NINE), QUESTION]
    strict = messages(words, signed, unsigned)
    sent = await play(strict.answer, strict.asked, strict.asked)
    assert [body["messages"] for body in sent] == [signed, unsigned] * 2


BUSY = {"message": "The content filter is busy", "type": "server_error", "param": None, "code": None}
NOTHING_TO_LEARN: dict[str, tuple[Answer, list[Body]]] = {
    "of another matter": (Refusal(400, "no such voice"), CALLED),
    "of another name": (Refusal(400, "Invalid 'messages[0].name': string does not match pattern."), [NAMED]),
    "with a quotation of the request": (
        Refusal(400, "[{'msg': 'no such seed', 'input': {'messages': [{'content': 'It must not be empty'}]}}]"),
        [BLANK],
    ),
    "with a null that is no content": (Raw([json.dumps({"error": BUSY}).encode()], status=400), CALLED),
}


@pytest.mark.parametrize(("refusal", "asked"), NOTHING_TO_LEARN.values(), ids=NOTHING_TO_LEARN.keys())
async def test_a_refusal_that_teaches_nothing_is_the_error_at_once(refusal: Answer, asked: list[Body]) -> None:
    _, sent = await be_refused([refusal], ModelRequest(asked))
    assert [body["messages"] for body in sent] == [asked]


async def test_an_endpoint_that_demands_what_it_refuses_is_not_asked_for_ever() -> None:
    demanded = "Function call is missing a thought_signature in functionCall parts."
    refused = "Unknown name \"extra_content\" at 'messages[1].tool_calls[0]': Cannot find field."
    words, sent = await be_refused(
        lambda body: Refusal(400, refused if "extra_content" in str(body) else demanded), ModelRequest(CALLED)
    )
    assert demanded in words
    assert len(sent) == 3


async def test_a_clients_stop_sequences_are_sent_though_the_models_own_are_refused() -> None:
    strict = ENDPOINTS["OpenAI's stop sequences"]
    async with OpenAIServer(strict.answer) as server:
        async with aclosing(OpenAICompatible(server.base_url, model="m")) as model:
            [delta async for delta in model.stream(strict.asked)]
            with pytest.raises(ModelRefused):
                await anext(aiter(model.stream(replace(strict.asked, options={"stop": "END"}))))
    assert [body.get("stop") for body in server.requests] == [["\nObservation:"], None, ["END"]]


@pytest.mark.parametrize(
    ("parts", "sent"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": "a"}, PICTURE], None),
        ([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], None),
    ],
    ids=["text alone", "a picture", "a field beside the text"],
)
async def test_content_that_is_only_text_is_sent_as_one_string(parts: list[Body], sent: str | None) -> None:
    """https://github.com/QwenLM/qwen-code/pull/2320, https://github.com/gptme/gptme/issues/375"""
    [body] = await play([OK], ModelRequest([{"role": "user", "content": parts}]))
    assert body["messages"][0]["content"] == (sent or parts)


async def test_a_demand_in_unknown_words_is_found_by_trying_if_the_beginning_was_accepted() -> None:
    """https://github.com/NousResearch/hermes-agent/pull/19728"""
    named = [*CALLED[:2], {"name": "look_up", **result()}]

    def answer(body: Body) -> Answer:
        is_accepted = body["messages"] in ([QUESTION], named)
        return OK if is_accepted else Refusal(400, "Request contains an invalid argument.")

    _, sent = await be_refused(answer, ModelRequest(CALLED))
    assert len(sent) == 1
    sent = await play(answer, ModelRequest([QUESTION]), ModelRequest(CALLED), ModelRequest(CALLED))
    tried = [body["messages"] for body in sent[1:]]
    assert tried[0] == CALLED
    assert tried[-2:] == [named] * 2
    assert all(tried.count(one) == 1 for one in tried[:-2])


async def test_if_no_form_helps_the_error_is_the_first_one() -> None:
    def answer(body: Body) -> Answer:
        return OK if len(body["messages"]) == 1 else Refusal(400, f"Invalid: {json.dumps(body['messages'])}")

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        [delta async for delta in model.stream(ModelRequest([QUESTION]))]
        with pytest.raises(ModelRefused) as raised:
            await anext(aiter(model.stream(ModelRequest(CALLED))))
    assert json.dumps(CALLED)[:60] in str(raised.value)


async def test_no_form_is_tried_after_an_error_that_is_no_refusal() -> None:
    answers: list[Answer] = [OK, Refusal(400, "bad"), Refusal(401, "expired")]
    async with OpenAIServer(answers) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        [delta async for delta in model.stream(ModelRequest([QUESTION]))]
        with pytest.raises(ModelRefused, match="bad"):
            await anext(aiter(model.stream(ModelRequest(CALLED))))
    assert len(server.requests) == 3


async def test_a_picture_that_is_refused_in_unknown_words_does_not_cost_other_chats_theirs() -> None:
    shown = {"role": "user", "content": [{**PICTURE, "image_url": {"url": "data:image/png;base64,AAAA"}}]}

    def answer(body: Body) -> Answer:
        return Refusal(400, "image exceeds 5 MB maximum") if "AAAA" in str(body) else OK

    sent = await play(answer, ModelRequest([QUESTION]), ModelRequest([*CALLED, shown]), ModelRequest(SHOWN))
    assert sent[-1]["messages"] == SHOWN


BLIND = {
    "OpenRouter": Refusal(404, "No endpoints found that support image input"),
    "llama.cpp": Refusal(500, "image input is not supported - hint: if this is unexpected, you may need the mmproj"),
    "vLLM": Refusal(400, "At most 0 image(s) may be provided in one prompt."),
    "OpenAI": Refusal(400, "Invalid content type. image_url is only supported by certain models."),
    "DeepSeek": Refusal(422, "messages[0]: unknown variant `image_url`, expected `text`"),
    "Ollama": Refusal(400, "this model is missing data required for image input"),
    "LM Studio": Refusal(400, "Model does not support images. Please use a model that does."),
}


@pytest.mark.parametrize("refusal", BLIND.values(), ids=BLIND.keys())
async def test_a_picture_of_the_question_is_refused_once_and_with_its_remedy(refusal: Refusal) -> None:
    words, sent = await be_refused(lambda _: refusal, ModelRequest(SHOWN[:1]))
    assert len(sent) == 1
    assert "Ask again without the picture" in words
    assert "CALLBOARD_MODEL_BASE_URL" not in words


SCHEMA: Body = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"Door": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Door"}, "const": NUMBER}}},
    "properties": {
        "door": {"$ref": "#/$defs/Door", "description": "D"},
        "kind": {"const": "oak", "title": "K"},
        "width": {"anyOf": [{"type": "null"}, {"type": "integer", "exclusiveMinimum": 0}]},
        "format": {"type": ["null", "string"]},
        "many": {"type": "array"},
    },
    "additionalProperties": False,
}
PLAIN: Body = {
    "type": "object",
    "properties": {
        "door": {"type": "object", "properties": {"inner": {"type": "string"}, "const": NUMBER}, "description": "D"},
        "kind": {"type": "string", "enum": ["oak"]},
        "width": {"type": "integer"},
        "format": {"type": "string"},
        "many": {"type": "array", "items": {"type": "string"}},
    },
}
GIVEN: Body = {"type": "function", "function": {"name": "give", "parameters": {"type": "object", "properties": {}}}}
DOOR = offering(parameters=SCHEMA)[0]


async def test_every_tool_with_a_keyword_that_is_refused_in_one_of_them_gets_a_plain_schema() -> None:
    words = "Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[1].parameters'"
    given, plain = (
        [GIVEN, *offering(parameters=schema), *offering(name="open_gate", parameters=schema)]
        for schema in (SCHEMA, PLAIN)
    )
    strict = option(words, {"tools": plain}, tools=given)
    assert len(await play(strict.answer, strict.asked, strict.asked)) == 3


ODD_TOOLS = {
    "OpenAI": "Invalid schema for function 'open_door': In context=('properties', 'many'), array schema missing items.",
    "Anthropic": "tools.1.custom.input_schema: JSON schema is invalid.",
    "Gemini": "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[many].items: missing.",
    "llama.cpp": "Failed to initialize samplers: failed to parse grammar",
    "Vertex": "Unable to submit request because open_door functionDeclaration parameters.many schema is incorrect.",
}


@pytest.mark.parametrize("words", ODD_TOOLS.values(), ids=ODD_TOOLS.keys())
async def test_a_tool_whose_schema_is_refused_gets_a_plain_one(words: str) -> None:
    plain = offering(parameters=PLAIN)
    strict = option(words, {"tools": [GIVEN, *plain]}, tools=[GIVEN, DOOR])
    assert len(await play(strict.answer, strict.asked, strict.asked)) == 3


@pytest.mark.parametrize(
    "words",
    [
        ODD_TOOLS["OpenAI"],
        ODD_TOOLS["Anthropic"],
        "tools.1.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "* GenerateContentRequest.tools[0].function_declarations[1].name: Invalid function name.",
    ],
)
async def test_a_tool_that_is_refused_however_it_is_written_is_left_out_and_named(words: str) -> None:
    def answer(body: Body) -> Answer:
        return OK if body.get("tools") == [TOOL] else Refusal(400, words)

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        for _ in range(2):
            deltas = [delta async for delta in model.stream(ModelRequest([QUESTION], [TOOL, DOOR]))]
            assert deltas == [ToolsRefused({"open_door": words.rstrip(".")}), Finish("stop")]
        assert model.refused_tools == {"open_door": words.rstrip(".")}
    assert len(server.requests) <= 6


async def test_a_tool_that_only_a_property_of_the_refused_one_names_is_still_offered() -> None:
    odd = offering(parameters={"type": "object", "properties": {"look_up": {"type": "odd"}}})
    words = "Invalid schema for function 'open_door': In context=('properties', 'look_up'), 'odd' is not valid."

    def answer(body: Body) -> Answer:
        return Refusal(400, words) if "'odd'" in str(body.get("tools")) else OK

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        deltas = [delta async for delta in model.stream(ModelRequest([QUESTION], [GIVEN, TOOL, *odd]))]
    assert deltas[0] == ToolsRefused({"open_door": words.rstrip(".")})
    assert [tool["function"]["name"] for tool in server.requests[-1]["tools"]] == ["give", "look_up"]


async def test_a_refusal_that_is_about_something_else_changes_no_later_tools() -> None:
    words = "The tool 'open_door' was called with invalid parameters"

    def answer(body: Body) -> Answer:
        return Refusal(400, words) if "seed" in body else OK

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        with pytest.raises(ModelRefused):
            await anext(aiter(model.stream(ModelRequest([QUESTION], [GIVEN, DOOR], options={"seed": 1}))))
        assert await anext(aiter(model.stream(ModelRequest([QUESTION], [GIVEN, DOOR])))) == Finish("stop")
    assert server.requests[-1]["tools"] == [GIVEN, DOOR]


def doubling(steps: int) -> Body:
    """Return a schema whose definitions use the next one twice."""
    return {f"d{at}": {"properties": {name: {"$ref": f"#/$defs/d{at + 1}"} for name in "ab"}} for at in range(steps)}


BROKEN: list[tuple[Body, Body]] = [
    ({"properties": None, "anyOf": 1, "enum": 2, "required": True}, {"properties": {}}),
    ({"properties": {"a": {"items": [], "type": ["array", 3], "required": 4}, "b": 5}, "$ref": 6}, {}),
    ({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling(60)}, {}),
]


@pytest.mark.parametrize(("schema", "plain"), BROKEN)
async def test_the_broken_schema_of_a_client_gets_a_plain_one_too(schema: Body, plain: Body) -> None:
    def answer(body: Body) -> Answer:
        sent = body["tools"][0]["function"]["parameters"]
        return OK if sent != schema and plain.items() <= sent.items() else Refusal(400, "Invalid schema")

    assert len(await play(answer, ModelRequest([QUESTION], offering(parameters=schema)))) == 2


async def test_a_schema_without_a_type_that_has_properties_and_alternatives_is_an_object() -> None:
    place = {"properties": {"x": NUMBER}, "anyOf": [{"required": ["x"]}]}
    plain = {"type": "object", "properties": {"at": {"type": "object", "properties": {"x": NUMBER}}}}
    strict = option("Invalid schema", {"tools": offering(parameters=plain)})
    given = offering(parameters={"type": "object", "properties": {"at": place}})
    await play(strict.answer, ModelRequest([QUESTION], given))


async def test_if_the_only_tool_is_left_out_the_model_answers_in_text() -> None:
    strict = option(ODD_TOOLS["OpenAI"], {"tools": None, "tool_choice": None}, tools=[DOOR], must_call=True)
    async with OpenAIServer(strict.answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        assert [delta async for delta in model.stream(strict.asked)][-1] == Finish("stop")


AT_ONCE = [
    ENDPOINTS["DeepSeek's reasoning"],
    option(ODD_TOOLS["OpenAI"], {"tools": offering(parameters=PLAIN)}, tools=[DOOR]),
]


@pytest.mark.parametrize("strict", AT_ONCE)
async def test_requests_at_the_same_time_all_use_what_one_of_them_learns(strict: Strict) -> None:
    async def ask(model: OpenAICompatible) -> None:
        assert [delta async for delta in model.stream(strict.asked)] == [Finish("stop")]

    async with OpenAIServer(strict.answer) as server:
        async with aclosing(OpenAICompatible(server.base_url, model="m")) as model:
            server.may_answer.clear()
            asking = [asyncio.create_task(ask(model)) for _ in range(2)]
            while len(server.requests) < 2:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            server.may_answer.set()
            await asyncio.gather(*asking)


async def test_models_of_one_gateway_do_not_learn_from_each_other() -> None:
    """Gemini demands the field that the other model refuses."""

    def answer(body: Body) -> Answer:
        is_signed = "extra_content" in str(body["messages"])
        if body["model"] == "gemini" and not is_signed:
            return Refusal(400, "Function call is missing a thought_signature in functionCall parts.")
        if body["model"] == "other" and is_signed:
            return Refusal(422, '{"type": "extra_forbidden", "loc": ["body", "messages", 1, "extra_content"]}')
        return OK

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url)) as endpoint:
        for model in ("gemini", "other") * 2:
            assert [delta async for delta in endpoint.named(model).stream(ModelRequest(CALLED))] == [Finish("stop")]
    assert [body["model"] for body in server.requests] == ["gemini", "gemini", "other", "gemini", "other"]


UNREADABLE: dict[str, Body] = {
    "Groq": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<function=f{"},
    # The error quotes the call: nothing may be learnt from its text.
    "llama.cpp": {"code": 500, "message": "Failed to parse input at pos 0: <parameter=content>a string</parameter>"},
    "Ollama": {"message": "error parsing tool call: raw='{\"value\": x', err=invalid character 'x'"},
}


@pytest.mark.parametrize("status", [200, 500], ids=["in the stream", "500"])
@pytest.mark.parametrize("error", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_call_that_the_endpoint_could_not_read_is_a_finish_reason_from_which_nothing_is_learnt(
    error: Body, status: int
) -> None:
    stream: Chunks = chunks({"error": error})
    answer = stream if status == 200 else Raw([json.dumps({"error": error}).encode()], status=status)
    async with OpenAIServer([answer, OK]) as server:
        async with aclosing(OpenAICompatible(server.base_url, model="m")) as model:
            [ended] = [delta async for delta in model.stream(ModelRequest(CALLED))]
            assert [delta async for delta in model.stream(ModelRequest(CALLED))] == [Finish("stop")]
    assert ended == Finish("malformed_function_call", error["message"])
    assert [body["messages"] for body in server.requests] == [CALLED] * 2
