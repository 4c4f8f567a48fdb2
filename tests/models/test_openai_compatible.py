"""The endpoint adapter, against a real HTTP server that answers as endpoints really do."""

import asyncio
import json
import socket
import tracemalloc
import zlib
from contextlib import aclosing
from itertools import repeat
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard.errors import (
    ModelCutOff,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
)
from callboard.models import (
    Finish,
    MessageDetails,
    ModelDelta,
    ModelRequest,
    OpenAICompatible,
    PictureDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    openai_compatible,
)
from callboard.models.endpoint_stream import MAX_CHUNK_BYTES, MAX_ERROR_BYTES
from tests.fakes.openai_server import (
    Answer,
    Body,
    Chunks,
    Ending,
    OpenAIServer,
    Raw,
    Refusal,
    Script,
    Silence,
    call,
    chunks,
    finish,
    text,
    usage,
)

KEY = "sk-very-secret-key"
JSON = {"Content-Type": "application/json"}
STREAM = {"Content-Type": "text/event-stream"}
ASK = ModelRequest([{"role": "user", "content": "hi"}])


async def answer_to(answer: Answer, request: ModelRequest = ASK, timeout_seconds: float = 20) -> list[ModelDelta]:
    async with OpenAIServer([answer]) as server:
        model = OpenAICompatible(
            server.base_url, api_key=KEY, model="m", timeout_seconds=timeout_seconds, max_retries=0
        )
        try:
            return [delta async for delta in model.stream(request)]
        finally:
            await model.aclose()


async def bodies_of(*requests: ModelRequest, answer: Script | None = None) -> list[Body]:
    """Send the requests, and return the bodies that the endpoint received."""
    async with OpenAIServer(answer or [chunks(finish("stop"))] * len(requests)) as server:
        async with aclosing(OpenAICompatible(server.base_url, api_key=KEY, model="m", max_retries=0)) as model:
            for request in requests:
                assert [delta async for delta in model.stream(request)] == [Finish("stop")]
    return server.requests


COUNTS = {"prompt_tokens": 10, "completion_tokens": 3}
OF_ANTHROPIC = {"input_tokens": 6, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1, "output_tokens": 3}
USAGES: dict[str, tuple[dict[str, Any], TokenUsage]] = {
    "Moonshot's in the choice": ({"choices": [{"delta": {}, "usage": COUNTS}]}, TokenUsage(10, 3, 13)),
    "Groq's": ({"choices": [], "usage": None, "x_groq": {"id": "r", "usage": COUNTS}}, TokenUsage(10, 3, 13)),
    "floats": ({"usage": {"prompt_tokens": 10.0, "completion_tokens": 3.0}}, TokenUsage(10, 3, 13)),
    "no numbers": ({"usage": {"prompt_tokens": float("inf"), "completion_tokens": float("nan")}}, TokenUsage()),
    "Anthropic's names": ({"usage": OF_ANTHROPIC}, TokenUsage(10, 3, 13, 3)),
    "both names": ({"usage": {**OF_ANTHROPIC, **COUNTS}}, TokenUsage(10, 3, 13, 3)),
    "names of the Responses API": (
        {"usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3}},
        TokenUsage(10, 3, 13, 4),
    ),
}


@pytest.mark.parametrize(("chunk", "read"), USAGES.values(), ids=USAGES.keys())
async def test_usage_is_read_from_each_place_and_under_each_name(chunk: dict[str, Any], read: TokenUsage) -> None:
    assert await answer_to(chunks(text("Hello"), finish("stop"), chunk)) == [
        TextDelta("Hello"), Finish("stop"), read
    ]  # fmt: skip


NO_PRICES: list[object] = [None, -1, "1", True, 10**400]


@pytest.mark.parametrize(
    ("said", "cost"), [(0.0008902, 0.0008902), (0, 0.0), (2, 2.0), *((said, None) for said in NO_PRICES)]
)
async def test_cost_is_read_if_reported(said: object, cost: float | None) -> None:
    deltas = await answer_to(chunks(text("Hello"), finish("stop"), usage(5, 2, cost=said)))
    assert deltas[-1] == TokenUsage(5, 2, 7, cost=cost)


TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


async def test_request_streams_with_usage_and_has_tools_and_one_call_only_if_given() -> None:
    options = {"temperature": 0.2, "messages": [], "model": "other", "stream": False, "tools": [1]}
    plain, offering, one_call = await bodies_of(
        ModelRequest(ASK.messages, options=options),
        ModelRequest(ASK.messages, [TOOL]),
        ModelRequest(ASK.messages, [TOOL], one_call=True),
    )
    assert plain == {
        "model": "m",
        "messages": ASK.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.2,
    }
    assert (offering["tools"], offering.get("parallel_tool_calls")) == ([TOOL], None)
    assert one_call["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("END", ["END", "\nObservation:", "b", "c"]),
        (["1", "2", "3", "4"], ["1", "2", "3", "4"]),
        (["1", "2", "3", "4", "5"], ["1", "2", "3", "4"]),
        (None, ["\nObservation:", "b", "c", "d"]),
    ],
)
async def test_at_most_four_stop_sequences_are_sent_and_the_clients_come_first(asked: object, sent: list[str]) -> None:
    request = ModelRequest(ASK.messages, stops=["\nObservation:", "b", "c", "d", "e"], options={"stop": asked})
    assert (await bodies_of(request))[0]["stop"] == sent


async def test_tool_call_pieces_are_unchanged() -> None:
    deltas = await answer_to(
        chunks(
            call("add", "", call_id="call_1"),
            call(arguments='{"a"', index=None),
            call(arguments=":1}", index=7),
            finish("tool_calls"),
        )
    )
    assert deltas == [
        ToolCallDelta(0, "call_1", "add", ""),
        ToolCallDelta(None, None, None, '{"a"'),
        ToolCallDelta(7, None, None, ":1}"),
        Finish("tool_calls"),
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_read_under_both_of_its_names(field: str) -> None:
    deltas = await answer_to(chunks(text(None, **{field: "hmm"}), text("so"), finish("stop")))
    assert deltas == [ReasoningDelta("hmm"), MessageDetails({field: "hmm"}), TextDelta("so"), Finish("stop")]


async def test_reasoning_details_are_shown_if_there_is_no_other_reasoning() -> None:
    said: list[dict[str, object]] = [
        {"type": "reasoning.text", "text": "hm", "index": 0},
        {"type": "reasoning.summary", "summary": "so", "index": 1},
        {"type": "reasoning.encrypted", "data": "xx"},
    ]
    deltas = await answer_to(chunks(text(None, reasoning_details=said), finish("stop")))
    assert deltas == [ReasoningDelta("hmso"), MessageDetails({"reasoning_details": said}), Finish("stop")]
    deltas = await answer_to(chunks(text(None, reasoning_details=said, reasoning="hm"), finish("stop")))
    assert deltas[0] == ReasoningDelta("hm")


async def test_chunks_with_missing_null_and_misplaced_fields_are_skipped() -> None:
    odd: list[dict[str, object] | str] = [
        {},
        {"choices": None},
        {"choices": [None, {}, {"delta": None}, {"delta": {"content": None, "tool_calls": None}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None, {}, {"function": None}]}}]},
        {"choices": [{"index": 1, "delta": {"content": "a second choice"}}]},
        {"choices": "no list", "usage": {"prompt_tokens": None, "completion_tokens": "3"}},
        {"code": "Success", "message": "", "error_code": 0, "errors": [], "detail": None},
        {"status": "processing", "message": "The model is loading."},
        "[]",
    ]
    deltas = await answer_to(Chunks([*odd, text("still here"), finish("stop")]))
    empty = [delta for delta in deltas if delta in (ToolCallDelta(), TokenUsage())]
    assert [delta for delta in deltas if delta not in empty] == [TextDelta("still here"), Finish("stop")]


def choice(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, **fields}]}


def entry(**fields: object) -> dict[str, object]:
    return choice(delta={"tool_calls": [fields]})


ARGUMENTS: list[tuple[object, str | None]] = [
    ({"city": "Århus"}, '{"city": "Århus"}'),
    ([{"city": "Oslo"}], '[{"city": "Oslo"}]'),
    (7, "7"),
    (None, None),
]


@pytest.mark.parametrize(("arguments", "written"), ARGUMENTS, ids=str)
async def test_arguments_of_any_type_are_kept_as_text(arguments: object, written: str | None) -> None:
    answer = chunks(entry(index=0, id="c", function={"name": "f", "arguments": arguments}), finish("stop"))
    assert await answer_to(answer) == [ToolCallDelta(0, "c", "f", written), Finish("stop")]


NAMES_OF_ARGUMENTS = ("arguments", "parameters", "args", "input")


@pytest.mark.parametrize("name", NAMES_OF_ARGUMENTS)
async def test_arguments_are_read_under_each_of_their_names_and_are_no_details(name: str) -> None:
    written = {name: {"x": 1}}
    for one in ({"id": "c", "function": {"name": "f", **written}}, {"id": "c", "function": {"name": "f"}, **written}):
        for place in ("delta", "message"):
            [read, _] = await answer_to(chunks(choice(**{place: {"tool_calls": [one]}}), finish("stop")))
            assert isinstance(read, ToolCallDelta)
            assert (read.arguments, read.details) == ('{"x": 1}', {})


NAMED_TWICE: list[tuple[dict[str, object], str | None, dict[str, object]]] = [
    ({"arguments": "{}", "input": {"x": 1}}, "{}", {"function": {"input": {"x": 1}}}),
    ({"arguments": None, "parameters": "{}"}, "{}", {}),
    ({"arguments": "", "args": {"x": 1}}, '{"x": 1}', {}),
    ({"input": {"x": 1}, "parameters": {"y": 2}}, '{"y": 2}', {"function": {"input": {"x": 1}}}),
    ({"other": 1}, None, {"function": {"other": 1}}),
]


@pytest.mark.parametrize(("fields", "written", "details"), NAMED_TWICE, ids=str)
async def test_the_first_name_with_arguments_counts_and_the_others_are_details(
    fields: dict[str, object], written: str | None, details: dict[str, object]
) -> None:
    answer = chunks(entry(index=0, id="c", function={"name": "f"} | fields), finish("stop"))
    assert await answer_to(answer) == [ToolCallDelta(0, "c", "f", written, details), Finish("stop")]


ENTRIES: list[tuple[object, list[ToolCallDelta]]] = [
    ([{"index": "1", "id": 12, "function": {"name": 3}}], [ToolCallDelta(1, "12", "3")]),
    ([{"index": [1], "id": {"a": 1}, "function": {"name": "f"}}], [ToolCallDelta("[1]", '{"a": 1}', "f")]),
    ([{"id": "c", "name": "f", "arguments": {"a": 1}}], [ToolCallDelta(None, "c", "f", '{"a": 1}')]),
    ([{"function": '{"name": "f", "arguments": "{}"}'}], [ToolCallDelta(None, None, "f", "{}")]),
    ([{"function": {"name": {"f": 1}}}], [ToolCallDelta(None, None, '{"f": 1}')]),
    ({"0": {"function": {"name": "f"}}, "1": {"function": {"name": "g"}}},
     [ToolCallDelta(None, None, "f"), ToolCallDelta(None, None, "g")]),
    ('[{"function": {"name": "f"}}]', [ToolCallDelta(None, None, "f")]),
    (["f"], [ToolCallDelta(None, None, "f", "f")]),
    ([None, {}, "", False], []),
]  # fmt: skip


@pytest.mark.parametrize(("tool_calls", "read"), ENTRIES, ids=str)
async def test_no_field_of_a_call_counts_as_absent_for_its_type(tool_calls: object, read: list[ToolCallDelta]) -> None:
    answer = chunks(choice(delta={"tool_calls": tool_calls}), finish("stop"))
    assert await answer_to(answer) == [*read, Finish("stop")]


async def test_calls_in_openais_older_form_are_read() -> None:
    pieces = [choice(delta={"function_call": one}) for one in ({"name": "f", "arguments": ""}, {"arguments": "{}"})]
    deltas = await answer_to(chunks(*pieces, finish("function_call")))
    assert deltas[:2] == [ToolCallDelta(None, None, "f", ""), ToolCallDelta(None, None, None, "{}")]


WHOLE_AT_THE_END: dict[str, tuple[list[str], dict[str, object], list[ModelDelta]]] = {
    "the same": (["Ber", "lin"], {"content": "Berlin"}, []),
    "trimmed, and more": (["Berlin "], {"content": "Berlin."}, [TextDelta(".")]),
    "other line ends, and more": (["a\r\n", "b"], {"content": "a\nb c"}, [TextDelta(" c")]),
    "a part with other blanks": (["a.\n\nb ", " c"], {"content": "b c"}, []),
    "other blanks in its thoughts": (
        ["<think>h\r\nm"], {"content": "<think>h\nm</think>Oslo"}, [TextDelta("</think>Oslo")]
    ),
    "without the thoughts, and more": (["<think>hm</think>\n", "Ber"], {"content": "Berlin"}, [TextDelta("lin")]),
    "the first of it, without the thoughts": (
        ["<think>Yes or no?</think>"], {"content": "Yes"}, [TextDelta("Yes")]
    ),
    "with thoughts": (["Berlin"], {"content": "<think>\nhm\n</think>\n\nBerlin"}, []),
    "with thoughts, and more": (["Ber"], {"content": "<think>hm</think>Berlin"}, [TextDelta("lin")]),
    "without two thoughts": (["hm</think>A<think>x<think>y</think> B"], {"content": "A B C"}, [TextDelta(" C")]),
    "the end is new": (["Ber"], {"content": "Berlin"}, [TextDelta("lin")]),
    "other words": (["Berlin"], {"content": "Paris"}, [TextDelta("\n\nParis")]),
    "thoughts that were not streamed": (["Yes"], {"content": "Yes", "reasoning_content": "hm"}, [ReasoningDelta("hm")]),
    "a refusal": ([], {"content": None, "refusal": "No."}, [RefusalDelta("No.")]),
    "a picture": (["A"], {"content": "A", "images": [{"image_url": {"url": "data:image/png;base64,AA"}}]},
                  [PictureDelta("data:image/png;base64,AA")]),
}  # fmt: skip


@pytest.mark.parametrize(("streamed", "message", "new"), WHOLE_AT_THE_END.values(), ids=WHOLE_AT_THE_END.keys())
async def test_whole_message_adds_only_unstreamed_parts(
    streamed: list[str], message: dict[str, object], new: list[ModelDelta]
) -> None:
    for times in (1, 2):
        whole = [choice(delta={}, message=message, finish_reason="stop")] * times
        deltas = await answer_to(chunks(*map(text, streamed), *whole))
        said = [delta for delta in deltas if not isinstance(delta, MessageDetails)]
        assert said == [*map(TextDelta, streamed), *new, Finish("stop")]


async def test_reasoning_and_pictures_in_content_parts_are_separated() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "I th"}, {"type": "text", "text": "ink."}]},
        {"type": "thinking", "thinking": " Yes"},
        {"type": "reasoning", "text": "."},
        {"type": "text", "text": "So"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        " be it.",
    ]
    deltas = await answer_to(chunks(choice(delta={"content": parts}), finish("stop")))
    assert deltas == [
        ReasoningDelta("I think. Yes."), TextDelta("So be it."), PictureDelta("https://example.org/a.png"),
        Finish("stop"),
    ]  # fmt: skip


async def test_picture_comes_once_and_only_from_picture_fields() -> None:
    urls = ["data:image/png;base64,AA", "data:image/png;base64,AA", "javascript:alert(1)", 5]
    images = [urls[0], *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    deltas = await answer_to(chunks(choice(delta={"content": "", "images": images}), finish("stop")))
    assert deltas == [PictureDelta("data:image/png;base64,AA"), Finish("stop")]


async def test_later_stop_does_not_replace_bad_finish_reason() -> None:
    deltas = await answer_to(chunks(text("a"), finish("content_filter"), finish("stop"), finish("stop")))
    assert deltas == [TextDelta("a"), Finish("content_filter")]


async def test_unknown_reason_is_logged_and_answer_is_complete() -> None:
    with capture_logs() as logs:
        assert await answer_to(chunks(text("a"), finish("moonrise"))) == [TextDelta("a"), Finish("moonrise")]
    assert [line["reason"] for line in logs if line["event"] == "unknown_finish_reason"] == ["moonrise"]


HI = b'{"choices":[{"index":0,"delta":{"content":"hi"}}]}'
STOP = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
BODIES: dict[str, bytes] = {
    "an empty frame first": b"data:\n\ndata: %b\n\ndata: %b\n\ndata: [DONE]\n\n" % (HI, STOP),
    "an empty line of data in a frame": b"data:\ndata: %b\n\ndata: %b\ndata:\n\n" % (HI, STOP),
    "comments": b": OPENROUTER PROCESSING\n\ndata: %b\n:\n\n:x\ndata: %b\n\n: bye\n\n" % (HI, STOP),
    "keep-alives as events": b"event: ping\ndata: x\n\nevent: m\ndata: %b\n\ndata: %b\n\n" % (HI, STOP),
    "no chunk at all": b"data: null\n\ndata: []\n\ndata: {}\n\ndata: %b\n\ndata: %b\n\n" % (HI, STOP),
    "no blank line at the end": b"data: %b\n\ndata: %b" % (HI, STOP),
    "no space": b"data:%b\r\n\r\ndata:%b\r\n\r\ndata:[DONE]" % (HI, STOP),
    "JSON, a chunk a line": b"%b\n%b\n" % (HI, STOP),
    "JSON": b' \n{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}\n',
}
LABELS = ["text/event-stream", "application/json; charset=utf-8", ""]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_stream_is_read_with_any_separators_and_content_type(body: bytes) -> None:
    for label in LABELS:
        for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
            deltas = await answer_to(Raw(pieces, {"Content-Type": label} if label else {}))
            assert deltas == [TextDelta("hi"), Finish("stop")], label


SAID = {"message": "the moon is down", "code": 503}


def line(field: str, value: object) -> bytes:
    return f"{field}: {value if isinstance(value, str) else json.dumps(value)}\n".encode()


ERRORS: dict[str, tuple[bytes, type[ModelError]]] = {
    "a field of llama.cpp's": (line("error", SAID) + b"\n" + line("data", "[DONE]"), ModelError),
    "an event": (line("event", "error") + line("data", SAID), ModelError),
    "an event in words": (line("event", "error") + line("data", "oh,") + line("data", "the moon is down"), ModelError),
    "Google's list": (line("data", [{"error": SAID}]), ModelError),
    "in the choice, with a status": (line("data", choice(delta={}, error=SAID | {"code": 429})), ModelRateLimited),
    "in the delta": (line("data", choice(delta={"error": "the moon is down"})), ModelError),
    "a provider's words": (
        line("data", {"error": {"message": "Provider returned error", "metadata": {"raw": "the moon is down"}}}),
        ModelError,
    ),
    "a filter's": (line("data", {"error": {"message": "the moon is down", "code": "content_filter"}}), ModelRefused),
    "a status as its code": (line("data", {"text": "the moon is down", "error_code": 429}), ModelRateLimited),
    "MiniMax's outcome": (
        line("data", {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "the moon is down"}}),
        ModelError,
    ),
    "fields of its own": (
        line("data", {"choices": None, "error_type": "Internal", "error_message": "the moon is down"}),
        ModelError,
    ),
    "no success": (line("data", {"success": False, "msg": "the moon is down"}), ModelError),
    "only words, in place of choices": (line("data", {"choices": None, "message": "the moon is down"}), ModelError),
    "a status without choices": (line("data", {"statusCode": 429, "message": "the moon is down"}), ModelRateLimited),
    "a list": (line("data", {"errors": [{"message": "the moon is down"}]}), ModelError),
    "a word as its status": (line("data", {"status": "error", "message": "the moon is down"}), ModelError),
    "no JSON": (line("data", "the moon is down") + b"\n" + line("data", "[DONE]"), ModelError),
}


async def read_into(deltas: list[ModelDelta], answer: Answer) -> None:
    async with OpenAIServer([answer]) as server:
        model = OpenAICompatible(server.base_url, api_key=KEY, model="m", max_retries=0)
        async with aclosing(model):
            async for delta in model.stream(ASK):
                deltas.append(delta)  # noqa: PERF401 - deltas before a failure are checked too


@pytest.mark.parametrize(("last", "error"), ERRORS.values(), ids=ERRORS.keys())
async def test_error_in_stream_is_reported_after_text(last: bytes, error: type[ModelError]) -> None:
    deltas: list[ModelDelta] = []
    with pytest.raises(error, match="the moon is down") as raised:
        await read_into(deltas, Raw([line("data", HI.decode()), b"\n", last, b"\ndata: [DONE]\n\n"], STREAM))
    assert type(raised.value) is error
    assert deltas[0] == TextDelta("hi")


TOO_LONG_WORDS = {
    # https://github.com/google-gemini/gemini-cli/issues/6678
    "Gemini": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
    # https://github.com/cline/cline/issues/3120
    "xAI": "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
    # https://github.com/huggingface/huggingface_hub/issues/2763
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 8740 `inputs` tokens",
    # https://github.com/QwenLM/qwen-code/issues/98
    "DashScope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
    # https://github.com/zeroclaw-labs/zeroclaw/issues/4124
    "Zhipu": "Prompt exceeds max length",
    # https://github.com/cohere-ai/sandbox-topically/issues/4
    "Cohere": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354.",
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/546
    "LM Studio": "However, the model is loaded with context length of only 32768 tokens, which is not enough.",
    # https://github.com/NousResearch/hermes-agent/issues/65643
    "SGLang": "Input length 140000 exceeds the maximum allowed length of 131072 tokens.",
    "vLLM": "You passed 98305 input tokens. However, the model's context length is only 131072 tokens",
}


@pytest.mark.parametrize("words", TOO_LONG_WORDS.values(), ids=TOO_LONG_WORDS.keys())
async def test_refusal_of_a_context_that_is_too_long_has_openais_code(words: str) -> None:
    with pytest.raises(ModelRefused, match="Begin a new chat") as raised:
        await answer_to(Refusal(400, words))
    assert raised.value.upstream_code == "context_length_exceeded"


@pytest.mark.parametrize(
    "words",
    [
        # https://github.com/continuedev/continue/issues/10218
        "Request too large for model `llama` on tokens per minute (TPM): Limit 12000, Requested 14137, "
        "please reduce your message size and try again.",
        "Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000",
    ],
    ids=["Groq", "Gemini"],
)
async def test_refusal_of_another_size_does_not_have_the_code_of_a_context_that_is_too_long(words: str) -> None:
    with pytest.raises(ModelRefused) as raised:
        await answer_to(Refusal(413, words))
    assert raised.value.upstream_code == ""


@pytest.mark.parametrize("place", ["delta", "message"])
async def test_text_beside_error_is_sent_first(place: str) -> None:
    whole = choice(**{place: {"content": "hi"}}, error=SAID, finish_reason="error")
    for answer in (chunks(whole), Raw([json.dumps(whole).encode()], JSON)):
        deltas: list[ModelDelta] = []
        with pytest.raises(ModelError, match="the moon is down"):
            await read_into(deltas, answer)
        assert deltas == [TextDelta("hi"), Finish("error")]


@pytest.mark.parametrize(
    "body",
    [
        [{"error": SAID}],
        "the moon is down",
        {"text": "the moon is down", "choices": None},
        {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "the moon is down"}},
        {"choices": None, "error_type": "Internal", "error_message": "the moon is down"},
        {"object": "chat.completion.chunk", "choices": None, "note": "the moon is down"},
    ],
)
async def test_answer_without_choices_is_error_with_endpoint_message(body: object) -> None:
    for answer in (Raw([json.dumps(body).encode()], JSON), Raw([line("data", body), b"\ndata: [DONE]\n\n"], STREAM)):
        with pytest.raises(ModelError, match="the moon is down"):
            await answer_to(answer)


@pytest.mark.parametrize("error", [None, "", {}])
async def test_empty_error_field_is_no_error(error: object) -> None:
    azure = {"content_filter_results": {"error": {"code": "content_filter_error", "message": "not filtered"}}}
    answer = chunks(choice(delta={"content": "hi"}, error=error, **azure), finish("stop"))
    assert await answer_to(answer) == [TextDelta("hi"), Finish("stop")]


@pytest.mark.parametrize("ending", ["eof", "cut"])
async def test_final_usage_completes_answer_without_reason(ending: Ending) -> None:
    deltas = await answer_to(chunks(text("hi"), usage(3, 1), {"choices": []}, ending=ending))
    assert deltas == [TextDelta("hi"), TokenUsage(3, 1, 4), Finish(None)]


async def test_usage_with_each_chunk_does_not_complete_answer() -> None:
    with pytest.raises(ModelCutOff):
        await answer_to(chunks({**text("hi"), "usage": usage(3, 1)["usage"]}, ending="eof"))


async def test_content_parts_and_lone_surrogates_become_text() -> None:
    parts = {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\ud83d"}]}}]}
    assert await answer_to(Chunks([parts, finish("stop")])) == [TextDelta("a\ufffd"), Finish("stop")]


async def test_a_stream_ends_with_a_reason_or_with_done_and_needs_not_both() -> None:
    assert await answer_to(chunks(text("hi"))) == [TextDelta("hi"), Finish(None)]
    endings: list[Ending] = ["eof", "cut"]
    for ending in endings:
        assert await answer_to(chunks(text("hi"), finish("stop"), ending=ending)) == [TextDelta("hi"), Finish("stop")]


@pytest.mark.parametrize("ending", ["cut", "eof"])
async def test_answer_cut_off_before_text_is_retried_once(ending: Ending) -> None:
    broken = chunks(usage(1, 0), ending=ending)
    async with OpenAIServer([broken, chunks(text("hi"), finish("stop")), broken, broken, broken]) as server:
        async with aclosing(OpenAICompatible(server.base_url, api_key=KEY, model="m")) as model:
            deltas = [delta async for delta in model.stream(ASK)]
            assert deltas == [TokenUsage(1, 0, 1), TextDelta("hi"), Finish("stop")]
            with pytest.raises(ModelCutOff):
                [delta async for delta in model.stream(ASK)]
    assert len(server.requests) == 4


@pytest.mark.parametrize("ending", ["cut", "eof"])
async def test_answer_cut_off_after_text_is_not_retried(ending: Ending) -> None:
    async with OpenAIServer([chunks(text("h"), ending=ending), chunks(text("hi"), finish("stop"))]) as server:
        model = OpenAICompatible(server.base_url, api_key=KEY, model="m")
        answer = aiter(model.stream(ASK))
        assert await anext(answer) == TextDelta("h")
        with pytest.raises(ModelCutOff):
            await anext(answer)
        await model.aclose()
    assert len(server.requests) == 1


async def test_an_endpoint_that_does_not_stream_is_read_too() -> None:
    message = {"role": "assistant", "content": "hi"}
    completion = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    answer = Raw([json.dumps(completion).encode()], JSON)
    assert await answer_to(answer) == [TextDelta("hi"), Finish("stop")]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_stream_is_read(coding: str) -> None:
    packing = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    stream = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    body = [packing.compress(stream), packing.flush()]
    assert await answer_to(Raw(body, STREAM | {"Content-Encoding": coding})) == [TextDelta("hi"), Finish("stop")]


ENDLESS = b"data: " + b"x" * 1_000_000
BOMB = zlib.compress(b"data: " + b"x" * 40_000_000, wbits=31)


@pytest.mark.parametrize(
    "answer",
    [
        Raw(repeat(ENDLESS), STREAM),
        Raw(repeat(b"{" + ENDLESS), JSON),
        Raw([BOMB], STREAM | {"Content-Encoding": "gzip"}),
    ],
)
async def test_endless_answer_fails_at_size_limit(answer: Raw) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="16 MiB"):
            await answer_to(answer)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MAX_CHUNK_BYTES


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}])
async def test_only_beginning_of_error_body_is_read(headers: dict[str, str]) -> None:
    bomb = zlib.compress(b"too long " * 4_000_000, wbits=31)
    pieces = [bomb] if headers else repeat(b"too long " * 1000)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=r"refused the request \(400\): too long"):
            await answer_to(Raw(pieces, JSON | headers, 400))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * MAX_ERROR_BYTES


async def test_line_separators_in_the_text_cut_no_chunk() -> None:
    raw = '{"choices":[{"delta":{"content":"a\u2028b\u0085c"}}]}'
    assert await answer_to(Chunks([raw, finish("stop")])) == [TextDelta("a\u2028b\u0085c"), Finish("stop")]


@pytest.mark.parametrize(
    ("answer", "error", "named"),
    [
        (Refusal(401, f"Incorrect API key provided: {KEY}"), ModelUnauthorized, "CALLBOARD_MODEL_API_KEY"),
        (Refusal(429, "slow down", {"Retry-After": "1"}), ModelRateLimited, "CALLBOARD_MODEL_BASE_URL"),
        (Refusal(404, "no such model"), ModelError, "CALLBOARD_MODEL (m)"),
        (chunks(text("a"), {"error": {"message": f"boom {KEY}"}}), ModelError, "boom"),
        (chunks(text("a"), {"object": "error", "message": "who?", "code": "401"}), ModelUnauthorized, "who?"),
        (chunks(text("a"), ending="cut"), ModelCutOff, "in the middle"),
        (chunks(call("write", '{"a'), ending="eof"), ModelCutOff, "in the middle"),
        (chunks(text("a"), '{"a":' * 100_000), ModelError, "nested too deep"),
        (Raw([b'{"error": {"mess'], JSON | {"Content-Length": "1000"}, 400), ModelRefused, "the request (400)"),
        (Raw([], JSON | {"Content-Encoding": "br"}), ModelError, "compressed its answer as 'br'"),
        (Raw([b"no gzip"], STREAM | {"Content-Encoding": "gzip"}), ModelError, "cannot be decompressed"),
        (Chunks([], content_type="text/html"), ModelError, "CALLBOARD_MODEL_BASE_URL"),
    ],
)
async def test_failure_names_setting_without_key(answer: Answer, error: type[ModelError], named: str) -> None:
    with pytest.raises(error) as raised:
        await answer_to(answer)
    assert type(raised.value) is error
    assert named in str(raised.value)
    assert KEY not in str(raised.value)


REFUSALS_OF_TOOLS = [
    Refusal(400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
    Refusal(404, "No endpoints found that support tool use. To learn more about provider routing, visit: …"),
    Refusal(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    # https://github.com/agno-agi/agno/issues/137
    Refusal(400, "`tools` is not supported with this model"),
    chunks({"error": {"message": "This model does not support tools."}}),
]


@pytest.mark.parametrize("answer", REFUSALS_OF_TOOLS)
async def test_refusal_of_tools_advises_the_format_react_if_the_request_has_tools(answer: Answer) -> None:
    with pytest.raises(ModelError, match="Set CALLBOARD_TOOL_FORMAT=react"):
        await answer_to(answer, ModelRequest(ASK.messages, [TOOL]))
    with pytest.raises(ModelError) as raised:
        await answer_to(answer)
    assert "react" not in str(raised.value)


async def test_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = OpenAICompatible(f"http://user:pass@127.0.0.1:{port}/v1", api_key=KEY, model="m", max_retries=0)
    with pytest.raises(ModelUnreachable) as raised:
        [delta async for delta in model.stream(ASK)]
    await model.aclose()
    assert f"http://127.0.0.1:{port}/v1" in str(raised.value)
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize("answer", [Silence(), chunks(text("a"), ending="hang")])
async def test_an_endpoint_that_goes_silent_times_out(answer: Answer) -> None:
    with pytest.raises(ModelTimeout, match=r"0\.2 s"):
        await answer_to(answer, timeout_seconds=0.2)


@pytest.mark.parametrize(("tail", "pause_seconds"), [([usage(3, 1)], 0), ([text("!"), usage(3, 1)], 0.4)])
async def test_answer_ends_soon_after_its_reason_if_connection_stays_open(
    monkeypatch: pytest.MonkeyPatch, tail: list[dict[str, Any]], pause_seconds: float
) -> None:
    monkeypatch.setattr(openai_compatible, "TAIL_SECONDS", 1.0)
    parts = [text("hi"), finish("stop"), *tail]
    async with asyncio.timeout(15):
        deltas = await answer_to(chunks(*parts, ending="hang", pause_seconds=pause_seconds))
    assert deltas == await answer_to(chunks(*parts))


async def test_a_reason_before_the_answer_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://github.com/open-webui/open-webui/issues/23921"""
    monkeypatch.setattr(openai_compatible, "TAIL_SECONDS", 0.1)
    parts = [finish("stop"), text(None, reasoning="hm"), text("hi"), text("!"), finish("stop")]
    details = MessageDetails({"reasoning": "hm"})
    deltas = await answer_to(chunks(*parts, pause_seconds=0.4))
    assert deltas == [Finish("stop"), ReasoningDelta("hm"), details, TextDelta("hi"), TextDelta("!")]


async def test_keep_alives_after_the_reason_do_not_keep_the_answer_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_compatible, "TAIL_SECONDS", 0.2)
    parts: list[dict[str, Any] | str] = [text("hi"), finish("stop"), *repeat(": still here", 200), text("late")]
    async with asyncio.timeout(10):
        deltas = await answer_to(Chunks(parts, pause_seconds=0.05))
    assert deltas == [TextDelta("hi"), Finish("stop")]


async def test_cancelling_the_reader_closes_the_request() -> None:
    async with OpenAIServer([Silence()]) as server:
        model = OpenAICompatible(server.base_url, api_key=KEY, model="m")

        async def read() -> None:
            [delta async for delta in model.stream(ASK)]

        reading = asyncio.create_task(read())
        await server.hanging.wait()
        reading.cancel()
        await server.disconnected.wait()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await model.aclose()


async def test_without_a_name_the_first_model_that_the_endpoint_lists_is_used() -> None:
    async with OpenAIServer([chunks(text("hi"), finish("stop"))] * 2, models=["first", "second"]) as server:
        model = OpenAICompatible(server.base_url, api_key=KEY, max_retries=0)
        for used in (model, model.named("second")):
            assert [delta async for delta in used.stream(ASK)] == [TextDelta("hi"), Finish("stop")]
        assert await model.list_names() == ["first", "second"]
        assert model.name == "first"
        await model.aclose()
    assert [request["model"] for request in server.requests] == ["first", "second"]


async def test_an_endpoint_that_lists_no_models_needs_a_name() -> None:
    async with OpenAIServer([], models=[""]) as server:
        model = OpenAICompatible(server.base_url, api_key=KEY, max_retries=0)
        with pytest.raises(ModelError, match="name one in CALLBOARD_MODEL"):
            await anext(aiter(model.stream(ASK)))
        await model.aclose()
