"""Asks the user what an AG-UI run interrupts for, and makes the fields of the request with the answers.

An answer only says whether a call may run: its arguments are those that the agent's server has kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    interrupts: list[ChatDict] = []
    answer = turn.take_unfinished_answer() or {"tool_calls": []}
    for call in answer["tool_calls"]:
        kept = turn.context.provider_details.get(call["id"], {})
        call_id = kept.get("id", call["id"])
        shown = ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        translator.note(call_id, shown, to_text(answer.get("content")))
        await turn.calls.start(shown)
        if (result := turn.calls.earlier_results.get(call["id"])) is not None:
            await translator.end(call_id, result)
        found = kept.get("call", {}).get("interrupt")
        interrupts += [found] if found and found not in interrupts else []
    return interrupts


async def answer_interrupts(interrupts: Sequence[ChatDict], translator: EventTranslator) -> dict[str, Any] | None:
    """Ask the user, and return the fields of the next request; None if a question that is no approval has no answer.

    Approvals are asked last, because the run may end while they wait.
    """
    turn = translator.turn
    calls = [await _find_calls(interrupt, translator) for interrupt in interrupts]
    payloads: list[object] = []
    for interrupt, found in zip(interrupts, calls, strict=True):
        for call_id in found:
            # Stored with the question, for the server that goes on.
            kept = {"origin": translator.origin, "id": call_id, "call": {"interrupt": interrupt}}
            turn.context.provider_details[translator.calls[call_id].id] = kept
        try:
            payloads.append(None if found else await _ask(interrupt, translator))
        except ToolDenied:
            return None
    ids = [call_id for found in calls for call_id in found]
    if translator.decided.intersection(ids):
        # Agent Framework 1.7 does so if of several calls only some are allowed, and has then run none.
        translator.fail("it asks again about a call that is decided: allow or refuse all calls of an answer")
    asked = [translator.calls[call_id] for call_id in ids]
    refusals = dict(zip((call.id for call in asked), await turn.calls.approve_all(asked), strict=True))
    for key in ids:
        if refused := refusals[translator.calls[key].id]:
            turn.calls.fail(translator.calls[key].id, refused)
            translator.ended.add(key)
    translator.decided.update(ids)
    for place, found in enumerate(calls):
        if found:
            decided = [refusals[translator.calls[call_id].id] for call_id in found]
            payloads[place] = _decide(interrupts[place], decided)
    return _to_fields(interrupts, payloads)


async def _ask(interrupt: ChatDict, translator: EventTranslator) -> object:
    """Ask a question that is no approval. Raises `ToolDenied` if it is not answered."""
    call = translator.calls.get(to_text(interrupt.get("toolCallId")))
    try:
        call_id = call.id if call else None
        return await ask_question(translator.turn, interrupt["value"], interrupt.get("responseSchema"), call_id)
    except ToolDenied as unanswered:
        if call:
            translator.turn.calls.fail(call.id, unanswered)
        raise


async def _find_calls(interrupt: ChatDict, translator: EventTranslator) -> list[str]:
    """Return the endpoint's ids of the calls that wait for an approval; none if the interrupt is another question."""
    match interrupt:
        case {"value": {"action_requests": [*actions], "review_configs": [*_]}}:
            # LangChain's middleware names no ids.
            known = [key for key in translator.calls if key not in translator.ended]
            return [await _find_call(action, known, translator) for action in actions]
        case {"value": {"type": "tool_approval", "tool_call_id": str(call_id)}} if call_id in translator.calls:
            return [call_id]
        case {"toolCallId": str(call_id)} if call_id in translator.calls and _find_fields(interrupt):
            return [call_id]
    return []


async def _find_call(action: Mapping[str, Any], known: list[str], translator: EventTranslator) -> str:
    """Return the id of the call that an action is about, and remove it from `known`; a new call if there is none."""
    calls = translator.calls
    named = [key for key in known if calls[key].name == action["name"]]
    same = [key for key in named if read_object(calls[key].arguments) == action["args"]]
    call_id = next(iter([*same, *named]), None)
    if call_id is None:
        call_id = translator.turn.claim_call_id(None)
        await translator.start(call_id, ToolCall(call_id, action["name"], action["args"]))
    else:
        known.remove(call_id)
        # Code of the agent may have changed the arguments since its model wrote them.
        await translator.turn.calls.change_arguments(calls[call_id].id, action["args"])
        calls[call_id] = replace(calls[call_id], arguments=action["args"])
    return call_id


def _find_fields(interrupt: ChatDict) -> Sequence[str]:
    """Return the fields of the payload that say whether the call may run, and why not; none if it is no approval."""
    match interrupt:
        case {"responseSchema": {"properties": {**fields}}}:
            decision = [name for name in ("approved", "accepted") if name in fields][:1]
            return [*decision, *(["reason"] if "reason" in fields else [])] if decision else []
        case _:
            return ["approved"] if interrupt.get("reason") == "tool_call" else []


def _decide(interrupt: ChatDict, refusals: Sequence[ToolError | None]) -> object:
    """Return the payload of an approval. It has no arguments."""
    decisions = [{"type": "reject", "message": str(error)} if error else {"type": "approve"} for error in refusals]
    match interrupt["value"]:
        case {"action_requests": _}:
            return {"decisions": decisions}
        case {"type": "tool_approval"}:
            return decisions[0]
        case _:
            values = [refusals[0] is None, *([str(refusals[0])] if refusals[0] else [])]
            return dict(zip(_find_fields(interrupt), values, strict=False))


def _to_fields(interrupts: Sequence[ChatDict], payloads: Sequence[object]) -> dict[str, Any]:
    ids = [interrupt.get("id") for interrupt in interrupts]
    answers = list(zip(ids, payloads, strict=True))
    entries = [{"interruptId": one, "status": "resolved", "payload": payload} for one, payload in answers]
    if not any(interrupt.get("command") for interrupt in interrupts):
        return {"resume": entries}
    # LangGraph's own way, which its older servers need, and which is the only one for several answers at once.
    if len(ids) > 1:
        return {"forwardedProps": {"command": {"resume": dict(answers)}}}
    command = {"resume": payloads[0], "interruptEvent": interrupts[0]["value"]}
    return {"forwardedProps": {"command": command}, **({"resume": entries} if ids[0] else {})}
