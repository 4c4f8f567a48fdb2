"""Asks the user the questions for which a graph interrupts."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph.types import Command, Interrupt
from pydantic_core import to_json

from callboard.calls import ToolCall
from callboard.calls.forms import read_form
from callboard.errors import ToolDenied
from callboard.frameworks.langgraph.hooks import GraphHooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard.frameworks.turn import ask_user, to_text

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
                calls = [(self._find_call(one), one["args"], allowed.get(one["name"], ())) for one in actions]
                return {"decisions": await asyncio.gather(*(self._decide(*call) for call in calls))}
            case {"type": "tool_approval", "tool_call_id": str() as waiting_id} if waiting_id in self._hooks.calls:
                call = self._hooks.calls[waiting_id]
                return await self._decide(call, read_arguments(call) or {}, ("approve", "reject"))
            case question:
                try:
                    return await self._ask(question, interrupt.response_schema, call_id)
                except ToolDenied as unanswered:
                    if call_id is not None:
                        self._turn.calls.fail(call_id, unanswered)
                    return None

    def _find_call(self, action: Mapping[str, Any]) -> ToolCall:
        """Return the call that the question is about, or a new call if no model wrote it.

        Middleware before the question may have changed its arguments.
        """
        known = [*self._asked, *self._hooks.results]
        named = [one for one in self._hooks.calls.values() if one.name == action["name"] and one.id not in known]
        same = [one for one in named if (read_arguments(one) or {}) == action["args"]]
        call = next(iter([*same, *named]), None)
        call = call or ToolCall(self._turn.claim_call_id(None), action["name"], to_text(action["args"]))
        self._asked.add(call.id)
        return call

    async def _decide(self, call: ToolCall, arguments: dict[str, Any], allowed: Sequence[str]) -> dict[str, object]:
        if read_arguments(call) is None:
            self._hooks.refuse(call)
            return {"type": "reject", "message": str(unreadable_error(call))}
        await self._hooks.start(call.id, call.name, arguments)
        await self._turn.calls.change_arguments(call.id, arguments)
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
        text, options = _read_question(question)
        if (form := _find_form(schema)) is not None:
            return await ask_user(self._turn, "form", text, call_id, schema=form)
        if not options:
            is_yes_or_no = isinstance(schema, Mapping) and schema.get("type") == "boolean"
            answer = await ask_user(self._turn, "confirmation" if is_yes_or_no else "input", text, call_id)
            return LITERAL_ANSWERS.get(answer.strip().lower(), answer) if isinstance(answer, str) else answer
        answer = await ask_user(self._turn, "input", text, call_id, choices=list(options), other=True)
        return options.get(answer, answer)


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


def _read_question(question: object) -> tuple[str, dict[str, object]]:
    """Return a question as text, and its options, values by label, without which any text is an answer.

    LangGraph prescribes no form: `{"question": …, "options": […]}` is read, whose other fields follow the text as JSON.
    """
    options: dict[str, object] = {}
    match question:
        case str():
            return question, {}
        case {"question": str(text), "options": [*listed], **rest}:
            options = dict(map(_read_option, listed))
            objects = (option for option in listed if isinstance(option, Mapping) and option.get("description"))
            text = "\n".join([text, *(f"{option.get('label')}: {option['description']}" for option in objects)])
        case {"question": str(text), **rest}:
            pass
        case _:
            return _to_json(question), {}
    return "\n\n".join([text, *([_to_json(rest)] if rest else [])]), options


def _read_option(option: object) -> tuple[str, object]:
    """Return the label and the value of an option: a text, a number, or an object with `label` and `value`."""
    match option:
        case {"label": str(label), **rest}:
            return label, rest.get("value", label)
        case _:
            return to_text(option), option
