"""Reads calls written as Python (Llama, Gemma) and in the notation of FunctionGemma and Gemma 4.

Python is parsed with `ast` and never run. Arguments must be literals. For a call with any other argument (a variable,
an expression, a positional argument), the arguments are its source in braces. That is not JSON, so the call is refused
with an error that shows the source. A single positional string stays a string, for tools with one string argument.

The notation is JSON with bare keys, and with strings between `<escape>` or `<|"|>`.
"""

import ast
import json
import keyword
import re
import warnings
from collections.abc import Sequence
from enum import Enum

import regex

from callboard_formats.arguments import evaluate_literal
from callboard_formats.syntax import WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer, read_now

NOTATION_DEPTH = 50

_QUOTES = re.compile(r"<escape>|<\|\"\|>", re.IGNORECASE)
_NOTATION_KEY = re.compile(
    r"\s*(?P<mark><escape>|<\|\"\|>|[\"'])?(?P<key>[^:=,{}()\[\]<>\"'\s][^:=,{}()\[\]<>\"'\n]{0,127}?)"
    r"(?:<escape>|<\|\"\|>|[\"'])?\s*(?P<separator>[:=])",
    re.IGNORECASE,
)
_NOTATION_WORD = re.compile(r"[^,{}\[\]<>\"']+")
_NOTATION_WORD_IN_BRACKETS = re.compile(r"[^,{}()\[\]<>\"']+")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SINGLE_STRING = re.compile(r"'((?:[^'\\\n]|\\.)*+)'", re.DOTALL)
_IN_SINGLE = re.compile(r"\\(?P<escaped>.)|(?P<mark>\")", re.DOTALL)
_NOTATION_WORDS = {"true": True, "false": False, "null": None, "none": None}
_CLOSERS = {"{": "}", "(": ")"}

_NOTATION_MARK = regex.compile(r"<escape>|<\|\"\|>|[{}\[\]()]|(?<!<\|)\"|(?<=[:=,{(\[]\s{0,8})'", regex.IGNORECASE)
_STRING_GOES_ON = regex.compile(r"\s*+[,}\]:]")
_STRING_GOES_ON_IN_BRACKETS = regex.compile(r"\s*+[,}\]:)]")


def read_notation(buffer: TextBuffer, end: "regex.Pattern[str]") -> Reading[tuple[str, bool]]:
    """Return the object at `buffer.position`, which begins with `{` or `(`, and whether it is complete.

    A string ends at the first quotation mark before more of the object or the end of the call. A match of `end` outside
    of strings shows that brackets are missing.
    """
    start = buffer.keep()
    opener = yield from buffer.peek()
    goes_on = _STRING_GOES_ON_IN_BRACKETS if opener == "(" else _STRING_GOES_ON
    goes_on = regex.compile(rf"{goes_on.pattern}|\s*+(?:{end.pattern})", regex.IGNORECASE)
    depth = 0
    # A single mark may be an apostrophe, so such a string ends at most with its line.
    in_single_quotes = regex.compile(rf"['\\]|(?=\n|{end.pattern})", regex.IGNORECASE)
    string_ends = {'"': _IN_QUOTES, "'": in_single_quotes}
    either = regex.compile(f"(?P<end>{end.pattern})|{_NOTATION_MARK.pattern}", regex.IGNORECASE)
    while mark := (yield from buffer.find(either)):
        if mark["end"] is not None:
            return buffer.cut(start, buffer.position), False
        buffer.position += len(mark[0])
        match mark[0]:
            case "(" | ")" if opener != "(" or depth > 1 or (depth == 1 and mark[0] == "("):
                # Round brackets inside a word are part of the word.
                continue
            case "{" | "[" | "(":
                depth += 1
            case "}" | "]" | ")":
                depth -= 1
                if depth <= 0:
                    return buffer.cut(start, buffer.position), True
            case '"' | "'" as quote:
                yield from _skip_to_string_end(buffer, string_ends[quote])
            case escape:
                closer = regex.compile(regex.escape(escape), regex.IGNORECASE)
                while (yield from buffer.find(closer)):
                    buffer.position += len(escape)
                    if (yield from buffer.match(goes_on)):
                        break
    return buffer.cut(start, buffer.position), False


def _skip_to_string_end(buffer: TextBuffer, ends: "regex.Pattern[str]") -> Reading[bool]:
    """Move behind the next match of `ends` that is no backslash, and is not escaped by one. Return False without it."""
    while mark := (yield from buffer.find(ends)):
        buffer.position += len(mark[0])
        if mark[0] != "\\":
            return True
        if (yield from buffer.peek()):
            buffer.position += 1
    return False


_IN_QUOTES = regex.compile(r"[\"\\]")


def notation_to_json(text: str) -> str | None:
    """Convert an object in Gemma's notation to JSON. Return None if `text` is incomplete or not such an object."""
    try:
        notation = _Notation(text)
        value, end = notation.read_value(0, 0)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return None
    return written if isinstance(value, dict) and not text[end:].strip() else None


class _Notation:
    """Reads one object in Gemma's notation."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._in_brackets = text.startswith("(")
        goes_on = r"(?=\s*[,}\]:)])" if self._in_brackets else r"(?=\s*[,}\]:])"
        self._closers = {mark: re.compile(re.escape(mark) + goes_on, re.IGNORECASE) for mark in ("<escape>", '<|"|>')}
        self._has_bare_words = False
        """A string without quotation marks was read. The comma behind it may be a part of the string."""

    def read_value(self, start: int, depth: int) -> tuple[object, int]:
        """Return the value at `start` and its end. Raises `ValueError` if there is no value."""
        text = self._text
        at = self._skip_space(start)
        if depth > NOTATION_DEPTH:
            raise ValueError("too deep")
        if quote := _QUOTES.match(text, at):
            end = self._closers[quote[0].lower()].search(text, quote.end())
            if end is None:
                raise ValueError("a string without an end")
            return text[quote.end() : end.start()], end.end()
        match text[at : at + 1]:
            case "{" | "(" as opener if opener == "{" or depth == 0:
                return self._read_object(at + 1, depth, _CLOSERS[opener])
            case "[":
                return self._read_array(at + 1, depth)
            case '"':
                string = _STRING.match(text, at)
                if string is None:
                    raise ValueError("a string without an end")
                return json.loads(string[0], strict=False), string.end()
            case "'":
                string = _SINGLE_STRING.match(text, at)
                if string is None:
                    raise ValueError("a string without an end")
                return json.loads(
                    f'"{_IN_SINGLE.sub(_convert_to_double_quoted, string[1])}"', strict=False
                ), string.end()
            case _:
                return self._read_word(at)

    def _read_object(self, at: int, depth: int, closer: str) -> tuple[object, int]:
        members: dict[str, object] = {}
        at = self._skip_space(at)
        while self._text[at : at + 1] != closer:
            found = _NOTATION_KEY.match(self._text, at)
            if found is None:
                raise ValueError("no key")
            key = found["key"]
            if key in members:
                raise ValueError("a key twice")
            if self._has_bare_words and not found["mark"] and (found["separator"] == "=" or _BLANK.search(key)):
                raise ValueError("perhaps no key")
            members[key], at = self.read_value(found.end(), depth + 1)
            at = self._skip_space(self._skip_separator(at, closer))
        return members, at + 1

    def _read_array(self, at: int, depth: int) -> tuple[object, int]:
        items: list[object] = []
        at = self._skip_space(at)
        while self._text[at : at + 1] != "]":
            item, at = self.read_value(at, depth + 1)
            items.append(item)
            at = self._skip_space(self._skip_separator(at, "]"))
        return items, at + 1

    def _skip_separator(self, start: int, closer: str) -> int:
        at = self._skip_space(start)
        if self._text[at : at + 1] == ",":
            return at + 1
        if self._text[at : at + 1] != closer:
            raise ValueError("no comma")
        return at

    def _read_word(self, at: int) -> tuple[object, int]:
        """Return a number, a constant of JSON, or a string without quotation marks."""
        match = (_NOTATION_WORD_IN_BRACKETS if self._in_brackets else _NOTATION_WORD).match(self._text, at)
        if match is None or not (word := match[0].strip()):
            raise ValueError("no value")
        if word.lower() in _NOTATION_WORDS:
            return _NOTATION_WORDS[word.lower()], match.end()
        try:
            number = json.loads(word)
        except ValueError:
            self._has_bare_words = True
            return word, match.end()
        return number, match.end()

    def _skip_space(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at


_BLANK = re.compile(r"\s")


def _convert_to_double_quoted(found: re.Match[str]) -> str:
    """Return the form of a mark or an escape of a single-quoted string for a double-quoted string."""
    return '\\"' if found["mark"] else "'" if found["escaped"] == "'" else found[0]


SOURCE_CHARS = 50_000
"""The length limit of source that is parsed, because `ast` does not limit its memory."""

DEPTH = 50

# Gemini's and Gemma's namespaces for tools, which models write before a name.
_NAMESPACES = ("default_api", "functions", "tools", "tool_code")
_WORDS = {"true": True, "false": False, "null": None}


_MARK = regex.compile(r"[\"'()\[\]{}]")
_TRIPLE = regex.compile(r"\"\"\"|'''")
_STRING_ENDS = {
    '"': regex.compile(r"[\"\\\n]"),
    "'": regex.compile(r"['\\\n]"),
    '"""': regex.compile(r'"""|\\'),
    "'''": regex.compile(r"'''|\\"),
}


class Brackets(Enum):
    """The result of reading up to a closing bracket."""

    CLOSED = 0
    OPEN = 1
    TOO_DEEP = 2


def read_brackets(buffer: TextBuffer, limit: int) -> Reading[Brackets]:
    """Move behind the bracket that closes the bracket at `buffer.position`. Brackets in strings are ignored."""
    depth = 0
    while mark := (yield from buffer.find(_MARK)):
        if mark[0] not in "\"'":
            buffer.position += 1
        match mark[0]:
            case "(" | "[" | "{":
                depth += 1
                if depth > limit:
                    return Brackets.TOO_DEEP
            case ")" | "]" | "}":
                depth -= 1
                if depth == 0:
                    return Brackets.CLOSED
            case _:
                yield from _skip_string(buffer)
    return Brackets.OPEN


def read_source(buffer: TextBuffer, end: "regex.Pattern[str]") -> Reading[tuple[str, bool]]:
    """Return the source up to the first match of `end` outside of strings, and whether there is a match.

    If a string is not closed, return the source up to the first match of `end` anywhere. Such source cannot be parsed.
    """
    start = buffer.keep()
    either = regex.compile(f"(?P<end>{end.pattern})|{_MARK.pattern}", regex.IGNORECASE)
    while mark := (yield from buffer.find(either)):
        if mark["end"] is not None:
            return buffer.cut(start, buffer.position), True
        if mark[0] not in "\"'":
            buffer.position += 1
        elif not (yield from _skip_string(buffer)) and buffer.may_reread(start):
            buffer.rewind(start)
            found = yield from buffer.find(end)
            return buffer.cut(start, buffer.position), found is not None
    return buffer.cut(start, buffer.position), False


def _skip_string(buffer: TextBuffer) -> Reading[bool]:
    """Move behind the string that begins here, at most to the end of the line. Return False if the text ends before."""
    triple = yield from buffer.take(_TRIPLE)
    quote = triple[0] if triple else (yield from buffer.peek())
    buffer.position += 0 if triple else 1
    return (yield from _skip_to_string_end(buffer, _STRING_ENDS[quote]))


def parse_calls(source: str) -> Sequence[WrittenCall] | None:
    """Return the calls in `source`, which has one call on each line or a list of calls; None for any other source.

    `print(call)` and `name = call` are read like `call`, because Gemma's documentation shows them. `print(name)` after
    `name = call` is ignored.
    """
    tree = _parse(source)
    if tree is None and "\n" in source and (escaped := _escape_line_ends(source)):
        source = escaped
        tree = _parse(source)
    if tree is None or not tree.body:
        return None
    calls: list[ast.Call] = []
    results: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                results.add(name)
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[ast.Name(id=name)], keywords=[])):
                if name in results:
                    continue
        value = getattr(statement, "value", None) if isinstance(statement, (ast.Expr, ast.Assign)) else None
        elements = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
        for element in elements:
            call = _unwrap_print(element)
            if call is None:
                return None
            calls.append(call)
    return [_build_call(source, call) for call in calls] or None


_STRING_BEGINS = regex.compile(r"(?<=[=(\[{,:]\s{0,9})(?P<mark>[\"'])(?!(?P=mark))")


def _escape_line_ends(source: str) -> str | None:
    """Return `source` with escaped line ends in strings; None if the end of a string is unclear.

    LFM2's template escapes nothing, so strings may contain line ends. A string ends before more of the call.
    """
    parts: list[str] = []
    at = 0
    while begin := _STRING_BEGINS.search(source, at):
        end = regex.compile(rf"(?:[^{begin['mark']}\\]|\\.)*+", regex.DOTALL).match(source, begin.end())
        if end is None or not _CALL_GOES_ON.match(source, end.end()):
            return None
        text = end[0].replace("\r", "\\r").replace("\n", "\\n")
        parts += (source[at : begin.end()], text)
        at = end.end() + 1
        parts.append(begin["mark"])
    return "".join([*parts, source[at:]])


_CALL_GOES_ON = regex.compile(r"[\"']\s*+[,)\]}:]")


def parse_incomplete_calls(source: str) -> Sequence[WrittenCall] | None:
    """Return the calls of an incomplete list: the complete calls, of which there is one, and the incomplete call."""
    if whole := parse_calls(source + "]"):
        return whole
    buffer = TextBuffer(source.lstrip(" \t\r\n["), final=True)
    calls: list[WrittenCall] = []
    while named := read_now(buffer.match(_NAMED)):
        arguments = buffer.position + len(named[0])
        buffer.position = arguments - 1
        if read_now(read_brackets(buffer, DEPTH)) is not Brackets.CLOSED:
            calls.append(WrittenCall(named[1], "{" + buffer.text[arguments:], truncated=True))
            break
        found = parse_calls(named[1] + buffer.text[arguments - 1 : buffer.position])
        if not found:
            return None
        calls += found
    if half := read_now(buffer.match(_HALF_NAME)):
        calls.append(WrittenCall(half[1], "", truncated=True))
    return calls if len(calls) > 1 else None


# `rows = search(query="x")` calls `search`.
_BEFORE_NAME = r"[,\s]*+(?:[A-Za-z_]\w*+\s*+=\s*+)?"
_NAMED = regex.compile(rf"{_BEFORE_NAME}([A-Za-z_][\w.]{{0,127}}+)\(")
_HALF_NAME = regex.compile(rf"{_BEFORE_NAME}([A-Za-z_][\w.]{{0,127}}+)\Z")


def _parse(source: str) -> ast.Module | None:
    if len(source) > SOURCE_CHARS:
        return None
    source = source.strip()
    with warnings.catch_warnings():
        # Python warns about unknown escapes ("\d"). The warnings must not appear in the server's log.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except SyntaxError:
            return _parse_with_keywords(source)
        except (ValueError, RecursionError, MemoryError):
            return None


def _parse_with_keywords(source: str) -> ast.Module | None:
    """Parse calls with parameters that are named like keywords of Python: `search(from="Oslo")`.

    vLLM reads such calls too: https://github.com/vllm-project/vllm/issues/48171
    """
    renamed: str = _RESERVED.sub(lambda found: found[1] + found[2].swapcase() if found[2] else found[0], source)
    if renamed == source:
        return None
    try:
        tree = ast.parse(renamed)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg and keyword.iskeyword(node.arg.swapcase()):
            node.arg = (ast.get_source_segment(source, node) or "")[: len(node.arg)]
    return tree


_RESERVED = regex.compile(
    r"(?s:\"{3}.*?\"{3}|'{3}.*?'{3})|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'"
    rf"|([(,]\s*+)({'|'.join(keyword.kwlist)})(?=\s*+=(?!=))"
)
"""Matches a string, or a keyword that is the name of a parameter."""


def _unwrap_print(node: ast.expr | None) -> ast.Call | None:
    if not isinstance(node, ast.Call) or _read_dotted_name(node.func) is None:
        return None
    if _read_dotted_name(node.func) == "print":
        return _unwrap_print(node.args[0]) if len(node.args) == 1 and not node.keywords else None
    return node


def _read_dotted_name(node: ast.expr) -> str | None:
    """Return the dotted name of a function, without invented namespaces and without Llama's `.call`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        if len(parts) > DEPTH:
            return None
    if not isinstance(node, ast.Name):
        return None
    parts = [node.id, *reversed(parts)]
    if len(parts) > 1 and parts[-1] == "call":
        parts.pop()
    if len(parts) > 1 and parts[0] in _NAMESPACES:
        parts.pop(0)
    return ".".join(parts)


def _build_call(source: str, call: ast.Call) -> WrittenCall:
    name = _read_dotted_name(call.func) or ""
    try:
        return WrittenCall(name, _convert_keywords(call))
    except (ValueError, TypeError, MemoryError, RecursionError):
        return WrittenCall(name, _cut_arguments(source.strip(), call), words=True)


def _convert_keywords(call: ast.Call) -> str:
    if call.args:
        raise ValueError("a positional argument")
    arguments = {}
    for given in call.keywords:
        if given.arg is None or given.arg in arguments:
            raise ValueError("a repeated argument, or arguments in a variable")
        arguments[given.arg] = evaluate_literal(_JsonConstants().visit(given.value))
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


class _JsonConstants(ast.NodeTransformer):
    """Replaces JSON's constants by Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _cut_arguments(source: str, call: ast.Call) -> str:
    """Return the source between the brackets of `call` in braces; a single positional string as JSON.

    With braces, the source is an unreadable object. Without braces, it could be mistaken for a string argument.
    """
    match call:
        case ast.Call(args=[ast.Constant(value=str() as text)], keywords=[]):
            return json.dumps(text, ensure_ascii=False)
    whole = ast.get_source_segment(source, call) or ""
    head = ast.get_source_segment(source, call.func) or ""
    return "{" + whole[len(head) :].strip()[1:-1] + "}"
