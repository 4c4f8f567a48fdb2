"""Converts earlier answers from Open WebUI back to the messages of the model: text, tool calls and results.

The pipe, and `drawing` for the OpenAI routes, write tool calls and reasoning as `<details>` blocks into the answer's
text, and Open WebUI sends that text with the next turn. A model that reads the HTML imitates it. The functions take
time proportional to the text's length and never raise.
"""

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import regex

from callboard._call_ids import new_call_id
from callboard_protocol import ChatMessage, FunctionCall, ToolCallPart

TAG = "<details"
"""The beginning of a block."""

END = "</details>"

GUARDED = "<\u200b"
"""The beginning of a tag in the model's own text, with a zero-width space, so that it is no tag."""

NOTICE = "> **Callboard:** "
"""The beginning of a message line that is from the pipe itself."""

SAID = "> **You:** "
"""The beginning of a quotation of a message that the user has sent to the run."""

SAID_FIELD = "callboard_said"
"""The field of a user's message that was read from such a quotation: the quotation. `replay` looks for the message."""

QUESTION = "\u200b\u200b"
"""The beginning of a line of a question that the pipe writes above a card: two characters without width."""

LABEL = " · "
"""The separator between a tool's name and the label behind it, on cards of older pipes and of Open WebUI before 0.12.2.

No tool's name contains it."""

INNER = "↳ "
"""The beginning of a line above a call's result that describes a call made by another agent inside of this call."""

CITED = "#source"
"""The mark between the pipe's number of a citation and the model's number."""

_MARKS = (TAG, GUARDED, NOTICE, SAID, QUESTION, CITED)
# A tag that is a line of its own is from the pipe, because `DetailsWriter` alters such a tag in the model's text.
_OWN_TAG = regex.compile(r"(?m)^<details ([^>\n]*+)>$")
_ATTRIBUTE = regex.compile(r'(?<!\w)(\w++)="([^"]*)"')
_SUMMARY = regex.compile(r"(?<!\n)\n*+<summary>[^<]*</summary>")
# Two line breaks surround a notice on each side: one is its own, one joins it to the text.
_NOTICE_LINE = regex.compile(rf"(?m)\n{{0,2}}^(?:{regex.escape(NOTICE)}|(?:\*\*)?{QUESTION}).*+\n{{0,2}}")
_SAID_LINES = regex.compile(rf"(?m)\n{{0,2}}^({regex.escape(SAID)}.*+(?:\n> .*+)*+)\n{{0,2}}")
_SOURCE_NUMBER = regex.compile(rf"(?<=[\[ ])[0-9]{{1,9}}#(?={CITED[1:]}[0-9])")
_OWN_LINE = regex.compile(rf"(?m)^(?!{INNER})")

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

    Adjacent blocks of one round become one assistant message. Reasoning blocks, results drawn below cards, the pipe's
    notices, the pipe's numbers of citations, and the labels behind the tools' names are removed. Messages without any
    of these are unchanged.
    """
    return tuple(translated for message in messages for translated in _translate(message))


def count_blocks(message: ChatMessage) -> int:
    """Return the number of blocks of any kind in the text of a message."""
    parts = message.content if isinstance(message.content, list) else [{"text": message.content}]
    return sum(text.count(END) for part in parts if isinstance(text := part.get("text"), str))


def read_answer(content: str) -> Iterator[str | PastCall | ChatMessage]:
    """Yield the texts, tool calls and user's messages of an earlier answer. A block without a tool's name is text."""
    start = end = 0
    # `concurrent`: other threads can run during the search. One through 30 MB takes a second.
    for tag in _OWN_TAG.finditer(content, concurrent=True):
        if tag.start() < start or len(tag[0]) > MAX_TAG_CHARS:
            continue
        if end < tag.end():
            end = content.find(END, tag.end())
        if end < 0:
            break
        attributes = {found[1]: html.unescape(found[2]) for found in _ATTRIBUTE.finditer(tag[1])}
        is_call = attributes.get("type") == "tool_calls" and attributes.get("name")
        if is_call or attributes.get("type") in ("reasoning", "result"):
            yield from _read_text(content[start : tag.start()].removesuffix("\n").removesuffix("\n"))
            if is_call:
                yield _read_call(attributes, content[tag.end() : end])
            start = end + len(END)
            # Two line breaks surround a block on each side: one is its own, one joins it to the text.
            start += content.startswith("\n", start) + content.startswith("\n\n", start)
    yield from _read_text(content[start:])


def _read_text(text: str) -> Iterator[str | ChatMessage]:
    # Every second part is a quotation.
    for number, part in enumerate(_SAID_LINES.split(text, concurrent=True)):
        if number % 2:
            yield ChatMessage.model_validate({"role": "user", "content": part[len(SAID) :], SAID_FIELD: part})
            continue
        for words in _NOTICE_LINE.split(part, concurrent=True):
            yield _SOURCE_NUMBER.sub("", words.replace(GUARDED, "<"), concurrent=True)


def _read_call(attributes: Mapping[str, str], body: str) -> PastCall:
    # Older versions of Open WebUI wrote the result below the summary, and their chats go on in new ones.
    result = html.unescape(_SUMMARY.sub("", body, count=1).strip("\n")) or _decode(attributes.get("result", ""))
    is_open = attributes.get("done") == "false"
    return PastCall(
        tool_call_id=attributes.get("id") or new_call_id(),
        # The name of the card is for people; older cards have no other.
        name=attributes.get("tool") or attributes["name"].partition(LABEL)[0],
        arguments=_decode(attributes.get("arguments") or "{}"),
        result=None if is_open else _remove_inner_calls(result),
        round=attributes.get("round", ""),
    )


def _remove_inner_calls(result: str) -> str:
    """Return the result without the lines about inner calls and the empty line after them."""
    if not result.startswith(INNER):
        return result
    own = _OWN_LINE.search(result)
    return result[own.start() :].removeprefix("\n") if own else ""


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
    if message.role not in ("assistant", "system") or text is None or not any(mark in text for mark in _MARKS):
        return [message]
    if message.tool_calls or message.role == "system":
        # Native items have their calls in `tool_calls`, and a system message has the thread of a channel as text, where
        # the name of the model is before the first block.
        text = text.replace(f": {TAG}", f":\n{TAG}") if message.role == "system" else text
        pieces = [piece for piece in read_answer(text) if not isinstance(piece, PastCall)]
        # The calls of a message follow its last quotation. A thread has none.
        places = [place for place, piece in enumerate(pieces, 1) if not isinstance(piece, str)]
        said = places[-1] if places and message.role != "system" else 0
        texts = [piece if isinstance(piece, str) else getattr(piece, SAID_FIELD) for piece in pieces[said:]]
        words = "\n\n".join(filter(str.strip, texts))
        return [*_build_messages(pieces[:said]), message.model_copy(update={"content": others or words or None})]
    before = [ChatMessage(role="assistant", content=others)] if others else []
    return [*before, *_build_messages(read_answer(text))]


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


def _build_messages(pieces: Iterable[str | PastCall | ChatMessage]) -> Iterator[ChatMessage]:
    rounds: list[tuple[list[str], list[PastCall]]] = [([], [])]
    for piece in pieces:
        texts, calls = rounds[-1]
        if isinstance(piece, PastCall):
            if calls and calls[-1].round != piece.round:
                calls = []
                rounds.append(([], calls))
            calls.append(piece)
        elif isinstance(piece, ChatMessage):
            yield from _build_rounds(rounds)
            yield piece
            rounds = [([], [])]
        elif piece.strip():
            if calls:
                texts = []
                rounds.append((texts, []))
            texts.append(piece)
    yield from _build_rounds(rounds)


def _build_rounds(rounds: Iterable[tuple[list[str], list[PastCall]]]) -> Iterator[ChatMessage]:
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
