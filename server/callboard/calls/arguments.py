"""Checks the arguments of a call against its tool, and returns the values that the tool's function gets.

A hand-written schema is checked as JSON Schema. A schema that was made from a function's signature is checked by
pydantic, so that the function gets models, enums and dates.
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
"""Turns the model's JSON object into keyword arguments; raises `InvalidArguments`."""

DO_NOT_FIT = "The arguments do not fit: "
CALL_AGAIN = " Correct them and call the tool again."
"""The beginning and the end of the message of `InvalidArguments` for the model; a user reads what is between them."""

MAX_PROBLEMS = 5
VALUE_CHARS = 80


def schema_arguments(schema: Mapping[str, Any]) -> ReadArguments:
    """Return a reader for a hand-written schema; it returns the arguments unchanged.

    Raises `ValueError` if the schema is not a valid JSON schema.
    """
    # Imported here, because tools made from functions do not need jsonschema.
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(dict(schema))
    except SchemaError as error:
        raise ValueError(error.message) from error
    return checked_schema_arguments(schema)


def checked_schema_arguments(schema: Mapping[str, Any]) -> ReadArguments:
    """Return a reader for a schema that is known to be valid."""
    from callboard.calls.bounded_check import BoundedCheck

    check = BoundedCheck(schema)

    def read(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if problems := check.find_problems(dict(arguments), MAX_PROBLEMS + 1):
            raise _invalid([_describe_schema_error(error) for error in problems])
        return dict(arguments)

    return read


def typed_arguments(model: type[BaseModel]) -> ReadArguments:
    """Return a reader for a pydantic model whose fields have the function's parameters as aliases.

    It returns a value for every parameter, defaults included. Some models fill in every argument, so an optional
    argument counts as left out if it is blank text, if it is None or empty and the default is None, or if it is empty
    and does not fit.
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
    """Return whether a value is None, text of white space only, an empty list or an empty object."""
    return not value.strip() if isinstance(value, str) else value is None or value == [] or value == {}


def is_empty(value: object) -> bool:
    """Return whether a value is blank or 0: models write such values for arguments that they want to leave out."""
    return is_blank(value) or (isinstance(value, int | float) and not isinstance(value, bool) and value == 0)


def _invalid(problems: list[str]) -> InvalidArguments:
    shown = problems[:MAX_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return InvalidArguments(f"{DO_NOT_FIT}{'; '.join(shown)}.{CALL_AGAIN}")


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
