"""Arguments that are nearly JSON are read, and fitted to the tool's schema without loss."""

import contextlib
import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from callboard_formats.arguments import ReadArguments, read_arguments
from callboard_formats.fitting import fit_arguments
from callboard_formats.names import Resolved, resolve_name
from callboard_formats.syntax import InvalidArguments

# ------------------------------------------------------------------------------------------------------ reading


WANTED = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}

AROUND = "text around the object left out"
CONTROL = "control characters in a string allowed"
UNWRAPPED = "unwrapped from a JSON string"
PYTHON = "read as Python literals"


@pytest.mark.parametrize(("text", "arguments", "repairs"), [
    (" \n\t", {}, ()),
    ('{"q": "a\nb\tc"}', {"q": "a\nb\tc"}, (CONTROL,)),
    (r'"{\"q\": \"a\"}"', {"q": "a"}, (UNWRAPPED,)),
    (r'"{\"q\": \"a' + "\n" + r'\"}"', {"q": "a\n"}, (CONTROL, UNWRAPPED, CONTROL)),
    ('```json\n{"q": "a"}\n```', {"q": "a"}, (AROUND,)),
    ('{"q": "a"}}', {"q": "a"}, (AROUND,)),
    ('{"q": "a"}\nObservation: {"q": "b"}', {"q": "a"}, (AROUND,)),
    ('Sure: {"q": "}{\\"", "n": 2} as asked', {"q": '}{"', "n": 2}, (AROUND,)),
    ('here {"q": "a\nb"}', {"q": "a\nb"}, (AROUND, CONTROL)),
    ("{'q': 'it is {', 'n': (1, 2)}", {"q": "it is {", "n": [1, 2]}, (PYTHON,)),
    ('{"q": "a", "n": True,}', {"q": "a", "n": True}, (PYTHON,)),
    ("x {'q': '\\d'}", {"q": "\\d"}, (AROUND, PYTHON)),
    (r'{"q": "\d\n\/"}', {"q": "\\d\n/"}, ("backslashes doubled",)),
])  # fmt: skip
def test_each_repair_is_made_only_if_needed_and_is_named(
    text: str, arguments: dict[str, Any], repairs: tuple[str, ...]
) -> None:
    assert read_arguments(text, WANTED) == ReadArguments(arguments, repairs)


@pytest.mark.parametrize("text", [
    '{"q": "a"', '{"q": "a", "n":', '{"q": "f() { }', "{'q': 'a}", r'"{\"q\": \"a', r'"{\"q\": \"a\""',
])  # fmt: skip
def test_an_object_without_an_end_is_refused_as_cut_off(text: str) -> None:
    with pytest.raises(InvalidArguments, match="cut off before the end"):
        read_arguments(text, WANTED)


@pytest.mark.parametrize("text", [
    "{q: 'cats', n: 5}", "{'q': 'a', 'n': true}", '{"q": "the "best" film"}', '{"q": ["a", "b"}', '{"q": "a" "n": 2}',
])  # fmt: skip
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        read_arguments(text, WANTED)


@pytest.mark.parametrize(
    "text",
    [
        "hello", "[1]", '"cats"', '[{"q": "a"}]', "{", '{"q":', "Use {} here.",
        r'"\"{}\""', '{"q": NaN}', '{"q": 1e999}', "{'q': Infinity}", '{"q": "a", "n"}', '{"n": 007}',
        "[" * 100_000, '{"q":' * 100_000, "{'q': " + "-" * 19_000 + "}", "q=a", "q: a", "{q: cats, n: 5}",
    ],
)  # fmt: skip
def test_text_without_a_clear_object_is_refused_with_advice(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r'JSON.* Write one JSON object, \{"q": …, "n": …\}, and call again\.$'):
        read_arguments(text, WANTED)


@pytest.mark.parametrize("between", ["", " ", ",\n", "; "])
def test_two_objects_are_refused_unless_they_are_equal(between: str) -> None:
    assert read_arguments(f'{{"q": "a"}}{between}{{"q": "a"}}', WANTED) == ReadArguments({"q": "a"}, (AROUND,))
    with pytest.raises(InvalidArguments, match="which one is meant"):
        read_arguments(f'{{"q": "a"}}{between}{{"n": 1}}', WANTED)


def test_null_means_no_arguments_if_the_tool_requires_none() -> None:
    assert read_arguments("null", {}) == ReadArguments({}, ("null read as no arguments",))
    with pytest.raises(InvalidArguments, match="not null"):
        read_arguments("null", WANTED)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)


@given(json_objects, st.data())
def test_an_object_cut_anywhere_is_refused(wanted: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(wanted)
    with pytest.raises(InvalidArguments):
        read_arguments(text[: data.draw(st.integers(1, len(text) - 1))], {})


@given(st.text() | st.text(alphabet="{}[]\"':,\\ \nab1-.") | st.text(alphabet="{\"a':1,}[]"))
def test_any_text_gives_json_or_a_refusal(text: str) -> None:
    try:
        read = read_arguments(text, WANTED)
    except InvalidArguments:
        return
    json.dumps(read.arguments, allow_nan=False)
    assert read.arguments or not text.strip() or "{" in text or '"' in text


# ------------------------------------------------------------------------------------------------------ fitting


LOCATION = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "near": {"type": "array", "items": {"$ref": "#/$defs/Location"}}},
    "required": ["city"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "unitSystem": {"enum": ["metric", "imperial"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "safe": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "days": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "level": {"enum": [1, 2, 3]},
        "steps": {"type": "array", "items": {"type": "object"}},
        "place": {"$ref": "#/$defs/Location"},
        "extra": {"type": "object"},
        "kind": {"const": "weather"},
        "agreed": {"const": True},
    },
    "$defs": {"Location": LOCATION},
}


def fit(arguments: dict[str, Any], schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return fit_arguments(arguments, SCHEMA if schema is None else schema)[0]


def refusal(arguments: dict[str, Any], schema: dict[str, Any] | None = None) -> str:
    with pytest.raises(InvalidArguments) as caught:
        fit(arguments, schema)
    return str(caught.value)


@pytest.mark.parametrize("arguments", [
    {},
    {"query": "5", "unitSystem": "metric", "count": 5, "ratio": 5, "safe": True, "tags": ["a", "b"], "limit": None},
    {"days": None, "level": 2, "kind": "weather"},
    {"steps": [{"a": [1]}], "place": {"city": "x", "near": [{"city": "y"}]}, "extra": {"z": 1}},
])  # fmt: skip
def test_arguments_that_fit_are_unchanged(arguments: dict[str, Any]) -> None:
    assert fit_arguments(arguments, SCHEMA) == (arguments, ())


@pytest.mark.parametrize(("written", "fitted", "repair"), [
    ({"Query": "a"}, {"query": "a"}, "argument 'Query' taken as 'query'"),
    ({"unit_system": "metric"}, {"unitSystem": "metric"}, "argument 'unit_system' taken as 'unitSystem'"),
    ({"unitSystem": "Metric"}, {"unitSystem": "metric"}, """argument 'unitSystem' "Metric" read as "metric\""""),
    ({"count": "5"}, {"count": 5}, """argument 'count' "5" read as 5"""),
    ({"count": 5.0}, {"count": 5}, "argument 'count' 5.0 read as 5"),
    ({"ratio": "1.5e2"}, {"ratio": 150.0}, """argument 'ratio' "1.5e2" read as 150.0"""),
    ({"safe": "true"}, {"safe": True}, """argument 'safe' "true" read as true"""),
    ({"query": 5}, {"query": "5"}, """argument 'query' 5 read as "5\""""),
    ({"limit": "None"}, {"limit": None}, """argument 'limit' "None" read as null"""),
    ({"tags": '["a"]'}, {"tags": ["a"]}, r"""argument 'tags' "[\"a\"]" read as ["a"]"""),
    ({"tags": "a"}, {"tags": ["a"]}, "argument 'tags' made a list of one"),
    ({"extra": '{"z": 1}'}, {"extra": {"z": 1}}, r"""argument 'extra' "{\"z\": 1}" read as {"z": 1}"""),
    ({"place": {"City": "x"}}, {"place": {"city": "x"}}, "argument 'place.City' taken as 'city'"),
    ({"zip": None}, {}, "argument 'zip' is unknown, had no value and is left out"),
    ({"count": None}, {}, "argument 'count' was empty and is left out"),
    ({"query": "a", "Query": "a"}, {"query": "a"}, "argument 'Query' repeats 'query' and is left out"),
    ({"arguments": {"query": "a"}}, {"query": "a"}, "taken out of 'arguments'"),
    ({"tool_input": '{"query": "a"}'}, {"query": "a"}, "taken out of 'tool_input'"),
])  # fmt: skip
def test_equivalent_arguments_are_converted_and_reported(
    written: dict[str, Any], fitted: dict[str, Any], repair: str
) -> None:
    assert fit_arguments(written, SCHEMA) == (fitted, (repair,))


@pytest.mark.parametrize(("written", "message"), [
    ({"count": 5.5}, "argument 'count': expected an integer, not 5.5"),
    ({"count": "007"}, """argument 'count': expected an integer, not "007\""""),
    ({"unitSystem": "kelvin"}, """argument 'unitSystem': expected one of ["metric", "imperial"], not "kelvin\""""),
    ({"agreed": 1}, "argument 'agreed': expected one of [true], not 1"),
    ({"tags": "['a', 'b']"}, """argument 'tags': expected a list, not "['a', 'b']\""""),
    ({"steps": {"a": 1}}, """argument 'steps': expected a list, not {"a": 1}"""),
    ({"query": "a", "Query": "b"}, "argument 'Query' is given twice, as 'query' too"),
    ({"querry": "a"}, "there is no argument 'querry', perhaps 'query'; it takes query, unitSystem, count,"),
    ({"place": {}}, "argument 'place.city' is missing"),
    ({"place": {"city": "x", "near": [{"city": "y"}, {"zip": 1}]}}, "there is no argument 'place.near.1.zip'; "),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_with_name_expectation_and_value(
    written: dict[str, Any], message: str
) -> None:
    said = refusal(written)
    assert message in said
    assert re.fullmatch(r"The arguments do not fit: .* Correct them and call the tool again\.", said)


def test_all_problems_are_reported_together_up_to_a_limit() -> None:
    said = refusal({f"unknown{number}": number for number in range(9)} | {"count": "x"})
    assert said.count("there is no argument") == 5
    assert "and 5 more" in said


def test_each_tool_has_its_own_names() -> None:
    both = {"properties": {"unit_system": {"type": "string"}, "unitSystem": {"type": "string"}}}
    assert fit({"unitSystem": "a", "unit_system": "b"}, both) == {"unitSystem": "a", "unit_system": "b"}
    assert "there is no argument 'UnitSystem'" in refusal({"UnitSystem": "a"}, both)
    snake = {"properties": {"unit_system": {"type": "string"}}}
    assert fit({"unitSystem": "a"}, snake) == {"unit_system": "a"}


def test_unknown_keys_are_kept_if_the_schema_allows_them() -> None:
    known = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert "there is no argument 'b'" in refusal({"b": 1}, known)
    assert "there is no argument 'b'" in refusal({"b": 1}, {**known, "additionalProperties": False})
    assert fit({"a": "1", "b": "1"}, {**known, "additionalProperties": True}) == {"a": 1, "b": "1"}
    assert fit({"b": "1"}, {**known, "additionalProperties": {"type": "integer"}}) == {"b": 1}
    assert fit({"b": "1"}, {**known, "patternProperties": {"^b": {}}}) == {"b": "1"}
    assert fit({"b": None}, {"type": "object"}) == fit({"b": None}, {}) == {"b": None}
    assert fit({"b": 1}, {"type": "object", "properties": {}}) == {"b": 1}
    assert "it takes none" in refusal({"b": 1}, {"type": "object", "properties": {}, "additionalProperties": False})


def test_a_missing_argument_is_reported_also_if_it_is_null() -> None:
    needed = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert "argument 'a' is missing" in refusal({}, needed)
    assert "argument 'a': expected a string, not null" in refusal({"a": None}, needed)
    assert fit({"a": ""}, needed) == {"a": ""}


def test_the_branch_that_changes_least_is_used() -> None:
    text_or_number = {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}
    assert fit({"a": "5"}, text_or_number) == {"a": "5"}
    assert fit({"a": 5}, text_or_number) == {"a": 5}
    shapes = {
        "properties": {
            "shape": {
                "oneOf": [
                    {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind"]},
                    {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind"]},
                ]
            }
        }
    }
    assert fit({"shape": {"kind": "square", "side": "2"}}, shapes) == {"shape": {"kind": "square", "side": 2}}
    assert "there is no argument 'shape.radius'" in refusal({"shape": {"kind": "square", "radius": 2}}, shapes)


MEMORY = {
    "type": "object",
    "properties": {"action": {"enum": ["search", "store"]}, "text": {"type": "string"}},
    "required": ["action"],
}


def named(written: str, tool: str) -> Resolved:
    resolved = resolve_name(written, [tool])
    assert resolved is not None
    return resolved


def test_the_action_that_a_name_implied_is_set() -> None:
    fitted, repairs = fit_arguments({"text": "a"}, MEMORY, named("save_memory", "memory"))
    assert fitted == {"text": "a", "action": "store"}
    assert repairs == ("action 'store' taken from the tool's name",)
    empty = {"action": None, "ACTION": ""}
    assert fit_arguments(empty, MEMORY, named("save_memory", "memory"))[0] == {"action": "store"}


@pytest.mark.parametrize("key", ["action", "Action"])
def test_an_action_that_the_model_wrote_is_never_overridden(key: str) -> None:
    fitted, repairs = fit_arguments({key: "search"}, MEMORY, named("save_memory", "memory"))
    assert fitted == {"action": "search"}
    assert "action 'store' taken from the tool's name" not in repairs


def test_a_tool_that_cannot_do_what_the_name_says_is_refused() -> None:
    with pytest.raises(InvalidArguments, match=r'expected one of .*, not "delete"'):
        fit_arguments({"text": "a"}, MEMORY, named("delete_memory", "memory"))
    with pytest.raises(
        InvalidArguments, match="the name means action 'delete', which 'memory' cannot do; it takes text"
    ):
        fit_arguments({"text": "a"}, {"properties": {"text": {}}}, named("delete_memory", "memory"))


scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(
    ["", "5", "true", "null", "[1]", '{"a": "1"}', "a", "A", "{", "[" * 2000]
)  # fmt: skip
keys = st.sampled_from(["a", "A", "b", "a_b", "aB", "arguments", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=10
)
types = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
leaves = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": types | st.lists(types, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"enum": st.lists(scalars, max_size=3)}),
    st.fixed_dictionaries({"const": scalars}),
    st.fixed_dictionaries(
        {"$ref": st.sampled_from(["#", "#/properties/a", "#/nowhere", "http://x/", "#/properties/b"])}
    ),
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"properties": st.dictionaries(keys, inner, max_size=3)},
            optional={
                "type": st.just("object"),
                "required": st.lists(keys, max_size=2, unique=True),
                "additionalProperties": inner,
            },
        ),
        st.fixed_dictionaries({"items": inner}, optional={"type": st.just("array")}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=4), schemas)
def test_any_arguments_fit_or_are_refused_and_the_input_is_unchanged(arguments: dict[str, Any], schema: Any) -> None:
    before = repr(arguments), repr(schema)
    try:
        fitted, repairs = fit_arguments(copy.deepcopy(arguments), schema, Resolved("t", {"a": "x"}, binding=True))
        assert isinstance(fitted, dict)
        assert all(isinstance(repair, str) for repair in repairs)
    except InvalidArguments:
        pass
    with contextlib.suppress(InvalidArguments):
        fit_arguments(arguments, schema)
    assert (repr(arguments), repr(schema)) == before


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), values, max_size=4))
def test_fitted_arguments_are_valid_and_fit_again_unchanged(arguments: dict[str, Any]) -> None:
    try:
        fitted, _ = fit_arguments(arguments, SCHEMA)
    except InvalidArguments:
        return
    Draft202012Validator(SCHEMA).validate(fitted)
    assert repr(fit_arguments(fitted, SCHEMA)) == repr((fitted, ()))


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


LOOP = {"$ref": "#"}
HOSTILE = {
    "deep": (nested(5000, 1), {"properties": {"a": LOOP}}),
    "wide": ({"a": ["5"] * 20_000}, {"properties": {"a": {"items": {"type": "integer"}}}}),
    "branches": (nested(300, 1), {"anyOf": [LOOP, {"properties": {"a": LOOP}}, {"properties": {"a": LOOP, "b": {}}}]}),
    "text": ({"a": "[" * 100_000}, {"properties": {"a": {"type": ["array", "object"]}}}),
    "doubling": (
        {"a": 1},
        {f"d{number}": {"required": ["a"], "allOf": [{"$ref": f"#/d{number + 1}"}] * 2} for number in range(60)}
        | {"$ref": "#/d0", "d60": {"required": ["a"]}},
    ),
    "keys": ({f"k{number}": 1 for number in range(2000)}, {"properties": {f"K_{number}": {} for number in range(200)}}),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "schema"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_arguments_and_schemas_end(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidArguments):
        fit_arguments(arguments, schema)


def test_error_messages_stay_short() -> None:
    said = refusal({"count": "x" * 100_000, "tags": {"a": ["y"] * 10_000}, "ratio": [10**5000]})
    assert len(said) < 600
    json.dumps(said)
