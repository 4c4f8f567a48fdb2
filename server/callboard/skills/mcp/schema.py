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
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple
from urllib.parse import unquote

MAX_SCHEMA_CHARS = 50_000
MAX_KEYWORDS = 20_000
"""The limit with all references expanded. A chain of `$defs` that each use the next one twice doubles with each
step."""

MAX_LEVELS = 64
MAX_DESCRIPTION_CHARS = 4_000

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_TYPE_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "none": "null",
}
"""Names of types in other languages. Names in capitals, as in Gemini's schemas, are accepted too."""

_VALUES = frozenset({"const", "default", "examples"})
_TEXTS = frozenset({"title", "description", "format", "x-mcp-header"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_MAPS = frozenset({"properties", "$defs", "definitions"})
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
    draft 4's `exclusiveMinimum: true`, OpenAPI's `nullable`, and types in other languages' names.
    """
    try:
        length = len(json.dumps(given, allow_nan=False))
    except RecursionError as error:
        raise ValueError(f"its schema is nested more than {MAX_LEVELS} levels deep") from error
    if length > MAX_SCHEMA_CHARS:
        raise ValueError(f"its schema is over {MAX_SCHEMA_CHARS} characters")
    cleaner = _Cleaner()
    schema = cleaner.clean(given, _Place("", ""), 0)
    if not isinstance(schema, dict) or "object" not in _as_list(schema.get("type", "object")):
        raise ValueError("its schema is not of type 'object'")
    cleaner.check_references()
    # Many endpoints refuse an object schema without properties.
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


class _Place(NamedTuple):
    """The place of a part of the schema, as JSON pointers (RFC 6901) into the given and the cleaned schema."""

    given: str
    kept: str

    def step(self, given: str, kept: str = "") -> "_Place":
        escaped = given.replace("~", "~0").replace("/", "~1")
        return _Place(f"{self.given}/{escaped}", f"{self.kept}/{kept or escaped}")


@dataclass(slots=True)
class _Node:
    """A schema within the schema, with the places of the schemas that it uses.

    The schemas at `in_place` apply to the same value, those at `inner` to a part of it.
    """

    place: _Place
    cleaned: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    in_place: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)

    @property
    def keywords(self) -> int:
        """The cost of checking a value by this schema, without the schemas that it uses."""
        values = sum(len(json.dumps(self.cleaned[key])) for key in ("enum", "const") if key in self.cleaned)
        return 1 + len(self.cleaned) + values // 10


class _Cleaner:
    """Cleans one schema, and keeps its parts by their given places."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._measured: dict[str, tuple[int, int]] = {}

    def clean(self, given: object, place: _Place, level: int) -> dict[str, Any] | bool:
        """Return the cleaned schema at `place`. Raises `ValueError`."""
        if level > MAX_LEVELS:
            raise ValueError(f"its schema is nested more than {MAX_LEVELS} levels deep")
        self._nodes[place.given] = node = _Node(place)
        if given is False:
            return False
        if given is None or given is True or given == []:
            given = {}
        if not isinstance(given, dict):
            raise ValueError(f"its schema has no schema at '{place.given}'")  # noqa: TRY004 - the server's mistake, not a programming error
        for key, value in _convert_old_keywords(given).items():
            if value is not None or key in _VALUES:
                self._clean_keyword(node, key, value, level + 1)
        return node.cleaned

    def check_references(self) -> None:
        """Raise `ValueError` for dangling references, endless loops, and a schema that is too large when expanded."""
        for node in self._nodes.values():
            if node.reference is not None:
                target = self._find_target(node.place.given, node.reference)
                node.in_place.append(target.place.given)
                if target.place.kept != node.reference:
                    node.cleaned["$ref"] = "#" + target.place.kept.replace("%", "%25")
        try:
            TopologicalSorter({place: node.in_place for place, node in self._nodes.items()}).prepare()
        except CycleError as error:
            raise ValueError(f"its schema refers to itself without end at '{error.args[1][0]}'") from error
        if self._measure("", frozenset())[0] > MAX_KEYWORDS:
            raise ValueError(f"its schema has over {MAX_KEYWORDS} keywords with its references written out")

    def _find_target(self, place: str, reference: str) -> _Node:
        """Return the schema that a reference at `place` means. Raises `ValueError`.

        Schemas are often embedded unchanged in another one, where their references no longer point to their own
        definitions. So the references are also resolved relative to the enclosing schemas.
        """
        around = place
        while f"{around}{reference}" not in self._nodes and around:
            around = around.rpartition("/")[0]
        found = reference if reference in self._nodes else f"{around}{reference}"
        if found not in self._nodes:
            raise ValueError(f"its schema refers at '{place}' to '#{reference}', which is no part of it")
        return self._nodes[found]

    def _measure(self, place: str, around: frozenset[str]) -> tuple[int, int]:
        """Return the keywords and levels of an expanded schema. A recursive part ends where it contains itself."""
        if place in around or place not in self._nodes:
            return 0, 0
        if place not in self._measured and len(around) <= MAX_LEVELS:
            node = self._nodes[place]
            parts = [self._measure(used, around | {place}) for used in (*node.in_place, *node.inner)]
            keywords = node.keywords + sum(keywords for keywords, _ in parts)
            self._measured[place] = keywords, 1 + max((levels for _, levels in parts), default=0)
        keywords, levels = self._measured.get(place, (0, MAX_LEVELS))
        if len(around) + levels > MAX_LEVELS + 1:
            raise ValueError(f"its schema is over {MAX_LEVELS} levels deep with its references written out")
        return keywords, levels

    def _clean_keyword(self, node: _Node, key: str, value: Any, level: int) -> None:
        """Add a keyword with its cleaned value to the node, unless the keyword is dropped."""
        place = node.place.step(key)
        if key in _MAPS:
            node.cleaned[key] = self._clean_map(node, key, value, level)
        elif key in _LISTS:
            self._clean_list(node, key, _as_list(value), level)
        elif key in _SCHEMAS:
            node.inner.append(place.given)
            node.cleaned[key] = value if isinstance(value, bool) else self.clean(value, place, level)
        elif key == "$ref":
            node.reference = _read_reference(value, place)
            node.cleaned[key] = value
        elif (cleaned := _clean_value(key, value, place)) is not None or key in _VALUES:
            node.cleaned[key] = cleaned

    def _clean_map(self, node: _Node, key: str, value: Any, level: int) -> dict[str, Any]:
        place = node.place.step(key)
        if not isinstance(value, dict) and value != []:
            raise ValueError(f"its schema has no object at '{place.given}'")
        parts = {name: (schema, place.step(name)) for name, schema in dict(value).items()}
        if key == "properties":
            # Definitions count at their references.
            node.inner.extend(part.given for _, part in parts.values())
        return {name: self.clean(schema, part, level) for name, (schema, part) in parts.items()}

    def _clean_list(self, node: _Node, key: str, value: list[Any], level: int) -> None:
        kept = _LISTS[key]
        places = [node.place.step(key, kept).step(str(index)) for index in range(len(value))]
        (node.inner if kept == "prefixItems" else node.in_place).extend(place.given for place in places)
        if value:
            node.cleaned[kept] = [self.clean(schema, part, level) for schema, part in zip(value, places, strict=True)]


def _convert_old_keywords(given: dict[str, Any]) -> dict[str, Any]:
    """Convert the keywords of JSON Schema's drafts 4 to 7 and of OpenAPI 3.0 to 2020-12."""
    schema = dict(given)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in schema:
            schema[exclusive] = schema.pop(bound)
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


def _read_reference(reference: Any, place: _Place) -> str:
    """Return the place that a reference names in the given schema. Raises `ValueError` for a place outside of it."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ValueError(f"its schema refers at '{place.given}' to something outside of it")
    # A URL fragment may be percent-encoded.
    return unquote(reference[1:])


def _clean_value(key: str, value: Any, place: _Place) -> Any:
    """Return the cleaned value of a keyword that contains no schema, or None if it is dropped. Raises `ValueError`."""
    match key:
        case "type":
            names = _clean_type(value, place)
            return names[0] if len(names) == 1 else names or None
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


def _clean_type(value: Any, place: _Place) -> list[str]:
    """Return the names of the types, or an empty list if any type is allowed."""
    names: list[str] = []
    for given in _as_list(value):
        name = "null" if given is None else str(given).lower()
        name = _TYPE_ALIASES.get(name, name)
        if name == "any":
            return []
        if name not in _TYPES:
            raise ValueError(f"its schema has an unknown type {str(given)[:40]!r} at '{place.given}'")
        names.append(name)
    return list(dict.fromkeys(names))


def _clean_names(value: Any, place: _Place) -> list[str]:
    names = _as_list(value)
    if isinstance(value, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"its schema has no list of names at '{place.given}'")
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
