"""The things that an interrupted graph waits for, asked of the user."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from langgraph.types import Command, Interrupt
from pydantic_core import from_json, to_json

from callboard.calls import ToolCall
from callboard.errors import ToolDenied
from callboard.frameworks.choices import HINT, find_option, list_options
from callboard.frameworks.langgraph.hooks import Hooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard_protocol import InputRequest

QUESTION = "The agent asks"
QUESTIONS = ("question", "message", "prompt", "text", "title", "query", "ask")
OPTIONS = ("options", "choices")
LABELS = ("label", "title", "name", "text", "value", "id")
VALUES = ("value", "id")
"""The names that graphs give the parts of a question, the usual ones first; LangGraph prescribes none."""
WORDS = {"yes": True, "true": True, "no": False, "false": False}
"""Answers that are no text: graphs ask for consent in a condition, where the text `no` is as good as `yes`."""


async def resolve(interrupts: Sequence[Interrupt], hooks: Hooks) -> Command[Any] | None:
    """Ask everything at once; return None where the run cannot go on, without an answer that is no approval."""
    questions = _Questions(hooks)
    answers = await asyncio.gather(*(questions.answer(one) for one in interrupts))
    if any(answer is None for answer in answers):
        return None
    return Command(resume={one.id: answer for one, answer in zip(interrupts, answers, strict=True)})


class _Questions:
    """The questions of one pause. The calls that they are about are told by their names and arguments."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._asked: set[str] = set()

    async def answer(self, interrupt: Interrupt) -> object:
        call_id = self._hooks.paused.get(interrupt.id)
        match interrupt.value:
            # What LangChain's HumanInTheLoopMiddleware asks, for all calls of an answer or for one.
            case {"action_requests": [*actions], "review_configs": [*rules]}:
                allowed = {rule["action_name"]: rule["allowed_decisions"] for rule in rules}
                asked = [(self._call(action), allowed.get(action["name"], ())) for action in actions]
                return {"decisions": await asyncio.gather(*(self._decide(*one) for one in asked))}
            case {"type": "tool_approval", "tool_call_id": str() as gated} if gated in self._hooks.calls:
                return await self._decide(self._hooks.calls[gated], ("approve", "reject"))
            case question:
                schema = getattr(interrupt, "response_schema", None)
                yes_or_no = isinstance(schema, Mapping) and schema.get("type") == "boolean"
                try:
                    if isinstance(question, Mapping) and (parts := _read_question(question)) is not None:
                        return await self._ask_question(parts, call_id)
                    return await self._ask(question, call_id, yes_or_no=yes_or_no)
                except ToolDenied as unanswered:
                    if call_id is not None:
                        self._turn.calls.fail(call_id, unanswered)
                    return None

    def _call(self, action: Mapping[str, Any]) -> ToolCall:
        """Return the call that is to be decided; one of its own where a graph asks about what no model wrote."""
        for call in self._hooks.calls.values():
            known = call.id in self._asked or call.id in self._hooks.results
            if not known and (call.name, read_arguments(call) or {}) == (action["name"], action["args"]):
                break
        else:
            call = ToolCall(self._turn.claim(None), action["name"], to_json(action["args"]).decode())
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
                return {"type": "respond", "message": str(await self._ask(arguments, call.id))}
            await self._turn.calls.approve(replace(call, arguments=arguments))
        except ToolDenied as denied:
            self._turn.calls.fail(call.id, denied)
            return {"type": "respond" if is_answered_by_user else "reject", "message": str(denied)}
        return {"type": "approve"}

    async def _ask_question(self, question: "_Question", call_id: str | None) -> object:
        """Return the option that the user chooses, or their own words."""
        if not question.options:
            return await self._ask(question.text, call_id)
        options = list_options([(one.label, one.description) for one in question.options])
        answer: object = await self._turn.ask(
            InputRequest(
                request_id=uuid4().hex,
                kind="input",
                title=QUESTION,
                message=f"{question.text}\n\n{options}",
                placeholder=HINT,
                tool_call_id=call_id,
            )
        )
        place = find_option(str(answer), [one.label for one in question.options])
        return answer if place is None else question.options[place].value

    async def _ask(self, question: object, call_id: str | None, *, yes_or_no: bool = False) -> object:
        text = question if isinstance(question, str) else to_json(question, indent=2, serialize_unknown=True).decode()
        answer: object = await self._turn.ask(
            InputRequest(
                request_id=uuid4().hex,
                kind="confirmation" if yes_or_no else "input",
                title=QUESTION,
                message=text,
                tool_call_id=call_id,
            )
        )
        return _read(answer) if isinstance(answer, str) else answer


@dataclass(frozen=True, slots=True)
class _Option:
    """A possible answer: what the user reads, and what the graph gets."""

    label: str
    description: str
    value: object


@dataclass(frozen=True, slots=True)
class _Question:
    """A question in words. Without options any text is an answer."""

    text: str
    options: Sequence[_Option] = ()


def _read_question(value: Mapping[str, Any]) -> _Question | None:
    """Return a question that a graph asks as an object, with all else that it tells; None if it has no words."""
    name = next((one for one in QUESTIONS if isinstance(value.get(one), str) and value[one].strip()), None)
    if name is None:
        return None
    options = next((one for one in OPTIONS if isinstance(value.get(one), list | tuple) and value[one]), None)
    rest = {key: one for key, one in value.items() if key not in (name, options)}
    text = value[name]
    if rest:
        text += "\n\n" + to_json(rest, indent=2, serialize_unknown=True).decode()
    return _Question(text, tuple(map(_read_option, value[options])) if options else ())


def _read_option(option: object) -> _Option:
    """Return an option: a text, a number, or an object with a label and a value of usual names."""
    if not isinstance(option, Mapping):
        label = option if isinstance(option, str) else to_json(option, serialize_unknown=True).decode()
        return _Option(label, "", option)
    named = next((str(option[name]) for name in LABELS if option.get(name)), None)
    if named is None:
        return _Option(to_json(option, serialize_unknown=True).decode(), "", option)
    value = next((option[name] for name in VALUES if name in option), named)
    return _Option(named, str(option.get("description") or ""), value)


def _read(answer: str) -> object:
    """Return an answer as its graph may expect it: yes and no as such, an object written as one, else the text."""
    if (word := answer.strip().lower()) in WORDS:
        return WORDS[word]
    try:
        read = from_json(answer)
    except ValueError:
        return answer
    return read if isinstance(read, dict) else answer
