"""Interprets requested calls with `callboard_formats`, and raises its errors as Callboard's own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, UnknownTool
from callboard_formats import calls, syntax


def understand(call: ToolCall, schemas: Mapping[str, Mapping[str, Any]]) -> calls.MeantCall:
    """Return the tool and the arguments that `call` means. `schemas` maps each tool's name to its parameters.

    Raises `UnknownTool`, with the closest name, and `InvalidArguments`, also for a call that was cut off.
    """
    # A native call has no `written`, and only the name of `call` is cut at `MAX_NAME_CHARS`.
    written = replace(call.written or syntax.WrittenCall("", ""), name=call.name, arguments=call.arguments_text)
    try:
        return calls.understand(written, schemas)
    except syntax.UnknownTool as error:
        raise UnknownTool(str(error)) from error
    except syntax.InvalidArguments as error:
        raise InvalidArguments(str(error)) from error
