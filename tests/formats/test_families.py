"""Calls in the notations of Python and of Gemma."""

import json

import pytest

from callboard_formats import parse
from callboard_formats.python import SOURCE_CHARS, notation_to_json, parse_calls
from tests.formats.corpus import TOOLS

SCHEMAS = [tool.schema() for tool in TOOLS]


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("f(a=1, b='x', c=None, d=True, e=-2.5)", {"a": 1, "b": "x", "c": None, "d": True, "e": -2.5}),
        ("f(a=[1, (2, 3)], b={'k': {'n': []}})", {"a": [1, [2, 3]], "b": {"k": {"n": []}}}),
        ('f(a="""two\nlines""")', {"a": "two\nlines"}),
        (r"f(a='\d')", {"a": r"\d"}),
        ("print(f())", {}),
        ("x = tools.f()", {}),
    ],
)
def test_literals_of_python_become_json(source: str, arguments: dict[str, object]) -> None:
    calls = parse_calls(source)
    assert calls is not None
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("f", arguments)]


@pytest.mark.parametrize(
    "source",
    [
        "f(a=g())", "f(**a)", "f(1, 2)", "f(a=1 + 1)", "f(a=f'{b}')", "f(a={1: 2})", "f(a=1e999)", f"f(a={'9' * 5000})",
    ],
)  # fmt: skip
def test_other_expressions_stay_source_that_is_no_json(source: str) -> None:
    calls = parse_calls(source)
    for call in calls or ():
        assert call.arguments == "{" + source[2:-1] + "}"
    parsed = parse(f"[{source.replace('f(', 'search(', 1)}]", SCHEMAS)
    assert all(call.error for call in parsed.tool_calls)


@pytest.mark.parametrize(
    "source",
    ["", "f", "for x in y: f()", "def f(): pass", "f() + g()", "f()()", "import f", "f(a=1, a=", "(" * 300,
     "-" * 9000 + "1", "f(a=" + "-" * 9000 + "1)", "f(a='\x00')", "a" + ".b" * 9000 + "()", "f(a=1)\n" * SOURCE_CHARS],
)  # fmt: skip
def test_source_with_other_statements_contains_no_calls(source: str) -> None:
    assert not parse_calls(source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:<escape>b<escape>}", {"a": "b"}),
        ('{a:<|"|>b, {c}: "d"<|"|>,e:-1.5,f:true,g:null}', {"a": 'b, {c}: "d"', "e": -1.5, "f": True, "g": None}),
        ("{a:[1,<escape>x<escape>,[]],b:{<escape>c d<escape>:{}}}", {"a": [1, "x", []], "b": {"c d": {}}}),
        ('{a:"b\\"c"}', {"a": 'b"c'}),
        ("{a:two words,b:3}", {"a": "two words", "b": 3}),
    ],
)
def test_the_notation_of_gemma_becomes_json(text: str, value: object) -> None:
    written = notation_to_json(text)
    assert (json.loads(written) if written else None) == value


@pytest.mark.parametrize(
    "text",
    ["", "{a}", "{a:}", "{a:1", "{a:<escape>b}", "{a:1}}", "[1]", "{a:" * 200 + "}" * 200, "{a:1e999}"],
)
def test_text_in_another_notation_is_not_converted(text: str) -> None:
    assert notation_to_json(text) is None
