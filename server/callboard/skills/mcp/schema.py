"""Cleans the JSON schemas of MCP tools, so that models can read them and arguments can be checked cheaply.

A server's schema is untrusted: it may be broken, or designed to keep the checker busy forever. Only the keywords in
this module are kept. The cleaned schema never refuses arguments that the server's own schema accepts. So a constraint
is dropped if checking it may take long (`pattern`), if it is not valid in JSON Schema 2020-12 (a `minimum` that is
text), or if a dropped constraint inside it would reverse its meaning (`not`, `if`; `oneOf` becomes `anyOf`). The server
checks its arguments itself.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

MAX_SCHEMA_CHARS = 50_000
MAX_KEYWORDS = 20_000
"""The limit with all references expanded. A chain of `$defs` that each use the next one twice doubles with each
step."""

MAX_LEVELS = 64
MAX_DESCRIPTION_CHARS = 4_000

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_VALUES = frozenset({"const", "default", "examples"})
_TEXTS = frozenset({"title", "description", "format", "x-mcp-header"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
"""Their schemas count where a reference uses them."""

_MAPS = _DEFINITIONS | {"properties"}
_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf", "prefixItems": "prefixItems"}
_SCHEMAS = frozenset({"items", "additionalProperties", "propertyNames"})
_SPACES = re.compile(r"[^\S\n]+")


def clean_text(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Return `text` without invisible characters (controls, directions, tags), which could hide orders to the model."""
    shown = "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
    shown = _SPACES.sub(" ", shown).strip()
    return shown if len(shown) <= limit else shown[:limit] + "…"


def clean_schema(given: object) -> dict[str, Any]:
    """Return the schema of a tool's arguments in JSON Schema 2020-12. Raises `ValueError` with the defect.

    Invalid forms with a certain meaning are converted: PHP's `[]` for an empty object, null for a missing keyword,
    OpenAPI's `nullable`, and types in capitals, as in Gemini's schemas.
    """
    try:
        length = len(json.dumps(given, allow_nan=False))
    except RecursionError as error:
        raise ValueError(f"its schema is nested more than {MAX_LEVELS} levels deep") from error
    if length > MAX_SCHEMA_CHARS:
        raise ValueError(f"its schema is over {MAX_SCHEMA_CHARS} characters")
    schema = _clean(given, "", 0)
    if not isinstance(schema, dict) or "object" not in _as_list(schema.get("type", "object")):
        raise ValueError("its schema is not of type 'object'")
    _check_references(dict(_list_nodes(schema, "")))
    # Many endpoints refuse an object schema without properties.
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _clean(given: object, place: str, level: int) -> dict[str, Any] | bool:
    """Return the cleaned schema at `place`, a JSON pointer (RFC 6901). Raises `ValueError`."""
    if level > MAX_LEVELS:
        raise ValueError(f"its schema is nested more than {MAX_LEVELS} levels deep")
    if given is False:
        return False
    if given is None or given is True or given == []:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f"its schema has no schema at '{place}'")  # noqa: TRY004 - the server's mistake, not a programming error
    cleaned: dict[str, Any] = {}
    for key, value in _convert_old_keywords(given).items():
        if value is not None or key in _VALUES:
            kept = _clean_keyword(key, value, f"{place}/{key}", level + 1)
            if kept is not None or key in _VALUES:
                cleaned[_LISTS.get(key, key)] = kept
    return cleaned


def _clean_keyword(key: str, value: Any, place: str, level: int) -> Any:
    """Return the cleaned value of a keyword, or None if the keyword is dropped. Raises `ValueError`."""
    if key in _MAPS:
        if not isinstance(value, dict) and value != []:
            raise ValueError(f"its schema has no object at '{place}'")
        return {name: _clean(part, f"{place}/{_escape(name)}", level) for name, part in dict(value).items()}
    if key in _LISTS:
        return [_clean(part, f"{place}/{index}", level) for index, part in enumerate(_as_list(value))] or None
    if key in _SCHEMAS:
        return value if isinstance(value, bool) else _clean(value, place, level)
    return _clean_value(key, value, place)


@dataclass(slots=True)
class _Node:
    """A schema within a cleaned schema, with the places of the schemas that it uses.

    The schemas at `in_place` apply to the same value, those at `inner` to a part of it.
    """

    schema: dict[str, Any]
    in_place: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)

    @property
    def keywords(self) -> int:
        """The cost of checking a value by this schema, without the schemas that it uses."""
        values = sum(len(json.dumps(self.schema[key])) for key in ("enum", "const") if key in self.schema)
        return 1 + len(self.schema) + values // 10


def _list_nodes(schema: dict[str, Any] | bool, place: str) -> Iterator[tuple[str, _Node]]:
    """Yield the places of all schemas within a cleaned schema, and their nodes."""
    node = _Node({} if isinstance(schema, bool) else schema)
    yield place, node
    for key, value in node.schema.items():
        parts: dict[str, Any] = {}
        if key in _SCHEMAS and isinstance(value, dict):
            parts = {f"{place}/{key}": value}
        elif key in _MAPS:
            parts = {f"{place}/{key}/{_escape(name)}": part for name, part in value.items()}
        elif key in _LISTS:
            parts = {f"{place}/{key}/{index}": part for index, part in enumerate(value)}
        if key not in _DEFINITIONS:
            (node.in_place if key in ("allOf", "anyOf") else node.inner).extend(parts)
        for part_place, part in parts.items():
            yield from _list_nodes(part, part_place)


def _check_references(nodes: Mapping[str, _Node]) -> None:
    """Point references to their targets in the cleaned schema.

    Raises `ValueError` for dangling references, endless loops, and a schema that is too large when expanded.
    """
    for place, node in nodes.items():
        if "$ref" in node.schema:
            # A URL fragment may be percent-encoded.
            reference = unquote(node.schema["$ref"][1:])
            target = _find_target(nodes, place, reference)
            node.in_place.append(target)
            if target != reference:
                node.schema["$ref"] = "#" + target.replace("%", "%25")
    try:
        TopologicalSorter({place: node.in_place for place, node in nodes.items()}).prepare()
    except CycleError as error:
        raise ValueError(f"its schema refers to itself without end at '{error.args[1][0]}'") from error
    if _measure("", nodes, {}, frozenset())[0] > MAX_KEYWORDS:
        raise ValueError(f"its schema has over {MAX_KEYWORDS} keywords with its references written out")


def _find_target(nodes: Mapping[str, _Node], place: str, reference: str) -> str:
    """Return the place of the schema that a reference at `place` means. Raises `ValueError`.

    Schemas are often embedded unchanged in another one, where their references no longer point to their own
    definitions. So the references are also resolved relative to the enclosing schemas.
    """
    bases = ["", place]
    while bases[-1]:
        bases.append(bases[-1].rpartition("/")[0])
    for base in bases:
        for target in (f"{base}{reference}", f"{base}{reference.replace('/oneOf/', '/anyOf/')}"):
            if target in nodes:
                return target
    raise ValueError(f"its schema refers at '{place}' to '#{reference}', which is no part of it")


def _measure(
    place: str, nodes: Mapping[str, _Node], measured: dict[str, tuple[int, int]], around: frozenset[str]
) -> tuple[int, int]:
    """Return the keywords and levels of an expanded schema. A recursive part ends where it contains itself.

    `measured` has the results for other places, and `around` the places that contain this one.
    """
    if place in around:
        return 0, 0
    if place not in measured and len(around) <= MAX_LEVELS:
        node = nodes[place]
        parts = [_measure(used, nodes, measured, around | {place}) for used in (*node.in_place, *node.inner)]
        keywords = node.keywords + sum(keywords for keywords, _ in parts)
        measured[place] = keywords, 1 + max((levels for _, levels in parts), default=0)
    keywords, levels = measured.get(place, (0, MAX_LEVELS))
    if len(around) + levels > MAX_LEVELS + 1:
        raise ValueError(f"its schema is over {MAX_LEVELS} levels deep with its references written out")
    return keywords, levels


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _convert_old_keywords(given: dict[str, Any]) -> dict[str, Any]:
    """Convert the keywords of JSON Schema's drafts 4 to 7 and of OpenAPI 3.0 to 2020-12."""
    schema = dict(given)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema["items"]
        schema["items"] = schema.get("additionalItems")
    if "patternProperties" in schema:
        # The patterns are dropped, so any additional name must be allowed.
        schema.pop("additionalProperties", None)
    if schema.get("nullable") is True and "type" in schema:
        schema["type"] = [*_as_list(schema["type"]), "null"]
    if "anyOf" in schema:
        schema.pop("oneOf", None)
    return schema


def _clean_value(key: str, value: Any, place: str) -> Any:
    """Return the cleaned value of a keyword that contains no schema, or None if it is dropped. Raises `ValueError`."""
    match key:
        case "$ref":
            if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
                raise ValueError(f"its schema refers at '{place}' to something outside of it")
            return value
        case "type":
            return _clean_type(value)
        case "enum":
            return _as_list(value) or None
        case "required":
            # Draft 3 has `required: true` in a property.
            return None if isinstance(value, bool) else _clean_names(value, place)
        case _ if key in _TEXTS and isinstance(value, str):
            return clean_text(value)
        case _ if key in _VALUES or (key == "uniqueItems" and isinstance(value, bool)):
            return value
        case _ if key in _NUMBERS and _is_number(value) and (key != "multipleOf" or value > 0):
            return value
        case _ if key in _COUNTS and _is_number(value) and value >= 0 and value == int(value):
            return int(value)
    return None


def _clean_type(value: Any) -> Any:
    """Return the names of the types, or None if one is unknown: then any type is allowed."""
    names = ["null" if given is None else str(given).lower() for given in _as_list(value)]
    if not _TYPES.issuperset(names):
        return None
    return names[0] if len(names) == 1 else list(dict.fromkeys(names)) or None


def _clean_names(value: Any, place: str) -> list[str]:
    names = _as_list(value)
    if isinstance(value, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"its schema has no list of names at '{place}'")
    return list(dict.fromkeys(names))


def _as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value in a list.

    PHP's list with gaps, an object with numeric keys, is a list.
    """
    match value:
        case list():
            return value
        case dict() if all(key.isdecimal() for key in value):
            return list(value.values())
        case _:
            return [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
