"""Calls that the server has run, as `mcp_call` items: every way that one can end, and what the next turn is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from sqlalchemy import text

from callboard.agents import RunContext
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallError, ToolCallStart
from tests.http.test_completions import Words
from tests.http.test_openai_requests import Listener
from tests.http.test_responses import USER, calls, result
from tests.openai_client import QUESTION, asking
from tests.serving import ScriptedAgent, database_of
from tests.skills.mcp.conftest import log

__all__ = ["log"]

START = ToolCallStart(tool_call_id="a", tool_name="look_up", tool_args={"word": "apple"})


def failing(code: str) -> Event:
    return ToolCallError(tool_call_id="a", error="no luck", code=code)


def failure(text: str) -> dict[str, Any]:
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


ENDINGS: dict[str, tuple[Event, str, str | None]] = {
    "well, with nothing to say": (ToolCallComplete(tool_call_id="a", result=""), "completed", None),
    "in an error": (failing("tool_failed"), "failed", "Error: no luck"),
    "cancelled": (failing("cancelled"), "incomplete", "Error: no luck"),
    "interrupted": (failing("interrupted"), "incomplete", "Error: no luck"),
}


@pytest.mark.parametrize(("end", "status", "error"), ENDINGS.values(), ids=ENDINGS.keys())
async def test_an_item_says_how_its_call_ended(tmp_path: Path, end: Event, status: str, error: str | None) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield START
        yield end

    async with asking(tmp_path, ScriptedAgent(script)) as (service, _):
        body = {"model": "scripted", "input": "hi", "stream": True}
        streamed = (await service.client.post("/v1/responses", json=body)).text
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: ")]
    [item] = events[-1]["response"]["output"]
    assert {name: value for name, value in item.items() if name != "id"} == {
        "type": "mcp_call",
        "server_label": "callboard",
        "name": "look_up",
        "arguments": '{"word": "apple"}',
        "approval_request_id": None,
        "status": status,
        "output": end.result if isinstance(end, ToolCallComplete) else None,
        "error": failure(error) if error else None,
    }
    closed = [event["type"] for event in events if event.get("item_id") == item["id"]][-1]
    assert closed == ("response.mcp_call.completed" if error is None else "response.mcp_call.failed")
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == [item]


@pytest.fixture
def _small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runs.log.MAX_LOG_BYTES", 100_000)


async def read_too_slowly(folder: Path, activity: str, *, is_stored: bool = False, is_lost: bool = False) -> list[Any]:
    """Return the events of a response whose reader reads the start of a call, and then too slowly to get its end."""
    listens = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield START
        await listens.wait()
        if is_lost:
            await database_of(service).execute(text("DROP TABLE events"))
        yield Message(content="x" * 300_000)
        if is_lost or not is_stored:
            await asyncio.Event().wait()

    asked: dict[str, Any] = {"callboard": {"tool_activity": activity}}
    async with asking(folder, ScriptedAgent(script)) as (service, client):
        stream = await client.responses.create(
            model="scripted", input=QUESTION, stream=True, store=is_stored, extra_body=asked
        )
        events: list[Any] = []
        async for event in stream:
            events.append(event)
            if event.type.endswith("call_arguments.done"):
                listens.set()
    return events


@pytest.mark.usefixtures("_small_logs")
async def test_reader_that_was_too_slow_gets_an_output_for_every_function_call(tmp_path: Path) -> None:
    *_, last = await read_too_slowly(tmp_path, "items")
    called, output = last.response.output
    assert (last.type, called.type, output.type) == ("response.failed", "function_call", "function_call_output")
    assert called.call_id == output.call_id
    assert "whether it took effect is not known" in output.output[0].text


@pytest.mark.usefixtures("_small_logs")
async def test_a_slow_reader_of_a_stored_response_gets_all_of_it_from_the_database(tmp_path: Path) -> None:
    *_, last = await read_too_slowly(tmp_path, "items", is_stored=True)
    assert last.type == "response.completed"
    assert last.response.output_text == "x" * 300_000


@pytest.mark.usefixtures("_small_logs")
async def test_a_slow_reader_is_told_that_the_database_cannot_be_read(tmp_path: Path) -> None:
    *_, last = await read_too_slowly(tmp_path, "items", is_stored=True, is_lost=True)
    assert last.type == "response.failed"
    assert "database cannot be used" in last.response.error.message
    assert [item.type for item in last.response.output] == ["function_call", "function_call_output"]


@pytest.mark.parametrize("written", ["{word: apple", "", "[1]"])
async def test_arguments_are_json_whatever_the_model_wrote_and_the_model_reads_its_own_again(
    tmp_path: Path, written: str
) -> None:
    asked: list[RunContext] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        asked.append(context)
        yield ToolCallStart(tool_call_id="a", tool_name="look_up", tool_args=written)
        yield ToolCallError(tool_call_id="a", error="what is that?", code="invalid_args")

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        first = await client.responses.create(model="scripted", input=QUESTION)
        [item] = first.output
        assert item.type == "mcp_call"
        json.loads(item.arguments)
        again: Any = [*QUESTION, item.model_dump(), USER]
        await client.responses.create(model="scripted", input=again)
    [call] = asked[1].messages[1]["tool_calls"]
    assert call["function"]["arguments"] == (written or "{}")


def item(call_id: str, round_index: int = 0, sequence: int = 0, run: str = "0", **fields: Any) -> dict[str, Any]:
    fields = {"output": "found"} | fields
    name = "look_up"
    label = "callboard"
    item_id = f"mcp_{run * 32}_{round_index}_{sequence}_{call_id}"
    return {"type": "mcp_call", "id": item_id, "server_label": label, "name": name, "arguments": "{}", **fields}


INPUTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "a round of three in the order in which they ended": (
        [USER, item("c", 1, 2), item("a", 1, 0), item("b", 1, 1)],
        [USER, calls("a", "b", "c"), result("a"), result("b"), result("c")],
    ),
    "the first rounds of two answers": (
        [USER, item("a"), item("b", run="1")],
        [USER, calls("a"), result("a"), calls("b"), result("b")],
    ),
    "errors in each form": (
        [
            USER,
            item("a", output=None, error=failure("Error: no luck")),
            item("b", output=None, error="no luck"),
            item("c", output=None, error={"type": "http_error", "code": 500, "message": "no luck"}),
            item("d", output=None, error={"type": "odd"}),
        ],
        [
            USER,
            calls("a", "b", "c", "d"),
            *(result(call_id, "Error: no luck") for call_id in "abc"),
            result("d", 'Error: {"type": "odd"}'),
        ],
    ),
    "an item of OpenAI's own": (
        [USER, item("a") | {"id": "mcp_68a6"}, item("b") | {"id": "mcp_68a7"}],
        [USER, calls("mcp_68a6"), result("mcp_68a6"), calls("mcp_68a7"), result("mcp_68a7")],
    ),
    "a call that says nothing of its end, and one that ended without a word": (
        [USER, item("a", output=None), item("b", 1, output="")],
        [USER, calls("b"), result("b", "")],
    ),
    "beside the other items of calls": (
        [
            USER,
            item("a"),
            {"type": "function_call", "call_id": "b", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "found"},
            {"type": "mcp_list_tools", "id": "l", "server_label": "callboard", "tools": []},
        ],
        [USER, calls("a"), result("a"), calls("b"), result("b")],
    ),
}


@pytest.mark.parametrize(("items", "messages"), INPUTS.values(), ids=INPUTS.keys())
async def test_items_that_come_back_are_the_calls_that_the_model_made(
    tmp_path: Path, items: Any, messages: list[dict[str, Any]]
) -> None:
    listener = Listener()
    async with asking(tmp_path, listener.agent) as (_, client):
        await client.responses.create(model="scripted", input=items)
    assert listener.contexts[0].messages == messages


# ------------------------------------------------------------------------------------- items named by their ids


def reference(item_id: str) -> dict[str, str]:
    return {"type": "item_reference", "id": item_id}


async def test_an_item_may_be_named_by_its_id_once_or_for_each_half_of_a_call(tmp_path: Path) -> None:
    words = Words()
    async with asking(tmp_path, words.agent) as (_, client):
        first = await client.responses.create(model="words", input=QUESTION)
        assert first.to_dict()["store"] is True
        [said, call, answer] = (item.id or "" for item in first.output)
        named: Any = [*QUESTION, *map(reference, (said, call, call)), {"id": answer}, USER]
        await client.responses.create(model="words", input=named)
    assert spelt_alike(words.asked[2].messages) == spelt_alike([*words.asked[1].messages, SAID_BY_WORDS, USER])


def spelt_alike(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with the arguments of calls as JSON says them."""
    copied: list[dict[str, Any]] = json.loads(json.dumps(list(messages)))
    for call in (call for message in copied for call in message.get("tool_calls", ())):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return copied


SAID_BY_WORDS = {"role": "assistant", "content": "It is a fruit."}


async def test_an_item_of_another_user_is_none(tmp_path: Path) -> None:
    words = Words()
    async with asking(tmp_path, words.agent) as (_, client):
        first = await client.responses.create(model="words", input=QUESTION, user="ann")
        wanted: Any = [reference(first.output[-1].id or ""), USER]
        for user in ("bob", openai.omit):
            with pytest.raises(openai.BadRequestError, match="there is no item"):
                await client.responses.create(model="words", input=wanted, user=user)
        await client.responses.create(model="words", input=wanted, user="ann")
    assert words.asked[2].messages == [SAID_BY_WORDS, USER]


async def test_an_item_goes_with_its_chat(tmp_path: Path) -> None:
    words = Words()
    chat: dict[str, Any] = {"extra_body": {"callboard": {"chat_id": "chat"}}}
    async with asking(tmp_path, words.agent) as (service, client):
        first = await client.responses.create(model="words", input=QUESTION, **chat)
        second = await client.responses.create(model="words", input="Sure?", previous_response_id=first.id)
        assert (await service.client.delete("/v1/chats/chat")).status_code == 204
        for answer in (first, second):
            assert (await service.client.get(f"/v1/responses/{answer.id}")).status_code == 404
            wanted: Any = [reference(answer.output[-1].id or ""), USER]
            with pytest.raises(openai.BadRequestError, match="there is no item"):
                await client.responses.create(model="words", input=wanted)


async def test_an_answer_that_cannot_be_kept_is_an_answer_all_the_same(tmp_path: Path) -> None:
    words = Words()
    async with asking(tmp_path, words.agent) as (service, client):
        await database_of(service).execute(text("DROP TABLE response_items"))
        first = await client.responses.create(model="words", input=QUESTION)
        assert first.output_text == "I look.It is a fruit."
