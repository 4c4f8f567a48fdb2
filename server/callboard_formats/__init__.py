"""Reads the tool calls in a model's text, in the syntaxes of all model families.

`parse` reads a whole answer and `StreamParser` reads a stream. Both need the tools' JSON schemas. No tool is run.
`read_arguments` reads the arguments of one call and repairs them, `parse_arguments` accepts only JSON.
`LeadingThought` separates only the thought at the beginning of an answer.
"""

from callboard_formats.arguments import ReadArguments, parse_arguments, read_arguments
from callboard_formats.leading_thought import LeadingThought
from callboard_formats.output import CallPiece, ReasoningPiece, TextPiece
from callboard_formats.parser import Parsed, ParsedCall, Piece, StreamParser, parse
from callboard_formats.syntax import InvalidArguments

__all__ = [
    "CallPiece",
    "InvalidArguments",
    "LeadingThought",
    "Parsed",
    "ParsedCall",
    "Piece",
    "ReadArguments",
    "ReasoningPiece",
    "StreamParser",
    "TextPiece",
    "parse",
    "parse_arguments",
    "read_arguments",
]
