"""Open WebUI's tools: the pipe offers them to the agent, and runs them for its calls as the user who asked."""

import asyncio
import base64
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Event,
    InputAnswer,
    RunRequest,
    RunStart,
    ToolAnswer,
    ToolCallError,
    ToolCallStart,
    ToolRequest,
)
from tests.pipe.loader import PIPE, provide_open_webui
from tests.pipe.scripted_server import ScriptedServer, answer_json, frames, stream
from tests.pipe.test_restore import restored
from tests.pipe.test_stream import METADATA, a_pipe, answer, start

START = RunStart(run_id="r", agent="a")
CALL = ToolCallStart(tool_call_id="c", tool_name="weather", tool_args={"city": "Rome"})
USER = {"id": "u1", "name": "Ada", "email": "ada@example.org", "role": "user"}
PIXEL = "data:image/png;base64," + base64.b64encode(b"pixel").decode()


@pytest.fixture(autouse=True)
def middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of Open WebUI that prepares tools and reads their results, as far as the pipe uses it."""

    async def process_tool_result(
        request: Any, name: str, result: Any, kind: str, direct: bool, metadata: Any, user: Any
    ) -> tuple[str, list[dict[str, str]], list[str]]:
        assert user.id == "u1"
        if result == PIXEL:
            return f"{name}: read", [{"type": "image", "url": result}], ["<p>page</p>"]
        return result if isinstance(result, str) else json.dumps(result), [], []

    def get_citation_source_from_tool_result(
        name: str, params: dict[str, Any], result: str, tool_id: str
    ) -> list[dict[str, Any]]:
        return [{"source": {"name": name}, "document": [result], "metadata": [{"source": params["query"]}]}]

    async def get_updated_tool_function(function: Any, extra_params: dict[str, Any]) -> Any:
        return function

    members = {
        "process_tool_result": process_tool_result,
        "get_citation_source_from_tool_result": get_citation_source_from_tool_result,
        "CITATION_TOOL_NAMES": ("query_knowledge_files",),
    }
    tools = {"get_updated_tool_function": get_updated_tool_function}
    provide_open_webui(monkeypatch, {"utils.middleware": members, "utils.tools": tools})


def a_tool(function: Any, *arguments: str, **fields: Any) -> dict[str, Any]:
    """A tool as Open WebUI passes it to a pipe."""
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in arguments}}
    return {"spec": {"description": "A tool.", "parameters": parameters}, "callable": function, **fields}


async def weather(city: str) -> str:
    return f"It rains in {city}."


WEATHER = a_tool(weather, "city", tool_id="weather")


def asks_for(name: str = "weather", request_id: str = "tool:c", **fields: Any) -> ToolRequest:
    return ToolRequest(**{"tool_call_id": "c", "request_id": request_id, "name": name} | fields)


async def answered(
    server: ScriptedServer, request: ToolRequest, tools: dict[str, Any], *more: Event, **fields: Any
) -> InputAnswer:
    """Return what the server gets for a request for a tool; `more` are events that follow the request."""
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, request, *more), over, frames(Done(), first=4 + len(more))))
    server.on("POST", "input", answer_json({}, 202))

    async def end() -> None:
        await server.seen("POST", "input")
        over.set()

    ending = asyncio.create_task(end())
    await answer(a_pipe(server.url), __user__=USER, __tools__=tools, **fields)
    await ending
    [sent] = await server.seen("POST", "input")
    assert sent.query == "user_id=u1"
    return InputAnswer.model_validate(sent.json)


async def sent_request(server: ScriptedServer, tools: Any, metadata: dict[str, Any], **fields: Any) -> RunRequest:
    server.on("POST", "runs", stream(frames(START, Done())))
    await answer(a_pipe(server.url), __user__=USER, __tools__=tools, __metadata__=METADATA | metadata, **fields)
    return RunRequest.model_validate(server.requests[-1].json)


async def test_request_has_the_tools_and_the_features_that_are_switched_on(server: ScriptedServer) -> None:
    tools = {
        "weather": WEATHER,
        "search_web": a_tool(weather, "query", type="builtin"),
        "a name with spaces": WEATHER,
        "no_spec": {"callable": weather},
    }
    features = {"web_search": True, "image_generation": False, "memory": True, "voice": True}
    asked = await sent_request(server, tools, {"features": features, "skill_ids": ["s"]})
    assert [(tool.name, tool.is_builtin, tool.asks_first) for tool in asked.openwebui_tools] == [
        ("weather", False, False),
        ("search_web", True, False),
    ]
    assert asked.openwebui_tools[0].parameters["properties"] == {"city": {"type": "string"}}
    assert asked.openwebui_tools[0].id == "weather"
    assert asked.openwebui_features == ("web_search", "skills")


PROMPT = (
    'Be kind.\n<attached_knowledge>\n<knowledge type="collection" id="1" name="House &amp; home" source="model"/>\n'
    '<knowledge type="file" id="2" source="model"/>\n</attached_knowledge>'
)


@pytest.mark.parametrize(
    ("shared", "features", "prompt", "line"),
    [
        ({"s", "1", "2"}, ("skills",), PROMPT, None),
        ({"1"}, (), PROMPT.replace('<knowledge type="file" id="2" source="model"/>\n', ""), "skill s, knowledge 2"),
        ({"s"}, ("skills",), "Be kind.\n", "knowledge House & home, knowledge 2"),
        (None, ("skills",), PROMPT, None),
    ],
)
async def test_what_a_preset_has_and_the_user_may_not_see_is_named_and_left_out(
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    shared: set[str] | None,
    features: tuple[str, ...],
    prompt: str,
    line: str | None,
) -> None:
    async def get_skills(user_id: str, ids: list[str]) -> list[Any]:
        return [SimpleNamespace(id=one) for one in ids if user_id == "u1" and one in (shared or ())]

    async def get_accessible(entries: list[dict[str, str]], user: Any) -> list[dict[str, str]]:
        return [entry for entry in entries if user.role == "user" and entry["id"] in (shared or ())]

    if shared is not None:
        skills = {"Skills": SimpleNamespace(get_skills=get_skills)}
        access = {"get_accessible_folder_files": get_accessible}
        provide_open_webui(monkeypatch, {"models.skills": skills, "utils.access_control.files": access})
    server.on("POST", "runs", stream(frames(START, Done())))
    updates = await answer(
        a_pipe(server.url),
        body={"messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": "hi"}]},
        __user__=USER,
        __metadata__=METADATA | {"skill_ids": ["s", "terminal:t"] if line is None else ["s"]},
    )
    asked = RunRequest.model_validate(server.requests[-1].json)
    assert (asked.openwebui_features, asked.messages[0].content) == (features, prompt)
    told = [one["event"]["data"]["description"] for one in updates if one.get("event", {}).get("type") == "status"]
    assert [words.partition(" · ")[0] for words in told] == ([f"Not shared with you, or deleted: {line}"] * len(told))
    assert bool(told) == bool(line)


@pytest.mark.parametrize(("decided", "sent"), [({"memory": True}, ("memory",)), ({"memory": None}, ()), (None, ())])
async def test_memory_counts_only_if_the_user_has_switched_it_on(
    server: ScriptedServer, decided: Any, sent: tuple[str, ...]
) -> None:
    server.on("POST", "runs", stream(frames(START, Done())))
    user = USER | {"settings": {"ui": decided}}
    await answer(a_pipe(server.url), __user__=user, __metadata__=METADATA | {"features": {"memory": True}})
    assert RunRequest.model_validate(server.requests[-1].json).openwebui_features == sent


@pytest.mark.parametrize(("mode", "asks"), [("a later mode", True), ("full", False)])
async def test_approval_mode_of_open_webui_is_passed_on_except_for_its_own_question(
    server: ScriptedServer, mode: str, asks: bool
) -> None:
    tools = {"weather": WEATHER, "ask_user": a_tool(weather, type="builtin")}
    asked = await sent_request(server, tools, {"params": {"tool_approval_mode": mode}})
    assert [tool.asks_first for tool in asked.openwebui_tools] == [asks, False]


@pytest.mark.parametrize(("mode", "count"), [("legacy", 0), ("default", 1), (None, 1)])
async def test_tools_that_open_webui_has_run_itself_are_not_offered(
    server: ScriptedServer, mode: str | None, count: int
) -> None:
    metadata = {"features": {"web_search": True}, "skill_ids": ["s"], "params": {"function_calling": mode}}
    asked = await sent_request(server, {"weather": WEATHER}, metadata)
    assert (len(asked.openwebui_tools), len(asked.openwebui_features)) == (count, 2 * count)


async def test_tool_gets_its_known_arguments_and_its_result_is_sent(server: ScriptedServer) -> None:
    told = await answered(server, asks_for(arguments={"city": "Rome", "made_up": 1}), {"weather": WEATHER})
    assert (told.request_id, told.asked, told.value["text"]) == ("tool:c", True, "It rains in Rome.")


async def test_mcp_server_checks_its_own_arguments(server: ScriptedServer) -> None:
    async def take(**arguments: Any) -> dict[str, Any]:
        return arguments

    told = await answered(server, asks_for(arguments={"free": 1}), {"weather": a_tool(take, type="mcp")})
    assert told.value["text"] == '{"free": 1}'


async def test_direct_tool_runs_in_the_page(server: ScriptedServer) -> None:
    calls = []

    async def page(event: dict[str, Any]) -> object:
        calls.append(event)
        return "from the browser"

    tool = a_tool(None, "city", direct=True, server={"url": "http://tools"})
    told = await answered(server, asks_for(arguments={"city": "Rome"}), {"weather": tool}, __event_call__=page)
    assert told.value["text"] == "from the browser"
    assert calls[0]["type"] == "execute:tool"
    assert calls[0]["data"]["params"] == {"city": "Rome"}
    assert calls[0]["data"]["server"] == {"url": "http://tools"}
    assert calls[0]["data"]["session_id"] == "session"


async def test_picture_in_a_result_is_moved_to_the_file_store(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    async def store(page: Any, name: str, kind: str, content: bytes) -> str:
        kept.append((page.user["id"], name, kind, content))
        return "/api/v1/files/1/content"

    monkeypatch.setattr(PIPE, "store_file", store)

    async def draw() -> str:
        return PIXEL

    told = await answered(server, asks_for("draw"), {"draw": a_tool(draw)})
    read = ToolAnswer.model_validate(told.value)
    assert read.files == ({"type": "image", "url": "/api/v1/files/1/content"},)
    assert read.embeds == ("<p>page</p>",)
    assert kept == [("u1", "draw.png", "image/png", b"pixel")]


async def test_knowledge_tool_gives_sources_and_a_workspace_tool_of_its_name_does_not(server: ScriptedServer) -> None:
    async def find(query: str) -> str:
        return "found"

    request = asks_for("query_knowledge_files", arguments={"query": "q"})
    for kind, count in (("builtin", 1), ("", 0)):
        server.requests.clear()
        tools = {"query_knowledge_files": a_tool(find, "query", type=kind)}
        told = await answered(server, request, tools)
        assert len(ToolAnswer.model_validate(told.value).sources) == count


LOG = "Open WebUI's log has the reason.]"


def of_another_version(*_: Any) -> Any:
    raise TypeError("there is one argument more")


@pytest.mark.parametrize(
    ("member", "value", "lost"),
    [
        ("process_tool_result", None, "its files and pages (TypeError)"),
        ("process_tool_result", of_another_version, "its files and pages (TypeError)"),
        ("get_citation_source_from_tool_result", of_another_version, "its sources (TypeError)"),
        ("get_citation_source_from_tool_result", lambda *_: "another form", ""),
    ],
)
async def test_what_open_webui_cannot_read_of_a_result_is_named_and_the_result_is_kept(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, member: str, value: Any, lost: str
) -> None:
    async def find(query: str) -> dict[str, str]:
        return {"found": query}

    monkeypatch.setattr(sys.modules["open_webui.utils.middleware"], member, value)
    tools = {"query_knowledge_files": a_tool(find, "query", type="builtin")}
    told = await answered(server, asks_for("query_knowledge_files", arguments={"query": "q"}), tools)
    read = ToolAnswer.model_validate(told.value)
    assert read.text.startswith('{"found": "q"}')
    assert (f"The tool has run, but {lost} could not be read" in read.text) == bool(lost)


async def test_a_result_whose_reader_is_gone_is_kept(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "open_webui.utils.middleware")
    monkeypatch.delattr(sys.modules["open_webui.utils"], "middleware")
    told = await answered(server, asks_for(arguments={"city": "Rome"}), {"weather": WEATHER})
    words = "It rains in Rome.\n\n[The tool has run, but its files and pages (ImportError) could not be read."
    assert told.value["text"].startswith(words)


@pytest.mark.parametrize(("picture", "error"), [("x", "Error"), ("eA==", "OSError")])
async def test_a_picture_that_cannot_be_decoded_or_stored_is_named_and_the_result_is_kept(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, picture: str, error: str
) -> None:
    text = "drawn" * 200_000

    async def read(*_: Any) -> tuple[str, list[dict[str, str]], list[str]]:
        return text, [{"type": "image", "url": f"data:image/png;base64,{picture}"}], []

    monkeypatch.setattr(sys.modules["open_webui.utils.middleware"], "process_tool_result", read)
    told = await answered(server, asks_for(arguments={"city": "Rome"}), {"weather": WEATHER})
    assert told.value["files"] == []
    assert told.value["text"].endswith(f"\n\n[The tool has run, but its files ({error}) could not be read. {LOG}")


async def fail() -> str:
    raise RuntimeError("no rain today")


async def answer_with_error() -> dict[str, str]:
    return {"error": "no rain today"}


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (a_tool(fail), "no rain today"),
        (a_tool(answer_with_error), "no rain today"),
        (a_tool(None, direct=True), "no page is open"),
        (None, "weather"),
    ],
)
async def test_error_of_a_tool_is_sent_as_an_error(server: ScriptedServer, tool: Any, words: str) -> None:
    told = await answered(server, asks_for(), {"weather": tool} if tool else {"other": WEATHER})
    assert words in ToolAnswer.model_validate(told.value).error


async def test_long_result_is_cut(server: ScriptedServer) -> None:
    async def read() -> str:
        return "x" * 500_010

    told = await answered(server, asks_for(), {"weather": a_tool(read)})
    assert told.value["text"].endswith("x\n… [10 more characters]")


async def test_tool_that_takes_too_long_is_stopped(server: ScriptedServer) -> None:
    stopped = asyncio.Event()

    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    told = await answered(server, asks_for(timeout_seconds=0.05), {"weather": a_tool(hang)})
    assert (told.value, told.asked) == (None, True)
    assert stopped.is_set()


async def test_request_that_is_sent_again_runs_the_tool_once(server: ScriptedServer) -> None:
    runs = []

    async def count() -> str:
        runs.append(1)
        return "once"

    told = await answered(server, asks_for(), {"weather": a_tool(count)}, asks_for())
    assert told.value["text"] == "once"
    assert runs == [1]


@pytest.fixture
def hanging() -> tuple[Any, asyncio.Event, asyncio.Event]:
    """A tool that never ends, an event that says that it runs, and one that says that it was stopped."""
    begun = asyncio.Event()
    stopped = asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    return a_tool(hang), begun, stopped


async def test_end_of_a_call_on_the_server_stops_its_tool(server: ScriptedServer, hanging: Any) -> None:
    tool, begun, stopped = hanging
    ended = frames(ToolCallError(tool_call_id="c", tool_name="weather", error="out of time"), Done(), first=4)
    server.on("POST", "runs", stream(frames(START, CALL, asks_for()), begun, ended))
    await answer(a_pipe(server.url), __user__=USER, __tools__={"weather": tool})
    await stopped.wait()
    assert [request.path for request in server.requests] == ["/v1/runs"]


async def test_stop_of_the_user_stops_the_tool(server: ScriptedServer, hanging: Any) -> None:
    tool, begun, stopped = hanging
    server.on("POST", "runs", stream(frames(START, CALL, asks_for()), asyncio.Event()))

    async def read() -> None:
        async for _ in await start(a_pipe(server.url), __user__=USER, __tools__={"weather": tool}):
            pass

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await server.seen("POST", "cancel")
    await stopped.wait()


async def test_restored_answer_cannot_run_tools_and_says_so(server: ScriptedServer) -> None:
    over = asyncio.Event()
    server.on("GET", "events", stream(frames(START, CALL, asks_for()), over, frames(Done(), first=4)))
    server.on("POST", "input", answer_json({}, 202))

    async def end() -> None:
        await server.seen("POST", "input")
        over.set()

    ending = asyncio.create_task(end())
    await restored(a_pipe(server.url), PIPE.LeftAnswer("r", [], is_logged=True))
    await ending
    [sent] = await server.seen("POST", "input")
    assert InputAnswer.model_validate(sent.json) == InputAnswer(request_id="tool:c", value=None, asked=False)
