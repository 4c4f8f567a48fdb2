"""Fits the arguments that a model wrote to the JSON schema of the tool.

Names of arguments are matched with the names in the schema. A value is converted if the conversion loses nothing. Every
other difference is an error with the argument, the expected type and the value. Formats, ranges, patterns and
conditions of JSON Schema are not checked, because the tool checks them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callboard_formats.arguments import parse_json, parse_python_literal
from callboard_formats.conversion import NOT_CONVERTED, are_equal, convert, has_type, json_type_of, read_as
from callboard_formats.names import Resolved, closest_spelling, fold, group_by_spelling
from callboard_formats.schemas import FlatSchemas, is_open, options_of, properties_of, required_of, types_of
from callboard_formats.syntax import InvalidArguments

VALUE_CHARS = 80
MAX_PROBLEMS = 5
MAX_REPAIRS = 10
MAX_KEYS = 20
MAX_DEPTH = 50

EMPTY: tuple[Any, ...] = (None, "", [], {})
WRAPPERS = frozenset({"arguments", "parameters", "params", "args", "kwargs", "input", "toolinput"})
"""The keys (folded) of objects that models wrap around all arguments."""

_TYPES_OF_TEXTS = ("null", "integer", "number", "boolean", "object", "array")
"""The order in which a string between tags is converted to the types of a union. If no type fits, it stays a string.

The order is from `coerce_to_schema_type` in https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/utils.py.
"""


_TYPE_NAMES = {
    "string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


def fit_arguments(
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    implied: Resolved | None = None,
    *,
    untyped: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments fitted to the tool's `schema`, and a short text about each change.

    An unknown key is an error unless `additionalProperties` allows it. An unknown key without a value is dropped. An
    optional argument that is null or "" is dropped if the schema forbids that value.

    `implied` has the arguments that the written name of the tool implies. They are set in the first form that the tool
    accepts, unless the model has set them. If the tool accepts no form and they are `binding`, that is an error. It
    also has the names of arguments that models use with the written name. They are replaced by the tool's names.

    `untyped` means that the values are strings from between tags, and the schema decides their types. Then an unknown
    key is an error even without a value, because it may be a part of the value before it.

    Raises only `InvalidArguments`. The input is not changed. The result may share parts with it.
    """
    try:
        fitted = _Fitter(schema, untyped=untyped).fit_all(arguments, implied)
    except RecursionError as error:
        raise InvalidArguments("The arguments are nested too deeply. Write a flat object and call again.") from error
    if fitted.problems:
        raise InvalidArguments(
            f"The arguments do not fit: {'; '.join(_shorten(fitted.problems, MAX_PROBLEMS))}."
            " Correct them and call the tool again."
        )
    return fitted.value, tuple(_shorten(fitted.repairs, MAX_REPAIRS))


def convert_strings(texts: str, schema: Mapping[str, Any]) -> str:
    """Return a JSON object of strings from between tags, with the strings converted to the types of the schema.

    Any other text is returned unchanged.
    """
    try:
        given = parse_json(texts)
        if not isinstance(given, dict):
            return texts
        return json.dumps(_Fitter(schema).convert_texts(given), ensure_ascii=False)
    except (ValueError, RecursionError):
        return texts


@dataclass(slots=True)
class _Fitted:
    """A value fitted to a schema, the changes that were made, and the problems that remain."""

    value: Any
    repairs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, part: "_Fitted") -> Any:
        """Add the changes and problems of `part`, which is a part of this value. Return the value of `part`."""
        self.repairs += part.repairs
        self.problems += part.problems
        return part.value


class _Fitter:
    """Fits the arguments of one call to the schema of its tool."""

    def __init__(self, root: Mapping[str, Any], *, untyped: bool = False) -> None:
        self._schemas = FlatSchemas(root)
        self._root = self._schemas.flat(root)
        self._keys = self._schemas.keys(self._root)
        self._untyped = untyped
        # Branches of a schema may share parts, so that without this cache, each level of the value would double the
        # work.
        self._best_fits: dict[tuple[int, int], tuple[Any, _Fitted]] = {}

    def fit_all(self, arguments: Mapping[str, Any], implied: Resolved | None) -> _Fitted:
        """Return the arguments of the call, fitted to the whole schema."""
        result = _Fitted({})
        given = self.convert_texts(arguments) if self._untyped else dict(arguments)
        given = self._unwrap(given, result.repairs)
        if implied is not None:
            given = self._rename(given, implied, result.repairs)
            given = self._add_implied(given, implied, result)
        result.value = result.add(self._fit(given, self._root, ""))
        return result

    def convert_texts(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the strings converted to the types of the schema."""
        properties = properties_of(self._root)
        keys = {written: _match_key(written, properties) or written for written in texts}
        return {written: self._convert_text(text, properties.get(keys[written])) for written, text in texts.items()}

    def _convert_text(self, text: Any, schema: Any) -> Any:
        flat = self._schemas.flat(schema)
        shapes = [self._schemas.flat(branch) for branch in self._schemas.branches(flat)] or [flat]
        types = [name for shape in shapes for name in types_of(shape) or ()]
        if not isinstance(text, str) or not types:
            return text
        is_text = "string" in types
        if not text and not is_text:
            # An empty element is an empty list or object.
            return [] if "array" in types else {} if "object" in types else text
        for name in (name for name in _TYPES_OF_TEXTS if name in types):
            converted = convert(text, (name,))
            if converted is NOT_CONVERTED and name in ("array", "object") and not is_text:
                # Some templates show values as Python literals, and models imitate them.
                converted = read_as(parse_python_literal, text, name)
            if converted is not NOT_CONVERTED:
                return converted
        return text

    def _unwrap(self, given: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
        """Return the content of `{"arguments": {…}}` if the schema has no key `arguments`; otherwise `given`."""
        if len(given) != 1 or is_open(self._root):
            return given
        ((key, inner),) = given.items()
        content = convert(inner, ("object",)) if isinstance(inner, str) else inner
        if fold(key) not in WRAPPERS or _match_key(key, self._keys) or not isinstance(content, dict):
            return given
        repairs.append(f"taken out of '{key}'")
        return content

    def _rename(self, given: dict[str, Any], implied: Resolved, repairs: list[str]) -> dict[str, Any]:
        """Return `given` with the tool's names for arguments that models invent with the written name."""
        if is_open(self._root):
            return given
        taken = {key for written in given if (key := _match_key(written, self._keys))}
        result: dict[str, Any] = {}
        for written, value in given.items():
            own = implied.renames.get(fold(written))
            if value in EMPTY or own not in self._keys or own in taken or _match_key(written, self._keys):
                result[written] = value
                continue
            taken.add(own)
            repairs.append(f"{_describe_place(written)} taken as '{own}'")
            # Models write lists of one value, because Home Assistant's tools take lists.
            is_alone = isinstance(value, list) and len(value) == 1 and not self._accepts(own, value)
            result[own] = value[0] if is_alone else value
        return result

    def _add_implied(self, given: dict[str, Any], implied: Resolved, fitted: _Fitted) -> dict[str, Any]:
        """Return `given` with the arguments that the written name of the tool implies."""
        wordings = (implied.defaults, *implied.otherwise)
        taken = (one for one in wordings if all(self._accepts(name, value) for name, value in one.items()))
        result = dict(given)
        for name, value in next(taken, implied.defaults).items():
            key = _match_key(name, self._keys) or (name if is_open(self._root) and implied.binding else None)
            written = [one for one in given if fold(one) == fold(key or name)]
            if key is None and implied.binding:
                fault = f"the name means {name} '{value}', which '{implied.name}' cannot do"
                fitted.problems.append(f"{fault}; {_list_arguments(self._keys)}")
            if key is None or any(given[one] not in EMPTY for one in written):
                continue
            if implied.binding or self._accepts(key, value):
                result = {one: content for one, content in result.items() if one not in written} | {key: value}
                fitted.repairs.append(f"{key} '{value}' taken from the tool's name")
        return result

    def _accepts(self, name: str, value: Any) -> bool:
        key = _match_key(name, self._keys)
        return key is not None and not self._fit(value, properties_of(self._root).get(key), key).problems

    def _fit(self, value: Any, schema: Any, place: str, depth: int = 0) -> _Fitted:
        """Return `value` fitted to `schema`. `place` is its path for messages."""
        if depth > MAX_DEPTH:
            return _Fitted(value)
        flat = self._schemas.flat(schema)
        if branches := self._schemas.branches(flat):
            return self._fit_best_branch(value, branches, place, depth + 1)
        if (options := options_of(flat)) is not None:
            return _choose_option(value, options, place)
        types = types_of(flat)
        if types is not None and not has_type(value, types):
            return self._fit_converted(value, types, flat, place, depth)
        if isinstance(value, dict):
            return self._fit_object(value, flat, place, depth)
        if isinstance(value, list):
            result = _Fitted([])
            for index, item in enumerate(value):
                result.value.append(result.add(self._fit(item, flat.get("items"), f"{place}.{index}", depth + 1)))
            return result
        return _Fitted(value)

    def _fit_converted(
        self, value: Any, types: Sequence[str], flat: Mapping[str, Any], place: str, depth: int
    ) -> _Fitted:
        if (converted := convert(value, types)) is not NOT_CONVERTED:
            change = f"{format_value(value)} read as {format_value(converted)}"
            result = _Fitted(None, [f"{_describe_place(place)} {change}"])
            result.value = result.add(self._fit(converted, flat, place, depth + 1))
            return result
        is_json = isinstance(value, str) and value.lstrip().startswith(("[", "{"))
        if "array" in types and isinstance(value, str | int | float) and not is_json:
            item = self._fit(value, flat.get("items"), place, depth + 1)
            if not item.problems:
                return _Fitted([item.value], [f"{_describe_place(place)} made a list of one", *item.repairs])
        return _reject(value, place, _describe_schema(flat))

    def _fit_object(self, value: dict[str, Any], flat: Mapping[str, Any], place: str, depth: int) -> _Fitted:
        properties, required = properties_of(flat), required_of(flat)
        result = _Fitted({})
        for written, content in value.items():
            inner = f"{place}.{written}" if place else written
            key = written if written in properties else _match_key(written, properties)
            if key != written and key in value and is_open(flat):
                key = None
            if key is None and not is_open(flat):
                self._drop_unknown(content, inner, written, properties, result)
                continue
            if key is not None and key != written and (key in value or key in result.value):
                self._drop_duplicate(content, inner, key, value.get(key, NOT_CONVERTED), result)
                continue
            if key not in (None, written):
                result.repairs.append(f"{_describe_place(inner)} taken as '{key}'")
            name = written if key is None else key
            schema = flat.get("additionalProperties") if key is None else properties[key]
            fitted = self._fit(content, schema, inner, depth + 1)
            if fitted.problems and content in (None, "") and name not in required:
                result.repairs.append(f"{_describe_place(inner)} was empty and is left out")
            else:
                result.value[name] = result.add(fitted)
        for name in required:
            if name in properties and name not in result.value:
                result.problems.append(f"{_describe_place(f'{place}.{name}' if place else name)} is missing")
        return result

    def _drop_unknown(self, content: Any, place: str, written: str, known: Any, result: _Fitted) -> None:
        if self._is_empty(content):
            result.repairs.append(f"{_describe_place(place)} is unknown, had no value and is left out")
            return
        closest = closest_spelling(written, known) if len(result.problems) < MAX_PROBLEMS else None
        guess = f", perhaps '{closest}'" if closest else ""
        result.problems.append(f"there is no argument '{place}'{guess}; {_list_arguments(known)}")

    def _drop_duplicate(self, content: Any, place: str, key: str, other: Any, result: _Fitted) -> None:
        """Drop an argument that is also given in another spelling. Different values are an error."""
        if are_equal(content, other) or (other is not NOT_CONVERTED and self._is_empty(content)):
            result.repairs.append(f"{_describe_place(place)} repeats '{key}' and is left out")
        else:
            result.problems.append(f"{_describe_place(place)} is given twice, as '{key}' too")

    def _is_empty(self, content: Any) -> bool:
        return content in EMPTY and not self._untyped

    def _fit_best_branch(self, value: Any, branches: list[dict[str, Any]], place: str, depth: int) -> _Fitted:
        """Return `value` fitted to the branch with the fewest problems and changes."""
        key = (id(value), id(branches))
        if key in self._best_fits:
            return self._best_fits[key][1]
        is_compound = isinstance(value, dict | list)
        meant = [branch for branch in branches if self._matches_constants(value, branch)] or branches
        trials = [self._fit(value, branch, place, depth) for branch in meant]
        best = min(trials, key=lambda trial: (len(trial.problems), len(trial.repairs)))
        if is_compound:
            # The value is stored with its result, because its `id` is unique only while it exists.
            self._best_fits[key] = (value, best)
        elif best.problems:
            expected = dict.fromkeys(_describe_schema(self._schemas.flat(branch)) for branch in branches)
            return _reject(value, place, " or ".join(expected))
        return best

    def _matches_constants(self, value: Any, branch: Any) -> bool:
        """Return whether `value` has the constants of `branch`: its properties with a single allowed value."""
        if not isinstance(value, dict):
            return True
        properties = properties_of(self._schemas.flat(branch))
        options = ((name, options_of(self._schemas.flat(properties[name]))) for name in value if name in properties)
        return all(one is None or len(one) != 1 or are_equal(value[name], one[0]) for name, one in options)


def _choose_option(value: Any, options: Sequence[Any], place: str) -> _Fitted:
    """Return the option that equals `value`, has the same spelling, or is equal after conversion."""
    if any(are_equal(value, one) for one in options):
        return _Fitted(value)
    spelled = [one for one in options if _is_spelling_of(value, one)]
    if len(spelled) != 1:
        return _reject(value, place, _describe_schema({"enum": options}))
    return _Fitted(spelled[0], [f"{_describe_place(place)} {format_value(value)} read as {format_value(spelled[0])}"])


def _is_spelling_of(value: Any, one: Any) -> bool:
    if isinstance(value, str) and isinstance(one, str):
        return bool(fold(one)) and fold(value) == fold(one)
    return are_equal(convert(value, (json_type_of(one),)), one)


def _match_key(written: str, known: Iterable[str]) -> str | None:
    """Return the only known key with the same spelling as `written` (see `fold`); None if there is none."""
    folded = fold(written)
    found = group_by_spelling(known).get(folded, []) if folded else []
    return found[0] if len(found) == 1 else None


def _reject(value: Any, place: str, expected: str) -> _Fitted:
    return _Fitted(value, problems=[f"{_describe_place(place)}: expected {expected}, not {format_value(value)}"])


def _describe_schema(flat: Mapping[str, Any]) -> str:
    """Return a text about the values that a schema allows, for an error message."""
    if (options := options_of(flat)) is not None:
        return f"one of {format_value(options, VALUE_CHARS * 3)}"
    return " or ".join(_TYPE_NAMES.get(name, name) for name in types_of(flat) or ()) or "something else"


def format_value(value: Any, limit: int = VALUE_CHARS) -> str:
    """Return a value as JSON for a message, cut to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = _TYPE_NAMES[json_type_of(value)]
    return text if len(text) <= limit else text[:limit] + "…"


def _list_arguments(names: Iterable[str]) -> str:
    return f"it takes {', '.join(_shorten(list(names), MAX_KEYS)) or 'none'}"


def _describe_place(place: str) -> str:
    return f"argument '{place}'" if place else "the object"


def _shorten(texts: list[str], limit: int) -> list[str]:
    return texts if len(texts) <= limit else [*texts[:limit], f"and {len(texts) - limit} more"]
