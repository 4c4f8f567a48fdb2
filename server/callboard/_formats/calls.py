"""The meaning of a requested call, read by `callboard_formats`, whose errors are raised as Callboard's own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, UnknownTool
from callboard_formats import arguments, calls, syntax

Schema = Mapping[str, Any]


def understand(call: ToolCall, schemas: Mapping[str, Schema]) -> calls.MeantCall:
    """Return what `call` means among tools whose parameters are `schemas`, by their names.

    Raises `UnknownTool`, naming the closest, and `InvalidArguments`, for a call that was cut off too.
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
    """Read the object that `text` is or holds, repaired where that is safe. Raises `InvalidArguments`."""
    with _translate_errors():
        return arguments.read_arguments(text, schema)


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the arguments as an object, strictly; no text at all means none. Raises `InvalidArguments`."""
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
