"""Reads the tool calls in a model's text, in the syntaxes of all model families.

`parse` reads a whole answer and `StreamParser` reads a stream. Both need the tools' JSON schemas. No tool is run.
`read_arguments` reads the arguments of one call and repairs them.
"""

from callboard_formats.arguments import ReadArguments, read_arguments
from callboard_formats.output import CallPiece, ReasoningPiece, TextPiece
from callboard_formats.parser import Parsed, ParsedCall, StreamParser, parse
from callboard_formats.syntax import InvalidArguments

__all__ = [
    "CallPiece",
    "InvalidArguments",
    "Parsed",
    "ParsedCall",
    "ReadArguments",
    "ReasoningPiece",
    "StreamParser",
    "TextPiece",
    "parse",
    "read_arguments",
]
