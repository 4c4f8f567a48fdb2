"""Resolves references in a tool's JSON schema, and reads types, options and properties from it."""

from collections.abc import Mapping
from typing import Any

MAX_FLAT_SCHEMAS = 2000
"""The number of schemas after which no more branches are resolved, because a schema may refer to itself."""

_OPENING = ("patternProperties", "if", "then", "else", "dependentSchemas", "not", "unevaluatedProperties")


class FlatSchemas:
    """Resolves `$ref` and `allOf` in the parts of a schema, and caches the results."""

    def __init__(self, root: Any) -> None:
        self._root = root
        # By `id`. Keeping the source alive with its result keeps the `id` unique.
        self._flat: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._branches: dict[int, tuple[Any, list[dict[str, Any]]]] = {}

    def flat(self, schema: Any) -> dict[str, Any]:
        """Return `schema` with `$ref` and `allOf` resolved. A schema that is no object allows any value."""
        if not isinstance(schema, Mapping):
            return {}
        if id(schema) not in self._flat:
            # A reference to itself adds nothing, so it finds this empty entry.
            self._flat[id(schema)] = (schema, {})
            flat = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            for part in (self._resolve_reference(schema.get("$ref")), *_as_list(schema.get("allOf"))):
                flat = _merge(flat, self.flat(part))
            self._flat[id(schema)] = (schema, flat)
            self._flat[id(flat)] = (flat, flat)
        return self._flat[id(schema)][1]

    def branches(self, flat: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the branches of `anyOf` or `oneOf`, each merged with the rest of `flat`; [] without them."""
        if id(flat) not in self._branches:
            key = next((key for key in ("anyOf", "oneOf") if _as_list(flat.get(key))), None)
            rest = {name: value for name, value in flat.items() if name != key}
            choices = flat[key] if key is not None and len(self._flat) <= MAX_FLAT_SCHEMAS else []
            self._branches[id(flat)] = (flat, [_merge(rest, self.flat(choice)) for choice in choices])
        return self._branches[id(flat)][1]

    def keys(self, flat: dict[str, Any]) -> tuple[str, ...]:
        """Return the keys that `flat` and its branches name."""
        shapes = (flat, *map(self.flat, self.branches(flat)))
        return tuple(dict.fromkeys(key for shape in shapes for key in properties_of(shape)))

    def _resolve_reference(self, reference: Any) -> Any:
        """Return the target of a JSON pointer (RFC 6901) through objects of the root; None for any other reference."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._root
        for step in filter(None, reference[1:].split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both schemas into one; `one` wins if they contradict each other."""
    merged = {**other, **one}
    if "properties" in one and "properties" in other:
        merged["properties"] = {**properties_of(other), **properties_of(one)}
    if "required" in one and "required" in other:
        # Without removing duplicates, nested parts that are used twice would double the list at each level.
        merged["required"] = list(dict.fromkeys((*required_of(one), *required_of(other))))
    return merged


def types_of(flat: Mapping[str, Any]) -> list[str] | None:
    """Return the types that a schema allows; None for any."""
    types = flat.get("type")
    names = [types] if isinstance(types, str) else _as_list(types)
    if names and all(isinstance(name, str) for name in names):
        return names
    return ["object"] if "properties" in flat else ["array"] if "items" in flat else None


def options_of(flat: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of `const` or `enum`; None without either."""
    if "const" in flat:
        return [flat["const"]]
    return flat["enum"] if isinstance(flat.get("enum"), list) else None


def is_open(flat: Mapping[str, Any]) -> bool:
    """Return whether unknown keys are allowed.

    JSON Schema allows them by default. Here a schema that lists properties must allow them explicitly.
    """
    extra = flat.get("additionalProperties")
    is_declared = extra is True or isinstance(extra, Mapping) or any(key in flat for key in _OPENING)
    return is_declared or (not properties_of(flat) and extra is not False)


def properties_of(flat: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schemas of the known keys by key."""
    properties = flat.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def required_of(flat: Mapping[str, Any]) -> list[str]:
    """Return the required keys, without duplicates."""
    return list(dict.fromkeys(key for key in _as_list(flat.get("required")) if isinstance(key, str)))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
