"""The things that a paused run of Agno waits for, asked of the user."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal
from uuid import uuid4

from agno.models.response import ToolExecution
from agno.run.requirement import RunRequirement
from agno.tools.function import UserFeedbackQuestion, UserInputField
from pydantic_core import to_json

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolError
from callboard.frameworks.agno.hooks import Output
from callboard.frameworks.agno.model import Hooks
from callboard.frameworks.choices import HINT, find_option, list_options
from callboard.frameworks.turn import Turn
from callboard_protocol import InputRequest

READ: Mapping[type, Callable[[str], object]] = {int: int, float: float}
"""The functions that make of an answer what a field holds; all else is text."""

ANSWERS_ALONE = frozenset({"get_user_input", "ask_user"})
"""Agno's own tools whose result is what the user said."""


async def resolve(paused: Output, hooks: Hooks) -> None:
    """Ask for everything that the run waits for, at once; what is refused or not answered is not run."""
    await asyncio.gather(*(_resolve(one, hooks) for one in paused.requirements or () if not one.is_resolved()))


async def _resolve(requirement: RunRequirement, hooks: Hooks) -> None:
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
        if name in ANSWERS_ALONE:
            hooks.turn.calls.complete(call_id, ToolResult(to_json(answers, serialize_unknown=True).decode()))


async def _ask_for_answers(requirement: RunRequirement, call_id: str, turn: Turn) -> dict[str, object]:
    """Return what the user says, by question or argument, which the requirement has then too.

    Raises `ToolError` where they do not answer, or the call could not be run all the same.
    """
    answers: dict[str, object] = {}
    if requirement.needs_user_feedback:
        chosen = {
            one.question: await _ask_for_choice(one, call_id, turn) for one in requirement.user_feedback_schema or ()
        }
        requirement.provide_user_feedback(chosen)
        answers |= chosen
    if requirement.needs_user_input:
        fields = requirement.user_input_schema or []
        # All where none is open: a model that filled in what was the user's to give has not asked them.
        asked = [one for one in fields if one.value is None] or fields
        answers |= {one.name: await _ask_for_value(one, call_id, turn) for one in asked}
        requirement.provide_user_input(answers)
    if requirement.needs_external_execution:
        name = requirement.tool_execution and requirement.tool_execution.tool_name
        raise ToolError(f"Not run: {name} is to be run outside of its agent (external_execution), which nobody does.")
    return answers


async def _ask_for_value(field: UserInputField, call_id: str, turn: Turn) -> object:
    """Return what the user gives for one argument; raises `ToolError` where it is not of the argument's type."""
    if field.field_type is bool:
        return bool(await _ask("confirmation", field.name, field.description or "", call_id, turn))
    answer = str(await _ask("input", field.name, field.description or "", call_id, turn))
    try:
        return READ.get(field.field_type, str)(answer)
    except ValueError:
        raise ToolError(f"Not run: the user gave {answer!r} for {field.name}, which is no number.") from None


async def _ask_for_choice(question: UserFeedbackQuestion, call_id: str, turn: Turn) -> list[str]:
    """Return the labels that the user names, by their numbers or their words; what is no label is an answer too."""
    labels = [one.label for one in question.options or ()]
    options = list_options([(one.label, one.description or "") for one in question.options or ()])
    hint = ""
    if labels:
        hint = "Numbers or words, with commas between" if question.multi_select else HINT
    answer = str(await _ask("input", question.question, options, call_id, turn, hint))
    parts = answer.split(",") if question.multi_select else [answer]
    return [_read_choice(part.strip(), labels) for part in parts]


def _read_choice(part: str, labels: Sequence[str]) -> str:
    """Return the label that a part of an answer means; the part itself where it names none."""
    place = find_option(part, labels)
    return part if place is None else labels[place]


async def _ask(
    kind: Literal["input", "confirmation"], title: str, message: str, call_id: str, turn: Turn, hint: str = ""
) -> object:
    request = InputRequest(
        request_id=uuid4().hex, kind=kind, title=title, message=message, placeholder=hint, tool_call_id=call_id
    )
    answer: object = await turn.ask(request)
    return answer


def _reject(requirement: RunRequirement, tool: ToolExecution, note: str) -> None:
    """Refuse a call in the way that Agno takes of a call that waits for a confirmation, and of no other."""
    tool.requires_confirmation = True
    tool.confirmed = None
    tool.answered = True
    tool.requires_user_input = tool.external_execution_required = False
    requirement.confirmation = None
    requirement.reject(note)
