"""Decides whether a call is the model's own or repeats a call from the messages that the model was sent.

A web page, a file or a user's message can contain a call. Texts are compared without white space, quotation marks,
backslashes and case, because a message may be escaped as HTML, or as JSON several times.
"""

import html
import re
from collections.abc import Iterable, Sequence

from callboard.models import ChatDict
from callboard.models.messages import content_text
from callboard_formats.syntax import WrittenCall

_CODE_POINT = re.compile(r"\\+u([0-9a-f]{4})", re.IGNORECASE)
# `\n` within JSON is white space too.
_LEFT_OUT = re.compile(r"\\+[nrt]|[\s\"'`\\\u200b-\u200d\u2060\ufeff]+")
_END = re.compile(r"(?:<[^<>]*>|\[[^\[\]]*\]|[\])}>;,])\Z")
_BETWEEN = re.compile(r"[^\w{}]*(?:arguments|parameters|args|params|actioninput|input)?[^\w{}]*")
MAX_BETWEEN_CHARS = 60


def sent_texts(messages: Sequence[ChatDict]) -> list[str]:
    """Return the texts of all messages except the model's own answers."""
    return [content_text(one.get("content")) for one in messages if one.get("role") != "assistant"]


def is_repeated(blocks: Iterable[tuple[str, Sequence[WrittenCall]]], texts: Iterable[str]) -> bool:
    """Return whether one of the `texts` contains one of the `blocks` or one of its calls."""
    found = [(_folded(block), calls) for block, calls in blocks]
    return any(_contains(text, block, calls) for text in map(_folded, texts) for block, calls in found)


def _contains(text: str, block: str, calls: Sequence[WrittenCall]) -> bool:
    if block in text:
        return True
    if len(calls) == 1 and (core := _core(block, _folded(calls[0].name))) and core in text:
        return True
    return any(_contains_call(text, call) for call in calls)


def _core(block: str, name: str) -> str:
    """Return the block from the tool's name to the last argument, without tags; "" if there is only the name."""
    at = block.find(name)
    if at < 0 or not name:
        return ""
    end = len(block)
    while closer := _END.search(block, max(at, end - MAX_BETWEEN_CHARS), end):
        end = closer.start()
    return block[at:end] if end - at > len(name) + 1 else ""


def _contains_call(text: str, call: WrittenCall) -> bool:
    """Return whether the text contains the call's name followed by the same arguments, in any syntax."""
    name = _folded(call.name)
    written = _folded(call.arguments).rstrip("}")
    if not name or not written.startswith("{") or len(written) < 2:
        return False
    at = text.find(written)
    while at >= 0:
        before = text[max(0, at - len(name) - MAX_BETWEEN_CHARS) : at]
        named = before.rfind(name)
        if named >= 0 and _BETWEEN.fullmatch(before, named + len(name)):
            return True
        at = text.find(written, at + 1)
    return False


def _folded(text: str) -> str:
    decoded = html.unescape(_CODE_POINT.sub(lambda found: chr(int(found[1], 16)), text))
    # Two surrogates that were decoded separately form one character.
    whole = decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LEFT_OUT.sub("", whole).casefold()
