"""The adapter of the how-to, for a framework that is not part of Callboard, in a real server."""

import ast
import json
from pathlib import Path
from typing import Any

from callboard.agents import AgentLike
from callboard.agents.loading import load_all_agents
from callboard.settings import Settings
from callboard_protocol import Done, Error, Event, Message, ToolCallComplete, ToolCallError, ToolCallStart
from tests.fakes.openai_server import OpenAIServer, Raw, Refusal, Script
from tests.serving import request, serving
from tests.test_docs import DOCS

EXAMPLES = Path(__file__).parents[2] / "server" / "examples" / "adapter"

PAGE = DOCS / "how-to" / "own-adapter.md"
URL = "http://127.0.0.1:11434/v1"


def say(text: str) -> Raw:
    return answer({"role": "assistant", "content": text})


def ask_depth(lake: str) -> Raw:
    function = {"name": "depth", "arguments": json.dumps({"lake": lake})}
    return answer({"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]})


def answer(message: dict[str, Any]) -> Raw:
    return Raw([json.dumps({"choices": [{"message": message}]}).encode()], {"Content-Type": "application/json"})


def load_diver(folder: Path, url: str) -> AgentLike:
    for name in ("tiny_framework.py", "tiny_adapter.py"):
        (folder / name).write_text((EXAMPLES / name).read_text())
    shown = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    assert URL in shown
    (folder / "diver.py").write_text(shown.replace(URL, url))
    found = load_all_agents(Settings(agents=(str(folder / "diver.py"),)))
    assert found.problems == []
    return found.registry.get("diver")


def asked(question: str, **more: Any) -> dict[str, Any]:
    return request(agent="diver", chat_id="c", messages=[{"role": "user", "content": question}], **more)


def of(events: list[Event], *kinds: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kinds)]


async def test_a_call_has_a_card_and_the_next_turns_model_gets_it_again(tmp_path: Path) -> None:
    async with OpenAIServer([ask_depth("Baikal"), say("1642 m."), say("As I said.")]) as model:
        async with serving(tmp_path, load_diver(tmp_path, model.base_url)) as service:
            first = await service.events(asked("How deep is Baikal?"))
            start, end = of(first, ToolCallStart, ToolCallComplete)
            assert isinstance(start, ToolCallStart)
            assert isinstance(end, ToolCallComplete)
            call_id = start.tool_call_id
            assert (start.tool_name, start.tool_args) == ("depth", {"lake": "Baikal"})
            assert (end.tool_call_id, end.result) == (call_id, "1642 m")
            assert of(first, Message, Done) == [Message(content="1642 m."), Done(finish_reason="stop")]

            function = {"name": "depth", "arguments": '{"lake": "Baikal"}'}
            said = [
                {"role": "user", "content": "How deep is Baikal?"},
                {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": call_id, "content": "shortened by the client"},
                {"role": "assistant", "content": "1642 m."},
                {"role": "user", "content": "Are you sure?"},
            ]
            await service.events(request(agent="diver", chat_id="c", messages=said))
    again = model.requests[2]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "tool", "assistant", "user"]
    assert (again[2]["tool_call_id"], again[2]["content"]) == (call_id, "1642 m")


async def test_failing_calls_the_limit_of_calls_and_a_failing_model_are_shown(tmp_path: Path) -> None:
    script: Script = [ask_depth("Ness"), ask_depth("Baikal"), say("Enough."), Refusal(500, "on fire")]
    async with OpenAIServer(script) as model:
        diver = load_diver(tmp_path, model.base_url)
        async with serving(tmp_path, diver, max_tool_calls_per_turn=1) as service:
            first = await service.events(asked("How deep is Loch Ness?"))
            second = await service.events(asked("How deep is Baikal?"))
    failed, _ = of(first, ToolCallError)
    assert isinstance(failed, ToolCallError)
    assert failed.error == "KeyError: 'Ness'"
    assert model.requests[1]["messages"][-1]["content"] == failed.error
    assert [len(body["tools"]) for body in model.requests] == [1, 1, 0, 1]
    assert of(first, Message, Done) == [Message(content="Enough."), Done(finish_reason="max_turns")]
    (error,) = of(second, Error)
    assert isinstance(error, Error)
    assert error.code == "model_error"


def test_the_adapter_imports_public_names_only_and_is_short() -> None:
    adapter = EXAMPLES / "tiny_adapter.py"
    tree = ast.parse(adapter.read_text())
    modules = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    public = {f"callboard.{page.stem}" for page in (DOCS / "reference" / "api").glob("*.md")}
    assert {module for module in modules if module.startswith("callboard")} <= public
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr)]
    assert len(statements) < 45
