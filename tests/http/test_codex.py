"""Requests of OpenAI's Codex: tools in groups and of free text, pictures in outputs, items of other kinds."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from callboard.models import TextDelta
from tests.http.test_offered_tools import IGNORED, House
from tests.http.test_openai_requests import Listener
from tests.loop.conftest import wants
from tests.openai_client import asking

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A"}]}
EXEC = {"type": "custom", "name": "exec", "description": "js", "format": {"type": "text"}}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"},
}
WAIT = {"type": "function", "name": "wait", "parameters": {}}
LONG = f"search_{'x' * 57}"
NAMESPACES = [
    {"type": "namespace", "name": "functions", "tools": [EXEC, WAIT, PATCH]},
    {"type": "namespace", "name": "mcp__docs", "tools": [{"type": "function", "name": "search"}]},
    {"type": "namespace", "name": "mcp__docs", "tools": [{"type": "function", "name": LONG}]},
]
ADDED = {"type": "additional_tools", "role": "developer", "tools": NAMESPACES}
PICTURE = "data:image/png;base64,AAAA"
SEEN = {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}}


def asked(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "house", "input": list(items), "store": False, **fields}


async def ask(folder: Path, house: House, *bodies: dict[str, Any]) -> list[Any]:
    async with asking(folder, house.agent) as (_, client):
        return [await client.responses.create(**body) for body in bodies]


@pytest.mark.parametrize("fields", [{"tools": NAMESPACES}, {}], ids=["tools", "item"])
async def test_tools_of_namespaces_are_offered_as_functions(tmp_path: Path, fields: dict[str, Any]) -> None:
    house = House([TextDelta("Done.")])
    await ask(tmp_path, house, asked(*([] if fields else [ADDED, ADDED]), USER, **fields))
    functions = {tool["function"]["name"]: tool["function"] for tool in house.asked[0].tools}
    assert list(functions)[:-1] == ["look_up", "exec", "wait", "patch", "mcp__docs__search"]
    assert [len(name) for name in functions][-1] == 64
    assert functions["exec"]["parameters"]["required"] == ["input"]
    assert functions["patch"]["description"] == (
        "Edits files.\n\nThe input must follow this grammar (lark):\nstart: LINE+"
    )


CALLS: list[tuple[Any, dict[str, Any]]] = [
    (
        wants("exec", {"input": 'text("é");'}),
        {"type": "custom_tool_call", "name": "exec", "namespace": "functions", "input": 'text("é");'},
    ),
    (wants("wait", {}), {"type": "function_call", "name": "wait", "namespace": "functions", "arguments": "{}"}),
    (
        wants("mcp__docs__search", {}),
        {"type": "function_call", "name": "search", "namespace": "mcp__docs", "arguments": "{}"},
    ),
]


@pytest.mark.parametrize(("call", "item"), CALLS, ids=[f"{item['type']}-{item['name']}" for _, item in CALLS])
async def test_a_call_is_told_as_one_of_the_tool_that_was_offered(
    tmp_path: Path, call: Any, item: dict[str, Any]
) -> None:
    house = House([call], [TextDelta("Done.")])
    async with asking(tmp_path, house.agent) as (_, client):
        events = [event async for event in await client.responses.create(**asked(ADDED, USER), stream=True)]
        for event in events:
            EVENT.validate_python(event.model_dump(), strict=True)
        [told] = events[-1].response.output
        sent = told.model_dump(exclude_none=True)
        output = {"type": f"{told.type}_output", "call_id": told.call_id, "output": "it worked"}
        again = await client.responses.create(**asked(ADDED, USER, sent, output))
    assert item.items() <= sent.items()
    assert again.output_text == "Done."
    question, asking_message, result = house.asked[1].messages
    assert question["content"] == "A"
    assert asking_message["tool_calls"][0]["function"]["name"] == call.name
    assert result["content"] == "it worked"


async def test_a_custom_tool_can_be_the_only_one_that_may_be_called(tmp_path: Path) -> None:
    house = House([wants("exec", {"input": "1"})])
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "custom", "name": "exec", "namespace": "functions"}],
    }
    await ask(tmp_path, house, asked(ADDED, USER, tool_choice=choice))
    assert [tool["function"]["name"] for tool in house.asked[0].tools] == ["look_up", "exec"]


def call_of(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


INPUTS: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "text and a picture in one of two outputs": (
        [
            {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "1"},
            {
                "type": "custom_tool_call_output",
                "call_id": "c2",
                "output": [
                    {"type": "input_text", "text": "Seen."},
                    {"type": "input_image", "image_url": PICTURE, "detail": "high"},
                ],
            },
            {"type": "function_call_output", "call_id": "c1", "output": "none"},
        ],
        [
            {
                **call_of("view_image", "{}"),
                "tool_calls": [
                    *call_of("view_image", "{}")["tool_calls"],
                    *call_of("exec", '{"input": "1"}', "c2")["tool_calls"],
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "none"},
            {"role": "tool", "tool_call_id": "c2", "content": "Seen."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Of the tool results above, c2 holds this beside its text:"},
                    SEEN,
                ],
            },
        ],
    ),
    "a shell of OpenAI's, run by the client": (
        [
            {"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": {"command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"},
        ],
        [
            call_of("local_shell", '{"action": {"command": ["ls"]}}'),
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
    ),
    "a message of another agent": (
        [
            {"role": "assistant", "content": "I wait."},
            {
                "type": "agent_message",
                "author": "/root/worker",
                "recipient": "/root",
                "content": [{"type": "input_text", "text": "I am done."}],
            },
        ],
        [
            {"role": "assistant", "content": "I wait."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Message from the agent '/root/worker':"},
                    {"type": "text", "text": "I am done."},
                ],
            },
        ],
    ),
}


@pytest.mark.parametrize(("items", "messages"), INPUTS.values(), ids=INPUTS.keys())
async def test_the_model_is_told_of_items(tmp_path: Path, items: list[Any], messages: list[dict[str, Any]]) -> None:
    listener = Listener()
    async with asking(tmp_path, listener.agent) as (_, client):
        await client.responses.create(**asked(USER, *items) | {"model": "scripted"})
    assert listener.contexts[0].messages[1:] == messages


REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown item": ({"type": "compaction", "encrypted_content": "x"}, "does not match any of the expected tags"),
    "a picture by its id": (
        {"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]},
        "input_image needs its image_url",
    ),
    "a file by its address": (
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://example.org/a"}]},
        "input_file needs its file_data",
    ),
    "a picture of the assistant's": (
        {"role": "assistant", "content": [{"type": "input_image", "image_url": PICTURE}]},
        "may only have parts that are text",
    ),
    "a nameless namespace": (
        {"type": "additional_tools", "tools": [{"type": "namespace", "tools": []}]},
        "a namespace needs a name",
    ),
}


async def test_what_a_model_cannot_be_told_is_refused_in_words(tmp_path: Path) -> None:
    async with asking(tmp_path, House().agent) as (_, client):
        for item, words in REFUSED.values():
            with pytest.raises(openai.BadRequestError, match=words):
                await client.responses.create(**asked(USER, item))


async def test_items_and_tools_that_are_left_out_are_named_in_a_header(tmp_path: Path) -> None:
    house = House([TextDelta("Done.")])
    items = [USER, {"type": "reasoning", "id": "r", "summary": []}, {"type": "web_search_call", "id": "w"}]
    async with asking(tmp_path, house.agent) as (_, client):
        raw = await client.responses.with_raw_response.create(**asked(*items, tools=[{"type": "local_shell"}]))
    assert raw.headers[IGNORED] == "local_shell, web_search_call"
