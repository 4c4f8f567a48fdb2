"""The check that a call's arguments fit the tool, and the values that the function gets.

Two ways to the same interface: a schema written by hand is checked as JSON Schema, one
derived from a function's signature by pydantic, so that models, enums and dates arrive
as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticValidationError

from callboard.errors import InvalidArguments

if TYPE_CHECKING:
    from jsonschema import ValidationError

ReadArguments = Callable[[Mapping[str, Any]], dict[str, Any]]
"""From the object that the model wrote to keyword arguments; raises `InvalidArguments`."""

MAX_PROBLEMS = 5
VALUE_CHARS = 80


def schema_arguments(schema: Mapping[str, Any]) -> ReadArguments:
    """Return the reader for a hand-written schema, which passes arguments on as they are.

    Raises `ValueError` where that is no valid JSON schema.
    """
    # Imported here: no tool made from a function needs it.
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(dict(schema))
    except SchemaError as error:
        raise ValueError(error.message) from error
    return checked_schema_arguments(schema)


def checked_schema_arguments(schema: Mapping[str, Any]) -> ReadArguments:
    """Return the reader for a schema that is known to be a valid one."""
    from callboard.calls.bounded_check import BoundedCheck

    check = BoundedCheck(schema)

    def read(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if problems := check.find_problems(dict(arguments), MAX_PROBLEMS + 1):
            raise _invalid([_describe_schema_error(error) for error in problems])
        return dict(arguments)

    return read


def typed_arguments(model: type[BaseModel]) -> ReadArguments:
    """Return the reader for a pydantic model whose fields are the function's parameters, by alias.

    It gives every parameter its typed value, defaults included. Some models fill in every argument: an optional one
    counts as not given if it is a blank text, None or an empty list in place of None, or empty and refused.
    """
    defaults = {one.alias or name: one.default for name, one in model.model_fields.items() if not one.is_required()}

    def is_left_out(name: str, value: object) -> bool:
        return name in defaults and is_blank(value) and (isinstance(value, str) or defaults[name] is None)

    def read(arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if not is_left_out(name, value)}
        try:
            values = model.model_validate(given)
        except PydanticValidationError as error:
            wrong = {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}
            empty = {name for name in wrong & defaults.keys() if is_empty(given.get(name))}
            if empty:
                return read({name: value for name, value in given.items() if name not in empty})
            raise _invalid([_describe_type_error(dict(one)) for one in error.errors(include_url=False)]) from error
        return {field.alias or name: getattr(values, name) for name, field in model.model_fields.items()}

    return read


def is_blank(value: object) -> bool:
    """Return whether a value says nothing: None, a text of spaces alone, a list or an object without entries."""
    return not value.strip() if isinstance(value, str) else value is None or value == [] or value == {}


def is_empty(value: object) -> bool:
    """Return whether models write such a value in place of an argument that they do not want to give: blank, or 0."""
    return is_blank(value) or (isinstance(value, int | float) and not isinstance(value, bool) and value == 0)


def _invalid(problems: list[str]) -> InvalidArguments:
    shown = problems[:MAX_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return InvalidArguments(f"The arguments do not fit: {'; '.join(shown)}. Correct them and call the tool again.")


def _describe_schema_error(error: ValidationError) -> str:
    place = ".".join(map(str, error.path))
    message = error.message if len(error.message) < VALUE_CHARS * 3 else error.message[: VALUE_CHARS * 3] + "…"
    return f"argument '{place}': {message}" if place else message


def _describe_type_error(error: dict[str, Any]) -> str:
    place = ".".join(map(str, error["loc"]))
    match error["type"]:
        case "missing":
            return f"argument '{place}' is missing"
        case "extra_forbidden":
            return f"there is no argument '{place}'"
        case _:
            return f"argument '{place}': {error['msg']}, not {_shorten(error['input'])}"


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_CHARS else text[:VALUE_CHARS] + "…"
