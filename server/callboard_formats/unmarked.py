"""Reads calls without markers: a JSON object, a list of objects, or a Python list of calls, on separate lines.

The prompts of Llama 3 and Gemma 3 ask for an answer that is only such a call. Text is a call only if it fills its lines
from the first character to the last, and all its names are names of tools. Other JSON or Python is text that the user
asked for. The call must also end the answer, because otherwise the model may only write about it. With `last`, this
module checks that; other callers check it themselves. Some models write the form of OpenAI's API: `{"tool_calls":
[…]}`.

An object with only a name is a call if it is beside another call, because some models omit empty arguments:
https://github.com/NousResearch/hermes-agent/pull/87900. With `last`, this module checks that too.

This module also reads the text behind Llama's `<|python_tag|>` that is not JSON: a call, or code for the interpreter.

Specified in Meta's prompt formats: `llama3_1/prompt_format.md` (JSON, the tag, built-in tools),
`llama3_2/text_prompt_format.md` and `llama4/prompt_format.md` (Python lists).
"""

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

import regex

from callboard_formats.json_text import (
    ARGUMENTS_KEYS,
    Value,
    build_call,
    decode_string,
    describes_a_tool,
    read_first_value,
    read_value,
)
from callboard_formats.literals import Literals
from callboard_formats.names import is_tool_name, resolve_name
from callboard_formats.python import (
    SOURCE_CHARS,
    Brackets,
    notation_to_json,
    parse_calls,
    parse_incomplete_calls,
    read_brackets,
    read_notation,
    read_source,
)
from callboard_formats.quotation import is_introduced_as_example
from callboard_formats.row import THINK
from callboard_formats.syntax import END_OF_TURN, BlockContext, BlockItems, Syntax, WrittenCall, has_full_call
from callboard_formats.table import ROWS
from callboard_formats.text_buffer import LOOK_BACK_CHARS, Reading, TextBuffer, read_now

HELD_CHARS = 80
"""The number of characters of an object that may precede the name of its tool."""

DEPTH = 20
"""The depth limit of a call. Without it, a deeply nested value would be read to its end once for each bracket."""

MAX_TOGETHER = 8
"""The maximum number of consecutive calls that are read as one block. In a thought, each may be read again."""

_GAPS = ("", " ", "\n", "\n ", "\n  ", "\n    ", "\n\t", "\r\n", "\r\n  ", "\r\n    ", "\r\n\t")
_KEYS = (
    "name", "type", "function", "parameters", "arguments", "tool", "action", "tool_calls", "function_call",
    "tool_name", "tool_call_id", "id",
)  # fmt: skip
_CALL_KEYS = {"name", "type", "id", "call_id", "tool_call_id", "function", "tool", "tool_name", *ARGUMENTS_KEYS}
_TYPES = ("function", "function_call", "tool_use", "tool_call")

_OBJECT = regex.compile(rf"\{{\s{{0,99}}+[\"'](?:{'|'.join(_KEYS)})[\"']\s{{0,99}}+:", regex.IGNORECASE)
_LIST = regex.compile(r"\[\s{0,99}+(?=\{)")
_PYTHON = regex.compile(r"\[\s{0,99}+(?P<name>[A-Za-z_][\w.]{0,127}+)\(")
_NAMED = regex.compile(
    r"(?:[^\n]?\s{0,99}+[\"'](?:tool|action)|[^\n]?[\s\S]{0,80}?[\"'](?:name|function|tool_name))[\"']\s{0,9}+:\s{0,9}+"
    r"(?:\{|[\"'](?P<name>[^\"'\\\n]{0,128}+)[\"'])"
)
_CALL = regex.compile(f"{_OBJECT.pattern}|{_LIST.pattern}|{_PYTHON.pattern}", regex.IGNORECASE)
_SEPARATOR = regex.compile(r"[\s,]")
_LINE_END = regex.compile(r"\r?\n")
_CODE_OPENS = regex.compile(r"<(?:pre|code|tools)>\s*\Z", regex.IGNORECASE)
"""An opening tag of code, or of declarations of tools."""
_TURNS = (
    "<|im_start|>", "<|start_header_id|>", "<|header_start|>", "<start_of_turn>", "<|start_of_role|>", "<|turn>",
    "<|start|>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>",
)  # fmt: skip
_OBSERVATION = regex.compile(r"[*_#`\x20]{0,6}observation[*_`]{0,3}\x20?[:：]", regex.IGNORECASE)
# Not a regular expression, because its compilation would take 20 ms of each start.
_BEHIND_CALLS = Literals({
    *_TURNS, *(stop.strip() for row in ROWS for stop in row.stops), *(opener for row in ROWS for opener in row.openers),
})  # fmt: skip
"""The beginnings of imagined turns and results, and of calls with markers. They may follow a call."""

_MARKERS = {marker for row in ROWS for marker in row.markers}
# A marker that is the beginning of another marker is left out, because it may be a part of the other marker.
_CLOSERS = Literals(one for one in _MARKERS if not any(other != one and other.startswith(one) for other in _MARKERS))
"""The markers that may remain behind a call, for example if a server removes only the special tokens."""


class Unmarked(Syntax):
    """The syntax of calls without markers. With `last`, the calls count only at the end of the answer."""

    name = "llama3"
    openers = ("[", *(f"{{{gap}{mark}{key}{mark}" for gap in _GAPS for mark in "\"'" for key in _KEYS))
    at_line_start_only = True

    def __init__(self, *, last: bool = False) -> None:
        self._last = last

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read a value and the rest of its line. With `last`, also read all calls that follow."""
        is_in_code = _CODE_OPENS.search(buffer.before(buffer.position, LOOK_BACK_CHARS)) is not None
        if not context.line_start or is_in_code or is_introduced_as_example(buffer):
            return None
        start = buffer.keep()
        calls: list[WrittenCall] = []
        for _ in range(MAX_TOGETHER):
            found = yield from self._read_value(buffer, context)
            if found is None and not calls:
                return None
            found = found or ()
            is_half = bool(found) and _is_half_call(buffer, found[-1], context)
            found = found[:-1] if is_half else found
            if is_half and has_full_call([*calls, *found]):
                calls += found
                return [replace(call, truncated=True) for call in calls] if buffer.is_cut else calls
            if not found or any(resolve_name(call.name, context.schemas) is None for call in found):
                return [buffer.cut(start, buffer.position)]
            calls += found
            match (yield from read_following(buffer) if self._last else _read_line_end(buffer)):
                case Following.NOTHING:
                    break
                case Following.CUT:
                    return mark_truncated(calls) or [buffer.cut(start, buffer.position)]
                case Following.TEXT:
                    return [buffer.cut(start, buffer.position)]
        return calls if has_full_call(calls) or not self._last else [buffer.cut(start, buffer.position)]

    def _read_value(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read one object or list. Return [] if it is data, and None if calls do not begin like this."""
        if (yield from buffer.match(_PYTHON)):
            return (yield from self._read_python(buffer, context))
        return (yield from self._read_json(buffer, context))

    def _read_python(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        start = buffer.keep()
        head = yield from buffer.match(_PYTHON)
        name = head["name"] if head else ""
        if resolve_name(name, context.schemas) is None:
            return None
        became = yield from read_brackets(buffer, DEPTH)
        if became is Brackets.TOO_DEEP:
            return None
        source = buffer.cut(start, buffer.position)
        if became is Brackets.CLOSED:
            return parse_calls(source) or []
        calls = parse_incomplete_calls(source)
        if calls is None and (_is_cut_off(source) or len(source) > SOURCE_CHARS):
            return [WrittenCall(name, "{" + source[source.index("(") + 1 :], truncated=True)]
        return calls or []

    def _read_json(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        in_list = (yield from buffer.take(_LIST)) is not None
        if not (yield from buffer.match(_OBJECT)) or not (yield from self._is_named(buffer, context)):
            return None
        return (
            (yield from self._read_list(buffer, context))
            if in_list
            else (yield from self._read_object(buffer, context))
        )

    def _read_object(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall]]:
        value = yield from read_value(buffer, depth_limit=DEPTH)
        if listed := _find_list(value):
            buffer = TextBuffer(listed, final=True)
            calls = read_now(self._read_list(buffer, context)) if read_now(buffer.take(_LIST)) else []
            return calls if value.whole else [replace(call, truncated=True) for call in calls]
        call = _unwrap_call(value)
        return [_build_call(call)] if call and _is_call(call) else []

    def _read_list(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall]]:
        """Read the objects of a list. Return [] if one of them is not a call."""
        calls: list[WrittenCall] = []
        while (yield from self._is_named(buffer, context)):
            value = yield from read_value(buffer, depth_limit=DEPTH)
            if not _is_call(value):
                return []
            calls.append(_build_call(value))
            while (yield from buffer.take(_SEPARATOR)):
                pass
            following = yield from buffer.peek()
            if following == "{":
                continue
            if following in ("", "]"):
                buffer.position += len(following)
                return calls if has_full_call(calls) else []
            return []
        return []

    def _is_named(self, buffer: TextBuffer, context: BlockContext) -> Reading[bool]:
        """Return whether the object at `buffer.position` names a tool, or may name a tool when more text arrives."""
        named = yield from buffer.match(_NAMED)
        if named is None:
            # The name may still follow, unless the object is already too long.
            return buffer.end - buffer.position <= HELD_CHARS
        return named["name"] is None or resolve_name(named["name"], context.schemas) is not None


def _is_half_call(buffer: TextBuffer, call: WrittenCall, context: BlockContext) -> bool:
    """Return whether the answer ends inside this call before its tool is known."""
    if not (call.truncated and buffer.final and buffer.is_at_end()) or call.name in context.schemas:
        return False
    name = call.name.lstrip("\"'")
    return not name or (not call.arguments and any(one.startswith(name) for one in context.schemas))


class Following(Enum):
    """The kind of text that follows a call."""

    NOTHING = 0
    CALL = 1
    TEXT = 2
    CUT = 3
    """Nothing follows, but the answer was cut off."""


def mark_truncated(calls: Sequence[WrittenCall]) -> list[WrittenCall]:
    """Return the calls at the end of an answer that was cut off, for calls that count only at the answer's end.

    If the last call is incomplete, all calls are returned as truncated, so that the model gets errors. Otherwise,
    return []. Then the calls stay text, because it is unknown which text would have followed.
    """
    return [replace(call, truncated=True) for call in calls] if calls and calls[-1].truncated else []


def _read_line_end(buffer: TextBuffer) -> Reading[Following]:
    """Move behind the end of the line, or behind the token that ends the turn. Return the kind of text before that.

    Another object in the line is a new block, so it counts as nothing.
    """
    if (yield from buffer.take(END_OF_TURN)):
        return Following.NOTHING
    following = yield from _skip_blanks(buffer)
    if following in (";", ","):
        buffer.position += 1
        following = yield from _skip_blanks(buffer)
    if following in ("", "{") or (yield from buffer.take(_LINE_END)) or (yield from buffer.take(END_OF_TURN)):
        return Following.NOTHING
    return Following.TEXT


def _skip_blanks(buffer: TextBuffer) -> Reading[str]:
    while (following := (yield from buffer.peek())) in ("\t", " "):
        buffer.position += 1
    return following


def read_following(buffer: TextBuffer) -> Reading[Following]:
    """Return the kind of text that follows a call. Move up to the text, or behind the token that ends the turn.

    Imagined results and turns count as nothing.
    """
    behind = buffer.keep()
    yield from buffer.space()
    if (yield from buffer.peek()) in (";", ","):
        buffer.position += 1
        yield from buffer.space()
    # A closing marker may follow on a new line. In the line of the call, it is text.
    if "\n" in buffer.cut(behind, buffer.position):
        while closer := (yield from buffer.match_literal(_CLOSERS)):
            buffer.position += len(closer)
            yield from buffer.space()
    following = yield from buffer.peek()
    if not following:
        return Following.CUT if buffer.is_cut else Following.NOTHING
    if (yield from buffer.match(_CALL)):
        return Following.CALL
    if (yield from buffer.take(END_OF_TURN)):
        end = buffer.position
        yield from buffer.space()
        blanks = buffer.cut(end, buffer.position)
        # If a word follows the token in the same line, the token is only mentioned.
        is_mentioned = blanks and "\n" not in blanks and (yield from buffer.peek()).isalnum()
        return Following.TEXT if is_mentioned else Following.NOTHING
    if (yield from buffer.match_literal(_BEHIND_CALLS)) or (yield from buffer.match(_OBSERVATION)):
        return Following.NOTHING
    is_half = following in "<[{" and (
        any(one.may_grow(buffer.text, buffer.index) for one in (_BEHIND_CALLS, _CLOSERS))
        or any(buffer.cut_off(one) for one in (_CALL, END_OF_TURN))
    )
    if not (buffer.final and is_half):
        return Following.TEXT
    return Following.CUT if buffer.is_cut else Following.NOTHING


class LastCalls(Syntax):
    """A syntax whose calls count only if they begin a line and end the answer."""

    at_line_start_only = True

    @abstractmethod
    def read_calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read the calls of one block, and move behind its end.

        Return None if no block begins here, and [] if the block is not a call of a known tool.
        """

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read the blocks here if they end the answer."""
        if not context.line_start or is_introduced_as_example(buffer):
            return None
        start = buffer.keep()
        calls: list[WrittenCall] = []
        while (found := (yield from self.read_calls(buffer, context))) is not None:
            if not found:
                return [buffer.cut(start, buffer.position)] if calls else None
            calls += found
            yield from buffer.space()
        if not calls:
            return None
        match (yield from read_following(buffer)):
            case Following.NOTHING:
                return calls
            case Following.CUT:
                return mark_truncated(calls) or [buffer.cut(start, buffer.position)]
        return [buffer.cut(start, buffer.position)]


class UnmarkedNotation(LastCalls):
    """The syntax of Gemma's calls without their first token, at the end of an answer."""

    name = "gemma"
    openers = ("call:", "<call>")

    def read_calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read one call and the token behind it."""
        head = yield from buffer.take(_NOTATION_HEAD)
        if head is None:
            return None
        name = head["name"]
        if resolve_name(name, context.schemas) is None:
            return []
        written, whole = yield from read_notation(buffer, _NOTATION_END)
        yield from buffer.space()
        yield from buffer.take(_NOTATION_END)
        return [WrittenCall(name, (notation_to_json(written) if whole else None) or written, truncated=not whole)]


_NOTATION_HEAD = regex.compile(
    r"(?:call:|<call>(?:call:)?)(?P<name>[A-Za-z_][\w.-]{0,127}+)"
    r"(?=\{\s{0,99}+(?:\}|(?:<\|\"\|>|<escape>|[\"'])?[A-Za-z_][\w.-]{0,127}+(?:<\|\"\|>|<escape>|[\"'])?\s{0,9}+[:=]))",
    regex.IGNORECASE,
)
_NOTATION_END = regex.compile(r"<tool_call\|>|<end_function_call>", regex.IGNORECASE)


def _is_cut_off(source: str) -> bool:
    """Return whether the source ends inside a call, and not only before the closing bracket of the list."""
    return read_now(read_brackets(TextBuffer(source + "]", final=True), DEPTH)) is Brackets.OPEN


def _find_list(value: Value) -> str:
    """Return the list in an object in the form of OpenAI's API, `{"tool_calls": […]}`; "" for any other object."""
    listed = value.members.get("tool_calls", "") if _has_one_member(value) else ""
    return listed if listed.startswith("[") else ""


def _unwrap_call(value: Value) -> Value | None:
    """Return the call in an object that has the form of an API. Return any other object unchanged, and None for data.

    `{"function_call": {…}}` is OpenAI's form, and `{"action": …, "action_input": {…}}` is LangChain's.
    """
    members = value.members
    inner = members.get("function_call", "") if _has_one_member(value) else ""
    if inner.startswith("{"):
        call = read_first_value(inner)
        return replace(call, whole=value.whole and call.whole)
    if "action" in members:
        action = {"name": members["action"], "arguments": members.get("action_input", "")}
        is_call = members.keys() == {"action", "action_input"} and action["arguments"].startswith("{")
        return replace(value, members=action) if is_call else None
    return value


def _has_one_member(value: Value) -> bool:
    return len(value.members) == 1 and not value.too_deep and not value.doubled


def _is_call(value: Value) -> bool:
    """Return whether the object has the members of a call and no others."""
    members = value.members
    if value.too_deep or value.doubled or not members.keys() <= _CALL_KEYS or describes_a_tool(members):
        return False
    if members.get("function", "").startswith("{"):
        return True
    if "type" in members and decode_string(members["type"]) not in _TYPES:
        return False
    return not value.whole or any(key in members for key in ARGUMENTS_KEYS) or _is_bare(value)


def _is_bare(value: Value) -> bool:
    """Return whether the object has a name and no arguments."""
    return value.whole and "name" in value.members and value.members.keys() <= {"name", "type", "id"}


def _build_call(value: Value) -> WrittenCall:
    return replace(build_call(value, cut_off=not value.whole), bare=_is_bare(value))


_TAG = regex.compile(r"<\|python_tag\|>\s{0,99}+", regex.IGNORECASE)
END_OF_MESSAGE = regex.compile(r"<\|(?:eom_id|eot_id|end_of_text|start_header_id)\|>", regex.IGNORECASE)
"""The tokens that end a message in Llama's templates and in templates derived from them."""
_CODE_ENDS = regex.compile(rf"\n|<\|python_tag\|>|{END_OF_MESSAGE.pattern}", regex.IGNORECASE)
_CALLED = regex.compile(r"\s*+[\[{]?\s*+([A-Za-z_][\w.]{0,127})\(")
_INTERPRETERS = ("code_interpreter", "ipython")


class PythonTag(Syntax):
    """The syntax of calls and code behind `<|python_tag|>`. JSON behind the tag is read by a row of the table."""

    name = "llama3"
    openers = ("<|python_tag|>",)
    reasoning = (THINK,)
    stops = ("<|eom_id|>", "<|start_header_id|>ipython")

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read up to the token that ends the turn."""
        is_sentence_over = not context.is_introduced or buffer.line_before().rstrip().endswith(":")
        if not (yield from buffer.take(_TAG)):
            return None
        if not (context.line_start or is_sentence_over or (yield from self._is_call(buffer, context))):
            return None
        body, closed = yield from read_source(buffer, END_OF_MESSAGE)
        end = yield from buffer.match(END_OF_MESSAGE)
        if end and not end[0].lower().startswith("<|start"):
            buffer.position += len(end[0])
        if calls := parse_calls(body):
            return calls
        if not body.strip():
            return []
        if not closed and (called := _CALLED.match(body)):
            return [WrittenCall(called[1].removesuffix(".call"), body[called.end() - 1 :].strip(), truncated=True)]
        interpreter = next((name for name in _INTERPRETERS if name in context.schemas), "python")
        code = json.dumps({"code": body.strip()}, ensure_ascii=False)
        return [WrittenCall(interpreter, code, truncated=not closed)]

    def _is_call(self, buffer: TextBuffer, context: BlockContext) -> Reading[bool]:
        """Return whether a call or nothing follows the tag. Otherwise, inside a sentence, the tag is only mentioned."""
        start = buffer.keep()
        yield from buffer.find(_CODE_ENDS)
        line = buffer.cut(start, buffer.position)
        buffer.rewind(start)
        called = _CALLED.match(line)
        is_call = called is not None and is_tool_name(called[1].removesuffix(".call"), context.schemas)
        return is_call or not line.strip()
