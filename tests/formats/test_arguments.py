"""Arguments that are nearly JSON are read, and ambiguous ones are refused."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard_formats.arguments import ReadArguments, read_arguments
from callboard_formats.syntax import InvalidArguments

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}

AROUND = "text around the object left out"
CONTROL = "control characters in a string allowed"
UNWRAPPED = "unwrapped from a JSON string"
PYTHON = "read as Python literals"


@pytest.mark.parametrize(("text", "arguments", "repairs"), [
    ("", {}, ()),
    (" \n\t", {}, ()),
    ("{}", {}, ()),
    ('{"q": "a", "n": 1}', {"q": "a", "n": 1}, ()),
    ('{"q": "a\nb\tc"}', {"q": "a\nb\tc"}, (CONTROL,)),
    (r'"{\"q\": \"a\"}"', {"q": "a"}, (UNWRAPPED,)),
    (r'"{\"q\": \"a' + "\n" + r'\"}"', {"q": "a\n"}, (CONTROL, UNWRAPPED, CONTROL)),
    ('""', {}, (UNWRAPPED,)),
    ('```json\n{"q": "a"}\n```', {"q": "a"}, (AROUND,)),
    ('```json\n{}\n```', {}, (AROUND,)),
    ('{"q": "a"}}', {"q": "a"}, (AROUND,)),
    ('{"q": "a"}\nObservation: {"q": "b"}', {"q": "a"}, (AROUND,)),
    ('Sure: {"q": "}{\\"", "n": 2} as asked', {"q": '}{"', "n": 2}, (AROUND,)),
    ('here {"q": "a\nb"}', {"q": "a\nb"}, (AROUND, CONTROL)),
    ("{'q': 'a', 'n': None}", {"q": "a", "n": None}, (PYTHON,)),
    ("{'q': \"it's {\", 'n': True}", {"q": "it's {", "n": True}, (PYTHON,)),
    ("{'q': 'it is {', 'n': (1, 2)}", {"q": "it is {", "n": [1, 2]}, (PYTHON,)),
    ('{"q": "a", "n": True,}', {"q": "a", "n": True}, (PYTHON,)),
    ("x {'q': '\\d'}", {"q": "\\d"}, (AROUND, PYTHON)),
    (r'{"q": "\d\n\/"}', {"q": "\\d\n/"}, ("backslashes doubled",)),
])  # fmt: skip
def test_each_repair_is_made_only_if_needed_and_is_named(
    text: str, arguments: dict[str, Any], repairs: tuple[str, ...]
) -> None:
    assert read_arguments(text, SCHEMA) == ReadArguments(arguments, repairs)


@pytest.mark.parametrize("text", [
    '{"q": "a"', '{"q": "a', '{"q": "a", "n": 1', '{"q": "a", "n":', '{"q": "a", ', '{"q": "f() { }', '{"q": {"n": 1}',
    "{'q': 'a}", r'"{\"q\": \"a', r'"{\"q\": \"a\""',
])  # fmt: skip
def test_an_object_without_an_end_is_refused_as_cut_off(text: str) -> None:
    with pytest.raises(InvalidArguments, match="cut off before the end"):
        read_arguments(text, SCHEMA)


@pytest.mark.parametrize("text", [
    "{q: 'cats', n: 5}", "{'q': 'a', 'n': true}", '{“q”: “a”}', '{"q": "the "best" film"}', '{\\"q\\": \\"a\\"}',
    '{"q": ["a", "b"}', '{"q": "a" "n": 2}',
])  # fmt: skip
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        read_arguments(text, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        '{"q": "x // y /* z */", // one\n "n": 1, /* it\'s\n two */ }',
        "{'q': 'x // y /* z */', // it's\n 'n': 1}",
        '// before {\n{"q": "x // y /* z */", "n": 1 // last\n}',
    ],
)
def test_comments_are_removed_except_in_strings(text: str) -> None:
    assert read_arguments(text, SCHEMA).arguments == {"q": "x // y /* z */", "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        "hello", "[1]", "5", "true", '"cats"', '[{"q": "a"}]', '"[1]"', "{", '{"', '{"q', '{"q":', "{braces}",
        "Use {} here.",
        r'"\"{}\""', '{"q": NaN}', '{"q": 1e999}', "{'q': Infinity}", '{"q": "a", "n"}', '{"n": 007}',
        "[" * 100_000, '{"q":' * 100_000, "{'q': " + "-" * 19_000 + "}", "q=a", "q: a", "{q: cats, n: 5}",
    ],
)  # fmt: skip
def test_text_without_a_clear_object_is_refused_with_advice(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r'JSON.* Write one JSON object, \{"q": …, "n": …\}, and call again\.$'):
        read_arguments(text, SCHEMA)


@pytest.mark.parametrize("between", ["", " ", ",\n", "; "])
def test_two_objects_are_refused_unless_they_are_equal(between: str) -> None:
    assert read_arguments(f'{{"q": "a"}}{between}{{"q": "a"}}', SCHEMA) == ReadArguments({"q": "a"}, (AROUND,))
    with pytest.raises(InvalidArguments, match="which one is meant"):
        read_arguments(f'{{"q": "a"}}{between}{{"n": 1}}', SCHEMA)


def test_null_means_no_arguments_if_the_tool_requires_none() -> None:
    assert read_arguments("null", {}) == ReadArguments({}, ("null read as no arguments",))
    with pytest.raises(InvalidArguments, match="not null"):
        read_arguments("null", SCHEMA)


def test_an_error_quotes_the_beginning_and_says_where_it_was_cut_off() -> None:
    with pytest.raises(InvalidArguments, match=r"cut off before the end.*: \{\"a{100,118}… Write") as caught:
        read_arguments('{"' + "a" * 40_000, {})
    assert len(str(caught.value)) < 400


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects)
def test_json_is_read_as_json_and_doubly_encoded_json_too(wanted: dict[str, Any]) -> None:
    text = json.dumps(wanted)
    assert read_arguments(text, {}) == ReadArguments(wanted)
    assert read_arguments(json.dumps(text), {}) == ReadArguments(wanted, (UNWRAPPED,))


@given(objects.filter(bool), st.text(alphabet="abc .\n`"), st.text(alphabet="abc .\n`}"))
def test_an_object_is_found_in_text(wanted: dict[str, Any], before: str, after: str) -> None:
    assert read_arguments(before + json.dumps(wanted) + after, {}).arguments == wanted


# Python writes a string that contains an apostrophe in double quotation marks, which makes it JSON.
@given(objects.filter(lambda wanted: bool(wanted) and "'" not in json.dumps(wanted)))
def test_python_literals_are_read_as_python(wanted: dict[str, Any]) -> None:
    assert read_arguments(repr(wanted), {}).arguments == wanted


@given(objects, st.data())
def test_an_object_cut_anywhere_is_refused(wanted: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(wanted)
    with pytest.raises(InvalidArguments):
        read_arguments(text[: data.draw(st.integers(1, len(text) - 1))], {})


@given(st.text() | st.text(alphabet="{}[]\"':,\\ \nab1-.") | st.text(alphabet="{\"a':1,}[]"))
def test_any_text_gives_json_or_a_refusal(text: str) -> None:
    try:
        read = read_arguments(text, SCHEMA)
    except InvalidArguments:
        return
    json.dumps(read.arguments, allow_nan=False)
    assert read.arguments or not text.strip() or "{" in text or '"' in text


@pytest.mark.parametrize(
    "text",
    [
        '{"q": "' + "x" * 1_000_000, "{" * 1_000_000, '{"a":' * 30_000, "{'a': " + "(" * 19_000,
        '{"q": "' + "\\" * 31_000,
        "{" + ",".join(f'"{number}": 1' for number in [*range(200_000), 199_999]) + "}",
        "{" + '"' * 31_999, "{a: " + "b " * 15_000, "x" * 1_000_000, "{" + "[{" * 15_000, '{"q": ' + "\n" * 1_000_000,
    ],
    ids=range(11),
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    with suppress(InvalidArguments):
        read_arguments(text, SCHEMA)
