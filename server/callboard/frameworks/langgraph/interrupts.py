"""Asks the user the questions for which a graph interrupts."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langgraph.types import Command, Interrupt
from pydantic_core import from_json, to_json

from callboard.calls import ToolCall
from callboard.calls.forms import read_form
from callboard.errors import ToolDenied
from callboard.frameworks.langgraph.hooks import GraphHooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard.frameworks.questions import ask_user

QUESTION_FIELDS = ("question", "message", "prompt", "text", "title", "query", "ask")
OPTION_FIELDS = ("options", "choices")
LABEL_FIELDS = ("label", "title", "name", "text", "value", "id")
VALUE_FIELDS = ("value", "id")
"""The usual names of a question's parts, in order of preference. LangGraph prescribes none."""
LITERAL_ANSWERS = {"yes": True, "true": True, "no": False, "false": False}
"""Answers that become booleans: graphs test them in a condition, where the text `no` would count as true."""


async def answer_interrupts(interrupts: Sequence[Interrupt], hooks: GraphHooks) -> Command[Any] | None:
    """Ask all questions at once, and return the command that resumes the graph.

    Return None if a question that is not an approval is not answered: the run cannot continue.
    """
    questions = _Questions(hooks)
    answers = await asyncio.gather(*(questions.answer(interrupt) for interrupt in interrupts))
    if any(answer is None for answer in answers):
        return None
    return Command(resume={interrupt.id: answer for interrupt, answer in zip(interrupts, answers, strict=True)})


class _Questions:
    """The questions of one pause. The calls they are about are found by name and arguments."""

    def __init__(self, hooks: GraphHooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._asked: set[str] = set()

    async def answer(self, interrupt: Interrupt) -> object:
        call_id = self._hooks.paused.pop(interrupt.id, None)
        match interrupt.value:
            # LangChain's HumanInTheLoopMiddleware asks about all calls of an answer, or about one.
            case {"action_requests": [*actions], "review_configs": [*rules]}:
                allowed = {rule["action_name"]: rule["allowed_decisions"] for rule in rules}
                calls = [(self._find_call(action), allowed.get(action["name"], ())) for action in actions]
                return {"decisions": await asyncio.gather(*(self._decide(*pair) for pair in calls))}
            case {"type": "tool_approval", "tool_call_id": str() as waiting_id} if waiting_id in self._hooks.calls:
                return await self._decide(self._hooks.calls[waiting_id], ("approve", "reject"))
            case question:
                try:
                    return await self._ask(question, interrupt.response_schema, call_id)
                except ToolDenied as unanswered:
                    if call_id is not None:
                        self._turn.calls.fail(call_id, unanswered)
                    return None

    def _find_call(self, action: Mapping[str, Any]) -> ToolCall:
        """Return the call that the question is about, or a new call if no model wrote it."""
        for call in self._hooks.calls.values():
            known = call.id in self._asked or call.id in self._hooks.results
            if not known and (call.name, read_arguments(call) or {}) == (action["name"], action["args"]):
                break
        else:
            call = ToolCall(self._turn.claim_call_id(None), action["name"], to_json(action["args"]).decode())
        self._asked.add(call.id)
        return call

    async def _decide(self, call: ToolCall, allowed: Sequence[str]) -> dict[str, object]:
        arguments = read_arguments(call)
        if arguments is None:
            self._hooks.refuse(call)
            return {"type": "reject", "message": str(unreadable_error(call))}
        await self._hooks.start(call.id, call.name, arguments)
        is_answered_by_user = "respond" in allowed and "approve" not in allowed
        try:
            if is_answered_by_user:
                return {"type": "respond", "message": str(await self._ask(_to_json(arguments), None, call.id))}
            await self._turn.calls.approve(replace(call, arguments=arguments))
        except ToolDenied as denied:
            self._turn.calls.fail(call.id, denied)
            return {"type": "respond" if is_answered_by_user else "reject", "message": str(denied)}
        return {"type": "approve"}

    async def _ask(self, question: object, schema: object, call_id: str | None) -> object:
        """Return the user's answer: the values of a form, the value of an option, or a text or what it stands for."""
        if (form := _find_form(schema)) is not None:
            return await ask_user(self._turn, "form", _write(question), call_id, schema=form)
        text, options = _read_question(question)
        if not options:
            is_yes_or_no = isinstance(schema, Mapping) and schema.get("type") == "boolean"
            answer = await ask_user(self._turn, "confirmation" if is_yes_or_no else "input", text, call_id)
            return _parse_answer(answer) if isinstance(answer, str) else answer
        message = "\n".join(
            [text, *(f"{option.label}: {option.description}" for option in options if option.description)]
        )
        labels = [option.label for option in options]
        answer = await ask_user(self._turn, "input", message, call_id, choices=labels, other=True)
        return options[labels.index(answer)].value if answer in labels else answer


@dataclass(frozen=True, slots=True)
class _Option:
    """A possible answer: `label` and `description` for the user, `value` for the graph."""

    label: str
    description: str
    value: object


def _find_form(schema: object) -> dict[str, Any] | None:
    """Return the schema that an interrupt gives for its answer if it is a form, otherwise None."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return None
    try:
        return read_form(schema)
    except ValueError:
        return None


def _to_json(value: object) -> str:
    return to_json(value, indent=2, serialize_unknown=True).decode()


def _write(question: object) -> str:
    return question if isinstance(question, str) else _to_json(question)


def _read_question(question: object) -> tuple[str, list[_Option]]:
    """Return a question as text, and its options, without which any text is an answer.

    If it is an object with a text in a field of a usual name, its other fields follow the text as JSON.
    """
    fields = question if isinstance(question, Mapping) else {}
    name = next(
        (field for field in QUESTION_FIELDS if isinstance(text := fields.get(field), str) and text.strip()), None
    )
    if name is None:
        return _write(question), []
    listed = next(
        (field for field in OPTION_FIELDS if isinstance(fields.get(field), list | tuple) and fields[field]), None
    )
    rest = {key: part for key, part in fields.items() if key not in (name, listed)}
    text = "\n\n".join([fields[name], *([_to_json(rest)] if rest else [])])
    return text, [_read_option(option) for option in fields[listed]] if listed else []


def _read_option(option: object) -> _Option:
    """Return an option, from a text, a number, or an object with a label and a value of usual names."""
    if not isinstance(option, Mapping):
        label = option if isinstance(option, str) else to_json(option, serialize_unknown=True).decode()
        return _Option(label, "", option)
    named = next((str(option[name]) for name in LABEL_FIELDS if option.get(name)), None)
    if named is None:
        return _Option(to_json(option, serialize_unknown=True).decode(), "", option)
    value = next((option[name] for name in VALUE_FIELDS if name in option), named)
    return _Option(named, str(option.get("description") or ""), value)


def _parse_answer(answer: str) -> object:
    """Return an answer in the type that the graph may expect.

    Yes and no become booleans, a JSON object becomes a mapping, and any other answer stays text.
    """
    if (word := answer.strip().lower()) in LITERAL_ANSWERS:
        return LITERAL_ANSWERS[word]
    try:
        read = from_json(answer)
    except ValueError:
        return answer
    return read if isinstance(read, dict) else answer
