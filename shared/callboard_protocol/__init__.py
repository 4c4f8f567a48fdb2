"""The Callboard protocol, version 1: events, requests, and server-sent events as bytes.

Below it is nothing but pydantic. The server sends these types; the pipe carries its own
reading of the same wire, since it must be a single file.
"""

from callboard_protocol.events import (
    EVENT_TYPES,
    FROM_TEXT_STATUS,
    PROTOCOL_VERSION,
    TERMINAL,
    Done,
    Error,
    Event,
    FinishReason,
    InputRequest,
    Message,
    Reasoning,
    RunStart,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    Usage,
    event_adapter,
)
from callboard_protocol.requests import ChatMessage, FunctionCall, InputAnswer, RunRequest, ToolCallPart, User
from callboard_protocol.sse import Decoder, Frame, FrameError, FrameTooLong, decode, encode

__all__ = [
    "EVENT_TYPES",
    "FROM_TEXT_STATUS",
    "PROTOCOL_VERSION",
    "TERMINAL",
    "ChatMessage",
    "Decoder",
    "Done",
    "Error",
    "Event",
    "FinishReason",
    "Frame",
    "FrameError",
    "FrameTooLong",
    "FunctionCall",
    "InputAnswer",
    "InputRequest",
    "Message",
    "Reasoning",
    "RunRequest",
    "RunStart",
    "Source",
    "Status",
    "ToolCallArgsDelta",
    "ToolCallComplete",
    "ToolCallError",
    "ToolCallPart",
    "ToolCallStart",
    "ToolStatus",
    "ToolStatusData",
    "Usage",
    "User",
    "decode",
    "encode",
    "event_adapter",
]
