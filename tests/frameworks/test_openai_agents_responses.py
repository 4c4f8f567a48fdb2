"""Agents of the OpenAI Agents SDK with OpenAI's Responses API, the SDK's default."""

from pathlib import Path

import pytest

from callboard.models import TokenUsage
from callboard.observers import ModelAnswered, ModelAsked
from callboard_protocol import Error, Source, ToolCallArgsDelta, ToolCallStart, Usage
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Body, chunks
from tests.frameworks.scenarios import ADDED
from tests.frameworks.toolbox import PICTURE_URL

if TESTS_RUN:
    from agents import WebSearchTool

    from tests.frameworks.openai_agents_responses import addition, answer, play, speech
    from tests.frameworks.openai_agents_stage import add

    TOOLS = (add, WebSearchTool())


async def test_text_reasoning_calls_and_usage_are_shown(tmp_path: Path) -> None:
    seen, requests = await play([addition("call_0"), speech("It is 5.")], tmp_path, *TOOLS)
    assert seen.lines(in_order=True) == ["think Sums.", *ADDED, "say It is 5.", "done stop"]
    written = [event.delta for event in seen.events if isinstance(event, ToolCallArgsDelta)]
    assert "".join(written) == '{"a": 2, "b": 3}'
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [30]
    assert [item["type"] for item in requests[1]["input"][1:]] == ["reasoning", "function_call", "function_call_output"]
    assert seen.asked == [ModelAsked("m", 1, 2), ModelAsked("m", 3, 2)]
    answers = [what for what in seen.observed if isinstance(what, ModelAnswered)]
    assert [answered.usage for answered in answers] == [TokenUsage(10, 5, 15)] * 2


async def test_the_second_turn_sends_the_calls_of_the_first_under_the_ids_that_the_store_has(tmp_path: Path) -> None:
    said = [addition("call_0"), addition("call_0"), speech("5 and 5."), speech("It was 5.")]
    seen, requests = await play(said, tmp_path, *TOOLS, turns=("go", "what was it?"))
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
async def test_tools_run_by_openai_are_shown(item: Body, told: list[str], tmp_path: Path) -> None:
    both = [answer(item, {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []})]
    seen, _ = await play(both, tmp_path, *TOOLS)
    assert seen.lines(in_order=True)[: len(told)] == told
    assert seen.lines(in_order=True)[-1] == "done stop"


async def test_citation_becomes_source(tmp_path: Path) -> None:
    cited = {"type": "url_citation", "url": "https://rome.example", "title": "Rome", "start_index": 0, "end_index": 4}
    seen, _ = await play([speech("Rome it is.", annotations=[cited, cited])], tmp_path, *TOOLS)
    [source] = [event.source for event in seen.events if isinstance(event, Source)]
    assert source == {"name": "Rome", "url": "https://rome.example"}


@pytest.mark.parametrize(
    ("end", "fields", "why"),
    [
        ("response.failed", {"error": {"code": "server_error", "message": "out of memory"}}, "out of memory"),
        ("response.incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
    ],
)
async def test_failed_answer_ends_run(end: str, fields: Body, why: str, tmp_path: Path) -> None:
    seen, _ = await play([answer(end=end, **fields)], tmp_path, *TOOLS)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "model_error"
    assert why in error.message


async def test_cut_off_answer_ends_run(tmp_path: Path) -> None:
    seen, _ = await play(
        [chunks({"type": "response.created", "response": {"id": "resp_1", "output": []}})], tmp_path, *TOOLS
    )
    assert seen.lines(in_order=True) == ["error model_error"]
