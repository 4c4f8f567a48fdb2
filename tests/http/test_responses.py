"""`POST /v1/responses`, as the official client reads it."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from callboard._endpoint_rules import NO_ANSWER
from callboard.agents import RunContext
from callboard.errors import ModelRateLimited
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.http.test_completions import OPEN_WEBUI
from tests.http.test_openai_requests import Failing, Listener
from tests.openai_client import EVERYTHING, QUESTION, URL, asking
from tests.serving import ScriptedAgent

# As they are read, any field may be missing; strictly, each must be there and of its type.
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


async def streamed(folder: Path, agent: Any = EVERYTHING, **fields: Any) -> list[Any]:
    async with asking(folder, agent) as (_, client):
        stream = await client.responses.create(model=agent.agent_id, input=QUESTION, stream=True, **fields)
        return [event async for event in stream]


def as_items(**fields: Any) -> dict[str, Any]:
    """What asks for the items that Open WebUI knows."""
    return {"extra_body": {"callboard": {"tool_activity": "items"}}, **fields}


def told(item: Any) -> tuple[str, str, str]:
    """An item's kind, what it belongs to and what it says."""
    match item.type:
        case "mcp_call":
            said = item.output if item.error is None else item.error.content[0]["text"]
            return item.type, item.status, f"{item.name} {item.arguments} → {said}"
        case "function_call":
            return item.type, item.call_id, f"{item.name} {item.arguments}"
        case "function_call_output":
            return item.type, item.call_id, "".join(part.text for part in item.output)
        case "reasoning":
            return item.type, "", "".join(part.text for part in item.summary)
        case _:
            return item.type, "", "".join(part.text for part in item.content)


CALLS = [
    ("reasoning", "", "Two words."),
    ("message", "", "Let me see."),
    ("mcp_call", "completed", 'look_up {"word": "äpple"} → a fruit, "round" & <b>red</b>'),
    ("mcp_call", "failed", "borrow {} → Error: it is lent"),
    ("mcp_call", "completed", 'look_up {"word": "pear"} → another fruit'),
    ("message", "", "Both are fruits."),
]
ITEMS = [
    ("reasoning", "", "Two words."),
    ("message", "", "Let me see."),
    ("function_call", "a", 'look_up {"word": "äpple"}'),
    ("function_call", "b", "borrow {}"),
    ("function_call_output", "b", "Error: it is lent"),
    ("function_call_output", "a", 'a fruit, "round" & <b>red</b>'),
    ("function_call", "c", 'look_up {"word": "pear"}'),
    ("function_call_output", "c", "another fruit"),
    ("message", "", "Both are fruits."),
]


OPEN_WEBUIS: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = [
    ({"extra_headers": {"X-OpenWebUI-User-Id": "u"}}, ITEMS),
    (as_items(), ITEMS),
    ({"extra_headers": {**OPEN_WEBUI, "X-Callboard-Tool-Activity": "mcp"}}, CALLS),
]


@pytest.mark.parametrize(("fields", "items"), OPEN_WEBUIS)
async def test_open_webui_gets_the_items_that_it_knows_and_whoever_asks_for_them(
    tmp_path: Path, fields: dict[str, Any], items: list[tuple[str, str, str]]
) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        response = await client.responses.create(model="scripted", input=QUESTION, **fields)
    assert [told(item) for item in response.output] == items
    assert {getattr(item, "status", None) for item in response.output} - {"failed"} == {"completed"}


async def test_responses_whose_calls_have_equal_ids_are_all_stored(tmp_path: Path) -> None:
    """Some endpoints restart their ids with each answer: https://github.com/vllm-project/vllm/issues/50295"""
    async with asking(tmp_path, EVERYTHING) as (_, client):
        for user in ("ann", "bob"):
            response = await client.responses.create(model="scripted", input=QUESTION, user=user, **as_items())
            stored = await client.responses.retrieve(response.id, extra_query={"user": user})
            assert [told(item) for item in stored.output] == ITEMS


async def test_sources_are_cited_in_the_text_that_follows_them(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        response: Any = await client.responses.create(model="scripted", input=QUESTION)
    first, last = (item.content[0] for item in response.output if item.type == "message")
    assert first.annotations == []
    assert [annotation.model_dump() for annotation in last.annotations] == [
        {"type": "url_citation", "url": URL, "title": "Apples", "start_index": 16, "end_index": 16}
    ]


@pytest.mark.parametrize(("fields", "items"), [({}, CALLS), (as_items(), ITEMS)], ids=["mcp", "items"])
async def test_the_stream_tells_each_item_from_its_beginning_to_its_end(
    tmp_path: Path, fields: dict[str, Any], items: list[tuple[str, str, str]]
) -> None:
    events = await streamed(tmp_path, **fields)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.type for event in events if event.type == "response.completed"] == [events[-1].type]
    added = [event for event in events if event.type == "response.output_item.added"]
    done = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
    assert [event.output_index for event in added] == list(range(len(items)))
    assert [told(done[index]) for index in sorted(done)] == items
    assert events[-1].response.output == [done[index] for index in sorted(done)]
    assert [event.item.id for event in added] == [item.id for item in events[-1].response.output]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == "Let me see.Both are fruits."
    thoughts = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert thoughts == ["Two words."]


async def test_a_call_is_seen_from_its_start_and_ends_where_it_ended(tmp_path: Path) -> None:
    events = await streamed(tmp_path)
    parallel = [
        (event.output_index, event.type.removeprefix("response."))
        for event in events
        if getattr(event, "output_index", None) in (2, 3)
    ]
    begun = ("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done")
    assert parallel == [
        *((2, kind) for kind in begun),
        *((3, kind) for kind in begun),
        (3, "mcp_call.failed"),
        (3, "output_item.done"),
        (2, "mcp_call.completed"),
        (2, "output_item.done"),
    ]
    [added] = [event.item for event in events if event.type == "response.output_item.added" and event.output_index == 2]
    assert (added.status, added.arguments, added.output, added.error) == ("in_progress", "", None, None)
    deltas = [event.delta for event in events if event.type == "response.mcp_call_arguments.delta"]
    assert deltas == ['{"word": "äpple"}', "{}", '{"word": "pear"}']


@pytest.mark.parametrize("activity", ["mcp", "items", "none"])
async def test_the_stream_is_of_openais_form_to_the_letter(tmp_path: Path, activity: str) -> None:
    async with asking(tmp_path, EVERYTHING) as (service, _):
        body = {"model": "scripted", "input": "hi", "stream": True, "callboard": {"tool_activity": activity}}
        response = await service.client.post("/v1/responses", json=body)
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    for frame in frames:
        name, data = frame.split("\n")
        event = EVENT.validate_json(data.removeprefix("data: "), strict=False)
        assert name == f"event: {event.type}"


async def test_a_client_that_would_run_calls_itself_can_ask_for_none(tmp_path: Path) -> None:
    *_, last = await streamed(tmp_path, extra_body={"callboard": {"tool_activity": "none"}})
    kinds = [item.type for item in last.response.output]
    assert kinds == ["reasoning", "message"]
    assert last.response.output_text == "Let me see.\nBoth are fruits."


def part(text: str, kind: str = "input_text") -> dict[str, str]:
    return {"type": kind, "text": text}


def fc(call_id: str) -> dict[str, str]:
    return {"type": "function_call", "call_id": call_id, "name": "look_up", "arguments": "{}"}


def fco(call_id: str, output: Any = "found") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def calls(*call_ids: str, content: str | None = None) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": "{}"}
    entries = [{"id": call_id, "type": "function", "function": function} for call_id in call_ids]
    return {"role": "assistant", "content": content, "tool_calls": entries}


def result(call_id: str, content: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "hi"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
SEEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
INPUTS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "a text": ("hi", [USER]),
    "a picture": (
        [{"role": "user", "content": [part("hi"), PICTURE]}],
        [{"role": "user", "content": [part("hi", "text"), SEEN]}],
    ),
    "a file": (
        [{"role": "user", "content": [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain,a"}]}],
        [{"role": "user", "content": [part('<file name="a.txt" type="text/plain">\na\n</file>', "text")]}],
    ),
    "an output that comes after the next round began": (
        [USER, fc("a"), fc("b"), fco("a"), fc("c"), fco("b"), fco("c")],
        [USER, calls("a", "b"), result("a"), result("b"), calls("c"), result("c")],
    ),
    "text before a call, and what only OpenAI has": (
        [
            USER,
            {"type": "reasoning", "id": "rs", "summary": [part("Hm.", "summary_text")]},
            {"type": "reasoning", "id": "rt", "summary": [], "content": [part("Hm.", "reasoning_text")]},
            {"role": "assistant", "content": [part("I look.", "output_text")]},
            {"type": "web_search_call", "id": "ws"},
            fc("a"),
            fco("a"),
        ],
        [USER, calls("a", content="I look."), result("a")],
    ),
    "a call without an output, and an output without a call": (
        [USER, fc("a"), fco("b"), USER],
        [USER, {"role": "assistant", "content": NO_ANSWER}, USER],
    ),
}


@pytest.mark.parametrize(("items", "messages"), INPUTS.values(), ids=INPUTS.keys())
async def test_the_input_is_what_a_model_would_be_sent(
    tmp_path: Path, items: Any, messages: list[dict[str, Any]]
) -> None:
    listener = Listener()
    async with asking(tmp_path, listener.agent) as (_, client):
        await client.responses.create(model="scripted", input=items, instructions="Be brief.")
    assert listener.contexts[0].messages == [{"role": "system", "content": "Be brief."}, *messages]


async def test_a_run_that_fails_ends_the_stream_with_its_reason_and_every_call_closed(tmp_path: Path) -> None:
    *_, last = await streamed(tmp_path, Failing(ModelRateLimited("slow down")).agent)
    assert last.type == "response.failed"
    # Its agent has called a tool, so no client may take the error for temporary.
    assert (last.response.status, last.response.error.code) == ("failed", "invalid_prompt")
    assert last.response.error.message.startswith("slow down")
    *_, message, call = last.response.output
    assert told(message) == ("message", "", "Let me see.")
    assert (call.type, call.status, call.output) == ("mcp_call", "incomplete", None)


async def test_a_run_that_fails_without_a_call_has_the_code_of_its_reason(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Once upon a")
        raise ModelRateLimited("slow down")

    *_, last = await streamed(tmp_path, ScriptedAgent(script))
    assert (last.response.error.code, last.response.error.message) == ("rate_limit_exceeded", "slow down")


async def test_a_response_whose_usage_is_not_known_reports_zero_tokens(tmp_path: Path) -> None:
    """The AI SDK refuses a response whose usage is null."""

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Hello.")

    *_, last = await streamed(tmp_path, ScriptedAgent(script))
    assert last.response.usage
    assert (last.response.usage.input_tokens, last.response.usage.total_tokens) == (0, 0)


@pytest.mark.parametrize("shape", [{}, as_items()], ids=["mcp", "items"])
async def test_files_and_embeds_of_a_call_come_whole_with_its_output(tmp_path: Path, shape: dict[str, Any]) -> None:
    picture = f"data:image/png;base64,{base64.b64encode(bytes(200_000)).decode()}"
    text = "data:text/markdown;base64,YXBwbGU="
    embed = "<p>a chart</p>"

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="paint")
        files = ({"type": "image", "url": picture}, {"type": "file", "name": "apple.md", "url": text})
        yield ToolCallComplete(tool_call_id="a", result="x" * 100_000, files=files, embeds=(embed,))

    *_, last = await streamed(tmp_path, ScriptedAgent(script), **shape)
    *_, output = last.response.output
    assert [file["url"] for file in output.files] == [picture, text]
    assert output.embeds == [embed]
    assert told(output)[2].endswith(f"x\n… [{100_000 - 65_536:,} more characters]")
