"""Asks the user the questions of an interrupted AG-UI run, and makes the fields of the request with the answers.

An answer only says whether a call may run: its arguments are those that the agent's server has kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from callboard.calls import ToolCall
from callboard.calls.call import read_object
from callboard.errors import ToolDenied, ToolError
from callboard.frameworks.agui.stream import EventTranslator
from callboard.frameworks.questions import ask_question
from callboard.frameworks.turn import to_text
from callboard.models import ChatDict


async def restore_interrupts(translator: EventTranslator) -> list[ChatDict]:
    """Return the interrupts of the calls that have waited while no server had the run; none in a new run."""
    turn = translator.turn
    kept: ChatDict = {"interrupts": [], "ids": {}}
    answer = turn.take_unfinished_answer() or {"tool_calls": []}
    for call in answer["tool_calls"]:
        # Calls that have ended may have been asked about before the others.
        if call["id"] not in turn.calls.earlier_results:
            kept = turn.context.provider_details.get(call["id"], {}).get("call", kept)
    for call in answer["tool_calls"]:
        call_id = kept["ids"].get(call["id"], call["id"])
        shown = ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        translator.note(call_id, shown, to_text(answer.get("content")))
        await turn.calls.start(shown)
        if (result := turn.calls.earlier_results.get(call["id"])) is not None:
            await translator.end(call_id, result)
    return list(kept["interrupts"])


async def answer_interrupts(interrupts: Sequence[ChatDict], translator: EventTranslator) -> dict[str, Any]:
    """Ask the user, and return the fields of the next request.

    Approvals are asked last, because the run may end while they wait. Raises `ToolDenied` if another question is not
    answered.
    """
    turn = translator.turn
    found = [await _find_calls(interrupt, translator) for interrupt in interrupts]
    for interrupt, call_ids in zip(interrupts, found, strict=True):
        if not call_ids and "payload" not in interrupt:
            call = translator.calls.get(to_text(interrupt.get("toolCallId")))
            call_id = call.id if call else None
            interrupt["payload"] = await ask_question(
                turn, interrupt["value"], interrupt.get("responseSchema"), call_id
            )
    asked = {call_id: translator.calls[call_id] for call_id in chain.from_iterable(found)}
    if translator.decided.intersection(asked):
        # Agent Framework 1.7 does so if of several calls only some are allowed, and has then run none.
        translator.fail("it asks again about a call that is decided: allow or refuse all calls of an answer")
    # Stored with each question, for the server that goes on.
    ids = {call.id: call_id for call_id, call in translator.calls.items()}
    kept = {"call": {"interrupts": interrupts, "ids": ids}}
    turn.context.provider_details.update((call.id, kept) for call in asked.values())
    refusals = dict(zip(asked, await turn.calls.approve_all(list(asked.values())), strict=True))
    for call_id in asked:
        if (result := turn.calls.earlier_results.get(asked[call_id].id)) is not None:
            # The call was refused, perhaps with others, before its server was lost: nobody has allowed it.
            refusals[call_id] = ToolDenied(result)
        if refused := refusals[call_id]:
            turn.calls.fail(asked[call_id].id, refused)
            translator.ended.add(call_id)
    translator.decided.update(asked)
    for interrupt, call_ids in zip(interrupts, found, strict=True):
        if call_ids:
            interrupt["payload"] = _decide(interrupt, [refusals[call_id] for call_id in call_ids])
    answers = {interrupt["id"]: interrupt["payload"] for interrupt in interrupts}
    if interrupts[0].get("command"):
        # LangGraph's own way, which its older servers need, and which is the only one for several answers at once.
        return {"forwardedProps": {"command": {"resume": answers if interrupts[0]["id"] else interrupts[0]["payload"]}}}
    return {"resume": [{"interruptId": one, "status": "resolved", "payload": answers[one]} for one in answers]}


async def _find_calls(interrupt: ChatDict, translator: EventTranslator) -> list[str]:
    """Return the endpoint's ids of the calls that wait for an approval; none if the interrupt is another question."""
    match interrupt:
        case {"value": {"action_requests": [*actions], "review_configs": [*_]}}:
            # LangChain's middleware names no ids.
            known = [key for key in translator.calls if key not in translator.ended]
            return [await _find_call(action, known, translator) for action in actions]
        case {"value": {"type": "tool_approval", "tool_call_id": str(call_id)}} | {
            "toolCallId": str(call_id),
            "responseSchema": {"properties": {"approved": _}},
        } if call_id in translator.calls:
            return [call_id]
    return []


async def _find_call(action: Mapping[str, Any], known: list[str], translator: EventTranslator) -> str:
    """Return the id of the call that an action is about, and remove it from `known`."""
    calls = translator.calls
    named = [key for key in known if calls[key].name == action["name"]]
    same = [key for key in named if read_object(calls[key].arguments) == action["args"]]
    if not named:
        translator.fail(f"it asks about a call of {action['name']} that it has not sent")
    call_id = (same or named)[0]
    known.remove(call_id)
    # Code of the agent may have changed the arguments since its model wrote them.
    await translator.turn.calls.change_arguments(calls[call_id].id, action["args"])
    calls[call_id] = replace(calls[call_id], arguments=action["args"])
    return call_id


def _decide(interrupt: ChatDict, refusals: Sequence[ToolError | None]) -> object:
    """Return the payload of an approval. It has no arguments."""
    decisions = [{"type": "reject", "message": str(error)} if error else {"type": "approve"} for error in refusals]
    match interrupt:
        case {"value": {"action_requests": _}}:
            return {"decisions": decisions}
        case {"value": {"type": "tool_approval"}}:
            return decisions[0]
        case {"responseSchema": {"properties": {"reason": _}}} if refusals[0]:
            return {"approved": False, "reason": str(refusals[0])}
    return {"approved": refusals[0] is None}
