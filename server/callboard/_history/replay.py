"""Gives the calls in the messages their stored arguments and results. Pure.

Calls are found by their ids, so that edited, regenerated and branched chats replay exactly the calls of the branch.
`turns` inserts the calls that the client did not send.
"""

import json
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from callboard._call_ids import new_call_id
from callboard._endpoint_rules import move_parts, order_messages
from callboard._history.turns import (
    ChatDict,
    HistoryCall,
    Interjection,
    content_text,
    format_call,
    insert_turns_by_message_id,
)
from callboard.openwebui.details_parser import SAID_FIELD
from callboard.sources import read_sources, source_number
from callboard_protocol.events import EXTERNAL_ID_PREFIX


class Replayed(NamedTuple):
    """The messages for the model, and the sources of all results by their numbers."""

    messages: list[ChatDict]
    sources: dict[int, Any]


def replay(
    messages: Sequence[ChatDict],
    calls: Sequence[HistoryCall],
    unfinished: Collection[str] = (),
    questions: Mapping[str, str] = MappingProxyType({}),
    said: Sequence[Interjection] = (),
) -> Replayed:
    """Return `messages` with the stored arguments and results of their calls.

    `insert_turns_by_message_id` inserts the calls of messages with an id first. Then each call gets its stored
    arguments and result, by its id, unless the stored call with this id is of another tool or has other arguments. Each
    stored call is inserted at most once. If a client repeated an id in thousands of messages, a
    long result would otherwise be inserted thousands of times.

    Calls without a result and results without a call are dropped, because endpoints refuse both; calls whose ids are in
    `unfinished` stay, because they will run again. Calls with a parent are dropped: another agent made them. An empty
    id is replaced by a new one in the call and in its result. Empty arguments become `{}`; other arguments are not
    changed. A question becomes what `questions` has for its text. A user's message that `details_parser` has read from
    an answer becomes the next one of `said` with this text; if there is none, the model wrote it.
    """
    known = {call.tool_call_id: call for call in calls}
    whole = insert_turns_by_message_id(messages, calls, said)
    said_by_text: defaultdict[str, list[str]] = defaultdict(list)
    for one in said:
        said_by_text[_drop_markup(one.text)].append(one.text)
    replayed: list[ChatDict] = []
    position = 0
    while position < len(whole):
        message = whole[position]
        position += 1
        if message["role"] == "assistant" and message.get("tool_calls"):
            end = position
            while end < len(whole) and whole[end]["role"] == "tool":
                end += 1
            replayed += _answer_calls(message, whole[position:end], known, unfinished)
            position = end
        elif isinstance(drawn := message.get(SAID_FIELD), str):
            if texts := said_by_text[_drop_markup(content_text(message.get("content")))]:
                text = texts.pop(0)
                replayed.append({"role": "user", "content": questions.get(text, text)})
            else:
                replayed.append({"role": "assistant", "content": drawn})
        elif message["role"] != "tool":  # a tool message here has no call before it
            if message["role"] == "user" and (told := questions.get(content_text(message.get("content")))) is not None:
                message = _replace_text(message, told)
            replayed.append(_without(message, "id"))
    kept = order_messages(replayed)
    return Replayed(move_parts(kept), _collect_sources(calls, kept))


def _drop_markup(text: str) -> str:
    """Return the text of a message without the characters that its quotation may add, and without white space."""
    return "".join(char for char in text if char.isprintable() and char not in " \xa0*`>")


def _replace_text(message: ChatDict, text: str) -> ChatDict:
    content = message["content"]
    files = [part for part in content if "text" not in part] if isinstance(content, list) else []
    return {**message, "content": [{"type": "text", "text": text}, *files] if files else text}


def _without(message: ChatDict, *names: str) -> ChatDict:
    return {key: value for key, value in message.items() if key not in names}


def _answer_calls(
    message: ChatDict, answers: Sequence[ChatDict], known: dict[str, HistoryCall], unfinished: Collection[str]
) -> list[ChatDict]:
    """Return an assistant message with its calls that have a result or will run again, followed by the results.

    Stored arguments and results replace those of the message, except results of calls that the client ran. Stored calls
    are put in the order in which the model wrote them: with some providers only the first call of an answer carries
    the model's signature. The stored calls of the answer are removed from `known`.
    """
    kept: list[ChatDict] = []
    results: list[ChatDict] = []
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
        if content is None and call_id not in unfinished:
            continue
        call_id = call_id or new_call_id()
        arguments = stored.arguments if stored else function.get("arguments")
        kept.append(format_call(call_id, function["name"], arguments or "{}"))
        if content is not None:
            results.append({"role": "tool", "tool_call_id": call_id, "content": content})
    plain = _without(message, "tool_calls", "id")
    return [{**plain, "tool_calls": kept}, *results] if kept else [plain]


def _find_stored(call: ChatDict, known: Mapping[str, HistoryCall]) -> HistoryCall | None:
    """Return the stored call with the id of a call in a message, None if it is another call.

    The calls of another model in the chat may have the same ids, because some endpoints restart them with each answer,
    for example `functions.search:0`: https://github.com/vllm-project/vllm/issues/50295.
    """
    stored = known.get(call.get("id") or "")
    function = call["function"]
    if stored is None or stored.tool_name != function["name"]:
        return None
    if function.get("arguments") == stored.arguments:
        return stored
    try:
        sent, written = (json.loads(text or "{}") for text in (function.get("arguments"), stored.arguments))
    except (ValueError, RecursionError):
        return stored  # The client has the arguments only in part, or the model wrote no JSON.
    are_objects = isinstance(sent, dict) and isinstance(written, dict)
    return stored if sent == written or not are_objects else None


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
