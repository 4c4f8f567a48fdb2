"""Asks the user for the approvals and answers that a paused Agno run needs."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal
from uuid import uuid4

from agno.models.response import ToolExecution
from agno.run.requirement import RunRequirement
from agno.tools.function import UserFeedbackQuestion, UserInputField
from pydantic_core import to_json

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolError
from callboard.frameworks.agno.model import Hooks
from callboard.frameworks.agno.stream import Output
from callboard.frameworks.choices import CHOICE_HINT, find_option, list_options
from callboard.frameworks.turn import Turn
from callboard_protocol import InputRequest

CONVERTERS: Mapping[type, Callable[[str], object]] = {int: int, float: float}
"""Convert an answer to the type of a field. Other types stay text."""

USER_ANSWER_TOOLS = frozenset({"get_user_input", "ask_user"})
"""Agno's own tools whose result is the user's answer."""


async def resolve_requirements(paused: Output, hooks: Hooks) -> None:
    """Ask for everything that the run needs, all at once. A call that is refused or not answered is not run."""
    await asyncio.gather(
        *(
            _resolve_one(requirement, hooks)
            for requirement in paused.requirements or ()
            if not requirement.is_resolved()
        )
    )


async def _resolve_one(requirement: RunRequirement, hooks: Hooks) -> None:
    tool = requirement.tool_execution
    assert tool is not None, "a requirement is a tool's"
    call_id = tool.tool_call_id or ""
    name = tool.tool_name or ""
    arguments = tool.tool_args or {}
    await hooks.turn.calls.start(ToolCall(call_id, name, hooks.arguments.get(call_id, arguments)))
    try:
        if requirement.needs_confirmation:
            await hooks.turn.calls.approve(ToolCall(call_id, name, arguments))
            requirement.confirm()  # type: ignore[no-untyped-call] # Agno's has no types
        answers = await _ask_for_answers(requirement, call_id, hooks.turn)
    except ToolError as error:
        hooks.turn.calls.fail(call_id, error)
        _reject(requirement, tool, f"Error: {error}")
    else:
        if name in USER_ANSWER_TOOLS:
            hooks.turn.calls.complete(call_id, ToolResult(to_json(answers, serialize_unknown=True).decode()))


async def _ask_for_answers(requirement: RunRequirement, call_id: str, turn: Turn) -> dict[str, object]:
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
        answers |= {field.name: await _ask_for_value(field, call_id, turn) for field in open_fields}
        requirement.provide_user_input(answers)
    if requirement.needs_external_execution:
        name = requirement.tool_execution and requirement.tool_execution.tool_name
        raise ToolError(f"Not run: {name} is to be run outside of its agent (external_execution), not supported here.")
    return answers


async def _ask_for_value(field: UserInputField, call_id: str, turn: Turn) -> object:
    """Return the user's value for one argument. Raises `ToolError` if it does not have the argument's type."""
    if field.field_type is bool:
        return bool(await _ask("confirmation", field.name, field.description or "", call_id, turn))
    answer = str(await _ask("input", field.name, field.description or "", call_id, turn))
    try:
        return CONVERTERS.get(field.field_type, str)(answer)
    except ValueError:
        raise ToolError(f"Not run: the user gave {answer!r} for {field.name}, which is not a number.") from None


async def _ask_for_choice(question: UserFeedbackQuestion, call_id: str, turn: Turn) -> list[str]:
    """Return the labels that the user chose by number or text. Any other text is returned as it is."""
    labels = [option.label for option in question.options or ()]
    options = list_options([(option.label, option.description or "") for option in question.options or ()])
    hint = ""
    if labels:
        hint = "Numbers or words, separated by commas" if question.multi_select else CHOICE_HINT
    answer = str(await _ask("input", question.question, options, call_id, turn, hint))
    parts = answer.split(",") if question.multi_select else [answer]
    places = [(part.strip(), find_option(part, labels)) for part in parts]
    return [part if place is None else labels[place] for part, place in places]


async def _ask(
    kind: Literal["input", "confirmation"], title: str, message: str, call_id: str, turn: Turn, hint: str = ""
) -> object:
    request = InputRequest(
        request_id=uuid4().hex, kind=kind, title=title, message=message, placeholder=hint, tool_call_id=call_id
    )
    answer: object = await turn.ask(request)
    return answer


def _reject(requirement: RunRequirement, tool: ToolExecution, note: str) -> None:
    """Reject a call. Agno only lets a call be rejected that waits for a confirmation, so the call is marked as one."""
    tool.requires_confirmation = True
    tool.confirmed = None
    tool.answered = True
    tool.requires_user_input = tool.external_execution_required = False
    requirement.confirmation = None
    requirement.reject(note)
