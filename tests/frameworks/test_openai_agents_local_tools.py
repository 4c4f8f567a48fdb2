"""Tools of the OpenAI Agents SDK that run here and are no functions: shells, patches, tools that take raw text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callboard import report_status
from callboard_protocol import InputRequest, ToolCallError, ToolCallStart
from tests.fakes.openai_server import Body
from tests.frameworks.openai_agents_responses import answer, play, speech

if TYPE_CHECKING:
    from agents import (
        Agent,
        ApplyPatchTool,
        CustomTool,
        LocalShellCommandRequest,
        LocalShellTool,
        Runner,
        ShellCallOutcome,
        ShellCommandOutput,
        ShellCommandRequest,
        ShellResult,
        ShellTool,
        Tool,
    )
    from agents.editor import ApplyPatchOperation, ApplyPatchResult


@pytest.fixture(autouse=True)
def imported() -> None:
    """Import the SDK when a test runs, not when tests are collected."""
    import agents
    import agents.editor

    for module in (agents, agents.editor):
        globals().update({name: value for name, value in vars(module).items() if name[0].isupper()})


SHELL: Body = {
    "id": "sh_1",
    "type": "shell_call",
    "call_id": "call_0",
    "status": "completed",
    "action": {"commands": ["ls", "rm -r /"], "timeout_ms": 1000},
}
LOCAL_SHELL: Body = {
    "id": "lsh_1",
    "type": "local_shell_call",
    "call_id": "call_0",
    "status": "completed",
    "action": {"type": "exec", "command": ["rm", "-r", "/"], "env": {}},
}
PATCH: Body = {
    "id": "ap_1",
    "type": "apply_patch_call",
    "call_id": "call_0",
    "status": "completed",
    "operation": {"type": "update_file", "path": "a.txt", "diff": "@@\n-old\n+new"},
}
RAW: Body = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_0", "name": "raw", "input": "DROP TABLE users"}

Does = Callable[[], Any]


@dataclass
class Machine:
    """The state that the tools work on: a record of their actions, and an extra action for each."""

    does: Does = lambda: "done"
    done: list[str] = field(default_factory=list)

    def _do(self, what: str) -> Any:
        self.done.append(what)
        return self.does()

    def shell(self, **fields: Any) -> ShellTool:
        def execute(request: ShellCommandRequest) -> Any:
            return self._do(request.data.action.commands[-1])

        return ShellTool(execute, **fields)

    def local_shell(self) -> LocalShellTool:
        def execute(request: LocalShellCommandRequest) -> Any:
            return self._do(" ".join(request.data.action.command))

        return LocalShellTool(execute)

    def patch(self, **fields: Any) -> ApplyPatchTool:
        return ApplyPatchTool(self, **fields)

    def raw(self, **fields: Any) -> CustomTool:
        async def invoke(context: Any, text: str) -> Any:
            made = self._do(text)
            return await made if asyncio.iscoroutine(made) else made

        return CustomTool("raw", "Takes any text.", invoke, **fields)

    async def create_file(self, operation: ApplyPatchOperation) -> Any:
        return await self.update_file(operation)

    async def update_file(self, operation: ApplyPatchOperation) -> Any:
        made = self._do(operation.path)
        return await made if asyncio.iscoroutine(made) else made

    async def delete_file(self, operation: ApplyPatchOperation) -> Any:
        return await self.update_file(operation)


Make = Callable[[Machine], Any]

TOOLS = [
    pytest.param(
        Machine.shell, SHELL, "shell {'commands': ['ls', 'rm -r /'], 'timeout_ms': 1000}", "rm -r /", id="shell"
    ),
    pytest.param(
        Machine.local_shell,
        LOCAL_SHELL,
        "local_shell {'command': ['rm', '-r', '/'], 'env': {}, 'type': 'exec'}",
        "rm -r /",
        id="local shell",
    ),
    pytest.param(
        Machine.patch,
        PATCH,
        "apply_patch {'diff': '@@\\n-old\\n+new', 'path': 'a.txt', 'type': 'update_file'}",
        "a.txt",
        id="patch",
    ),
    pytest.param(Machine.raw, RAW, "raw {'input': 'DROP TABLE users'}", "DROP TABLE users", id="raw text"),
]
EVERY = pytest.mark.parametrize(("make", "call", "shown", "done"), TOOLS)


def told(request: Body) -> list[str]:
    """The calls and results of a turn in a model request, as text."""
    outputs = [item["output"] for item in request["input"] if str(item.get("type")).endswith("_call_output")]
    return [
        output if isinstance(output, str) else "".join(part["stdout"] + part["stderr"] for part in output)
        for output in outputs
    ]


@EVERY
async def test_calls_of_local_tool_are_shown_stored_and_replayed(
    make: Make, call: Body, shown: str, done: str, tmp_path: Path
) -> None:
    machine = Machine()
    script = [answer(call), speech("It is gone."), speech("I removed it.")]
    seen, requests = await play(script, tmp_path, make(machine), turns=("go", "what did you do?"))
    assert seen.lines(in_order=True) == [
        *(f"call 1 {shown}", "result 1 done", "say It is gone.", "done stop"),
        *("say I removed it.", "done stop"),
    ]
    assert machine.done == [done]
    assert told(requests[1]) == ["done"]
    name = shown.partition(" ")[0]
    [asked] = [item for item in requests[2]["input"] if item.get("type") == "function_call"]
    assert (asked["name"], told(requests[2])) == (name, ["done"])


@EVERY
async def test_confirm_setting_applies_to_local_tool(
    make: Make, call: Body, shown: str, done: str, tmp_path: Path
) -> None:
    machine = Machine()
    script = [answer(call), speech("Well.")]
    names = ("shell", "*shell*", "raw", "apply_patch")
    seen, requests = await play(script, tmp_path, make(machine), reply=False, confirm_tools=names)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert question.title == f"Run {shown.partition(' ')[0]}?"
    assert done.split()[-1] in question.message
    assert machine.done == []
    assert "failed 1 denied" in seen.lines(in_order=True)
    assert seen.lines(in_order=True)[-2:] == ["say Well.", "done stop"]
    assert told(requests[1])[0].startswith("Error: Not run: the user refused it.")


@pytest.mark.parametrize(
    ("reply", "end"), [(True, "result 1 done"), (False, "failed 1 denied"), (None, "failed 1 not_answered")]
)
@pytest.mark.parametrize(("make", "call", "shown", "done"), [tool for tool in TOOLS if tool.id != "local shell"])
async def test_author_can_require_approval_which_shows_arguments(
    make: Callable[..., Tool], call: Body, shown: str, done: str, reply: bool | None, end: str, tmp_path: Path
) -> None:
    machine = Machine()
    script = [answer(call), speech("Well.")]
    seen, _ = await play(script, tmp_path, make(machine, needs_approval=True), reply=reply)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert done.split()[-1] in question.message
    assert machine.done == ([done] if reply else [])
    assert end in seen.lines(in_order=True)
    assert seen.lines(in_order=True)[-2:] == ["say Well.", "done stop"]


@pytest.mark.parametrize(("command", "is_asked"), [("rm -r /", True), ("ls", False)])
async def test_a_policy_decides_which_calls_need_approval(command: str, is_asked: bool, tmp_path: Path) -> None:
    async def is_dangerous(_: Any, action: Any, call_id: str) -> bool:
        return "rm" in action.commands[-1]

    call = {**SHELL, "action": {"commands": [command]}}
    shell = Machine().shell(needs_approval=is_dangerous)
    seen, _ = await play([answer(call), speech("Well.")], tmp_path, shell, reply=True)
    assert any(isinstance(event, InputRequest) for event in seen.events) == is_asked
    assert "result 1 done" in seen.lines(in_order=True)


@pytest.mark.parametrize("approves", [True, False])
async def test_approval_function_of_author_replaces_question(approves: bool, tmp_path: Path) -> None:
    machine = Machine()
    shell = machine.shell(needs_approval=True, on_approval=lambda *_: {"approve": approves, "reason": "not today"})
    seen, _ = await play([answer(SHELL), speech("Well.")], tmp_path, shell)
    assert not any(isinstance(event, InputRequest) for event in seen.events)
    assert bool(machine.done) == approves
    assert ("result 1 done" if approves else "failed 1 tool_failed") in seen.lines(in_order=True)


async def test_confirm_setting_asks_user_despite_approval_by_author(tmp_path: Path) -> None:
    machine = Machine()
    shell = machine.shell(needs_approval=True, on_approval=lambda *_: {"approve": True})
    seen, _ = await play([answer(SHELL), speech("Well.")], tmp_path, shell, reply=False, confirm_tools=("shell",))
    assert machine.done == []
    assert "failed 1 denied" in seen.lines(in_order=True)


@EVERY
async def test_failing_local_tool_does_not_end_run(
    make: Make, call: Body, shown: str, done: str, tmp_path: Path
) -> None:
    def break_down() -> None:
        raise OSError("disk full")

    script = [answer(call), speech("It failed.")]
    seen, requests = await play(script, tmp_path, make(Machine(break_down)))
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say It failed.", "done stop"]
    assert [event.error for event in seen.events if isinstance(event, ToolCallError)] == ["OSError: disk full"]
    assert told(requests[1]) == ["Error: OSError: disk full"]


@EVERY
async def test_local_tool_is_stopped_after_timeout(
    make: Make, call: Body, shown: str, done: str, tmp_path: Path
) -> None:
    stopped = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    script = [answer(call), speech("Too long.")]
    seen, requests = await play(script, tmp_path, make(Machine(wait)), limits={"tool_timeout_seconds": 0.05})
    assert seen.lines(in_order=True)[1:] == ["failed 1 timeout", "say Too long.", "done stop"]
    assert stopped.is_set()
    assert "did not end within 0.05 s" in told(requests[1])[0]


@pytest.mark.parametrize(("make", "call"), [(Machine.shell, SHELL), (Machine.local_shell, LOCAL_SHELL)])
async def test_blocking_local_tool_is_abandoned_after_timeout(make: Make, call: Body, tmp_path: Path) -> None:
    gate = threading.Event()
    try:
        script = [answer(call), speech("Too long.")]
        seen, _ = await play(script, tmp_path, make(Machine(gate.wait)), limits={"tool_timeout_seconds": 0.05})
    finally:
        gate.set()
    assert seen.lines(in_order=True)[1:] == ["failed 1 timeout", "say Too long.", "done stop"]


@EVERY
async def test_its_calls_are_counted(make: Make, call: Body, shown: str, done: str, tmp_path: Path) -> None:
    machine = Machine()

    def script(body: Body) -> Any:
        if not body.get("tools"):
            return speech("Enough.")
        return answer(_numbered(call, len(machine.done)))

    seen, _ = await play(script, tmp_path, make(machine))
    assert len(machine.done) == 3
    assert seen.lines(in_order=True)[-3:] == ["failed 4 limit", "say Enough.", "done max_turns"]


def _numbered(call: Mapping[str, Any], number: int) -> Body:
    """The call with different arguments."""
    match dict(call):
        case {"action": {"commands": _}} as shell:
            return {**shell, "action": {"commands": [f"echo {number}"]}}
        case {"action": {"command": _} as action} as shell:
            return {**shell, "action": {**action, "command": ["echo", str(number)]}}
        case {"operation": operation} as patch:
            return {**patch, "operation": {**operation, "path": f"{number}.txt"}}
        case other:
            return {**other, "input": str(number)}


@EVERY
async def test_each_call_gets_unique_id(make: Make, call: Body, shown: str, done: str, tmp_path: Path) -> None:
    script = [answer(call), answer(_numbered(call, 1)), speech("Twice.")]
    seen, requests = await play(script, tmp_path, make(Machine()))
    started = [event.tool_call_id for event in seen.events if isinstance(event, ToolCallStart)]
    sent = [item["call_id"] for item in requests[-1]["input"] if str(item.get("type")).endswith("_call_output")]
    assert len(set(started)) == 2
    assert sent == started


async def test_shell_output_is_shown_as_sent_to_model(tmp_path: Path) -> None:
    def run() -> ShellResult:
        failed = ShellCommandOutput(stderr="no such file", outcome=ShellCallOutcome("exit", 2), command="cat b")
        return ShellResult([ShellCommandOutput("hello", command="cat a"), failed])

    seen, _ = await play([answer(SHELL), speech("Well.")], tmp_path, Machine(run).shell())
    result = seen.lines(in_order=True)[1]
    assert result.startswith("result 1 ")
    assert "hello" in result
    assert "no such file" in result


async def test_patch_refused_by_editor_fails(tmp_path: Path) -> None:
    machine = Machine(lambda: ApplyPatchResult("failed", "no such line"))
    seen, requests = await play([answer(PATCH), speech("Well.")], tmp_path, machine.patch())
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say Well.", "done stop"]
    assert [event.error for event in seen.events if isinstance(event, ToolCallError)] == ["no such line"]
    assert told(requests[1]) == ["no such line"]


async def test_patch_as_function_call_is_applied(tmp_path: Path) -> None:
    arguments = '{"type": "delete_file", "path": "b.txt"}'
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "apply_patch", "arguments": arguments}
    machine = Machine()
    script = [answer(call), speech("Well.")]
    seen, _ = await play(script, tmp_path, machine.patch(needs_approval=True), reply=True)
    assert seen.lines(in_order=True)[0] == "call 1 apply_patch {'type': 'delete_file', 'path': 'b.txt'}"
    assert "ask 1 Run apply_patch?" in seen.lines(in_order=True)
    assert seen.lines(in_order=True)[-3:] == ["result 1 done", "say Well.", "done stop"]
    assert machine.done == ["b.txt"]


async def test_local_tool_can_report_progress(tmp_path: Path) -> None:
    def work() -> str:
        report_status("processing", "half way", 50)
        return "done"

    seen, _ = await play([answer(SHELL), speech("Well.")], tmp_path, Machine(work).shell())
    assert "status 1 processing half way 50" in seen.lines(in_order=True)


async def test_parallel_calls_of_different_tools_get_their_own_results(tmp_path: Path) -> None:
    machine = Machine()
    calls = [{**item, "call_id": f"call_{n}"} for n, item in enumerate((SHELL, PATCH, RAW))]
    tools = (machine.shell(), machine.patch(), machine.raw())
    seen, _ = await play([answer(*calls), speech("Well.")], tmp_path, *tools)
    assert [line for line in seen.lines(in_order=False) if line.startswith("result")] == [
        "result 1 done",
        "result 2 done",
        "result 3 done",
    ]
    assert sorted(machine.done) == ["DROP TABLE users", "a.txt", "rm -r /"]


async def test_agent_run_by_local_tool_is_shown_below_it(tmp_path: Path) -> None:
    async def ask(context: Any, text: str) -> str:
        expert = Agent[Any]("Expert", model="m", tools=[Machine().shell()])
        return str((await Runner.run(expert, text, run_config=context.run_config)).final_output)

    script = [answer(RAW), answer({**SHELL, "call_id": "call_1"}), speech("It is done."), speech("Gone.")]
    seen, _ = await play(script, tmp_path, CustomTool("raw", "Asks.", ask), reply=False, confirm_tools=("shell",))
    lines = seen.lines(in_order=True)
    assert lines[:2] == [
        "call 1 raw {'input': 'DROP TABLE users'}",
        "call 2 in 1 shell {'commands': ['ls', 'rm -r /'], 'timeout_ms': 1000}",
    ]
    assert lines[-4:] == ["failed 2 denied", "result 1 It is done.", "say Gone.", "done stop"]
