"""What a requested call means, with the errors that a tool call has: the package's, told as Callboard's own."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import callboard_formats.arguments as written
from callboard._formats.format import RequestedCall
from callboard.errors import InvalidArguments, UnknownTool
from callboard_formats import syntax as written_calls
from callboard_formats.calls import MeantCall
from callboard_formats.calls import understand as understand_written
from callboard_formats.names import resolve_name
from callboard_formats.syntax import WrittenCall

Schema = Mapping[str, Any]


def tool_meant(name: str, known: Collection[str]) -> str:
    """Return the tool that `name` means, or `name` where it means none."""
    resolved = resolve_name(name, known)
    return resolved.name if resolved else name


def understand(call: RequestedCall, schemas: Mapping[str, Schema]) -> MeantCall:
    """Return what `call` means among tools whose parameters are `schemas`, by their names.

    Raises `UnknownTool`, naming the closest, and `InvalidArguments`, for a call that was cut off too.
    """
    with _told():
        return understand_written(
            WrittenCall(
                call.name,
                call.arguments_text,
                truncated=call.truncated,
                untyped=call.untyped,
                words=call.words,
                broken=call.broken,
            ),
            schemas,
        )


def read_arguments(text: str, schema: Schema) -> written.ReadArguments:
    """Read the object that `text` is or holds, mended where that is safe. Raises `InvalidArguments`."""
    with _told():
        return written.read_arguments(text, schema)


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the arguments as an object, strictly; no text at all means none. Raises `InvalidArguments`."""
    with _told():
        return written.parse_arguments(text)


def renamed(call: RequestedCall, name: str) -> RequestedCall:
    """Return the same call under the name of its tool."""
    return call if call.name == name else replace(call, name=name)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except written_calls.UnknownTool as error:
        raise UnknownTool(str(error)) from error
    except written_calls.InvalidArguments as error:
        raise InvalidArguments(str(error)) from error
