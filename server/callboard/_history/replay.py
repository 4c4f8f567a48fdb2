"""The replay of earlier turns to the model: the client's branch, with the stored calls in it.

Pure: takes the messages that the client sent and the calls of the chat, returns OpenAI
chat messages. Keyed by tool call ids, so that edits, regenerations and branches replay
exactly the calls that are on the branch.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from callboard._call_ids import new_call_id
from callboard._history.endpoint_rules import move_parts, order_messages
from callboard._history.records import ChatDict, HistoryCall
from callboard._history.sources import read_sources, source_number
from callboard_protocol import EXTERNAL_ID_PREFIX

NO_SOURCE = -1


class Replayed(NamedTuple):
    """The messages for the model, the highest source number in them (−1: none), and each number's source."""

    messages: list[ChatDict]
    max_source_number: int
    source_map: dict[int, Any]


Answered = tuple[ChatDict, ChatDict | None]
"""A call, and the message with its result, both as OpenAI has them; None if the call is to run again."""


def replay(messages: Sequence[ChatDict], calls: Sequence[HistoryCall], unfinished: Collection[str] = ()) -> Replayed:
    """Return `messages` with each stored call's arguments and result in place of what was sent.

    An assistant message with `tool_calls` takes what is stored under each call's id, one
    that has only its `id` the calls of that `message_id`: per round an assistant message
    with the answered calls and their results in order, and the text where it was. A call
    that nothing answers is left out unless its id is in `unfinished`, which are to run again in their round; an answer
    to no call is left out too: endpoints refuse both. A call with a parent is left out: its tool is another agent's.
    An empty id gets a new one, the same on both sides; arguments stay as they were, `{}`
    where there were none.
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
            replayed += _build_round(_leave_out(message, "tool_calls", "id"), answered)
        elif message["role"] == "assistant" and (stored := _find_turn(message.get("id"), by_message)):
            replayed += _expand_turn(_leave_out(message, "id"), stored)
        elif message["role"] != "tool":  # a result without its call
            replayed.append(_leave_out(message, "id"))
    kept = order_messages(replayed)
    sources = _collect_sources(calls, kept)
    return Replayed(move_parts(kept), max(sources, default=NO_SOURCE), sources)


def _find_turn(message_id: object, by_message: Mapping[str, list[HistoryCall]]) -> list[HistoryCall] | None:
    # What the wire types do not name is whatever the client sent.
    return by_message.get(message_id) if isinstance(message_id, str) else None


def _leave_out(message: ChatDict, *names: str) -> ChatDict:
    return {key: value for key, value in message.items() if key not in names}


def _collect_answers(messages: Sequence[ChatDict], position: int) -> list[ChatDict]:
    end = position
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return list(messages[position:end])


def _answer_calls(
    message: ChatDict, answers: list[ChatDict], known: Mapping[str, HistoryCall], unfinished: Collection[str]
) -> list[Answered]:
    """Return the answered calls of a message as it was sent; what is stored under an id goes before what was sent.

    Not so for calls that the client has run: of those it knows best. Stored calls are in the model's order, since only
    the first one of an answer may have the model's signature.
    """
    answered: list[Answered] = []
    seen = set()
    contents: defaultdict[str, deque[Any]] = defaultdict(deque)
    for answer in answers:
        content = answer.get("content")
        contents[answer.get("tool_call_id") or ""].append("" if content is None else content)
    for call in sorted(message["tool_calls"], key=lambda call: _stored_position(call, known)):
        call_id = call.get("id") or ""
        if call_id and call_id in seen:
            continue
        seen.add(call_id)
        stored = known.get(call_id)
        if stored and stored.parent_call_id:
            continue
        function = call["function"]
        # Each answer is used up by the first call of its id.
        content = contents[call_id].popleft() if contents[call_id] else None
        is_the_clients = content is not None and call_id.startswith(EXTERNAL_ID_PREFIX)
        if stored and stored.result is not None and not is_the_clients:
            content = stored.result
        if content is not None or call_id in unfinished:
            arguments = stored.arguments if stored else function.get("arguments")
            answered.append(_answer_call(call_id, function["name"], arguments, content))
    return answered


def _stored_position(call: ChatDict, known: Mapping[str, HistoryCall]) -> int:
    stored = known.get(call.get("id") or "")
    return stored.sequence_index if stored else 0


def _expand_turn(message: ChatDict, stored: Iterable[HistoryCall]) -> list[ChatDict]:
    """Return a turn of which only the text came: its rounds as they are stored, then the text."""
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
    """Return a call with its result, if it has one; one without an id gets one."""
    call_id = call_id or new_call_id()
    function = {"name": name, "arguments": arguments or "{}"}
    return (
        {"id": call_id, "type": "function", "function": function},
        None if content is None else {"role": "tool", "tool_call_id": call_id, "content": content},
    )


def _build_round(text: ChatDict, answered: Sequence[Answered]) -> list[ChatDict]:
    """Return one assistant message with its calls, then their results in the order of the calls."""
    if not answered:
        return [text]
    return [{**text, "tool_calls": [call for call, _ in answered]}, *(result for _, result in answered if result)]


def _collect_sources(calls: Iterable[HistoryCall], messages: Iterable[ChatDict]) -> dict[int, Any]:
    """Return each source number with its source; what came later wins."""
    contents = [call.result for call in calls if call.result is not None]
    contents += [
        message["content"]
        for message in messages
        if message["role"] == "tool" and isinstance(message.get("content"), str)
    ]
    found = {}
    # Most results are in both: each is read once, where it stands last.
    for content in reversed(dict.fromkeys(reversed(contents))):
        for item in read_sources(content) or ():
            if (number := source_number(item)) is not None:
                found[number] = item
    return found
