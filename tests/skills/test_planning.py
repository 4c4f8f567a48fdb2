"""The skill `plan`, through a real server."""

from pathlib import Path

from callboard import Agent, Skill
from callboard.calls import ToolContext, ToolResult, tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Planning
from callboard.storage import Store
from callboard_protocol import Plan, ToolCallComplete
from tests.loop.conftest import wants
from tests.runs.promises import read
from tests.serving import request, serving
from tests.skills.calling import ToolRunner

STEPS = [{"content": "Look", "state": "in_progress"}, {"content": "Write"}]
SHOWN = Plan.model_validate(
    {
        "steps": [
            {"id": "1", "content": "Look", "state": "in_progress"},
            {"id": "2", "content": "Write", "state": "pending"},
        ]
    }
)


async def test_plan_is_made_of_the_steps_and_told_in_a_line(store: Store) -> None:
    result = await ToolRunner(Planning(), store).run("plan", steps=STEPS)
    assert (result.plan, result.text) == (SHOWN, "Plan: 0 of 2: Look")


async def test_plan_is_an_event_after_its_call_without_secrets(tmp_path: Path) -> None:
    @tool
    async def look(context: ToolContext) -> ToolResult:
        """Looks."""
        key = context.secret("rosalind-4711")
        steps = ({"id": key, "content": f"Use {key}", "state": "pending"},)
        return ToolResult("fine", plan=Plan.model_validate({"steps": steps}))

    def script(asked: ModelRequest) -> list[ModelDelta]:
        return [TextDelta("Fine.")] if asked.messages[-1]["role"] == "tool" else [wants("look")]

    agent = Agent("scripted", skills=(Skill("looks", "Looks.", tools=(look,)),), model=ScriptedModel(script))
    async with serving(tmp_path, agent) as service:
        response = await service.client.post("/v1/runs", json=request(run_id="r", chat_id="c"))
        again = await service.client.get("/v1/runs/r/events")
    events = [event for _, event in read(response.content)]
    assert [event for _, event in read(again.content)] == events
    [place] = [place for place, event in enumerate(events) if isinstance(event, Plan)]
    assert isinstance(events[place - 1], ToolCallComplete)
    assert "Use [secret]" in response.text
    assert "4711" not in response.text
