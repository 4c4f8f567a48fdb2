"""The gate between what a model wrote and what a tool is given: an object that its schema knows.

Names of arguments are matched to the tool's own schema, values converted where nothing is
lost by it, and everything else is an error that says which argument, what was expected and
what came. The rest of JSON Schema (formats, ranges, patterns, conditions) is left to the
tool's own check: what this gate does not understand it lets through.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from callboard_formats.arguments import json_value, python_value
from callboard_formats.names import Resolved, fold, nearest, spellings
from callboard_formats.syntax import InvalidArguments

VALUE_CHARS = 80
MAX_NUMBER_CHARS = 100

ARTICLES = {
    "string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


class _NotConverted:
    """The type of `NOT_CONVERTED`: None is a value."""


NOT_CONVERTED: Final = _NotConverted()


def kind_of(value: Any) -> str:
    """Return the JSON type of a value as `json.loads` gives it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def is_a(value: Any, types: Iterable[str]) -> bool:
    """Return whether `value` has one of the types as it is; a whole float is not yet an integer."""
    kind = kind_of(value)
    return any(name == kind or (name == "number" and kind == "integer") for name in types)


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are one: unlike in Python, 1 is not true."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other)


def convert(value: Any, types: Iterable[str]) -> Any:
    """Return `value` as the first of the types that can say all that it says; else `NOT_CONVERTED`.

    `"5"` and `5.0` are the integer 5, 5.5 is none; `"true"` is true, `"yes"` is a word; 5 is
    the string `"5"`, 5.5 no string: it may have been written as 5.50; a string that is the JSON
    of an object or an array is that.
    """
    for name in types:
        converted = _to(name, value)
        if not isinstance(converted, _NotConverted):
            return converted
    return NOT_CONVERTED


def option(value: Any, options: Iterable[Any]) -> Any:
    """Return the one option that `value` spells or converts to; else `NOT_CONVERTED`."""
    found = [one for one in options if _spells(value, one)]
    return found[0] if len(found) == 1 else NOT_CONVERTED


def described(types: Iterable[str] | None, options: Iterable[Any] | None) -> str:
    """Return what is expected, for an error message."""
    if options is not None:
        return shown(list(options), "one of ")
    return " or ".join(ARTICLES.get(name, name) for name in types or ()) or "something else"


def shown(value: Any, before: str = "") -> str:
    """Return a value as JSON, cut to what fits a message."""
    if isinstance(value, str):
        value = value[: VALUE_CHARS + 1]
    elif isinstance(value, int) and value.bit_length() > VALUE_CHARS * 4:
        return f"{before}a very large integer"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = ARTICLES[kind_of(value)]
    limit = VALUE_CHARS * (3 if before else 1)
    return before + (text if len(text) <= limit else text[:limit] + "…")


_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def _to(name: str, value: Any) -> Any:
    match name, value:
        case ("integer", float()) if value.is_integer():
            return int(value)
        case ("string", bool()):
            return "true" if value else "false"
        case ("string", int()) if value.bit_length() < MAX_NUMBER_CHARS:
            return str(value)
        case ("integer" | "number" | "boolean" | "null" | "array" | "object", str()):
            return _from_text(name, value)
        case _:
            return NOT_CONVERTED


def _from_text(name: str, text: str) -> Any:
    bare = text.strip()
    match name:
        case "array" | "object":
            return _parsed(bare, name)
        case "boolean" if bare.casefold() in ("true", "false"):
            return bare.casefold() == "true"
        case "null" if bare.casefold() in ("null", "none"):
            return None
        case "integer" if len(bare) <= MAX_NUMBER_CHARS and (whole := _INTEGER.fullmatch(bare)):
            return int(whole[1])
        case "number" if len(bare) <= MAX_NUMBER_CHARS and _NUMBER.fullmatch(bare):
            number = json.loads(bare)
            return number if math.isfinite(number) else NOT_CONVERTED
    return NOT_CONVERTED


def _parsed(text: str, name: str) -> Any:
    if not text.startswith("[" if name == "array" else "{"):
        return NOT_CONVERTED
    try:
        return json_value(text, strict=False)
    except (ValueError, RecursionError):
        return NOT_CONVERTED


def _from_python(text: str, name: str) -> Any:
    """Return the list or object that `text` is as Python writes it: templates show values so, and models follow."""
    try:
        value = python_value(text)
    except ValueError:
        return NOT_CONVERTED
    return value if kind_of(value) == name else NOT_CONVERTED


def _spells(value: Any, one: Any) -> bool:
    if isinstance(value, str) and isinstance(one, str):
        return bool(fold(one)) and fold(value) == fold(one)
    converted = convert(value, (kind_of(one),))
    return not isinstance(converted, _NotConverted) and same(converted, one)


MAX_MERGED = 2000
"""The limit for branches of branches that are spelled out; a schema may refer to itself without end."""

OPENING = ("patternProperties", "if", "then", "else", "dependentSchemas", "not", "unevaluatedProperties")


@dataclass(frozen=True, slots=True)
class View:
    """A view of a schema: what a value at one place may be.

    `types`: None for any. `options`: the values of `enum` or `const`, None without either.
    `extra`: the schema of unknown keys, where there is one. `open`: unknown keys are allowed.
    `branches`: schemas of which one must fit, each merged with what stands beside them.
    """

    types: tuple[str, ...] | None
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    open: bool
    extra: Any
    items: Any
    options: tuple[Any, ...] | None
    branches: tuple[Any, ...]


class SchemaViews:
    """Views of a schema and its parts, each made once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._views: dict[int, View] = {}
        self._flat: dict[int, Mapping[str, Any]] = {}
        # Views are kept by the identity of their schema, so none may be freed and its identity used again.
        self._kept: list[Any] = []

    def view(self, schema: Any) -> View:
        """Return the view of `schema`, a part of the root or a branch of a view."""
        if id(schema) not in self._views:
            self._kept.append(schema)
            self._views[id(schema)] = self._view(self._flatten(schema))
        return self._views[id(schema)]

    def keys(self, schema: Any) -> tuple[str, ...]:
        """Return every key that `schema` or one of its branches names."""
        view = self.view(schema)
        names = dict.fromkeys(view.properties)
        for branch in view.branches:
            names.update(dict.fromkeys(self.view(branch).properties))
        return tuple(names)

    def _view(self, flat: Mapping[str, Any]) -> View:
        properties = _mapping(flat.get("properties"))
        extra = flat.get("additionalProperties")
        # JSON Schema allows what it does not mention. A tool's schema that lists arguments means just these.
        is_open = extra is True or isinstance(extra, Mapping) or any(key in flat for key in OPENING)
        is_open = is_open or (not properties and extra is not False)
        return View(
            types=_types(flat),
            properties=properties,
            required=tuple(key for key in _list(flat.get("required")) if isinstance(key, str)),
            open=is_open,
            extra=extra if isinstance(extra, Mapping) else None,
            items=flat["items"] if isinstance(flat.get("items"), Mapping) else None,
            options=_options(flat),
            branches=self._branches(flat),
        )

    def _branches(self, flat: Mapping[str, Any]) -> tuple[Any, ...]:
        key = next((key for key in ("anyOf", "oneOf") if isinstance(flat.get(key), list) and flat[key]), None)
        if key is None or len(self._kept) > MAX_MERGED:
            return ()
        beside = {name: value for name, value in flat.items() if name != key}
        merged = tuple(_merged(beside, self._flatten(branch)) for branch in flat[key])
        self._kept.extend(merged)
        for branch in merged:
            self._flat[id(branch)] = branch
        return merged

    def _flatten(self, schema: Any) -> Mapping[str, Any]:
        if not isinstance(schema, Mapping):
            return {}
        if id(schema) not in self._flat:
            # Found again while it is being made, a schema that refers to itself adds nothing.
            self._flat[id(schema)] = {}
            self._kept.append(schema)
            flat: dict[str, Any] = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            if isinstance(reference := schema.get("$ref"), str):
                flat = _merged(flat, self._flatten(self._referred(reference)))
            for part in _list(schema.get("allOf")):
                flat = _merged(flat, self._flatten(part))
            self._flat[id(schema)] = flat
        return self._flat[id(schema)]

    def _referred(self, reference: str) -> Any:
        """Return what a JSON pointer into the root leads to (RFC 6901); None where it leads nowhere."""
        if not reference.startswith("#"):
            return None
        found = self._root
        for step in filter(None, reference[1:].split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both schemas into one; where they speak of the same thing, `one` is right."""
    merged = {**other, **one}
    if "properties" in one and "properties" in other:
        merged["properties"] = {**_mapping(other["properties"]), **_mapping(one["properties"])}
    if "required" in one and "required" in other:
        # Each name once: parts that are used twice, within parts that are, would double with each.
        merged["required"] = list(
            dict.fromkeys(
                name for name in (*_list(one["required"]), *_list(other["required"])) if isinstance(name, str)
            )
        )
    return merged


def _types(flat: Mapping[str, Any]) -> tuple[str, ...] | None:
    match flat.get("type"):
        case str() as name:
            return (name,)
        case list() as names if names and all(isinstance(name, str) for name in names):
            return tuple(names)
    if "properties" in flat:
        return ("object",)
    return ("array",) if "items" in flat else None


def _options(flat: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if "const" in flat:
        return (flat["const"],)
    return tuple(flat["enum"]) if isinstance(flat.get("enum"), list) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


MAX_PROBLEMS = 5
MAX_REPAIRS = 10
MAX_KEYS = 20
MAX_DEPTH = 50
WRAPPERS = frozenset({"arguments", "parameters", "params", "args", "kwargs", "input", "toolinput"})
"""Keys, folded, that models put around the whole of the arguments."""

_TYPES_OF_TEXTS = ("null", "integer", "number", "boolean", "object", "array")
"""The order in which a text between tags is read as one of the types of a union; otherwise it stays text.

As `coerce_to_schema_type` in https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/utils.py does.
"""

EMPTY: tuple[Any, ...] = (None, "", [], {})


def fit_arguments(
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    implied: Resolved | None = None,
    *,
    untyped: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments as the tool's `schema` wants them, and what was changed, in a few words each.

    Unknown keys are an error unless `additionalProperties` allows them; one without a value
    is left out. An optional argument that is null or "" where it may not be is left out.

    Arguments that the written name `implied` are set where the model did not set them, in the first
    wording that the tool takes. A tool that takes none is refused if the meaning depends on them.
    Arguments that usually go with that name are renamed to the tool's own.

    `untyped`: the values are texts that stood between tags, and mean what the schema says. An unknown
    key is an error then even without a value: it may be text of the value before it.

    Raises `InvalidArguments` and nothing else. The input is not changed; the result may share
    parts with it.
    """
    trace = _Trace()
    try:
        gate = _Gate(SchemaViews(schema), untyped)
        given = gate.unwrapped(gate.typed(arguments, schema) if untyped else dict(arguments), schema, trace)
        if implied is not None:
            given = gate.renamed(given, schema, implied, trace)
            given = gate.completed(given, schema, implied, trace)
        fitted = gate.fit(given, schema, "", trace)
    except RecursionError as error:
        raise InvalidArguments("The arguments are nested too deeply. Write a flat object and call again.") from error
    if trace.problems:
        raise InvalidArguments(
            f"The arguments do not fit: {'; '.join(_listed(trace.problems, MAX_PROBLEMS))}."
            " Correct them and call the tool again."
        )
    return fitted, tuple(_listed(trace.repairs, MAX_REPAIRS))


def typed_json(texts: str, schema: Mapping[str, Any]) -> str:
    """Return the arguments that stood between tags, an object of texts, as the JSON that the schema would have them be.

    As they are where they are no such object.
    """
    try:
        given = json_value(texts)
        if not isinstance(given, dict):
            return texts
        return json.dumps(_Gate(SchemaViews(schema)).typed(given, schema), ensure_ascii=False)
    except (ValueError, RecursionError):
        return texts


@dataclass(slots=True)
class _Trace:
    """The record of what was changed and what is wrong."""

    repairs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, other: "_Trace") -> None:
        self.repairs += other.repairs
        self.problems += other.problems


@dataclass(slots=True)
class _Gate:
    """One fitting; `_tried` keeps it linear where branches of the schema share parts."""

    schemas: SchemaViews
    untyped: bool = False
    """True where the values stood between tags: an empty one of an unknown name may be a part of the value before."""
    _tried: dict[tuple[int, int], tuple[Any, Any, _Trace]] = field(default_factory=dict)

    def typed(self, texts: Mapping[str, Any], schema: Any) -> dict[str, Any]:
        """Return the texts as what the schema would have them be."""
        properties = self.schemas.view(schema).properties
        typed: dict[str, Any] = {}
        for written, text in texts.items():
            key = _match(written, properties) or written
            typed[written] = self._typed(text, properties[key]) if key in properties else text
        return typed

    def _typed(self, text: Any, schema: Any) -> Any:
        view = self.schemas.view(schema)
        views = [self.schemas.view(branch) for branch in view.branches] or [view]
        types = [name for one in views for name in one.types or ()]
        if not isinstance(text, str) or not types:
            return text
        if not text and "string" not in types:
            # An element without any is an empty list or object.
            return next((empty for name, empty in (("array", []), ("object", {})) if name in types), text)
        for name in (name for name in _TYPES_OF_TEXTS if name in types):
            converted = convert(text, (name,))
            if converted is NOT_CONVERTED and name in ("array", "object") and "string" not in types:
                converted = _from_python(text, name)
            if converted is not NOT_CONVERTED:
                return converted
        return text

    def unwrapped(self, given: dict[str, Any], schema: Any, trace: _Trace) -> dict[str, Any]:
        """Return what stands in `{"arguments": {…}}`, where the schema knows no such key; else `given`."""
        if len(given) != 1 or self.schemas.view(schema).open:
            return given
        ((key, inner),) = given.items()
        if fold(key) not in WRAPPERS or _match(key, self.schemas.keys(schema)):
            return given
        content = convert(inner, ("object",)) if isinstance(inner, str) else inner
        if not isinstance(content, dict):
            return given
        trace.repairs.append(f"taken out of '{key}'")
        return content

    def renamed(self, given: dict[str, Any], schema: Any, implied: Resolved, trace: _Trace) -> dict[str, Any]:
        """Return `given` with the arguments that go with the written name called as the tool calls them."""
        known = self.schemas.keys(schema)
        view = self.schemas.view(schema)
        if view.open or not implied.renames:
            return given
        taken = {key for written in given if (key := _match(written, known))}
        result: dict[str, Any] = {}
        for written, value in given.items():
            own = implied.renames.get(fold(written))
            if value in EMPTY or own not in known or own in taken or _match(written, known):
                result[written] = value
                continue
            taken.add(own)
            trace.repairs.append(f"{_said(written)} taken as '{own}'")
            # Home Assistant's own tools take lists where others take one.
            alone = isinstance(value, list) and len(value) == 1 and not self._takes(schema, own, value)
            result[own] = value[0] if alone else value
        return result

    def completed(self, given: dict[str, Any], schema: Any, implied: Resolved, trace: _Trace) -> dict[str, Any]:
        """Return `given` with what the tool's name implied."""
        known = self.schemas.keys(schema)
        is_open = self.schemas.view(schema).open
        result = dict(given)
        for name, value in self._worded(schema, implied).items():
            key = _match(name, known) or (name if is_open and implied.binding else None)
            if key is None:
                if implied.binding:
                    takes = _what_it_takes(known)
                    trace.problems.append(f"the name means {name} '{value}', which '{implied.name}' cannot do; {takes}")
                continue
            written = [one for one in given if fold(one) == fold(key)]
            if any(given[one] not in EMPTY for one in written):
                continue
            probe = _Trace()
            if key in (properties := self.schemas.view(schema).properties):
                self.fit(value, properties[key], key, probe)
            if probe.problems and not implied.binding:
                continue
            for one in written:
                del result[one]
            result[key] = value
            trace.repairs.append(f"{key} '{value}' taken from the tool's name")
        return result

    def _worded(self, schema: Any, implied: Resolved) -> Mapping[str, Any]:
        """Return what the name implied, in the first wording that the tool has a place for; else in the usual one."""
        for wording in (implied.defaults, *implied.otherwise):
            if all(self._takes(schema, name, value) for name, value in wording.items()):
                return wording
        return implied.defaults

    def _takes(self, schema: Any, name: str, value: Any) -> bool:
        if (key := _match(name, self.schemas.keys(schema))) is None:
            return False
        probe = _Trace()
        if key in (properties := self.schemas.view(schema).properties):
            self.fit(value, properties[key], key, probe)
        return not probe.problems

    def fit(self, value: Any, schema: Any, place: str, trace: _Trace, depth: int = 0) -> Any:
        """Return `value` as `schema` wants it; problems go to `trace`."""
        if depth > MAX_DEPTH:
            return value
        view = self.schemas.view(schema)
        if view.branches:
            return self._best(value, view, place, trace, depth + 1)
        if view.options is not None:
            return _chosen(value, view, place, trace)
        if view.types is not None and not is_a(value, view.types):
            return self._converted(value, view, place, trace, depth)
        match value:
            case dict():
                return self._object(value, view, place, trace, depth)
            case list() if view.items is not None:
                return [
                    self.fit(item, view.items, f"{place}.{index}", trace, depth + 1) for index, item in enumerate(value)
                ]
            case _:
                return value

    def _converted(self, value: Any, view: View, place: str, trace: _Trace, depth: int) -> Any:
        types = view.types or ()
        converted = convert(value, types)
        if converted is not NOT_CONVERTED:
            trace.repairs.append(f"{_said(place)} {shown(value)} read as {shown(converted)}")
            match converted:
                case dict():
                    return self._object(converted, view, place, trace, depth + 1)
                case list() if view.items is not None:
                    return [self.fit(item, view.items, place, trace, depth + 1) for item in converted]
            return converted
        if "array" in types and isinstance(value, str | int | float) and not _looks_like_json(value):
            probe = _Trace()
            item = value if view.items is None else self.fit(value, view.items, place, probe, depth + 1)
            if not probe.problems:
                trace.repairs += [f"{_said(place)} made a list of one", *probe.repairs]
                return [item]
        trace.problems.append(f"{_said(place)}: expected {described(types, None)}, not {shown(value)}")
        return value

    def _object(self, value: dict[str, Any], view: View, place: str, trace: _Trace, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for written, content in value.items():
            key = written if written in view.properties else _match(written, view.properties, value)
            inner = f"{place}.{written}" if place else written
            if key is None and not view.open:
                twin = _match(written, view.properties)
                if twin is None:
                    self._unknown(written, content, view, inner, trace)
                elif same(value[twin], content) or self._says_nothing(content):
                    trace.repairs.append(f"{_said(inner)} repeats '{twin}' and is left out")
                else:
                    trace.problems.append(f"{_said(inner)} is given twice, as '{twin}' too")
                continue
            if key is not None and key in result:
                trace.problems.append(f"{_said(inner)} is given twice, as '{key}' too")
                continue
            if key is not None and key != written:
                trace.repairs.append(f"{_said(inner)} taken as '{key}'")
            name = key or written
            schema = view.properties[key] if key is not None else view.extra
            probe = _Trace()
            fitted = self.fit(content, schema, inner, probe, depth + 1) if schema is not None else content
            if probe.problems and content in (None, "") and name not in view.required:
                trace.repairs.append(f"{_said(inner)} was empty and is left out")
                continue
            trace.add(probe)
            result[name] = fitted
        for name in dict.fromkeys(view.required):
            if name in view.properties and name not in result:
                trace.problems.append(f"{_said(f'{place}.{name}' if place else name)} is missing")
        return result

    def _unknown(self, written: str, content: Any, view: View, place: str, trace: _Trace) -> None:
        if self._says_nothing(content):
            trace.repairs.append(f"{_said(place)} is unknown, had no value and is left out")
            return
        closest = nearest(written, view.properties) if len(trace.problems) < MAX_PROBLEMS else None
        guess = f", perhaps '{closest}'" if closest else ""
        trace.problems.append(f"there is no argument '{place}'{guess}; {_what_it_takes(view.properties)}")

    def _says_nothing(self, content: Any) -> bool:
        return content in EMPTY and not self.untyped

    def _best(self, value: Any, view: View, place: str, trace: _Trace, depth: int) -> Any:
        """Return `value` as the branch wants it that changes least."""
        trials = []
        for branch in [one for one in view.branches if self._is_meant(value, one)] or view.branches:
            fitted, probe = self._try(value, branch, place, depth)
            trials.append((len(probe.problems), len(probe.repairs), branch, fitted, probe))
            if not probe.problems and not probe.repairs:
                break
        _, _, branch, fitted, probe = min(trials, key=lambda trial: trial[:2])
        if probe.problems and not isinstance(value, dict | list):
            expected = " or ".join(dict.fromkeys(self._described(one) for one in view.branches))
            trace.problems.append(f"{_said(place)}: expected {expected}, not {shown(value)}")
        else:
            trace.add(probe)
        return fitted

    def _is_meant(self, value: Any, branch: Any) -> bool:
        """Return whether every property that tells branches apart, by having one value only, has it."""
        if not isinstance(value, dict):
            return True
        properties = self.schemas.view(branch).properties
        options = ((name, self.schemas.view(properties[name]).options) for name in value if name in properties)
        return all(one is None or len(one) != 1 or same(value[name], one[0]) for name, one in options)

    def _try(self, value: Any, branch: Any, place: str, depth: int) -> tuple[Any, _Trace]:
        key = (id(value), id(branch))
        if key not in self._tried:
            probe = _Trace()
            fitted = self.fit(value, branch, place, probe, depth)
            if not isinstance(value, dict | list):
                return fitted, probe
            # The value is kept with its result: while it lives, no other has its identity.
            self._tried[key] = (value, fitted, probe)
        return self._tried[key][1:]

    def _described(self, schema: Any) -> str:
        view = self.schemas.view(schema)
        return described(view.types, view.options)


def _chosen(value: Any, view: View, place: str, trace: _Trace) -> Any:
    options = view.options or ()
    if any(same(value, one) for one in options):
        return value
    found = option(value, options)
    if found is NOT_CONVERTED:
        trace.problems.append(f"{_said(place)}: expected {described(None, options)}, not {shown(value)}")
        return value
    trace.repairs.append(f"{_said(place)} {shown(value)} read as {shown(found)}")
    return found


def _match(written: str, known: Iterable[str], given: Mapping[str, Any] | None = None) -> str | None:
    """Return the one known key that `written` spells in another way, if it is not `given` as well."""
    if not (folded := fold(written)):
        return None
    found = spellings(known).get(folded, [])
    return found[0] if len(found) == 1 and (given is None or written == found[0] or found[0] not in given) else None


def _looks_like_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith(("[", "{"))


def _what_it_takes(known: Iterable[str]) -> str:
    names = list(known)
    return f"it takes {', '.join(_listed(names, MAX_KEYS))}" if names else "it takes none"


def _said(place: str) -> str:
    return f"argument '{place}'" if place else "the whole"


def _listed(texts: list[str], limit: int) -> list[str]:
    return texts if len(texts) <= limit else [*texts[:limit], f"and {len(texts) - limit} more"]
