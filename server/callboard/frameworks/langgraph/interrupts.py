"""The things that an interrupted graph waits for, asked of the user."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from langgraph.types import Command, Interrupt
from pydantic_core import from_json, to_json

from callboard.calls import ToolCall
from callboard.errors import ToolDenied
from callboard.frameworks.langgraph.hooks import Hooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard_protocol import InputRequest

QUESTION = "The agent asks"
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
        if "respond" in allowed and "approve" not in allowed:
            try:
                return {"type": "respond", "message": str(await self._ask(arguments, call.id))}
            except ToolDenied as unanswered:
                return {"type": "respond", "message": str(unanswered)}
        try:
            await self._turn.calls.approve(replace(call, arguments=arguments))
        except ToolDenied as denied:
            self._turn.calls.fail(call.id, denied)
            return {"type": "reject", "message": str(denied)}
        return {"type": "approve"}

    async def _ask(self, question: object, call_id: str | None, *, yes_or_no: bool = False) -> object:
        text = question if isinstance(question, str) else to_json(question, indent=2, serialize_unknown=True).decode()
        request = InputRequest(
            request_id=uuid4().hex,
            kind="confirmation" if yes_or_no else "input",
            title=QUESTION,
            message=text,
            tool_call_id=call_id,
        )
        answer: object = await self._turn.ask(request)
        return _read(answer) if isinstance(answer, str) else answer


def _read(answer: str) -> object:
    """Return an answer as its graph may expect it: yes and no as such, an object written as one, else the text."""
    if (word := answer.strip().lower()) in WORDS:
        return WORDS[word]
    try:
        read = from_json(answer)
    except ValueError:
        return answer
    return read if isinstance(read, dict) else answer
