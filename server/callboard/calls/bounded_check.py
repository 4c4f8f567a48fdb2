"""Checks arguments against a JSON schema in a bounded number of steps.

The check runs in the event loop, so a slow one would block the server. Slow are, for example, `$defs` that each use
the next one twice, and a list of thousands of objects that must be unique. Therefore every step is counted.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any

from jsonschema import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from callboard.errors import InvalidArguments, ToolError

MAX_STEPS = 200_000
"""The steps of one check: at most 0.3 s. 9,000 objects of three fields take 190,000 steps."""

REFERENCE_STEPS = 5
"""A `$ref` takes as long as this many other keywords."""

ERROR_STEPS = 5
"""The steps for each problem found, also in a branch of `anyOf` that does not have to fit."""

CHARS_PER_STEP = 50
"""Writing this many characters counts as a step: error messages quote values, and items are compared as JSON."""

Keyword = Callable[[Validator, Any, Any, Mapping[str, Any]], Iterator[ValidationError] | None]


_left: ContextVar[int] = ContextVar("callboard_check_steps_left")
"""The steps that the current check has left."""


def _spend(steps: int) -> None:
    """Count steps. Raises `InvalidArguments` if none are left."""
    left = _left.get() - steps
    _left.set(left)
    if left < 0:
        raise InvalidArguments(
            "The arguments take too long to check: they are too many for this tool. Call it with fewer at a time."
        )


class BoundedCheck:
    """Checks arguments against one valid schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        kind = _count_steps(validator_for(schema))
        # An empty registry, because the default one fetches `$ref`s from the network.
        self._validator = kind(dict(schema), registry=Registry())

    def find_problems(self, arguments: Mapping[str, Any], limit: int) -> list[ValidationError]:
        """Return up to `limit` problems of the arguments, sorted by their places.

        Raises `InvalidArguments` if the check takes too long, and `ToolError` if a `$ref` of the schema leads nowhere.
        """
        token = _left.set(MAX_STEPS)
        try:
            found = list(islice(self._validator.iter_errors(arguments), limit))
        except RecursionError as error:
            raise InvalidArguments(
                "The arguments are nested too deeply to be checked. Write a flatter object and call again."
            ) from error
        except Unresolvable as error:
            raise ToolError(
                f"The tool's own schema refers to '{error.ref}', which it does not contain: the tool cannot be called."
            ) from error
        finally:
            _left.reset(token)
        return sorted(found, key=lambda error: list(map(str, error.path)))


@cache
def _count_steps(kind: type[Validator]) -> type[Validator]:
    """Return the validator class with keywords that count their steps."""
    keywords: dict[str, Keyword] = {**kind.VALIDATORS, "uniqueItems": _check_unique}
    counting: type[Validator] = extend(kind, {name: _counted(name, check) for name, check in keywords.items()})  # type: ignore[no-untyped-call] # as the stubs have it
    return counting


def _counted(name: str, check: Keyword) -> Keyword:
    own_steps = REFERENCE_STEPS if name == "$ref" else 1

    def counted(
        validator: Validator, value: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        _spend(own_steps + _count_parts(value) + _count_parts(instance))
        for error in check(validator, value, instance, schema) or ():
            _spend(ERROR_STEPS + len(error.message) // CHARS_PER_STEP)
            yield error

    return counted


def _count_parts(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _check_unique(
    _validator: Validator, wanted: Any, instance: Any, _schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Find equal items. jsonschema itself compares all pairs of items that it cannot sort."""
    if not wanted or not isinstance(instance, list):
        return
    written: set[str] = set()
    for item in instance:
        text = json.dumps(item, sort_keys=True)
        _spend(len(text) // CHARS_PER_STEP)
        if text in written:
            yield ValidationError(f"{item!r} is in it more than once")
            return
        written.add(text)
