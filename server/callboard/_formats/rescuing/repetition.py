"""Telling a call that the model makes from one that it repeats out of what it was told. Pure.

A page, a file or a user may hold a call to the letter. Texts are compared without white space,
quotation marks, backslashes and case: what was told may be escaped, as HTML, or as JSON and more
than once.
"""

import html
import re
from collections.abc import Iterable, Sequence

from callboard.models import ChatDict, content_text
from callboard_formats.syntax import WrittenCall

_CODE_POINT = re.compile(r"\\+u([0-9a-f]{4})", re.IGNORECASE)
# `\n` within JSON is white space too.
_LEFT_OUT = re.compile(r"\\+[nrt]|[\s\"'`\\\u200b-\u200d\u2060\ufeff]+")
_END = re.compile(r"(?:<[^<>]*>|\[[^\[\]]*\]|[\])}>;,])\Z")
_BETWEEN = re.compile(r"[^\w{}]*(?:arguments|parameters|args|params|actioninput|input)?[^\w{}]*")
MAX_BETWEEN_CHARS = 60


def told(messages: Sequence[ChatDict]) -> list[str]:
    """Return the texts that a model was sent, its own answers left out."""
    return [content_text(one.get("content")) for one in messages if one.get("role") != "assistant"]


def is_repeated(blocks: Iterable[tuple[str, Sequence[WrittenCall]]], texts: Iterable[str]) -> bool:
    """Return whether one of the `blocks`, each with its calls, stands in one of the `texts`."""
    found = [(_folded(block), calls) for block, calls in blocks]
    return any(_holds(text, block, calls) for text in map(_folded, texts) for block, calls in found)


def _holds(told: str, block: str, calls: Sequence[WrittenCall]) -> bool:
    if block in told:
        return True
    if len(calls) == 1 and (core := _core(block, _folded(calls[0].name))) and core in told:
        return True
    return any(_holds_object(told, call) for call in calls)


def _core(block: str, name: str) -> str:
    """Return the block from its tool's name to its last argument; "" where that is the name and no more.

    The tags around it may differ.
    """
    at = block.find(name)
    if at < 0 or not name:
        return ""
    end = len(block)
    while closer := _END.search(block, max(at, end - MAX_BETWEEN_CHARS), end):
        end = closer.start()
    return block[at:end] if end - at > len(name) + 1 else ""


def _holds_object(told: str, call: WrittenCall) -> bool:
    """Return whether the name stands there with the same object behind it, in whatever syntax."""
    name = _folded(call.name)
    written = _folded(call.arguments).rstrip("}")
    if not name or not written.startswith("{") or len(written) < 2:
        return False
    at = told.find(written)
    while at >= 0:
        before = told[max(0, at - len(name) - MAX_BETWEEN_CHARS) : at]
        named = before.rfind(name)
        if named >= 0 and _BETWEEN.fullmatch(before, named + len(name)):
            return True
        at = told.find(written, at + 1)
    return False


def _folded(text: str) -> str:
    decoded = html.unescape(_CODE_POINT.sub(lambda found: chr(int(found[1], 16)), text))
    # The halves of a pair of surrogates, decoded one by one, are one character.
    whole = decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LEFT_OUT.sub("", whole).casefold()
