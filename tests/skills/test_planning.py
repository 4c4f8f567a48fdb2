"""The skill `plan`, through a real server."""

import json
from pathlib import Path
from typing import Any

from callboard import Agent, Skill
from callboard.calls import ToolContext, ToolResult, tool
from callboard.models import ScriptedModel, TextDelta, ToolCallDelta
from callboard.models.model import ModelRequest
from callboard.skills import Planning
from callboard_protocol import Plan, ToolCallComplete
from tests.runs.promises import read
from tests.serving import request, serving

STEPS = [{"content": "Look", "state": "in_progress"}, {"content": "Write"}]
SHOWN = Plan.model_validate(
    {
        "steps": [
            {"id": "1", "content": "Look", "state": "in_progress"},
            {"id": "2", "content": "Write", "state": "pending"},
        ]
    }
)


def calling(name: str, arguments: dict[str, Any], *skills: Skill) -> Agent:
    """Return an agent that calls this tool once and says what the model reads of it."""

    def script(asked: ModelRequest) -> Any:
        last = asked.messages[-1]
        if last["role"] == "tool":
            yield TextDelta(str(last["content"]))
        else:
            yield ToolCallDelta(index=0, id="a", name=name, arguments=json.dumps(arguments))

    return Agent("scripted", "Plans.", skills, model=ScriptedModel(script, name="scripted"))


async def test_plan_is_recorded_after_its_call_and_read_again(tmp_path: Path) -> None:
    async with serving(tmp_path, calling("plan", {"steps": STEPS}, Planning())) as service:
        events = await service.events(request(run_id="r", chat_id="c"))
        again = read((await service.client.get("/v1/runs/r/events")).content)
    kinds = [event.type for event in events]
    assert kinds.index("plan") == kinds.index("tool_call_complete") + 1
    assert SHOWN in events
    assert SHOWN.summary == "Plan: 0 of 2: Look"
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == [SHOWN.summary]
    assert [event for _, event in again] == events


async def test_secrets_are_removed_from_a_plan(tmp_path: Path) -> None:
    @tool
    async def look(context: ToolContext) -> ToolResult:
        """Looks."""
        key = context.secret("rosalind-4711")
        steps = ({"id": key, "content": f"Use {key}", "state": "pending"},)
        return ToolResult("fine", plan=Plan.model_validate({"steps": steps}))

    async with serving(tmp_path, calling("look", {}, Skill("looks", "Looks.", tools=(look,)))) as service:
        response = await service.client.post("/v1/runs", json=request())
    [shown] = [event for _, event in read(response.content) if isinstance(event, Plan)]
    assert shown.steps[0]["content"] == "Use [secret]"
    assert "4711" not in response.text
