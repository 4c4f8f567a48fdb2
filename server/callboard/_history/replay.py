"""Inserts the stored calls of a chat into the messages that the client sent. Pure.

Calls are found by their ids, so that edited, regenerated and branched chats replay exactly the calls of the branch.
"""

import json
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from callboard._call_ids import new_call_id
from callboard._history.endpoint_rules import move_parts, order_messages
from callboard._history.records import ChatDict, HistoryCall
from callboard.sources import read_sources, source_number
from callboard_protocol.events import EXTERNAL_ID_PREFIX


class Replayed(NamedTuple):
    """The messages for the model, and the sources of all results by their numbers."""

    messages: list[ChatDict]
    sources: dict[int, Any]


Answered = tuple[ChatDict, ChatDict | None]
"""A call and the message with its result, in OpenAI's format; the result is None if the call will run again."""


def replay(messages: Sequence[ChatDict], calls: Sequence[HistoryCall], unfinished: Collection[str] = ()) -> Replayed:
    """Return `messages` with the stored arguments and results of their calls.

    An assistant message with `tool_calls` gets the stored arguments and results of these calls, by their ids, unless
    the stored call with an id is of another tool or has other arguments. An assistant message without `tool_calls` gets
    the stored calls of its `id`: for each round an assistant message with calls, their results, and then the text of
    the message. Each stored call is inserted at most once by its id, and at most once by its message's id. If a client
    repeated an id in thousands of messages, a long result would otherwise be inserted thousands of times.

    Calls without a result and results without a call are dropped, because endpoints refuse both; calls whose ids are in
    `unfinished` stay, because they will run again. Calls with a parent are dropped: another agent made them. An empty
    id is replaced by a new one in the call and in its result. Empty arguments become `{}`; other arguments are not
    changed.
    """
    by_id = {call.tool_call_id: call for call in calls if call.tool_call_id}
    by_message: defaultdict[str, list[HistoryCall]] = defaultdict(list)
    for call in calls:
        if call.message_id and not call.parent_call_id:
            by_message[call.message_id].append(call)
    replayed: list[ChatDict] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message["role"] == "assistant" and message.get("tool_calls"):
            answers = _collect_answers(messages, position)
            position += len(answers)
            answered = _answer_calls(message, answers, by_id, unfinished)
            replayed += _build_round(_without(message, "tool_calls", "id"), answered)
        elif message["role"] == "assistant" and (stored := _take_turn(message.get("id"), by_message)):
            replayed += _expand_turn(_without(message, "id"), stored)
        elif message["role"] != "tool":  # a tool message here has no call before it
            replayed.append(_without(message, "id"))
    kept = order_messages(replayed)
    return Replayed(move_parts(kept), _collect_sources(calls, kept))


def _take_turn(message_id: object, by_message: dict[str, list[HistoryCall]]) -> list[HistoryCall] | None:
    # The protocol does not check the type of extra fields such as `id`.
    return by_message.pop(message_id, None) if isinstance(message_id, str) else None


def _without(message: ChatDict, *names: str) -> ChatDict:
    return {key: value for key, value in message.items() if key not in names}


def _collect_answers(messages: Sequence[ChatDict], position: int) -> list[ChatDict]:
    end = position
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return list(messages[position:end])


def _answer_calls(
    message: ChatDict, answers: list[ChatDict], known: dict[str, HistoryCall], unfinished: Collection[str]
) -> list[Answered]:
    """Return the calls of an assistant message that have a result, or will run again.

    Stored arguments and results replace those of the message, except results of calls that the client ran. Stored calls
    are put in the order in which the model wrote them: with some providers only the first call of an answer carries
    the model's signature. The stored calls of the answer are removed from `known`.
    """
    answered: list[Answered] = []
    seen = set()
    contents: defaultdict[str, deque[Any]] = defaultdict(deque)
    for answer in answers:
        content = answer.get("content")
        contents[answer.get("tool_call_id") or ""].append("" if content is None else content)
    calls = [(call, _find_stored(call, known)) for call in message["tool_calls"]]
    for call, stored in sorted(calls, key=lambda found: found[1].sequence_index if found[1] else 0):
        call_id = call.get("id") or ""
        if call_id and call_id in seen:
            continue
        seen.add(call_id)
        if stored and stored.parent_call_id:
            continue
        if stored:
            del known[call_id]
        function = call["function"]
        # Calls without an id share the id "": each takes the next of their results.
        content = contents[call_id].popleft() if contents[call_id] else None
        is_the_clients = content is not None and call_id.startswith(EXTERNAL_ID_PREFIX)
        if stored and stored.result is not None and not is_the_clients:
            content = stored.result
        if content is not None or call_id in unfinished:
            arguments = stored.arguments if stored else function.get("arguments")
            answered.append(_answer_call(call_id, function["name"], arguments, content))
    return answered


def _find_stored(call: ChatDict, known: Mapping[str, HistoryCall]) -> HistoryCall | None:
    """Return the stored call with the id of a call in a message, None if it is another call.

    The calls of another model in the chat may have the same ids, because some endpoints restart them with each answer,
    for example `functions.search:0`: https://github.com/vllm-project/vllm/issues/50295.
    """
    stored = known.get(call.get("id") or "")
    function = call["function"]
    if stored is None or stored.tool_name != function["name"]:
        return None
    try:
        sent, written = (json.loads(text or "{}") for text in (function.get("arguments"), stored.arguments))
    except (ValueError, RecursionError):
        return stored  # The client has the arguments only in part, or the model wrote no JSON.
    are_objects = isinstance(sent, dict) and isinstance(written, dict)
    return stored if sent == written or not are_objects else None


def _expand_turn(message: ChatDict, stored: Iterable[HistoryCall]) -> list[ChatDict]:
    """Return the stored rounds of a turn, then the assistant message with its text."""
    ordered = sorted(stored, key=lambda call: (call.round_index, call.sequence_index))
    rounds: list[ChatDict] = []
    for _, calls in groupby(ordered, key=lambda call: call.round_index):
        seen: set[str] = set()
        answered: list[Answered] = []
        for call in calls:
            is_new = not call.tool_call_id or call.tool_call_id not in seen
            seen.add(call.tool_call_id)
            if is_new and call.result is not None:
                answered.append(_answer_call(call.tool_call_id, call.tool_name, call.arguments, call.result))
        if answered:
            rounds += _build_round({"role": "assistant", "content": None}, answered)
    return [*rounds, message]


def _answer_call(call_id: str, name: str, arguments: str | None, content: Any) -> Answered:
    """Return a call and its result in OpenAI's format; an empty id is replaced by a new one."""
    call_id = call_id or new_call_id()
    function = {"name": name, "arguments": arguments or "{}"}
    return (
        {"id": call_id, "type": "function", "function": function},
        None if content is None else {"role": "tool", "tool_call_id": call_id, "content": content},
    )


def _build_round(message: ChatDict, answered: Sequence[Answered]) -> list[ChatDict]:
    """Return the assistant message with its calls, followed by their results."""
    if not answered:
        return [message]
    return [{**message, "tool_calls": [call for call, _ in answered]}, *(result for _, result in answered if result)]


def _collect_sources(calls: Iterable[HistoryCall], messages: Iterable[ChatDict]) -> dict[int, Any]:
    """Return the sources of all results by their numbers; a later source replaces an earlier one of the same number."""
    contents = [call.result for call in calls if call.result is not None]
    contents += [
        message["content"]
        for message in messages
        if message["role"] == "tool" and isinstance(message.get("content"), str)
    ]
    found = {}
    # Most results are in both lists. Each text is parsed once, at its last position.
    for content in reversed(dict.fromkeys(reversed(contents))):
        for item in read_sources(content) or ():
            if (number := source_number(item)) is not None:
                found[number] = item
    return found
