"""Formats: how tool calls are written in a model's input and read from its output. Runs no tool."""

from callboard._formats.call_styles import CallStyles, find_model_format
from callboard._formats.calls import understand
from callboard._formats.choice import FormatChoice
from callboard._formats.descriptions import ModelDescriptions, ModelKey, model_key
from callboard._formats.format import (
    ArgumentsPiece,
    ClaimId,
    Format,
    Piece,
    Reader,
    round_messages,
)
from callboard._formats.native import AutoFormat, FamilyFormat, NativeFormat, prepare_reading
from callboard._formats.native_reader import NativeReader
from callboard._formats.parsing import parse
from callboard._formats.provider_details import ProviderDetails, answer_key
from callboard._formats.text import TextFormat, react_format, xml_format
from callboard.settings import ToolFormat
from callboard_formats import Parsed, ParsedCall, ReasoningPiece, TextPiece
from callboard_formats.calls import MeantCall, tool_meant

__all__ = [
    "ArgumentsPiece",
    "AutoFormat",
    "CallStyles",
    "ClaimId",
    "FamilyFormat",
    "Format",
    "FormatChoice",
    "MeantCall",
    "ModelDescriptions",
    "ModelKey",
    "NativeFormat",
    "NativeReader",
    "Parsed",
    "ParsedCall",
    "Piece",
    "ProviderDetails",
    "Reader",
    "ReasoningPiece",
    "TextFormat",
    "TextPiece",
    "ToolFormat",
    "answer_key",
    "find_model_format",
    "model_key",
    "parse",
    "prepare_reading",
    "react_format",
    "round_messages",
    "tool_meant",
    "understand",
    "xml_format",
]
