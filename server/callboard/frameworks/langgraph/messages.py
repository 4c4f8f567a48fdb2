"""Converts a conversation to LangChain's messages, and reads texts, files and tool calls from them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call, tool_call_chunk
from langgraph.types import Command

from callboard.calls import ToolCall
from callboard.calls.pictures import picture_type
from callboard.errors import InvalidArguments
from callboard.frameworks.turn import to_source
from callboard.models import ChatDict, with_valid_arguments
from callboard_protocol import Source

MEDIA_TYPES = frozenset({"image", "audio", "video", "file"})
UNENDED_RESULT = "Error: the run ended before this call did."

CALL_BLOCKS = frozenset({"tool_call", "invalid_tool_call"})
"""The types of content blocks that repeat a field of the message."""

TEXT_BLOCK_KEYS = frozenset({"type", "text", "index"})
"""The keys of a content block that is only text."""


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A piece of a message: its text, reasoning, sources, pictures and files."""

    text: str = ""
    reasoning: str = ""
    sources: tuple[Source, ...] = ()
    files: tuple[dict[str, Any], ...] = ()


def to_messages(conversation: Sequence[ChatDict]) -> list[BaseMessage]:
    """Convert a conversation, with its tool calls and results. Every call's arguments are JSON."""
    return convert_to_messages(with_valid_arguments(conversation))


def results_for_open_calls(messages: Sequence[object]) -> list[BaseMessage]:
    """Return an error result for each call that has no result: endpoints refuse a conversation with an open call."""
    ended = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return [ToolMessage(UNENDED_RESULT, tool_call_id=call["id"]) for call in calls if call["id"] not in ended]


def messages_in(update: object) -> Iterator[BaseMessage]:
    """Yield the messages anywhere in the value that a node has returned."""
    match update:
        case BaseMessage():
            yield update
        case Command():
            yield from messages_in(update.update)
        case Mapping():
            for value in update.values():
                yield from messages_in(value)
        case list() | tuple():
            for value in update:
                yield from messages_in(value)


def convert_untyped_messages(returned: object) -> Iterator[BaseMessage]:
    """Yield the messages that a node has returned in OpenAI's form, or as pairs of a role and a text."""
    for value in returned if isinstance(returned, list) else [returned]:
        state = value.update if isinstance(value, Command) else value
        given = state.get("messages") if isinstance(state, Mapping) else None
        for message in given if isinstance(given, list) else [given]:
            if isinstance(message, dict | tuple):
                yield from convert_to_messages([message])


def messages_in_state(state: object) -> list[BaseMessage]:
    """Return the messages of a graph's state, which is a mapping or an object."""
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return [message for message in messages if isinstance(message, BaseMessage)] if isinstance(messages, list) else []


def to_files(message: ToolMessage) -> list[dict[str, Any]]:
    """Return the media in a tool's result, and in its artifact, which the model is not sent."""
    artifact = message.artifact if isinstance(message.artifact, list) else [message.artifact]
    content = message.content if isinstance(message.content, list) else []
    return [file for block in [*content, *artifact] if isinstance(block, dict) and (file := to_file(block))]


def to_file(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a content block with media, of LangChain, OpenAI, Anthropic or MCP, as Open WebUI shows it."""
    kind = block.get("type")
    source = block.get("source")
    held = source if isinstance(source, Mapping) else block
    url = held.get("url")
    if kind == "image_url":
        address = block.get("image_url")
        kind = "image"
        url = address.get("url") if isinstance(address, Mapping) else address
    if kind not in MEDIA_TYPES:
        return None
    if not url and (data := held.get("base64") or held.get("data")):
        types = (held.get(key) for key in ("mime_type", "media_type", "mimeType"))
        content_type = next(filter(None, types), "") or picture_type(str(data))
        url = f"data:{content_type or 'application/octet-stream'};base64,{data}"
    name = (block.get("extras") or {}).get("filename")
    return {"type": kind, "url": url, **({"name": name} if name else {})} if url else None


def to_pieces(piece: object) -> list[MessagePiece]:
    """Return the pieces of a message in a stream: an event of the protocol, a chunk, or a whole message of a model."""
    match piece:
        case AIMessage():
            return [_read_block(block) for block in piece.content_blocks]
        case {"event": "content-block-finish", "content": Mapping() as block}:
            # The text has come in earlier events.
            piece = _read_block(block)
            return [MessagePiece(sources=piece.sources, files=piece.files)]
        case {"event": "content-block-start", "content": Mapping() as block}:
            pass
        case {"event": "content-block-delta", "delta": Mapping() as block}:
            pass
        case _:
            return []
    part = _read_block(block)
    return [MessagePiece(part.text, part.reasoning)]


def _read_block(block: Mapping[str, Any]) -> MessagePiece:
    kind = block.get("type")
    file = to_file(block)
    cited = [
        annotation
        for annotation in block.get("annotations") or ()
        if isinstance(annotation, Mapping) and annotation.get("url")
    ]
    return MessagePiece(
        text=block.get("text") or "" if kind in ("text", "text-delta") else "",
        reasoning=block.get("reasoning") or "" if kind in ("reasoning", "reasoning-delta") else "",
        sources=tuple(
            to_source(str(annotation["url"]), annotation.get("title"), annotation.get("cited_text"))
            for annotation in cited
        ),
        files=(file,) if file else (),
    )


def read_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call as the model wrote them, or None if they are not a JSON object."""
    text = str(call.arguments)
    try:
        read = json.loads(text, strict=False) if text.strip() else {}
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def unreadable_error(call: ToolCall) -> InvalidArguments:
    """Return the error for a call whose arguments cannot be read."""
    return InvalidArguments(f"The arguments of {call.name} are not a JSON object. Write the call again.")


def chunks_of_event(event: Mapping[str, Any]) -> list[ToolCallChunk]:
    """Return the piece of a call that an event of the protocol holds, if any."""
    match event:
        case {"event": "content-block-start", "content": {"type": "tool_call_chunk"} as piece}:
            pass
        case {"event": "content-block-delta", "delta": {"type": "tool-call-delta"} as piece}:
            pass
        case _:
            return []
    return [tool_call_chunk(id=piece.get("id"), name=piece.get("name"), args=piece.get("args"), index=event["index"])]


def chunks_of_message(message: AIMessage) -> list[ToolCallChunk]:
    """Return the calls of a whole message."""
    whole = [(call["id"], call["name"], json.dumps(call["args"])) for call in message.tool_calls]
    whole += [(call["id"], call["name"] or "", call["args"] or "") for call in message.invalid_tool_calls]
    return [
        tool_call_chunk(id=call_id, name=name, args=arguments, index=index)
        for index, (call_id, name, arguments) in enumerate(whole)
    ]


def rewrite_calls(message: AIMessage, calls: Iterable[ToolCall], *, has_hooked_node: bool) -> None:
    """Replace the calls of a message by the calls as the model wrote them.

    LangChain completes arguments that were cut off, and would run the call with them. With `has_hooked_node`, such a
    call gets no arguments here, and the hooked tool node refuses it by its id. Otherwise it becomes an invalid call.
    """
    message.tool_calls = []
    message.invalid_tool_calls = []
    for call in calls:
        arguments = read_arguments(call)
        if arguments is None and not has_hooked_node:
            error = str(unreadable_error(call))
            message.invalid_tool_calls.append(
                invalid_tool_call(id=call.id, name=call.name, args=str(call.arguments), error=error)
            )
        else:
            message.tool_calls.append(tool_call(id=call.id, name=call.name, args=arguments or {}))
    _write_as_text(message)


def _write_as_text(message: AIMessage) -> None:
    """Turn content of only text blocks into a string: few graphs and endpoints expect the protocol's blocks."""
    if isinstance(message.content, str):
        return
    blocks = [block if isinstance(block, dict) else {} for block in message.content]
    blocks = [block for block in blocks if block.get("type") not in CALL_BLOCKS]
    if all(block.get("type") == "text" and block.keys() <= TEXT_BLOCK_KEYS for block in blocks):
        message.content = "".join(block["text"] for block in blocks)
        message.response_metadata.pop("output_version", None)
