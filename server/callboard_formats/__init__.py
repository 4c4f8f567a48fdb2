"""Reads the tool calls in a model's text, in the syntaxes of all model families.

`parse` reads a whole answer and `StreamParser` reads a stream. Both need the tools' JSON schemas. No tool is run.
"""

from callboard_formats.output import CallPiece, ReasoningPiece, TextPiece
from callboard_formats.parser import Parsed, ParsedCall, Piece, StreamParser, parse

__all__ = ["CallPiece", "Parsed", "ParsedCall", "Piece", "ReasoningPiece", "StreamParser", "TextPiece", "parse"]
