"""Converts earlier answers from Open WebUI back to the messages of the model: text, tool calls and results.

The pipe, and `drawing` for the OpenAI routes, write tool calls and reasoning as `<details>` blocks into the answer's
text, and Open WebUI sends that text with the next turn. A model that reads the HTML imitates it. The functions take
time proportional to the text's length and never raise.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from callboard._call_ids import new_call_id
from callboard_protocol import ChatMessage, FunctionCall, ToolCallPart

TAG = "<details"
"""The beginning of a block."""

END = "</details>"

GUARDED = "<\u200bdetails"
"""`<details` in the model's own text, with a zero-width space, so that it is no tag."""

NOTICE = "> **Callboard:** "
"""The beginning of a message line that is from the pipe itself."""

LABEL = " · "
"""The separator between a tool's name and the label behind it on a card. No tool's name contains it."""

INNER = "↳ "
"""The beginning of a line above a call's result that describes a call made by another agent inside of this call."""

CITED = "#source"
"""The mark between the pipe's number of a citation and the model's number."""

_MARKS = (TAG, GUARDED, NOTICE, CITED)
# A tag that is a line of its own is from the pipe, because `DetailsWriter` alters such a tag in the model's text.
_OWN_TAG = re.compile(r"<details\s([^>\n]*+)>")
_ATTRIBUTE = re.compile(r'(?<!\w)(\w++)="([^"]*)"')
_SUMMARY = re.compile(r"<summary>[^<]*</summary>")
_NUMBER = re.compile(r"(?<=[\[ ])\d{1,9}$")

MAX_TAG_CHARS = 2 * 1024 * 1024
"""The longest tag that is read. The pipe writes none as long: the server cuts arguments, the pipe results."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call that was read from a block. `arguments` is JSON text. `result` is None if the call never ended."""

    tool_call_id: str
    name: str
    arguments: str
    result: str | None
    round: str


def translate(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the messages for the model: blocks become `tool_calls` and `role: "tool"` messages.

    Adjacent blocks of one round become one assistant message. Reasoning blocks, the pipe's notices, the pipe's numbers
    of citations, and the labels behind the tools' names are removed. Messages without any of these are unchanged.
    """
    return tuple(translated for message in messages for translated in _translate(message))


def count_blocks(message: ChatMessage) -> int:
    """Return the number of blocks of any kind in the text of a message."""
    parts = message.content if isinstance(message.content, list) else [{"text": message.content}]
    return sum(text.count(END) for part in parts if isinstance(text := part.get("text"), str))


def read_answer(content: str) -> Iterator[str | PastCall]:
    """Yield the texts and the tool calls of an earlier answer in order. A block without a tool's name is text."""
    start = at = 0
    for chunk in content.split(END)[:-1]:
        for tag_begin, tag_end, attributes in _find_own_tags(chunk):
            call = _read_call(attributes, chunk, tag_end) if attributes.get("type") == "tool_calls" else None
            if call or attributes.get("type") == "reasoning":
                yield from _read_text(content[start : at + tag_begin].removesuffix("\n").removesuffix("\n"))
                if call:
                    yield call
                start = at + len(chunk) + len(END)
                # Two line breaks surround a block on each side: one is its own, one joins it to the text.
                start += content.startswith("\n", start) + content.startswith("\n\n", start)
                break
        at += len(chunk) + len(END)
    yield from _read_text(content[start:])


# Regular expressions get a line, a tag or a few characters, never the whole text. A search through 30 MB takes one
# second, and during a search no other thread runs, not even the server's event loop.


def _find_own_tags(chunk: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield the start, the end and the attributes of each tag that is a line of its own."""
    begin = 0 if chunk.startswith(TAG) else chunk.find(f"\n{TAG}") + 1
    while begin > 0 or (begin == 0 and chunk.startswith(TAG)):
        end = _find_line_end(chunk, begin)
        if end - begin <= MAX_TAG_CHARS and (tag := _OWN_TAG.fullmatch(chunk, begin, end)):
            yield begin, end, {found[1]: found[2] for found in _ATTRIBUTE.finditer(tag[1])}
        begin = chunk.find(f"\n{TAG}", end) + 1 or -1


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _read_text(text: str) -> Iterator[str]:
    return (_remove_source_numbers(words.replace(GUARDED, TAG)) for words in _split_at_notices(text))


def _split_at_notices(text: str) -> Iterator[str]:
    """Yield the texts between notices, without the two line breaks before and after each notice."""
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
    """Return the text without the pipe's numbers before the names of sources."""
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


def _read_call(attributes: Mapping[str, str], chunk: str, tag_end: int) -> PastCall | None:
    """Return the call of the block whose tag ends at `tag_end`, None if the block names no tool."""
    values = {name: html.unescape(value) for name, value in attributes.items()}
    if not (name := values.get("name")):
        return None
    # Some versions of Open WebUI write the result below the summary.
    result = html.unescape(_remove_summary(chunk[tag_end:]).strip("\n")) or _decode(values.get("result", ""))
    is_open = values.get("done") == "false"
    return PastCall(
        tool_call_id=values.get("id") or new_call_id(),
        # The label behind the name shows the call's progress or how it ended.
        name=name.partition(LABEL)[0],
        arguments=_decode(values.get("arguments", "")),
        result=None if is_open else _remove_inner_calls(result),
        round=values.get("round", ""),
    )


def _remove_inner_calls(result: str) -> str:
    """Return the result without the lines about inner calls and the empty line after them."""
    if not result.startswith(INNER):
        return result
    lines = result.split("\n")
    return "\n".join(dropwhile(lambda line: line.startswith(INNER), lines)).removeprefix("\n")


def _remove_summary(body: str) -> str:
    at = body.find("<summary>")
    summary = _SUMMARY.match(body, at) if at >= 0 else None
    return body[:at].rstrip("\n") + body[summary.end() :] if summary else body


def _decode(text: str) -> str:
    # An attribute is JSON. A JSON string is decoded; any other value stays JSON text.
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _translate(message: ChatMessage) -> list[ChatMessage]:
    message = _remove_labels(message)
    if message.role == "tool" and isinstance(message.content, str):
        return [message.model_copy(update={"content": _remove_inner_calls(message.content)})]
    text, others = _split_content(message.content)
    if message.role != "assistant" or text is None or not any(mark in text for mark in _MARKS):
        return [message]
    if message.tool_calls:
        # Native items have their calls in `tool_calls`, so only the text is read.
        words = "\n\n".join(piece for piece in read_answer(text) if isinstance(piece, str) and piece.strip())
        return [message.model_copy(update={"content": others or words or None})]
    before = [ChatMessage(role="assistant", content=others)] if others else []
    return [*before, *_build_messages(text)]


def _remove_labels(message: ChatMessage) -> ChatMessage:
    """Return the message without labels behind its tools' names. Cards of native calls have the same labels."""
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
    """Return the text parts of a content as lines, and its other parts."""
    if not isinstance(content, list):
        return content, []
    texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    return "\n".join(texts), [part for part in content if not isinstance(part.get("text"), str)]


def _build_messages(content: str) -> Iterator[ChatMessage]:
    rounds: list[tuple[list[str], list[PastCall]]] = [([], [])]
    for piece in read_answer(content):
        texts, calls = rounds[-1]
        if isinstance(piece, PastCall):
            if calls and calls[-1].round != piece.round:
                calls = []
                rounds.append(([], calls))
            calls.append(piece)
        elif piece.strip():
            if calls:
                texts = []
                rounds.append((texts, []))
            texts.append(piece)
    for texts, calls in rounds:
        parts = tuple(
            ToolCallPart(id=call.tool_call_id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for call in calls
        )
        if texts or parts:
            yield ChatMessage(role="assistant", content="\n\n".join(texts) or None, tool_calls=parts or None)
        for call in calls:
            if call.result is not None:
                yield ChatMessage(role="tool", tool_call_id=call.tool_call_id, content=call.result)
