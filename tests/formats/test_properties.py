"""Calls written in the syntax of a row are read back exactly, cut anywhere, and no other calls run.

The outputs are generated from the patterns of the table, so a new row is tested without a new test.
"""

import itertools
import json
import random
import re
import re._parser as parser  # type: ignore[import-not-found] # it has no types
import string
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from callboard_formats import ReasoningPiece, StreamParser, TextPiece, parse
from callboard_formats.row import Row
from callboard_formats.table import ROWS
from tests.formats.corpus import cut

OUTPUTS_PER_ROW = 60
MUTATIONS_PER_ROW = 150
WORDS = (
    "storms",
    "north",
    "a b",
    "ä日本🎭",
    "x" * 40,
    "1",
    "true",
    "null",
    "",
    "  two  blanks ",
    "line\nline",
    '"quoted"',
    "it's",
)
MARKS = (
    "</tool_call>",
    "</function>",
    "</parameter>",
    "[TOOL_CALLS]",
    "<|im_end|>",
    "}",
    "]",
    ")",
    "```",
    "</arg_value>",
)
TYPES = ("string", "integer", "number", "boolean", "array", "object")


def tool(name: str, types: Mapping[str, str]) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def value(kind: str, chance: random.Random) -> Any:
    match kind:
        case "string":
            return " ".join(chance.choice(WORDS + MARKS) for _ in range(chance.randint(0, 3)))
        case "integer":
            return chance.randint(-(10**9), 10**9)
        case "number":
            return chance.choice([0.5, -2.25, 1e20])
        case "boolean":
            return chance.random() < 0.5
        case "array":
            return [value(chance.choice(TYPES[:4]), chance) for _ in range(chance.randint(0, 3))]
        case _:
            return {word(chance): value(chance.choice(TYPES[:5]), chance) for _ in range(chance.randint(0, 3))}


def word(chance: random.Random) -> str:
    return "".join(chance.choice(string.ascii_lowercase) for _ in range(chance.randint(3, 9)))


def literal(pattern: str, **groups: str) -> str:
    """Return the shortest text that a pattern of the table matches, with these texts for its groups."""
    return _literal(pattern, groups)


def _literal(pattern: str, groups: Mapping[str, str]) -> str:
    prepared = pattern.replace(" ", "").replace("}+", "}").replace("++", "+").replace("*+", "*")
    # Python's `re` accepts each group name once.
    number = itertools.count()
    prepared = re.sub(r"\(\?P<(\w+)>", lambda found: f"(?P<{found[1]}_{next(number)}>", prepared)
    tree = parser.parse(prepared)
    names = {group: name.partition("_")[0] for name, group in tree.state.groupdict.items()}
    return _written(tree, names, groups)


def _written(tree: Any, names: Mapping[int, str], groups: Mapping[str, str]) -> str:
    out: list[str] = []
    for operator, argument in tree:
        match str(operator):
            case "LITERAL":
                out.append(chr(argument))
            case "IN":
                out.append(_of_set(argument))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, _, inner = argument
                out.append(_written(inner, names, groups) * (least or _holds_type(inner, names, groups)))
            case "SUBPATTERN":
                number, _, _, inner = argument
                name = names.get(number, "") if number else ""
                out.append(groups[name] if name in groups else _written(inner, names, groups))
            case "BRANCH":
                told = [branch for branch in argument[1] if _tells(branch, names, groups)] or argument[1]
                out.append(min((_written(branch, names, groups) for branch in told), key=len))
            case "ANY":
                out.append("x")
            case _:
                # A lookahead adds no text: the pattern behind it does.
                pass
    return "".join(out)


def _tells(tree: Any, names: Mapping[int, str], groups: Mapping[str, str]) -> bool:
    """Return whether the pattern contains one of these texts. A branch without them is an error of models."""
    return any(text and text in _written(tree, names, groups) for text in groups.values())


def _of_set(parts: Any) -> str:
    operator, argument = parts[0]
    match str(operator):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(argument[0])
        case "CATEGORY":
            return " " if str(argument) == "CATEGORY_SPACE" else "x"
    return "x"


def _holds_type(tree: Any, names: Mapping[int, str], groups: Mapping[str, str]) -> bool:
    """Return whether the type of a value is in an optional part of the pattern, which is omitted."""
    return bool(groups.get("type")) and groups["type"] in _written(tree, names, {"type": groups["type"]})


def written(row: Row, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Return these calls in the syntax of the row."""
    inside = "".join(_call(row, name, arguments) for name, arguments in calls)
    return literal(row.section) + inside + literal(row.section_end) if row.section else inside


def _call(row: Row, name: str, arguments: dict[str, Any]) -> str:
    end = literal(row.end)
    if row.body == "tags":
        head = literal(row.head, name=name)
        return head + "".join(_parameter(row, key, one) for key, one in arguments.items()) + end
    if row.body == "json" and "?P<name>" in row.head and not row.name_alone and row.name != "xml":
        return literal(row.head, name=name) + json.dumps(arguments, ensure_ascii=False) + end
    if row.body == "json":
        body: Any = {name: arguments} if row.keyed else {"name": name, "arguments": arguments}
        return literal(row.head) + json.dumps([body], ensure_ascii=False) + end
    if row.body == "python":
        source = ", ".join(f"{key}={one!r}" for key, one in arguments.items())
        return f"{literal(row.head)}{name}({source})\n{end}"
    return literal(row.head, name=name) + _escaped(row, arguments) + end


def _parameter(row: Row, key: str, one: Any) -> str:
    text = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
    kinds = ("true", "false") if "true|false" in row.key else ("string", "any")
    kind = kinds[0] if isinstance(one, str) else kinds[1]
    return literal(row.key, key=key, type=kind) + text + literal(row.value_end)


def _escaped(row: Row, one: Any) -> str:
    match one:
        case dict():
            return "{" + ",".join(f"{key}:{_escaped(row, inner)}" for key, inner in one.items()) + "}"
        case list():
            return "[" + ",".join(_escaped(row, inner) for inner in one) + "]"
        case str():
            return f"<escape>{one}<escape>"
    return json.dumps(one)


class Case:
    """Generated calls of generated tools in the syntax of one row."""

    def __init__(self, row: Row, chance: random.Random) -> None:
        self.row = row
        names = [word(chance) for _ in range(chance.randint(1, 3))]
        kinds = {name: {word(chance): chance.choice(TYPES) for _ in range(chance.randint(0, 3))} for name in names}
        self.tools = [tool(name, types) for name, types in kinds.items()]
        several = row.section or row.end or row.name_alone
        self.calls = [
            (name, {key: self._value(kind, chance) for key, kind in kinds[name].items()})
            for name in (names if several else names[:1])
        ]
        self.text = written(row, self.calls)

    def _value(self, kind: str, chance: random.Random) -> Any:
        while True:
            made = value(kind, chance)
            text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
            if self._can_be_written(text, made):
                return made

    def _can_be_written(self, text: str, made: Any) -> bool:
        """Return whether the syntax can express the value. Some have no escapes for text at the ends of a value."""
        if self.row.body == "tags":
            closing = self.row.value_end.replace(" ", r"\s*")
            return not re.search(rf"\A\s*\{{|\A\r?\n|\r?\n\Z|(?:{closing})\Z", text) if isinstance(made, str) else True
        if self.row.body == "escaped":
            return "<escape>" not in text
        return True


def read(case: Case, pieces: list[str]) -> tuple[str, str, list[tuple[str, Any]]]:
    parsing = StreamParser(case.tools)
    shown = [one for piece in pieces for one in parsing.feed(piece)] + parsing.finish()
    return (
        "".join(one.text for one in shown if isinstance(one, TextPiece)),
        "".join(one.text for one in shown if isinstance(one, ReasoningPiece)),
        [(call.name, call.arguments if call.error is None else call.error) for call in parsing.calls],
    )


def id_of(parameter: Row | str) -> str:
    return parameter if isinstance(parameter, str) else f"{parameter.name}: {parameter.title}"


every_row = pytest.mark.parametrize("row", ROWS, ids=id_of)


@every_row
def test_calls_that_a_row_writes_are_read_exactly_cut_anywhere(row: Row, stride: int) -> None:
    chance = random.Random(row.title)
    for _ in range(0, OUTPUTS_PER_ROW, stride):
        case = Case(row, chance)
        assert read(case, [case.text]) == ("", "", case.calls), case.text
        places = sorted(chance.randint(0, len(case.text)) for _ in range(4))
        assert read(case, cut(case.text, *places)) == ("", "", case.calls), (case.text, places)


@every_row
def test_only_complete_calls_of_an_incomplete_output_run(row: Row, stride: int) -> None:
    chance = random.Random(row.title)
    for _ in range(0, OUTPUTS_PER_ROW // 10, stride):
        case = Case(row, chance)
        for end in range(0, len(case.text), stride):
            ran = [call for call in parse(case.text[:end], case.tools).tool_calls if call.error is None]
            for call, (name, arguments) in zip(ran, case.calls, strict=False):
                assert (call.name, call.arguments) == (name, arguments), case.text[:end]


@every_row
def test_no_call_runs_with_arguments_that_are_not_in_the_text(row: Row, stride: int) -> None:
    chance = random.Random(row.title)
    for _ in range(0, MUTATIONS_PER_ROW, stride):
        case = Case(row, chance)
        text = mutated(case.text, chance)
        for call in parse(text, case.tools).tool_calls:
            for one in leaves(call.arguments or {}):
                assert is_held(one, text), (one, text)


def mutated(text: str, chance: random.Random) -> str:
    start = chance.randint(0, len(text))
    end = min(len(text), start + chance.randint(0, 12))
    match chance.randrange(4):
        case 0:
            return text[:start] + text[end:]
        case 1:
            return text[:start] + chance.choice(MARKS + WORDS) + text[start:]
        case 2:
            return text[:end] + text[start:end] + text[end:]
        case _:
            return text[:start]


def leaves(one: Any) -> list[Any]:
    match one:
        case dict():
            return [leaf for inner in one.values() for leaf in leaves(inner)]
        case list():
            return [leaf for inner in one for leaf in leaves(inner)]
    return [one]


def is_held(one: Any, text: str) -> bool:
    """Return whether the text contains a value in any notation."""
    if isinstance(one, str):
        return any(form in text for form in (one, json.dumps(one, ensure_ascii=False)[1:-1], repr(one)[1:-1]))
    if isinstance(one, bool) or one is None:
        return json.dumps(one) in text or str(one) in text
    return str(one) in text or any(
        float(number) == one for number in re.findall(r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?", text)
    )


OF_ITS_OWN: dict[str, Callable[[Row], str]] = {
    "the end of a value": lambda row: f"a {plain(row.value_end)} b",
    "the end of a call": lambda row: f"It ends with {plain(row.end)}, always.",
    "every end": lambda row: f"It is {plain(row.value_end)}{plain(row.end)}{plain(row.section_end)}, always.",
    "an opener": lambda row: f"The {row.openers[0]} begins.",
    "the opening of a value": lambda row: f"The {plain(row.key)} opens.",
    "a whole call": lambda row: f"As {written(row, [('now', {})])} shows.",
    "a call with a value": lambda row: f"As {written(row, [('write_file', {'path': 'q', 'content': 'in'})])} shows.",
}
WRITE = tool("write_file", {"path": "string", "content": "string"})
NOW = tool("now", {})


def plain(pattern: str) -> str:
    return literal(pattern, name="now", key="content", type="string") if pattern else ""


@every_row
def test_markers_inside_an_argument_belong_to_the_argument(row: Row) -> None:
    for content in [write(row) for write in OF_ITS_OWN.values()]:
        if row.body == "escaped" and "<escape>" in content:
            continue
        writing: tuple[str, dict[str, Any]] = ("write_file", {"path": "a", "content": content})
        for calls in ([writing], [writing, ("now", {})]):
            if len(calls) > 1 and not (row.section or row.end):
                continue
            text = written(row, calls)
            # A call alone arrives whole, and two calls arrive in characters.
            reader = StreamParser([WRITE, NOW])
            for piece in [text] if len(calls) == 1 else text:
                reader.feed(piece)
            reader.finish()
            assert [(call.name, call.arguments) for call in reader.calls] == calls, text


@pytest.mark.parametrize("row", [row for row in ROWS if row.body == "tags"], ids=id_of)
def test_no_value_between_tags_is_lost_in_long_text_behind_the_call(row: Row) -> None:
    calls = [("write_file", {"path": "a.txt", "content": "storms"})]
    for text in (written(row, calls) + " word" * 1100, "word word\n" * 382 + written(row, calls) + "\n" + "x" * 400):
        for pieces in ([text], cut(text, *range(20, len(text), 20))):
            reader = StreamParser([WRITE])
            for piece in pieces:
                reader.feed(piece)
            reader.finish()
            assert [(call.name, call.arguments) for call in reader.calls] == calls


@every_row
def test_an_output_may_be_cut_off_behind_a_marker_inside_an_argument(row: Row, stride: int) -> None:
    for marker, write in OF_ITS_OWN.items():
        if row.body == "tags" and marker == "every end":
            # Without escapes, an end of a call inside of an argument ends the call if no text follows.
            continue
        content = write(row)
        text = written(row, [("write_file", {"path": "a", "content": content})])
        for end in range(0, len(text), 3 * stride):
            for call in parse(text[:end], [WRITE, NOW]).tool_calls:
                assert call.error or call.arguments == {"path": "a", "content": content}, text[:end]


@every_row
def test_a_stray_marker_is_shown_only_if_it_is_quoted(row: Row) -> None:
    for marker in row.markers:
        shown = parse(f"It is done. {marker} It is noon.", [NOW], [row.name]).content
        assert marker not in shown
        assert parse(f"It is `{marker}`.", [NOW], [row.name]).content == f"It is `{marker}`."
