"""Reads JSON calls in elements that no chat template contains: `<tools>{"name": …, "arguments": …}</tools>`.

Qwen2.5-Coder uses the tags around the tools in its prompt, or invents tags. LM Studio asks models without a tool
template to write `[TOOL_REQUEST]` (https://lmstudio.ai/docs/advanced/tool-use, default tool use). If a server removes
GigaChat's tokens, `function call` remains.

Such elements also occur in ordinary text. An element is therefore a call only if it names a known tool, has
`arguments`, begins a line and ends the answer. An object with `parameters` is the declaration of a tool.
"""

from collections.abc import Sequence
from dataclasses import replace

import regex

from callboard_formats.json_text import build_call, decode_string, read_value
from callboard_formats.names import resolve_name
from callboard_formats.syntax import BlockContext, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer
from callboard_formats.unmarked import DEPTH, LastCalls

_ELEMENTS = (
    "tools", "function", "tool-call", "tool-calls", "tool_calls", "toolcall", "function-call", "functioncall", "invoke",
)  # fmt: skip
_BEGIN = regex.compile(
    rf"(?:<(?:{'|'.join(_ELEMENTS)})>|(?P<in_tag><functioncall\s)|\[TOOL_REQUEST\]|function\x20call)"
    r"\s{0,99}+(?:\[\s{0,99}+)?(?=\{)",
    regex.IGNORECASE,
)
_END = regex.compile(rf"</(?:{'|'.join(_ELEMENTS)}|tool_call)>|\[END_TOOL_REQUEST\]|>", regex.IGNORECASE)
_BEHIND_OBJECT = regex.compile(r"[\s,;\]]")
_NAMED = regex.compile(r"\{\s{0,99}+[\"'](?:name|id|type|arguments)[\"']\s{0,9}+:")
_KEYS = {"name", "arguments", "id", "type"}


class WrappedJson(LastCalls):
    """The syntax of these elements, for the format `name`."""

    openers = (
        *(f"<{one}>" for one in _ELEMENTS), "<functioncall ", "[TOOL_REQUEST]", "function call{", "function call\n",
    )  # fmt: skip
    markers = ("[END_TOOL_REQUEST]",)

    def __init__(self, name: str) -> None:
        self.name = name

    def read_calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read the objects of one element, which may be in a list, and its closing tag."""
        begin = yield from buffer.take(_BEGIN)
        if begin is None:
            return None
        calls: list[WrittenCall] = []
        while (yield from buffer.match(_NAMED)):
            value = yield from read_value(buffer, _END, depth_limit=DEPTH)
            members = value.members
            is_call = "arguments" in members or not value.whole
            is_call = is_call and members.keys() <= _KEYS and not (value.doubled or value.too_deep)
            if not is_call or resolve_name(decode_string(members.get("name", "")), context.schemas) is None:
                return []
            calls.append(build_call(value, cut_off=buffer.is_at_end()))
            while (yield from buffer.take(_BEHIND_OBJECT)):
                pass
        is_over = (yield from buffer.take(_END)) or not (yield from buffer.peek())
        # An object inside the tag, `<functioncall {…}>`, is in no specification, so such a call is refused.
        return [replace(call, broken=bool(begin["in_tag"])) for call in calls] if is_over else []
