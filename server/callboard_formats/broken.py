"""Finds the tool's name in a malformed call, or decides that the text is prose.

If the name of a tool follows an opener as in a call, but no syntax can read the block, the block is a malformed call.
It is refused with an error for the model.
"""

from collections.abc import Callable, Collection

import regex

from callboard_formats.names import MAX_NAME_CHARS, is_tool_name
from callboard_formats.text_buffer import Reading, TextBuffer

_MARKS_BEFORE_NAMES = frozenset(" \t\r\n<>{}[]()\"'`=:,;/\\｜|▁")
_BEFORE_TAGS = frozenset("</|｜▁:")
_BEHIND_NAMES = frozenset(" \t\"'>)]},:;=｜|")
_BEHIND_WORDS = frozenset(",;!?…。，")
_STRUCTURE = frozenset({
    "name", "function", "functions", "invoke", "call", "tool", "tool_name", "tool_call", "tool_call_id",
    "function_name", "type", "id", "index", "parameter", "parameters", "arguments", "json", "python",
})  # fmt: skip
# GLM sometimes leaves out the first tag: https://github.com/vllm-project/vllm/issues/47190
_KEY_WITHOUT_OPENER = regex.compile(r"(?:[ \t]{1,9}+[\w.-]{1,128}+)?</arg_key>")
_WORDS_BEFORE_NAME = 12
_GAP_CHARS = 99


def read_broken_name(buffer: TextBuffer, known: Collection[str], *, in_section: bool) -> Reading[str | None]:
    """Return the tool's name behind an opener, and move behind it. Return None if prose follows the opener.

    Only tags and words such as `name` may precede the name. Its line must end behind it, or more marks must follow:
    `<function=search> opens a call` is prose. In a section one mark is enough, and the name may be unknown. A word
    before a full stop is not a name. A word before a comma is a name only if a tool has that name. A word before GLM's
    `</arg_key>` is always a name.
    """
    for _ in range(_WORDS_BEFORE_NAME):
        yield from _skip_while(buffer, lambda character: character in _MARKS_BEFORE_NAMES, _GAP_CHARS)
        start = buffer.position
        word = yield from _skip_while(
            buffer, lambda character: character.isalnum() or character in "_-.", MAX_NAME_CHARS
        )
        if not word or word.endswith("."):
            return None
        if (yield from buffer.match(_KEY_WITHOUT_OPENER)):
            return word
        is_tool = is_tool_name(word, known)
        if not is_tool and (buffer.before(start, 1) in _BEFORE_TAGS or word.lower() in _STRUCTURE):
            continue
        if not is_tool and (not in_section or (yield from buffer.peek()) in _BEHIND_WORDS):
            return None
        is_call = yield from _has_no_prose_behind(buffer, in_section=in_section)
        return word if is_call else None
    return None


def _has_no_prose_behind(buffer: TextBuffer, *, in_section: bool) -> Reading[bool]:
    place = buffer.position
    marks = yield from _skip_while(buffer, lambda character: character in _BEHIND_NAMES, _GAP_CHARS)
    following = yield from buffer.peek()
    buffer.rewind(place)
    if in_section and marks.strip():
        return True
    # `<tool_call>search>storms`: a word right behind a mark is not part of a sentence.
    if marks.endswith(">") and following.isalnum():
        return True
    return following in ("", "\r", "\n", "(", "{", "<", "[") or marks.endswith(('"', "'"))


def _skip_while(buffer: TextBuffer, is_skipped: Callable[[str], bool], limit: int) -> Reading[str]:
    """Move behind at most `limit` characters for which `is_skipped` is true, and return them."""
    start = buffer.keep()
    while buffer.position < start + limit and (following := (yield from buffer.peek())) and is_skipped(following):
        buffer.position += 1
    return buffer.cut(start, buffer.position)
