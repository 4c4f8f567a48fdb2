"""Reads a model's whole answer in any format of `TOOL_FORMAT`, and finds the tool and the arguments of a call."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from callboard._formats.rescuing.reader import RescuingReader
from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, ToolError, UnknownTool
from callboard.models import TextDelta
from callboard_formats import Parsed, ParsedCall, ReasoningPiece, TextPiece, syntax
from callboard_formats import parse as parse_text
from callboard_formats.calls import RunnableCall, read_call, resolve_tool_name
from callboard_formats.formats import list_formats
from callboard_formats.parser import schemas_of


def parse(
    text: str,
    tools: Sequence[Mapping[str, Any]],
    format: str = "auto",  # noqa: A002 - the name used everywhere else
    *,
    model: str = "",
) -> Parsed:
    """Return the text, the reasoning and the calls of `text`, a model's whole answer. No tool runs.

    `tools` are OpenAI function schemas. A call that cannot run (an unknown tool, unreadable arguments, a call that was
    cut off) has no `arguments` but an `error` that tells the model what to do.

    `format` is any value of `TOOL_FORMAT`. `auto` reads a call at the end of the answer unless it seems to be quoted,
    `rescue` reads every call in every syntax, the name of a syntax reads calls in that syntax, and `native` reads none.
    `model` is the model's name: tokens that this model leaks are removed, except with `auto`.

    Raises `ValueError` for an unknown format.
    """
    match format:
        case "native":
            return Parsed(text, "", ())
        case "auto":
            return _rescued(text, schemas_of(tools))
        case "rescue":
            return parse_text(text, tools, model=model)
    if format not in list_formats():
        known = ", ".join(["auto", "native", "rescue", *list_formats()])
        raise ValueError(f"There is no format {format!r}. The formats are: {known}")
    return parse_text(text, tools, [format], model=model)


def _rescued(text: str, schemas: Mapping[str, Mapping[str, Any]]) -> Parsed:
    reader = RescuingReader(tuple(schemas), str, ())
    pieces = [*reader.feed(TextDelta(text)), *reader.finish()]
    return Parsed(
        "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)),
        "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)),
        tuple(_parsed(call, schemas) for call in reader.calls()),
    )


def _parsed(call: ToolCall, schemas: Mapping[str, Mapping[str, Any]]) -> ParsedCall:
    try:
        meant = understand(call, schemas)
    except ToolError as error:
        return ParsedCall(resolve_tool_name(call.name, schemas), None, error=str(error), error_code=error.code)
    return ParsedCall(meant.name, meant.arguments, meant.repairs)


def understand(call: ToolCall, schemas: Mapping[str, Mapping[str, Any]]) -> RunnableCall:
    """Return the tool and the arguments that `call` means. `schemas` maps each tool's name to its parameters.

    Raises `UnknownTool`, with the closest name, and `InvalidArguments`, also for a call that was cut off.
    """
    # A native call has no `written`, and only the name of `call` is cut at `MAX_NAME_CHARS`.
    written = replace(call.written or syntax.WrittenCall("", ""), name=call.name, arguments=call.arguments_text)
    try:
        return read_call(written, schemas)
    except syntax.UnknownTool as error:
        raise UnknownTool(str(error)) from error
    except syntax.InvalidArguments as error:
        raise InvalidArguments(str(error)) from error
