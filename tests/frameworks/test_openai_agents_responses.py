"""Agents of the OpenAI Agents SDK on OpenAI's Responses API, which is what it speaks by itself."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, OpenAIProvider, RunConfig, WebSearchTool, function_tool
from openai import AsyncOpenAI

from callboard.agents import AgentLike
from callboard.frameworks.openai_agents import from_openai_agents
from callboard_protocol import Error, Source, ToolCallArgsDelta, ToolCallStart, Usage
from tests.fakes.openai_server import Answer, ASGIMessage, Body, OpenAIServer, Receive, Script, Send, chunks
from tests.frameworks.openai_agents_stage import scenario
from tests.frameworks.scenarios import ADDED
from tests.frameworks.stage import Deviation, Performance, perform
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


class ResponsesServer(OpenAIServer):
    """The scripted server at `/v1/responses`: its streams are of the same form, their events are others."""

    async def _app(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/v1/responses"
        await super()._app({**scope, "path": "/v1/chat/completions"}, receive, send)


class OnResponses:
    """An agent whose model is only named: the SDK makes it, of the Responses API."""

    name = "made"
    deviations: Mapping[str, Deviation] = {}

    def __init__(self, script: Script) -> None:
        self.server = ResponsesServer(script)

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with self.server as server, AsyncOpenAI(base_url=server.base_url, api_key="key", max_retries=0) as client:
            provider = OpenAIProvider(openai_client=client, use_responses=True)
            added = function_tool(toolbox.plain("add"))
            agent = Agent("agent", model="m", tools=[added, WebSearchTool()])
            yield from_openai_agents(agent, run_config=RunConfig(tracing_disabled=True, model_provider=provider))


async def play(script: Script, folder: Path, **fields: Any) -> tuple[Performance, list[Body]]:
    """What is seen, and the requests to the Responses API."""
    framework = OnResponses(script)
    seen, _ = await perform(framework, scenario([], **fields), folder)
    return seen, framework.server.requests


def answer(*items: Body, deltas: Sequence[Body] = (), end: str = "response.completed", **fields: Any) -> Answer:
    """A response with these items, each announced and done, and pieces of them between."""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    whole = {"id": "resp_1", "object": "response", "output": [*items], "usage": usage, **fields}
    events: list[Body] = [{"type": "response.created", "response": {**whole, "output": []}}]
    for index, item in enumerate(items):
        empty = {**item, **({"arguments": ""} if item["type"] == "function_call" else {})}
        events.append({"type": "response.output_item.added", "item": empty, "output_index": index})
        events += [{**delta, "output_index": index} for delta in deltas if delta["item_id"] == item["id"]]
        events.append({"type": "response.output_item.done", "item": item, "output_index": index})
    events.append({"type": end, "response": whole})
    return chunks(*({**event, "sequence_number": number} for number, event in enumerate(events)))


def speech(content: str, **part: Any) -> Answer:
    """A text in two pieces."""
    parts = [{"type": "output_text", "text": content, "annotations": [], **part}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    pieces = [
        {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": delta, "logprobs": []}
        for delta in (content[:3], content[3:])
    ]
    return answer(item, deltas=pieces)


def addition(call_id: str) -> Answer:
    """A thought, and a call of `add`."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Sums."}]}
    summary = {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": "Sums."}
    arguments = '{"a": 2, "b": 3}'
    call = {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "add", "arguments": arguments}
    piece = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": arguments}
    return answer(thought, call, deltas=[summary, piece])


async def test_text_thoughts_calls_and_costs_are_told(tmp_path: Path) -> None:
    seen, requests = await play([addition("call_0"), speech("It is 5.")], tmp_path)
    assert seen.lines(in_order=True) == ["think Sums.", *ADDED, "say It is 5.", "done stop"]
    written = [event.delta for event in seen.events if isinstance(event, ToolCallArgsDelta)]
    assert "".join(written) == '{"a": 2, "b": 3}'
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [30]
    assert [item["type"] for item in requests[1]["input"][1:]] == ["reasoning", "function_call", "function_call_output"]


async def test_the_second_turn_sends_the_calls_of_the_first_under_the_ids_that_the_store_has(tmp_path: Path) -> None:
    said = [addition("call_0"), addition("call_0"), speech("5 and 5."), speech("It was 5.")]
    seen, requests = await play(said, tmp_path, turns=("go", "what was it?"))
    started = [event.tool_call_id for event in seen.events if isinstance(event, ToolCallStart)]
    sent = requests[-1]["input"]
    assert [item["call_id"] for item in sent if item.get("type") == "function_call_output"] == started
    assert len(set(started)) == 2
    spoken = [item for item in sent if item.get("role") == "assistant"]
    assert [item["content"][0]["text"] for item in spoken] == ["5 and 5."]
    assert all("id" not in item for item in spoken)


WEB_SEARCH = {"id": "ws_1", "type": "web_search_call", "action": {"type": "search", "query": "Rome"}}
FILE_SEARCH = {"id": "fs_1", "type": "file_search_call", "queries": ["Rome"]}
PYTHON = {"id": "ci_1", "type": "code_interpreter_call", "code": "1 + 1", "container_id": "c"}
PICTURE = {"id": "ig_1", "type": "image_generation_call", "result": PICTURE_URL.partition(",")[2]}
REMOTE = {"id": "mcp_1", "type": "mcp_call", "name": "roll", "server_label": "dice", "arguments": '{"sides": 6}'}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (
            {**WEB_SEARCH, "status": "completed"},
            ["call 1 web_search {'type': 'search', 'query': 'Rome'}", "result 1 searched"],
        ),
        (
            {**WEB_SEARCH, "status": "failed"},
            ["call 1 web_search {'type': 'search', 'query': 'Rome'}", "failed 1 tool_failed"],
        ),
        (
            {**FILE_SEARCH, "status": "completed", "results": [{"filename": "rome.txt", "text": "A city."}]},
            ["call 1 file_search {'queries': ['Rome']}", "result 1 rome.txt: A city."],
        ),
        (
            {**PYTHON, "status": "completed", "outputs": [{"type": "logs", "logs": "2"}]},
            ["call 1 code_interpreter {'code': '1 + 1'}", "result 1 2"],
        ),
        (
            {**PICTURE, "status": "completed"},
            ["call 1 image_generation {}", "result 1 drawn", "files 1 image"],
        ),
        ({**REMOTE, "output": "4"}, ["call 1 roll {'sides': 6}", "result 1 4"]),
        (
            {**REMOTE, "error": {"type": "http_error", "code": 500, "message": "broken"}},
            ["call 1 roll {'sides': 6}", "failed 1 tool_failed"],
        ),
    ],
    ids=["web", "failed web", "files", "python", "picture", "mcp", "failed mcp"],
)
async def test_tools_that_run_at_the_models_end_are_shown(item: Body, told: list[str], tmp_path: Path) -> None:
    both = [answer(item, {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []})]
    seen, _ = await play(both, tmp_path)
    assert seen.lines(in_order=True)[: len(told)] == told
    assert seen.lines(in_order=True)[-1] == "done stop"


async def test_what_an_answer_cites_is_a_source(tmp_path: Path) -> None:
    cited = {"type": "url_citation", "url": "https://rome.example", "title": "Rome", "start_index": 0, "end_index": 4}
    seen, _ = await play([speech("Rome it is.", annotations=[cited, cited])], tmp_path)
    [source] = [event.source for event in seen.events if isinstance(event, Source)]
    assert source == {"name": "Rome", "url": "https://rome.example"}


@pytest.mark.parametrize(
    ("end", "fields", "why"),
    [
        ("response.failed", {"error": {"code": "server_error", "message": "out of memory"}}, "out of memory"),
        ("response.incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
    ],
)
async def test_an_answer_that_does_not_end_well_ends_the_run(end: str, fields: Body, why: str, tmp_path: Path) -> None:
    seen, _ = await play([answer(end=end, **fields)], tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "model_error"
    assert why in error.message


async def test_an_answer_that_just_stops_ends_the_run(tmp_path: Path) -> None:
    seen, _ = await play([chunks({"type": "response.created", "response": {"id": "resp_1", "output": []}})], tmp_path)
    assert seen.lines(in_order=True) == ["error model_error"]
