"""Tools that OpenAI runs while it answers: their calls are shown and counted, and need approval if that is possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import InputRequest, Status, ToolCallStart
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Body
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agents import (
        CodeInterpreterTool,
        HostedMCPTool,
        ProgrammaticToolCallingTool,
        ShellTool,
        ToolSearchTool,
        WebSearchTool,
        function_tool,
    )

    from tests.frameworks.openai_agents_responses import answer, play, speech

PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SEARCH: Body = {"id": "ws_0", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
ASKS: Body = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "disks",
    "name": "wipe",
    "arguments": '{"disk": "C"}',
}
WIPED: Body = {
    "id": "mcp_1",
    "type": "mcp_call",
    "server_label": "disks",
    "name": "wipe",
    "arguments": '{"disk": "C"}',
    "output": "C is empty",
    "approval_request_id": "mcpr_1",
}


def disks(require_approval: Any = "never", **fields: Any) -> HostedMCPTool:
    server = {"type": "mcp", "server_label": "disks", "server_url": "https://disks.example"}
    config: Any = {**server, "require_approval": require_approval}
    return HostedMCPTool(config, **fields)


def kinds(request: Body) -> list[str]:
    return [tool["type"] for tool in request.get("tools") or ()]


@pytest.mark.parametrize("name", ["web_search", "code_interpreter"])
async def test_hosted_tool_that_needs_approval_is_left_out(name: str, tmp_path: Path) -> None:
    tool = WebSearchTool() if name == "web_search" else CodeInterpreterTool(PYTHON)
    seen, requests = await play([speech("Without it.")], tmp_path, tool, confirm_tools=(name[:3] + "*",))
    assert kinds(requests[0]) == []
    [status] = [event.content for event in seen.events if isinstance(event, Status)]
    assert status.startswith(f"{name} is left out: ")


async def test_calls_of_hosted_tools_are_counted(tmp_path: Path) -> None:
    # The same call again and again: hosted calls have already run when they are counted.
    searches = [{**SEARCH, "id": f"ws_{n}"} for n in range(4)]
    add = function_tool(Toolbox().plain("add"))
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "add", "arguments": '{"a": 2, "b": 3}'}
    seen, requests = await play([answer(*searches, call), speech("Enough.")], tmp_path, WebSearchTool(), add)
    assert kinds(requests[0])
    assert kinds(requests[1]) == []
    assert seen.lines(in_order=True)[-3:] == ["failed 5 limit", "say Enough.", "done max_turns"]


async def test_approval_request_of_hosted_server_asks_user(tmp_path: Path) -> None:
    seen, requests = await play([answer(ASKS), answer(WIPED), speech("Done.")], tmp_path, disks("always"), reply=True)
    assert seen.lines(in_order=True)[0] == "call 1 wipe {'disk': 'C'}"
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert question.message == "A tool of the MCP server 'disks', which OpenAI runs.\n\ndisk: C"
    assert not question.remember
    [said] = [item for item in requests[1]["input"] if item.get("type") == "mcp_approval_response"]
    assert said["approve"] is True
    assert "result 1 C is empty" in seen.lines(in_order=True)
    assert len([event for event in seen.events if isinstance(event, ToolCallStart)]) == 1


async def test_refusal_is_sent_to_hosted_server(tmp_path: Path) -> None:
    seen, requests = await play([answer(ASKS), speech("Well.")], tmp_path, disks("always"), reply=False)
    [said] = [item for item in requests[1]["input"] if item.get("type") == "mcp_approval_response"]
    assert said["approve"] is False
    assert said["reason"].startswith("Not run: the user refused it.")
    assert seen.lines(in_order=True)[-3:] == ["failed 1 denied", "say Well.", "done stop"]


@pytest.mark.parametrize(("patterns", "wanted"), [((), "never"), (("wipe",), "always")])
async def test_confirm_setting_makes_hosted_server_ask(patterns: tuple[str, ...], wanted: str, tmp_path: Path) -> None:
    _, requests = await play([answer(ASKS), speech("Well.")], tmp_path, disks(), reply=False, confirm_tools=patterns)
    assert requests[0]["tools"][0]["require_approval"] == wanted
    [said] = [item for item in requests[1]["input"] if item.get("type") == "mcp_approval_response"]
    assert said["approve"] is (not patterns)


async def test_hosted_tools_outside_of_confirm_setting_run_unasked(tmp_path: Path) -> None:
    script = [answer(ASKS), answer(WIPED), speech("Done.")]
    seen, _ = await play(script, tmp_path, disks(), confirm_tools=("other",))
    assert not any(isinstance(event, InputRequest) for event in seen.events)
    assert "result 1 C is empty" in seen.lines(in_order=True)


@pytest.mark.parametrize("approves", [True, False])
async def test_approval_function_of_author_decides(approves: bool, tmp_path: Path) -> None:
    tool = disks("always", on_approval_request=lambda _: {"approve": approves, "reason": "not today"})
    seen, requests = await play([answer(ASKS), speech("Well.")], tmp_path, tool)
    [said] = [item for item in requests[1]["input"] if item.get("type") == "mcp_approval_response"]
    assert said["approve"] is approves
    assert not any(isinstance(event, InputRequest) for event in seen.events)


SHELL: Body = {
    "id": "sh_1",
    "type": "shell_call",
    "call_id": "call_1",
    "status": "completed",
    "action": {"commands": ["ls"]},
    "environment": {"type": "container_reference", "container_id": "c"},
}
LISTED: Body = {
    "id": "sho_1",
    "type": "shell_call_output",
    "call_id": "call_1",
    "status": "completed",
    "output": [{"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}
PROGRAM: Body = {"id": "pr_1", "type": "program", "call_id": "call_1", "code": "add(2, 3)", "fingerprint": "f"}
RESULT: Body = {"id": "pro_1", "type": "program_output", "call_id": "call_1", "status": "completed", "result": "5"}
TOOL_SEARCH: Body = {
    "id": "ts_1",
    "type": "tool_search_call",
    "status": "completed",
    "execution": "server",
    "arguments": {"query": "sums"},
}
FOUND: Body = {
    "id": "tso_1",
    "type": "tool_search_output",
    "status": "completed",
    "execution": "server",
    "tools": [{"type": "function", "name": "add", "parameters": {}, "strict": True, "defer_loading": True}],
}


ADD: Body = {"type": "function_call", "id": "fc_1", "call_id": "call_2", "name": "add", "arguments": '{"a": 2, "b": 3}'}


async def test_a_shell_in_a_container_is_shown(tmp_path: Path) -> None:
    shell = ShellTool(environment={"type": "container_auto"})
    seen, _ = await play([speech("There.", SHELL, LISTED)], tmp_path, shell)
    assert seen.lines(in_order=True) == [
        *("call 1 shell {'commands': ['ls']}", "result 1 a.txt\nexit code 0", "say There.", "done stop")
    ]


async def test_program_of_model_is_shown_and_its_local_calls_are_limited(tmp_path: Path) -> None:
    async def add(a: int, b: int) -> str:
        """Adds two numbers."""
        return str(a + b)

    called = {**ADD, "caller": {"type": "program", "caller_id": "call_1"}}
    script = [answer(PROGRAM, called), speech("It is 5.", RESULT)]
    tools = (function_tool(add, allowed_callers=["programmatic"]), ProgrammaticToolCallingTool())
    seen, _ = await play(script, tmp_path, *tools, reply=True, confirm_tools=("add",))
    lines = [line for line in seen.lines(in_order=True) if not line.startswith("status")]
    assert lines == [
        *("call 1 programmatic_tool_calling {'code': 'add(2, 3)'}", "call 2 add {'a': 2, 'b': 3}", "ask 2 Run add?"),
        *("result 2 5", "result 1 5", "say It is 5.", "done stop"),
    ]


async def test_tool_search_is_shown_and_found_tool_is_limited(tmp_path: Path) -> None:
    add = function_tool(Toolbox().plain("add"), defer_loading=True)
    script = [answer(TOOL_SEARCH, FOUND, {**ADD, "namespace": "add"}), speech("It is 5.")]
    seen, _ = await play(script, tmp_path, add, ToolSearchTool(), reply=False, confirm_tools=("add",))
    assert seen.lines(in_order=True)[:3] == [
        *("call 1 tool_search {'query': 'sums'}", "result 1 searched", "call 2 add {'a': 2, 'b': 3}")
    ]
    assert "failed 2 denied" in seen.lines(in_order=True)
