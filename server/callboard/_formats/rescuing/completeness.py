"""Decides whether a block consists of complete calls only, or is cut off or contains other words.

A syntax reads everything up to the closing tag of a call, or to the end if that tag is missing. Words in between would
be lost if the block counted as a call.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from callboard_formats.formats import SYNTAXES
from callboard_formats.json_text import is_complete_object, read_first_value
from callboard_formats.names import resolve_name
from callboard_formats.syntax import END_OF_TURN, WrittenCall

_JSON = re.compile(r"\[?\s*+\{\s*+[\"'](?:id|type|name|function|tool|tool_name|action|arguments|parameters)[\"']\s*+:")
_ID = re.compile(
    r"\"(?:(?:tool_)?call_)?id\"\s*+:\s*+(?:\"[^\"]{0,64}\"|\d+)|\[CALL_ID\]\s*+\w{0,64}|<\|tool_call:begin\|>[\w-]{0,64}",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|(#)", re.DOTALL)
_OF_TAGS_AND_TOKENS = """
    tool tools tool_call tool_calls function function_call function_calls functions call calls invoke parameter
    tool_calls_section_begin tool_call_section_begin tool_calls_section_end tool_call_section_end tool_call_begin
    tool_call_argument_begin tool_call_end tool_calls_begin tool_calls_end tool_sep begin end sep args start channel
    message constrain commentary analysis final assistant to return start_function_call end_function_call python_tag
    plugin msg begin_tool_name end_tool_name begin_tool_arguments end_of_tool_call
"""
_OF_OBJECTS_AND_FENCES = """
    type name tool_name function_name id arguments parameters params tool_use action action_input tool_input input
    json xml text code tool_code python
"""
_OF_SYNTAXES = [
    word.lower() for syntax in SYNTAXES for text in (*syntax.openers, *syntax.markers) for word in _WORD.findall(text)
]
_WORDS = frozenset([*f"{_OF_TAGS_AND_TOKENS} {_OF_OBJECTS_AND_FENCES}".split(), *_OF_SYNTAXES])
"""The words that may surround the names and arguments of calls."""


def is_complete(block: str, calls: Sequence[WrittenCall], known: Collection[str]) -> bool:
    """Return whether `block` consists of complete `calls` of `known` tools and of no other words."""
    if any(call.truncated or resolve_name(call.name, known) is None for call in calls):
        return False
    value = _JSON.search(block)
    if value is not None and not read_first_value(block[value.start() :]).whole:
        return False
    if not all(_are_complete(call.arguments, block) for call in calls):
        return False
    return _has_no_other_words(block, calls)


def _are_complete(arguments: str, block: str) -> bool:
    if not arguments:
        # A name alone may have lost its arguments, unless a bracket or tag is closed behind it.
        return block.rstrip().endswith(("}", "}]", ">"))
    if arguments.startswith("{"):
        return is_complete_object(arguments)
    return not arguments.startswith("<")


def _has_no_other_words(block: str, calls: Sequence[WrittenCall]) -> bool:
    gaps = list(_gaps(block, calls))
    if not gaps:
        # Arguments in separate tags or as Python: these syntaxes read every word except comments.
        return block[0] not in "[`" or not any(found[1] for found in _COMMENT.finditer(block))
    names = {word.lower() for call in calls for word in _WORD.findall(call.name)}
    bare = (END_OF_TURN.sub("", _ID.sub("", gap)) for gap in gaps)
    said = (word.lower() for word in chain.from_iterable(map(_WORD.findall, bare)))
    fences = sum(gap.count("```") for gap in gaps)
    return fences % 2 == 0 and all(word in _WORDS or word in names or word.isdecimal() for word in said)


def _gaps(block: str, calls: Sequence[WrittenCall]) -> Iterator[str]:
    """Yield the text around the arguments; nothing if the block does not contain the arguments literally."""
    spans: list[tuple[int, int]] = []
    at = 0
    for call in calls:
        start = block.find(call.arguments, at)
        if start < 0:
            return
        at = start + len(call.arguments)
        spans.append((start, at))
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(block)]
    for end, start in zip(ends, starts, strict=True):
        yield block[end:start]
