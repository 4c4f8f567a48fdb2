"""The `plan` skill: the steps of the agent's work, shown to the user while the agent works."""

from typing import Annotated

from pydantic import BaseModel, Field

from callboard.calls import ToolResult, tool
from callboard.skills.skill import Skill
from callboard_protocol import Plan, PlanState, PlanStep

MAX_STEPS = 50
MAX_STEP_CHARS = 500

_PROMPT = """\
For work of three or more steps, call the tool `plan` before the first step, and again whenever a step begins or ends. \
The user sees the steps while you work, so do not repeat them in your answer."""


class Step(BaseModel):
    """A step as the model writes it."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_STEP_CHARS, description="What is done, in a few words.")]
    state: PlanState = "pending"


@tool(name="plan", read_only=True)
async def set_plan(steps: Annotated[list[Step], Field(max_length=MAX_STEPS)]) -> ToolResult:
    """Show the user the steps of your work and how far you are. Replaces the whole earlier plan.

    Args:
        steps: All steps in order, those that are completed too.
    """
    plan = Plan(
        steps=tuple(
            PlanStep(id=str(number), content=step.content, state=step.state) for number, step in enumerate(steps, 1)
        )
    )
    return ToolResult(plan.summary, plan=plan)


class Planning(Skill):
    """A plan of the agent's work, shown to the user: the tool `plan`."""

    def __init__(self) -> None:
        super().__init__("plan", "Shows the user the steps of the agent's work.", _PROMPT, (set_plan,))
