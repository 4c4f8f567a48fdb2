"""Asks the user the questions for which a graph interrupts."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langgraph.types import Command, Interrupt

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolDenied
from callboard.frameworks.langgraph.hooks import GraphHooks
from callboard.frameworks.langgraph.messages import read_arguments, unreadable_error
from callboard.frameworks.questions import ask_question, to_lines
from callboard.frameworks.turn import to_text


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
            return await ask_question(self._turn, interrupt.value, interrupt.response_schema, call_id)
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
            result = str(await ask_question(self._turn, to_lines(action.arguments), None, call_id))
        except ToolDenied as denied:
            self._turn.calls.fail(call_id, denied)
            return str(denied)
        self._turn.calls.complete(call_id, ToolResult(result))
        return result
