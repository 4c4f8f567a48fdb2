"""Schemas of MCP tools: broken ones are repaired, hostile ones refused, and their checks end in time."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from callboard.calls import Tool
from callboard.calls.executor import check_arguments
from callboard.errors import InvalidArguments, ToolError
from callboard.skills.mcp.schema import clean_schema

TEXT = {"type": "string"}


def having(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **fields}


def doubling(times: int, keyword: str = "allOf", **fields: Any) -> dict[str, Any]:
    uses = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2, **fields} for n in range(times)}
    return having({"$ref": "#/$defs/d0"}, **{"$defs": {**uses, f"d{times}": TEXT}})


def nested(levels: int, keyword: str = "items") -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(levels):
        schema = {keyword: [schema] if keyword == "anyOf" else schema}
    return having(schema)


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        # PHP has one kind of empty array, and its lists with gaps are objects.
        ({"type": "object", "properties": []}, {}),
        (having({"type": "object", "properties": []}), {"a": {"type": "object", "properties": {}}}),
        (having({"enum": {"0": "x", "2": "y"}}), {"a": {"enum": ["x", "y"]}}),
        ({"type": None, "properties": {"a": None}, "required": None}, {"a": {}}),
        (having({"type": "string", "enum": None, "items": None, "minLength": None}), {"a": TEXT}),
        # Drafts 3 to 7, and OpenAPI 3.0.
        (having({"minimum": 1, "exclusiveMinimum": True}), {"a": {"minimum": 1}}),
        (having({"type": "string", "nullable": True}), {"a": {"type": ["string", "null"]}}),
        (
            having({"items": [TEXT, {}], "additionalItems": False}),
            {"a": {"prefixItems": [TEXT, {}], "items": False}},
        ),
        # Gemini's types, unknown ones, and one that is repeated.
        (having({"type": "STRING"}), {"a": TEXT}),
        (having({"type": ["string", "int"]}), {"a": {}}),
        (having({"type": ["STRING", "string"]}), {"a": {"type": ["string"]}}),
        # Constraints of a wrong type, and expensive ones.
        (having({"minimum": "1", "maxLength": -1, "multipleOf": 0, "format": 1}), {"a": {}}),
        (having({"pattern": "^(a+)+$", "patternProperties": {"^(a+)+$": {}}, "contains": {}}), {"a": {}}),
        (having({"not": {"pattern": "a"}, "if": {"pattern": "a"}, "then": False}), {"a": {}}),
        (having({"oneOf": [{"pattern": "a"}, TEXT]}), {"a": {"anyOf": [{}, TEXT]}}),
        (having(False), {"a": False}),
    ],
)
def test_schema_with_certain_meaning_is_repaired(given: Any, cleaned: dict[str, Any]) -> None:
    schema = clean_schema(given)
    assert schema == {"type": "object", "properties": cleaned}
    Draft202012Validator.check_schema(schema)


def test_good_schema_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "title": "Search",
        "properties": {
            "query": {"type": "string", "description": "What to look for.", "minLength": 1, "x-mcp-header": "Query"},
            "where": {"anyOf": [{"$ref": "#/$defs/where"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "uniqueItems": True, "maxItems": 5},
            "of": {"$ref": "#/properties/tags/items"},
            "tree": {"type": "object", "additionalProperties": {"$ref": "#"}},
            "any~/": {"type": ["string", "number"], "multipleOf": 0.5},
            "odd": {"$ref": "#/properties/any~0~1"},
        },
        "required": ["query"],
        "additionalProperties": False,
        "$defs": {"where": {"type": "object", "properties": {"next": {"$ref": "#/$defs/where"}}}},
    }
    assert clean_schema(schema) == schema


@pytest.mark.parametrize(
    ("part", "reference", "changed"),
    [
        # Into a part that is kept under another keyword.
        ({"oneOf": [TEXT, {}]}, "#/properties/a/oneOf/0", "#/properties/a/anyOf/0"),
        # From a schema that was put into this one with its own definitions.
        ({"$defs": {"t": TEXT}}, "#/$defs/t", "#/properties/a/$defs/t"),
        ({"definitions": {"a b%": TEXT}}, "#/definitions/a%20b%25", "#/properties/a/definitions/a b%25"),
    ],
)
def test_reference_points_to_moved_target(part: dict[str, Any], reference: str, changed: str) -> None:
    schema = clean_schema(having({**part, "additionalProperties": {"$ref": reference}, "type": ["object", "string"]}))
    assert schema["properties"]["a"]["additionalProperties"] == {"$ref": changed}
    tool = Tool("by_hand", "By hand.", schema, lambda **_: "")
    with pytest.raises(InvalidArguments, match="1 is not of type 'string'"):
        check_arguments(tool, {"a": {"b": 1}})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "not of type 'object'"),
        ("text", "no schema at ''"),
        ({"properties": ["a"]}, "no object at '/properties'"),
        ({"properties": {}, "required": "a"}, "no list of names at '/required'"),
        (having({}, description="x" * 60_000), "over 50000 characters"),
        (nested(5_000), "nested more than 64 levels deep"),
        # References to nothing, to a value that is not a schema (a pattern in an example), and outside.
        (having({"$ref": "#/$defs/b"}), "refers at '/properties/a' to '#/$defs/b', which is no part of it"),
        (
            having({"enum": [{"pattern": "^(a+)+$"}]}) | {"not": {"$ref": "#/a"}, "$ref": "#/properties/a/enum/0"},
            "no part",
        ),
        (having({"$ref": "https://example.com/schema"}), "outside of it"),
        (having({"anyOf": [TEXT, {"$ref": "#/properties/a"}]}), "refers to itself without end"),
        (
            having(
                {"$ref": "#/$defs/b"},
                **{"$defs": {"b": {"allOf": [{"$ref": "#/$defs/c"}]}, "c": {"$ref": "#/$defs/b"}}},
            ),
            "without end",
        ),
        (doubling(28, "prefixItems"), "over 20000 keywords"),
        (doubling(60), "over 64 levels deep with its references written out"),
        (
            having(
                {"$ref": "#/$defs/d0"},
                **{"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(500)} | {"d500": TEXT}},
            ),
            "over 64 levels deep with its references written out",
        ),
        (
            having({"allOf": [{"$ref": "#/$defs/e"}] * 900}, **{"$defs": {"e": {"enum": list(range(2_000))}}}),
            "over 20000 keywords",
        ),
    ],
)
def test_invalid_or_expensive_schema_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        clean_schema(schema)


def check(schema: dict[str, Any], value: Any) -> None:
    tool = Tool("by_hand", "By hand.", schema, lambda **_: "")
    assert check_arguments(tool, {"a": value}) == {"a": value}


def many(count: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(count)]


UNIQUE = {"type": "array", "uniqueItems": True}
TREE = having({"$ref": "#/$defs/t"}, **{"$defs": {"t": {"additionalProperties": {"$ref": "#/$defs/t"}}}})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (having(UNIQUE), many(6_000)),
        (TREE, json.loads('{"b":' * 100 + "{}" + "}" * 100)),
    ],
)
def test_many_arguments_are_checked(schema: dict[str, Any], value: Any) -> None:
    check(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (having(UNIQUE), [*many(3_000), {"n": 0}, *many(3_000)], "{'n': 0} is in it more than once"),
        (having({"allOf": [UNIQUE] * 500}), [["x" * 100] * 1_000], "take too long to check"),
        (having({"items": {"enum": [str(n) for n in range(1_000)]}}), ["no"] * 6_000, "is not one of"),
        (doubling(28, "oneOf"), "x", "take too long to check"),
        (TREE, json.loads('{"b":' * 900 + "{}" + "}" * 900), "nested too deeply"),
        (having({"$ref": "#/properties/a"}), 1, "nested too deeply"),
        (having({"$ref": "#/$defs/b"}), 1, "refers to '/$defs/b', which it does not contain"),
    ],
)
def test_too_expensive_check_ends_with_message_for_model(schema: dict[str, Any], value: Any, said: str) -> None:
    with pytest.raises((InvalidArguments, ToolError)) as error:
        check(schema, value)
    assert said in str(error.value)
