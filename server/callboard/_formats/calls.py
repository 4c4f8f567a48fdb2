"""Interprets requested calls with `callboard_formats`, and raises its errors as Callboard's own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, UnknownTool
from callboard_formats import arguments, calls, syntax

Schema = Mapping[str, Any]


def understand(call: ToolCall, schemas: Mapping[str, Schema]) -> calls.MeantCall:
    """Return the tool and the arguments that `call` means. `schemas` maps each tool's name to its parameters.

    Raises `UnknownTool`, with the closest name, and `InvalidArguments`, also for a call that was cut off.
    """
    written = syntax.WrittenCall(
        call.name,
        call.arguments_text,
        truncated=call.truncated,
        untyped=call.untyped,
        words=call.words,
        broken=call.broken,
    )
    with _translate_errors():
        return calls.understand(written, schemas)


def read_arguments(text: str, schema: Schema) -> arguments.ReadArguments:
    """Return the JSON object that `text` is or contains, repaired if that is safe. Raises `InvalidArguments`."""
    with _translate_errors():
        return arguments.read_arguments(text, schema)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, without repairs; {} for empty text. Raises `InvalidArguments`."""
    with _translate_errors():
        return arguments.parse_arguments(text)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except syntax.UnknownTool as error:
        raise UnknownTool(str(error)) from error
    except syntax.InvalidArguments as error:
        raise InvalidArguments(str(error)) from error
