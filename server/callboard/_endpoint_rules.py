"""Rewrites messages so that the strictest endpoints accept them. Pure."""

from collections.abc import Iterable, Sequence
from itertools import dropwhile, groupby, pairwise, takewhile
from typing import Any

ChatDict = dict[str, Any]

NO_ANSWER = "(There was no answer before the next message.)"
_SYSTEM = ("system", "developer")
PARTS_INTRODUCTION = "Of the tool results above, {call_id} holds this beside its text:"
NO_TEXT = "[The result holds no text. What it holds is in the next message.]"


def order_messages(messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages in an order that the strictest endpoints accept.

    The only system message is the first one. User and assistant messages alternate. An assistant message follows tool
    results. No assistant message is empty: `NO_ANSWER` stands between two questions. Mistral's endpoint answers 400 to
    any other order; vLLM and llama.cpp do so with some chat templates. No text beside other parts or calls is blank:
    Open WebUI sends an empty text with a picture, which Anthropic refuses.
    """
    cleaned = [_drop_blank_text(message) for message in messages]
    system = [message for message in cleaned if message["role"] in _SYSTEM]
    others = [message for message in cleaned if message["role"] not in _SYSTEM]
    groups: list[list[ChatDict]] = []
    for previous, message in pairwise([{"role": ""}, *others]):
        role = message["role"]
        before = groups[-1][-1] if groups else {"role": ""}
        if role == "assistant" and _is_empty(message):
            continue
        is_unanswered = before["role"] == "tool" or (before["role"] == "user" and previous["role"] == "assistant")
        if role == "user" and is_unanswered:
            groups += [[{"role": "assistant", "content": NO_ANSWER}], [message]]
        elif role == before["role"] and (role == "user" or (role == "assistant" and not before.get("tool_calls"))):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_join(group) for group in (system, *groups) if group]


def _is_empty(message: ChatDict) -> bool:
    content = message.get("content")
    return not message.get("tool_calls") and (not content or (isinstance(content, str) and not content.strip()))


def _join(messages: Sequence[ChatDict]) -> ChatDict:
    """Return one message with the role of the first one, and with the contents of all."""
    if len(messages) == 1:
        return messages[0]
    contents = [message["content"] for message in messages if message.get("content")]
    text = "\n\n".join(takewhile(_is_text, contents))
    others = list(dropwhile(_is_text, contents))
    parts = [part for one in (text, *others) if one for part in _parts(one)]
    content = parts if others else text or messages[-1].get("content")
    joined: ChatDict = {}
    for message in messages:
        joined |= message
    return _drop_blank_text({**joined, "role": messages[0]["role"], "content": content})


def _is_text(content: object) -> bool:
    return isinstance(content, str)


def _parts(content: object) -> list[object]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _drop_blank_text(message: ChatDict) -> ChatDict:
    """Return the message without its blank text parts, unless it has neither other parts nor calls."""
    content = message.get("content")
    if isinstance(content, str) and content.isspace() and message.get("tool_calls"):
        return {**message, "content": None}
    if not isinstance(content, list):
        return message
    parts = [part for part in content if part.get("type") != "text" or str(part.get("text")).strip()]
    return {**message, "content": parts or (None if message.get("tool_calls") else content)}


def move_parts(messages: Iterable[ChatDict]) -> list[ChatDict]:
    """Return the messages with images and other parts of tool results moved into a user message after the results.

    OpenAI accepts only text in tool messages: https://platform.openai.com/docs/api-reference/chat/create.
    """
    moved: list[ChatDict] = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        if not is_result:
            moved += group
            continue
        others: list[dict[str, Any]] = []
        for message in group:
            result, parts = _split(message)
            moved.append(result)
            others += parts
        if others:
            moved.append({"role": "user", "content": others})
    return moved


def _split(message: ChatDict) -> tuple[ChatDict, list[dict[str, Any]]]:
    """Return the tool result with its text only, and its other parts after a line that names the call."""
    content = message.get("content")
    if not isinstance(content, list):
        return message, []
    others = [part for part in content if part.get("type") != "text"]
    if not others:
        return message, []
    text = "\n".join(part["text"] for part in content if part.get("type") == "text" and part.get("text"))
    words = PARTS_INTRODUCTION.format(call_id=message.get("tool_call_id"))
    return {**message, "content": text or NO_TEXT}, [{"type": "text", "text": words}, *others]
