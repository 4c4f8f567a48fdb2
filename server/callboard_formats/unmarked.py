"""Calls that nothing marks: a JSON object, a list of them, or a Python list of calls on lines of its own.

Llama 3 and Gemma 3 are told to answer so and with nothing else. Such text is a call only where
it fills its lines from the first character to the last and all its names are tools': anything
else is JSON or Python that the user asked for. Also here is what Llama writes behind `<|python_tag|>`
that is no JSON: a call, or code for the interpreter.

Specified in Meta's prompt formats: `llama3_1/prompt_format.md` (JSON, the tag, built-in tools),
`llama3_2/text_prompt_format.md` and `llama4/prompt_format.md` (Python lists).
"""

import json
from collections.abc import Sequence

import regex

from callboard_formats.json_text import ARGUMENTS_KEYS, Value, call_in, plain, read_value, value_of
from callboard_formats.names import resolve_name
from callboard_formats.python import SOURCE_CHARS, Brackets, calls_in_source, read_brackets, read_source
from callboard_formats.row import THINK
from callboard_formats.syntax import AtLineStart, Spot, Tags, Watcher, WrittenCall
from callboard_formats.tape import Reading, Tape, read_now

HELD_CHARS = 80
"""The characters of an object that may go by without its tool's name."""

DEPTH = 20
"""The deepest nesting of a call. Without a bound every bracket of a long nest would be read to its end."""

_GAPS = ("", " ", "\n", "\n ", "\n  ", "\n    ", "\n\t", "\r\n", "\r\n  ", "\r\n    ", "\r\n\t")
_KEYS = ("name", "type", "function", "parameters", "arguments")
_CALL_KEYS = {"name", "type", "id", "function", *ARGUMENTS_KEYS}

_OBJECT = regex.compile(
    r"\{\s{0,99}+[\"'](?:id|name|type|function|parameters|arguments)[\"']\s{0,99}+:", regex.IGNORECASE
)
_LIST = regex.compile(r"\[\s{0,99}+(?=\{)")
_PYTHON = regex.compile(r"\[\s{0,99}+(?P<name>[A-Za-z_][\w.]{0,127}+)\(")
_NAMED = regex.compile(
    r"[^\n]?[\s\S]{0,80}?[\"'](?:name|function)[\"']\s{0,9}+:\s{0,9}+(?:\{|[\"'](?P<name>[^\"'\\\n]{0,128}+)[\"'])"
)
_ROW = regex.compile(r"\[(?:\s{0,9}\[)++")
_SEPARATOR = regex.compile(r"[\s,]")
_END = regex.compile(r"<\|eom_id\|>|<\|eot_id\|>|<end_of_turn>|<\|im_end\|>|</s>|<\|eot\|>|<\|eom\|>", regex.IGNORECASE)
_LINE_END = regex.compile(r"\r?\n")


class Unmarked(AtLineStart):
    """The syntax of calls that nothing marks."""

    name = "llama3"
    openers = ("[", *(f"{{{gap}{mark}{key}{mark}" for gap in _GAPS for mark in "\"'" for key in _KEYS))
    reasoning: tuple[Tags, ...] = ()
    stops: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    def read(
        self,
        tape: Tape,
        spot: Spot,
        watcher: Watcher,  # noqa: ARG002 - it may be data to its last character
    ) -> Reading[Sequence[WrittenCall | str] | None]:
        """Read the value and the rest of its line."""
        if not spot.line_start:
            return None
        if (yield from tape.match(_PYTHON)):
            return (yield from self._python(tape, spot))
        return (yield from self._json(tape, spot))

    def _python(self, tape: Tape, spot: Spot) -> Reading[Sequence[WrittenCall | str] | None]:
        start = tape.keep()
        head = yield from tape.match(_PYTHON)
        name = head["name"] if head else ""
        if resolve_name(name, spot.schemas) is None:
            return None
        became = yield from read_brackets(tape, DEPTH)
        if became is Brackets.TOO_DEEP:
            return None
        source = tape.cut(start, tape.at)
        if became is Brackets.CLOSED and not (yield from _line_ends(tape)):
            return [tape.cut(start, tape.at)]
        calls = calls_in_source(source) if became is Brackets.CLOSED else calls_in_source(source + "]")
        if calls is None and (_is_cut_off(source) or len(source) > SOURCE_CHARS):
            calls = [WrittenCall(name, "{" + source[source.index("(") + 1 :], truncated=True)]
        if not calls or any(resolve_name(call.name, spot.schemas) is None for call in calls):
            return [tape.cut(start, tape.at)]
        return calls

    def _json(self, tape: Tape, spot: Spot) -> Reading[Sequence[WrittenCall | str] | None]:
        start = tape.keep()
        in_list = (yield from tape.take(_LIST)) is not None
        if not (yield from tape.match(_OBJECT)) or not (yield from self._is_named(tape, spot)):
            return None
        calls = (yield from self._list(tape, spot)) if in_list else (yield from self._object(tape))
        if calls is None or any(resolve_name(call.name, spot.schemas) is None for call in calls):
            return [tape.cut(start, tape.at)]
        return calls

    def _object(self, tape: Tape) -> Reading[list[WrittenCall] | None]:
        """Read one object that fills its line; None where it is no call."""
        value = yield from read_value(tape, depth_limit=DEPTH)
        if not _is_call(value) or (value.whole and not (yield from _line_ends(tape))):
            return None
        return [call_in(value)]

    def _list(self, tape: Tape, spot: Spot) -> Reading[list[WrittenCall] | None]:
        """Read the objects of a list, and the rest of its last line; None where one is no call."""
        calls: list[WrittenCall] = []
        while (yield from self._is_named(tape, spot)):
            value = yield from read_value(tape, depth_limit=DEPTH)
            if not _is_call(value):
                return None
            calls.append(call_in(value))
            while (yield from tape.take(_SEPARATOR)):
                pass
            following = yield from tape.peek()
            if following == "{":
                continue
            tape.at += len(following)
            is_whole = following == "" or (following == "]" and (yield from _line_ends(tape)))
            return calls if is_whole else None
        return None

    def _is_named(self, tape: Tape, spot: Spot) -> Reading[bool]:
        """Return whether the object at `tape.at` names a tool, as far as its beginning tells."""
        named = yield from tape.match(_NAMED)
        if named is None:
            # Its end may come before so many characters.
            return tape.end - tape.at <= HELD_CHARS
        return named["name"] is None or resolve_name(named["name"], spot.schemas) is not None


def _line_ends(tape: Tape) -> Reading[bool]:
    """Move behind the end of the line, or the token that ends the turn; False where something else follows.

    Another object on the line is a block of its own.
    """
    if (yield from tape.take(_END)):
        return True
    following = yield from _pass_blanks(tape)
    if following in (";", ","):
        tape.at += 1
        following = yield from _pass_blanks(tape)
    if following in ("", "{"):
        return True
    return (yield from tape.take(_LINE_END)) is not None or (yield from tape.take(_END)) is not None


def _is_cut_off(source: str) -> bool:
    """Return whether more is open than the list itself."""
    return read_now(read_brackets(Tape(source + "]", final=True), DEPTH)) is Brackets.OPEN


def _pass_blanks(tape: Tape) -> Reading[str]:
    while (following := (yield from tape.peek())) in ("\t", " "):
        tape.at += 1
    return following


def _is_call(value: Value) -> bool:
    """Return whether the object has a call's members and no others."""
    members = value.members
    if value.too_deep or value.doubled or not members.keys() <= _CALL_KEYS or _describes_a_tool(members):
        return False
    if members.get("function", "").startswith("{"):
        return True
    if "type" in members and plain(members["type"]) not in ("function", "tool_use", "tool_call"):
        return False
    return not value.whole or any(key in members for key in ARGUMENTS_KEYS)


def _describes_a_tool(members: dict[str, str]) -> bool:
    """Return whether the arguments are a JSON schema: a tool that the model tells of, not one that it calls."""
    if members.get("function", "").startswith("{"):
        members = value_of(members["function"]).members
    given = next((members[key] for key in ARGUMENTS_KEYS if members.get(key, "").startswith("{")), "")
    schema = value_of(given).members if given else {}
    return plain(schema.get("type", "")) == "object" and schema.get("properties", "").startswith("{")


_TAG = regex.compile(r"<\|python_tag\|>\s{0,99}+", regex.IGNORECASE)
_TAG_END = regex.compile(r"<\|eom_id\|>|<\|eot_id\|>|<\|start_header_id\|>", regex.IGNORECASE)
_CALLED = regex.compile(r"\s*+[\[{]?\s*+([A-Za-z_][\w.]{0,127})\(")
_INTERPRETERS = ("code_interpreter", "ipython")


class PythonTag:
    """The syntax of calls and code behind `<|python_tag|>`; JSON there is a row of the table."""

    name = "llama3"
    openers = ("<|python_tag|>",)
    reasoning = (THINK,)
    stops = ("<|eom_id|>", "<|start_header_id|>ipython")
    markers: tuple[str, ...] = ()

    def read(
        self,
        tape: Tape,
        spot: Spot,
        watcher: Watcher,  # noqa: ARG002 - the contract's
    ) -> Reading[Sequence[WrittenCall | str] | None]:
        """Read up to the token that ends the turn."""
        if not (yield from tape.take(_TAG)):
            return None
        body, closed = yield from read_source(tape, _TAG_END)
        end = yield from tape.match(_TAG_END)
        if end and not end[0].lower().startswith("<|start"):
            tape.at += len(end[0])
        if calls := calls_in_source(body):
            return calls
        if not body.strip():
            return []
        if not closed and (called := _CALLED.match(body)):
            return [WrittenCall(called[1].removesuffix(".call"), body[called.end() - 1 :].strip(), truncated=True)]
        interpreter = next((name for name in _INTERPRETERS if name in spot.schemas), "python")
        code = json.dumps({"code": body.strip()}, ensure_ascii=False)
        return [WrittenCall(interpreter, code, truncated=not closed)]
