"""The calls in a model's text, in the syntax of every family: names, JSON schemas and text in, calls out.

Two things to know: `parse` reads a whole answer, and `StreamParser` reads one as it comes. Runs
nothing, and knows nothing of who does.
"""

from callboard_formats.output import CallPiece, ReasoningPiece, TextPiece
from callboard_formats.parser import Parsed, ParsedCall, Piece, StreamParser, parse

__all__ = ["CallPiece", "Parsed", "ParsedCall", "Piece", "ReasoningPiece", "StreamParser", "TextPiece", "parse"]
