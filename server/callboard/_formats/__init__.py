"""Formats: how tool calls are written in a model's input and read from its output. Runs no tool."""

from callboard._formats.call_styles import CallStyles, ModelDescriptions, ModelKey
from callboard._formats.format import Format, FormatChoice, prepare_reading
from callboard._formats.native_reader import NativeReader
from callboard._formats.parsing import parse, understand
from callboard._formats.pieces import ArgumentsPiece, ClaimId, Piece, Reader
from callboard._formats.provider_details import ProviderDetails, answer_key
from callboard._formats.wording import round_messages
from callboard.settings import ToolFormat
from callboard_formats import Parsed, ParsedCall, ReasoningPiece, TextPiece
from callboard_formats.calls import RunnableCall, resolve_tool_name

__all__ = [
    "ArgumentsPiece",
    "CallStyles",
    "ClaimId",
    "Format",
    "FormatChoice",
    "ModelDescriptions",
    "ModelKey",
    "NativeReader",
    "Parsed",
    "ParsedCall",
    "Piece",
    "ProviderDetails",
    "Reader",
    "ReasoningPiece",
    "RunnableCall",
    "TextPiece",
    "ToolFormat",
    "answer_key",
    "parse",
    "prepare_reading",
    "resolve_tool_name",
    "round_messages",
    "understand",
]
