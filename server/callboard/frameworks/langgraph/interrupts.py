"""Asks the user the questions for which a graph interrupts."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langgraph.types import Command, Interrupt
from pydantic_core import to_json

from callboard.calls import ToolCall, ToolResult
from callboard.calls.forms import read_form
from callboard.errors import ToolDenied
from callboard.frameworks.langgraph.hooks import GraphHooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard.frameworks.turn import ask_user, to_text

LITERAL_ANSWERS = {"yes": True, "true": True, "no": False, "false": False}
"""Answers that become booleans: graphs test them in a condition, where the text `no` would count as true."""


async def answer_interrupts(interrupts: Sequence[Interrupt], hooks: GraphHooks) -> Command[Any] | None:
    """Ask the questions, and return the command that resumes the graph.

    Approvals are asked last, because they may wait: the graph goes on with the other answers, and interrupts for them
    again. Return None if a question that is not an approval is not answered: the run cannot continue.
    """
    questions = _Questions(hooks)
    asked = [interrupt for interrupt in interrupts if not questions.is_approval(interrupt)]
    if not asked:
        return Command(resume=await questions.decide(interrupts))
    answers = await asyncio.gather(*map(questions.answer, asked))
    if any(answer is None for answer in answers):
        return None
    return Command(resume={interrupt.id: answer for interrupt, answer in zip(asked, answers, strict=True)})


@dataclass(frozen=True, slots=True)
class _Action:
    """A call that the user decides about. `is_question`: they answer in place of the tool."""

    call: ToolCall
    arguments: dict[str, Any]
    is_question: bool


class _Questions:
    """The questions of one pause. The calls they are about are found by name and arguments."""

    def __init__(self, hooks: GraphHooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._asked: set[str] = set()

    def is_approval(self, interrupt: Interrupt) -> bool:
        """Return whether the user is asked about calls, in the forms of LangChain's `HumanInTheLoopMiddleware`."""
        match interrupt.value:
            case {"action_requests": [*_], "review_configs": [*_]}:
                return True
            case {"type": "tool_approval", "tool_call_id": str() as call_id}:
                return call_id in self._hooks.calls
            case _:
                return False

    async def answer(self, interrupt: Interrupt) -> object:
        """Ask a question that is not an approval, and return the answer."""
        call_id = self._hooks.paused.pop(interrupt.id, None)
        try:
            return await self._ask(interrupt.value, interrupt.response_schema, call_id)
        except ToolDenied as unanswered:
            if call_id is not None:
                self._turn.calls.fail(call_id, unanswered)
            return None

    async def decide(self, interrupts: Sequence[Interrupt]) -> dict[str, object]:
        """Ask about the calls of all interrupts, and return the decisions by the interrupts' ids."""
        actions = {interrupt.id: self._read_actions(interrupt.value) for interrupt in interrupts}
        decisions = await self._decide([action for found in actions.values() for action in found])
        resume: dict[str, object] = {}
        for interrupt in interrupts:
            self._hooks.paused.pop(interrupt.id, None)
            found = [decisions[action.call.id] for action in actions[interrupt.id]]
            resume[interrupt.id] = {"decisions": found} if "action_requests" in interrupt.value else found[0]
        return resume

    def _read_actions(self, question: Mapping[str, Any]) -> list[_Action]:
        if "action_requests" not in question:
            call = self._hooks.calls[question["tool_call_id"]]
            return [_Action(call, read_arguments(call) or {}, is_question=False)]
        allowed = {rule["action_name"]: rule["allowed_decisions"] for rule in question["review_configs"]}
        actions = []
        for one in question["action_requests"]:
            decisions = allowed.get(one["name"], ())
            is_question = "respond" in decisions and "approve" not in decisions
            actions.append(_Action(self._find_call(one), one["args"], is_question))
        return actions

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

    async def _decide(self, actions: Sequence[_Action]) -> dict[str, dict[str, object]]:
        """Return the decisions by call ids. Calls are approved last, because the graph does not go on if one waits."""
        await self._start(actions)
        decisions: dict[str, dict[str, object]] = {}
        approvals = []
        for action in actions:
            call_id = action.call.id
            if read_arguments(action.call) is None:
                self._hooks.refuse(action.call)
                decisions[call_id] = {"type": "reject", "message": str(unreadable_error(action.call))}
            elif action.is_question:
                decisions[call_id] = {"type": "respond", "message": await self._ask_for_result(action)}
            else:
                await self._turn.calls.change_arguments(call_id, action.arguments)
                approvals.append(replace(action.call, arguments=action.arguments))
        for call, refused in zip(approvals, await self._turn.calls.approve_all(approvals), strict=True):
            decisions[call.id] = {"type": "reject", "message": str(refused)} if refused else {"type": "approve"}
            if refused:
                self._turn.calls.fail(call.id, refused)
        return decisions

    async def _start(self, actions: Sequence[_Action]) -> None:
        """Start the calls, and the calls beside them in their answers, which run after the decisions."""
        for action in actions:
            for call in self._hooks.rounds.get(action.call.id, [action.call]):
                if read_arguments(call) is not None:
                    await self._hooks.start(call.id, call.name, action.arguments, asks_first=True)

    async def _ask_for_result(self, action: _Action) -> str:
        """Return the user's answer as the result of the call, which ends with it."""
        call_id = action.call.id
        if (ended := self._turn.calls.earlier_results.get(call_id)) is not None:
            return ended
        try:
            await self._turn.calls.change_arguments(call_id, action.arguments)
            result = str(await self._ask(_to_json(action.arguments), None, call_id))
        except ToolDenied as denied:
            self._turn.calls.fail(call_id, denied)
            return str(denied)
        self._turn.calls.complete(call_id, ToolResult(result))
        return result

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
