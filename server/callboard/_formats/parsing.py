"""`parse`, which reads what a model's whole answer says, as each of the settings has it read."""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard._formats.calls import understand
from callboard._formats.rescuing.reader import RescuingReader
from callboard.calls import ToolCall
from callboard.errors import ToolError
from callboard.models import TextDelta
from callboard_formats import Parsed, ParsedCall, ReasoningPiece, TextPiece
from callboard_formats import parse as parse_text
from callboard_formats.calls import tool_meant
from callboard_formats.formats import names
from callboard_formats.parser import schemas_of


def parse(
    text: str,
    tools: Sequence[Mapping[str, Any]],
    format: str = "auto",  # noqa: A002 - the word for it everywhere else
    *,
    model: str = "",
) -> Parsed:
    """Return what `text`, a model's whole answer, says; `tools` are OpenAI function schemas.

    Nothing runs, and nothing that is no call of these tools gets `arguments`: an unknown tool,
    arguments that cannot be read and a call that was cut off have an `error` instead, which
    says what the model should do. `format` is what `TOOL_FORMAT` may be: `auto` takes a call that
    the answer ends in and that nothing shows to be quoted, `rescue` any call in any syntax, the
    name of a syntax those of that one, and `native` none at all. `model` is the model's name, whose
    quirks are cleaned up, but not with `auto`. Raises `ValueError` for a format that there is not.
    """
    match format:
        case "native":
            return Parsed(text, "", ())
        case "auto":
            return _rescued(text, schemas_of(tools))
        case "rescue":
            return parse_text(text, tools, model=model)
    if format not in names():
        raise ValueError(
            f"There is no format {format!r}; there are: {', '.join(['auto', 'native', 'rescue', *names()])}"
        )
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
        return ParsedCall(tool_meant(call.name, schemas), None, error=str(error), error_code=error.code)
    return ParsedCall(meant.name, meant.arguments, meant.repairs)
