"""Earlier answers, as Open WebUI keeps and sends them, back into the messages that the model lived through. Pure.

The pipe, and the OpenAI endpoint's `details`, draw tool calls and reasoning as `<details>` blocks
in the answer's text, which comes back verbatim on the next turn. A model that read it would see
HTML and imitate it. Linear in the text's length; never raises.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from callboard_protocol import ChatMessage, FunctionCall, ToolCallPart

GUARDED = "<\u200bdetails"
"""What stands for `<details` in the model's own words: with an invisible space it is no tag."""

NOTICE = "> **Callboard:** "
"""How a line begins that the pipe itself has to say."""

LABEL = " · "
"""What stands between a tool's name and what its card says behind it; no tool's name has it."""

FROM_TEXT = f"{LABEL}from text"
"""What the card says of a call that was read from the model's text, when it has ended too."""

_MARKS = ("<details", GUARDED, NOTICE, "#source")
# What stands on a line of its own and is not the model's: its text cannot begin one like that.
_OWN_TAG = re.compile(r"(?m)^<details\s([^>\n]*+)>$")
_OWN_NOTICE = re.compile(rf"(?m)\n{{0,2}}^{re.escape(NOTICE)}.*$\n{{0,2}}")
_ATTRIBUTE = re.compile(r'(?<!\w)(\w++)="([^"]*)"')
_SUMMARY = re.compile(r"\n*<summary>[^<]*</summary>")
_CITED = re.compile(r"(?<=[\[ ])\d{1,9}#(?=source\d)")
_END = "</details>"


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call as its block tells of it; `arguments` is JSON text, `result` None where the call never ended."""

    tool_call_id: str
    name: str
    arguments: str
    result: str | None
    round: str


def translate(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages as the model should read them: blocks become `tool_calls` and `role: "tool"` messages.

    Blocks of one round that stand together are one assistant message. Reasoning blocks and the
    pipe's notices are dropped, the numbers that the pipe gave to citations are taken back.
    So is what a native call's card says behind its tool's name. Messages that hold none of these
    stay as they are.
    """
    return tuple(translated for message in messages for translated in _translate(message))


def read_answer(content: str) -> Iterator[str | PastCall]:
    """Takes an earlier answer apart into its texts and its tool calls, in order."""
    start = at = 0
    for chunk in content.split(_END)[:-1]:
        tags = ((tag, dict(_ATTRIBUTE.findall(tag[1]))) for tag in _OWN_TAG.finditer(chunk))
        for tag, attributes in tags:
            if attributes.get("type") in ("tool_calls", "reasoning"):
                yield from _own_words(content[start : at + tag.start()].removesuffix("\n").removesuffix("\n"))
                if attributes["type"] == "tool_calls":
                    yield _past_call(attributes, chunk[tag.end() :])
                start = at + len(chunk) + len(_END)
                # Two line breaks stand after it and before it: its own, and the one that joins it to the text.
                start += content.startswith("\n", start) + content.startswith("\n\n", start)
                break
        at += len(chunk) + len(_END)
    yield from _own_words(content[start:])


def _own_words(text: str) -> Iterator[str]:
    return (_CITED.sub("", words.replace(GUARDED, "<details")) for words in _OWN_NOTICE.split(text))


def _past_call(attributes: Mapping[str, str], body: str) -> PastCall:
    values = {name: html.unescape(value) for name, value in attributes.items()}
    # Some versions of Open WebUI put the result below the summary.
    result = html.unescape(_SUMMARY.sub("", body, count=1).strip("\n")) or _decoded(values.get("result", ""))
    name, is_open = values.get("name", ""), values.get("done") == "false"
    return PastCall(
        tool_call_id=values.get("id") or f"call_{uuid4().hex}",
        # The label of a running call has its progress behind the name.
        name=name.partition(LABEL)[0] if is_open else name.removesuffix(FROM_TEXT),
        arguments=_decoded(values.get("arguments", "")),
        result=None if is_open else result,
        round=values.get("round", ""),
    )


def _decoded(text: str) -> str:
    # An attribute is JSON. A JSON string is text as it was; anything else stays JSON text.
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _translate(message: ChatMessage) -> list[ChatMessage]:
    message = _with_plain_names(message)
    text, others = _text_and_others(message.content)
    if message.role != "assistant" or text is None or not any(mark in text for mark in _MARKS):
        return [message]
    if message.tool_calls:
        # Of native items: the calls are told apart already, only the text beside them is to be read.
        said = "\n\n".join(piece for piece in read_answer(text) if isinstance(piece, str) and piece.strip())
        return [message.model_copy(update={"content": others or said or None})]
    before = [ChatMessage(role="assistant", content=others)] if others else []
    return [*before, *_messages_of(text)]


def _with_plain_names(message: ChatMessage) -> ChatMessage:
    """The message with its tools' names alone in native calls, whose cards are labelled as those of blocks are."""
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


def _text_and_others(content: str | list[dict[str, Any]] | None) -> tuple[str | None, list[dict[str, Any]]]:
    """The text of a content, its text parts as lines, and the parts that are none."""
    if not isinstance(content, list):
        return content, []
    texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    return "\n".join(texts), [part for part in content if not isinstance(part.get("text"), str)]


def _messages_of(content: str) -> Iterator[ChatMessage]:
    turns: list[tuple[list[str], list[PastCall]]] = [([], [])]
    for piece in read_answer(content):
        texts, calls = turns[-1]
        if isinstance(piece, PastCall):
            if calls and calls[-1].round != piece.round:
                turns.append(([], calls := []))
            calls.append(piece)
        elif piece.strip():
            if calls:
                turns.append((texts := [], []))
            texts.append(piece)
    for texts, calls in turns:
        made = tuple(
            ToolCallPart(id=call.tool_call_id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for call in calls
        )
        if texts or made:
            yield ChatMessage(role="assistant", content="\n\n".join(texts) or None, tool_calls=made or None)
        for call in calls:
            if call.result is not None:
                yield ChatMessage(role="tool", tool_call_id=call.tool_call_id, content=call.result)
