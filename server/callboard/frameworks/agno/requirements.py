"""Asks the user for the approvals and answers that a paused Agno run needs."""

import asyncio
from collections.abc import Mapping, Sequence

from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.run.requirement import RunRequirement
from agno.run.team import TeamRunOutput
from agno.tools.function import UserFeedbackQuestion, UserInputField

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolError
from callboard.frameworks.agno.hooks import AgnoHooks
from callboard.frameworks.turn import AdapterTurn, ask_user, to_text

Output = RunOutput | TeamRunOutput

FIELD_TYPES: Mapping[type, str] = {int: "integer", float: "number", bool: "boolean"}
"""The types of a form's fields. Values of other types are asked for as text."""

OTHER = "other"
"""The field of a form for an answer in the user's own words."""

USER_ANSWER_TOOLS = frozenset({"get_user_input", "ask_user"})
"""Agno's own tools whose result is the user's answer."""


async def resolve_requirements(paused: Output, hooks: AgnoHooks) -> None:
    """Ask for everything that the run needs, all at once. A call that is refused or not answered is not run.

    The approvals have been asked for before the pause, because other questions cannot wait.
    """
    await asyncio.gather(
        *(
            _resolve_one(requirement, hooks)
            for requirement in paused.requirements or ()
            if not requirement.is_resolved()
        )
    )


async def _resolve_one(requirement: RunRequirement, hooks: AgnoHooks) -> None:
    turn = hooks.turn
    tool = requirement.tool_execution
    assert tool is not None, "a requirement is a tool's"
    call_id = tool.tool_call_id or ""
    name = tool.tool_name or ""
    arguments = tool.tool_args or {}
    await turn.calls.start(ToolCall(call_id, name, hooks.arguments.get(call_id, arguments)))
    try:
        if requirement.needs_confirmation:
            # Asks only about calls of models without hooks, for example of members that a function makes.
            await hooks.approve([ToolCall(call_id, name, arguments)])
        if (refused := hooks.refusals.get(call_id)) is not None:
            raise refused
        if requirement.needs_confirmation:
            requirement.confirm()  # type: ignore[no-untyped-call] # Agno's has no types
        answers = await _ask_for_answers(requirement, call_id, turn)
    except ToolError as error:
        turn.calls.fail(call_id, error)
        _reject(requirement, tool, f"Error: {error}")
    else:
        if name in USER_ANSWER_TOOLS:
            turn.calls.complete(call_id, ToolResult(to_text(answers)))


async def _ask_for_answers(requirement: RunRequirement, call_id: str, turn: AdapterTurn) -> dict[str, object]:
    """Return the user's answers by question or argument, and store them in the requirement.

    Raises `ToolError` if the user does not answer, or if the call is marked to run outside of the agent.
    """
    answers: dict[str, object] = {}
    if requirement.needs_user_feedback:
        chosen = {
            question.question: await _ask_for_choice(question, call_id, turn)
            for question in requirement.user_feedback_schema or ()
        }
        requirement.provide_user_feedback(chosen)
        answers |= chosen
    if requirement.needs_user_input:
        fields = requirement.user_input_schema or []
        # If the model filled in every field that the user should give, the user is still asked for all of them.
        open_fields = [field for field in fields if field.value is None] or fields
        answers |= await _ask_for_values(open_fields, call_id, turn)
        requirement.provide_user_input(answers)
    if requirement.needs_external_execution:
        name = requirement.tool_execution and requirement.tool_execution.tool_name
        raise ToolError(f"Not run: {name} is to be run outside of its agent (external_execution), not supported here.")
    return answers


async def _ask_for_values(fields: Sequence[UserInputField], call_id: str, turn: AdapterTurn) -> dict[str, object]:
    """Return the user's values of the arguments. Raises `ToolDenied` if the user declines."""
    properties = {
        field.name: {"type": FIELD_TYPES.get(field.field_type, "string"), "description": field.description or ""}
        for field in fields
    }
    schema = {"properties": properties, "required": list(properties)}
    answer: dict[str, object] = await ask_user(turn, "form", "Which values?", call_id, title="", schema=schema)
    return answer


async def _ask_for_choice(question: UserFeedbackQuestion, call_id: str, turn: AdapterTurn) -> list[str]:
    """Return the labels that the user chose, or the user's own words. Raises `ToolDenied` if the user declines."""
    options = [(option.label, option.description or "") for option in question.options or ()]
    labels = [label for label, _ in options]
    described = "\n".join(f"{label}: {description}" for label, description in options if description)
    if question.multi_select and labels:
        chosen = {"type": "array", "title": question.header or "Answer", "items": {"enum": labels}}
        fields = {"chosen": chosen, OTHER: {"type": "string", "title": "Or in your own words"}}
        message = f"{question.question}\n\n{described}".strip()
        answer = await ask_user(turn, "form", message, call_id, title="", schema={"properties": fields})
        return [str(one) for one in (*answer.get("chosen", ()), *filter(None, [answer.get(OTHER)]))]
    return [str(await ask_user(turn, "input", described, call_id, title=question.question, choices=labels, other=True))]


def _reject(requirement: RunRequirement, tool: ToolExecution, note: str) -> None:
    """Reject a call. Agno only lets a call be rejected that waits for a confirmation, so the call is marked as one."""
    tool.requires_confirmation = True
    tool.confirmed = None
    tool.answered = True
    tool.requires_user_input = tool.external_execution_required = False
    requirement.confirmation = None
    requirement.reject(note)
