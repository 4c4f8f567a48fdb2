"""Details parser: earlier answers, as Open WebUI sends them, back into the messages that the model lived through. Pure.

The pipe, and `details` for the OpenAI endpoint, draw tool calls and reasoning as `<details>` blocks in the answer's
text, which comes back verbatim on the next turn. A model that read it would see HTML and imitate it. Linear in the
text's length; never raises.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from callboard._openwebui.details import CITED, END, GUARDED, LABEL, NOTICE, TAG
from callboard_protocol import ChatMessage, FunctionCall, ToolCallPart

_MARKS = (TAG, GUARDED, NOTICE, CITED)
# What stands on a line of its own and is not the model's: its text cannot begin one like that.
_OWN_TAG = re.compile(r"<details\s([^>\n]*+)>")
_ATTRIBUTE = re.compile(r'(?<!\w)(\w++)="([^"]*)"')
_SUMMARY = re.compile(r"<summary>[^<]*</summary>")
_NUMBER = re.compile(r"(?<=[\[ ])\d{1,9}$")

MAX_TAG_CHARS = 2 * 1024 * 1024
"""No block that was drawn has a longer one: arguments and result are cut before they are escaped."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call as its block tells of it; `arguments` is JSON text, `result` None where the call never ended."""

    tool_call_id: str
    name: str
    arguments: str
    result: str | None
    round: str


def translate(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the messages as the model should read them: blocks become `tool_calls` and `role: "tool"` messages.

    Blocks of one round that stand together are one assistant message. Reasoning blocks and the
    pipe's notices are dropped, the numbers that the pipe gave to citations are taken back.
    So is what a native call's card says behind its tool's name. Messages that hold none of these
    stay as they are.
    """
    return tuple(translated for message in messages for translated in _translate(message))


def count_blocks(message: ChatMessage) -> int:
    """Return how many blocks the text of a message has, tool calls and others."""
    parts = message.content if isinstance(message.content, list) else [{"text": message.content}]
    return sum(text.count(END) for part in parts if isinstance(text := part.get("text"), str))


def read_answer(content: str) -> Iterator[str | PastCall]:
    """Yield the texts and the tool calls of an earlier answer, in order; a block that names no tool is text."""
    start = at = 0
    for chunk in content.split(END)[:-1]:
        for tag_begin, tag_end, attributes in _find_own_tags(chunk):
            calls = _read_calls(attributes, chunk[tag_end:], at) if attributes.get("type") == "tool_calls" else []
            if calls or attributes.get("type") == "reasoning":
                yield from _read_own_words(content[start : at + tag_begin].removesuffix("\n").removesuffix("\n"))
                yield from calls
                start = at + len(chunk) + len(END)
                # Two line breaks stand after it and before it: its own, and the one that joins it to the text.
                start += content.startswith("\n", start) + content.startswith("\n\n", start)
                break
        at += len(chunk) + len(END)
    yield from _read_own_words(content[start:])


# Regular expressions are given a line, a tag or a few letters and never the whole text: one that searches through 30 MB
# takes a second, in which no other thread of Python does anything, the server's own included.


def _find_own_tags(chunk: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield where each tag that is a line begins and ends, and its attributes."""
    begin = 0 if chunk.startswith(TAG) else chunk.find(f"\n{TAG}") + 1
    while begin > 0 or (begin == 0 and chunk.startswith(TAG)):
        end = _find_line_end(chunk, begin)
        if end - begin <= MAX_TAG_CHARS and (tag := _OWN_TAG.fullmatch(chunk, begin, end)):
            yield begin, end, {found[1]: found[2] for found in _ATTRIBUTE.finditer(tag[1])}
        begin = chunk.find(f"\n{TAG}", end) + 1 or -1


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _read_own_words(text: str) -> Iterator[str]:
    return (_remove_source_numbers(words.replace(GUARDED, TAG)) for words in _split_at_notices(text))


def _split_at_notices(text: str) -> Iterator[str]:
    """Yield the text between the lines that are notices, without the two line breaks before and after each."""
    start = 0
    at = text.find(NOTICE)
    while at >= 0:
        if at == 0 or text[at - 1] == "\n":
            before = text[max(start, at - 2) : at]
            yield text[start : at - (len(before) - len(before.rstrip("\n")))]
            start = at = _find_line_end(text, at)
            start += text.startswith("\n", start) + text.startswith("\n\n", start)
        at = text.find(NOTICE, max(start, at + 1))
    yield text[start:]


def _remove_source_numbers(words: str) -> str:
    """Return the text without the numbers that the pipe put before the names of sources."""
    pieces: list[str] = []
    start = 0
    at = words.find(CITED)
    while at >= 0:
        number = _NUMBER.search(words[max(start, at - 10) : at])
        if number and words[at + len(CITED) : at + len(CITED) + 1].isdecimal():
            pieces.append(words[start : at - len(number[0])])
            start = at + 1
        at = words.find(CITED, at + 1)
    pieces.append(words[start:])
    return "".join(pieces)


def _read_calls(attributes: Mapping[str, str], body: str, place: int) -> list[PastCall]:
    """Return the calls of a block, none if it names no tool; `place` tells the blocks of an answer apart."""
    values = {name: html.unescape(value) for name, value in attributes.items()}
    if values.get("name"):
        return [_read_call(values, body)]
    # Open WebUI 0.5.17 to 0.6.4 had all calls of a round in one block, as OpenAI's API has them.
    calls = _read_list(values.get("content", ""))
    results = _read_list(values.get("results", "")) if values.get("done") != "false" else []
    told = {result.get("tool_call_id"): result.get("content") for result in results}
    return [read for call in calls if (read := _read_listed_call(call, told, f"block at {place}"))]


def _read_list(text: str) -> list[dict[str, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _read_listed_call(call: Mapping[str, Any], told: Mapping[Any, Any], round_key: str) -> PastCall | None:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": arguments}} if call_id and name:
            result = told.get(call_id)
            return PastCall(call_id, name, _to_text(arguments), None if result is None else _to_text(result), round_key)
        case _:
            return None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_call(values: Mapping[str, str], body: str) -> PastCall:
    # Some versions of Open WebUI put the result below the summary.
    result = html.unescape(_remove_summary(body).strip("\n")) or _decode(values.get("result", ""))
    name = values.get("name", "")
    is_open = values.get("done") == "false"
    return PastCall(
        tool_call_id=values.get("id") or f"call_{uuid4().hex}",
        # Behind the name the card says how far the call is, or how it ended.
        name=name.partition(LABEL)[0],
        arguments=_decode(values.get("arguments", "")),
        result=None if is_open else result,
        round=values.get("round", ""),
    )


def _remove_summary(body: str) -> str:
    at = body.find("<summary>")
    summary = _SUMMARY.match(body, at) if at >= 0 else None
    return body[:at].rstrip("\n") + body[summary.end() :] if summary else body


def _decode(text: str) -> str:
    # An attribute is JSON. A JSON string is text as it was; anything else stays JSON text.
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _translate(message: ChatMessage) -> list[ChatMessage]:
    message = _remove_labels(message)
    text, others = _split_content(message.content)
    if message.role != "assistant" or text is None or not any(mark in text for mark in _MARKS):
        return [message]
    if message.tool_calls:
        # Of native items: the calls are told apart already, only the text beside them is to be read.
        words = "\n\n".join(piece for piece in read_answer(text) if isinstance(piece, str) and piece.strip())
        return [message.model_copy(update={"content": others or words or None})]
    before = [ChatMessage(role="assistant", content=others)] if others else []
    return [*before, *_build_messages(text)]


def _remove_labels(message: ChatMessage) -> ChatMessage:
    """Return the message with its tools' names alone: native calls' cards are labelled as those of blocks are."""
    calls = message.tool_calls or ()
    if not any(LABEL in call.function.name for call in calls):
        return message
    plain = tuple(
        call.model_copy(
            update={"function": call.function.model_copy(update={"name": call.function.name.partition(LABEL)[0]})}
        )
        for call in calls
    )
    return message.model_copy(update={"tool_calls": plain})


def _split_content(content: str | list[dict[str, Any]] | None) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the text of a content, its text parts as lines, and the parts that are none."""
    if not isinstance(content, list):
        return content, []
    texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    return "\n".join(texts), [part for part in content if not isinstance(part.get("text"), str)]


def _build_messages(content: str) -> Iterator[ChatMessage]:
    turns: list[tuple[list[str], list[PastCall]]] = [([], [])]
    for piece in read_answer(content):
        texts, calls = turns[-1]
        if isinstance(piece, PastCall):
            if calls and calls[-1].round != piece.round:
                calls = []
                turns.append(([], calls))
            calls.append(piece)
        elif piece.strip():
            if calls:
                texts = []
                turns.append((texts, []))
            texts.append(piece)
    for texts, calls in turns:
        parts = tuple(
            ToolCallPart(id=call.tool_call_id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for call in calls
        )
        if texts or parts:
            yield ChatMessage(role="assistant", content="\n\n".join(texts) or None, tool_calls=parts or None)
        for call in calls:
            if call.result is not None:
                yield ChatMessage(role="tool", tool_call_id=call.tool_call_id, content=call.result)
