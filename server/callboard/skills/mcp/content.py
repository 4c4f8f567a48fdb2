"""What an MCP tool answers, as a `ToolResult`: text and pictures are shown, all else is said in words."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic_core import to_json

from callboard.errors import ToolError
from callboard.tools import ToolResult

MAX_RESULT_CHARS = 100_000
"""What a model is given of one result."""

MAX_ERROR_CHARS = 4_000
MAX_FILES = 20
MAX_FILE_CHARS = 20_000_000
"""Of one picture, in base64."""

_IMAGE_TYPE = re.compile(r"image/[\w.+-]{1,64}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*", re.ASCII)

Hide = Callable[[str], str]


def tool_result(server: str, result: CallToolResult, hide: Hide) -> ToolResult:
    """The result, `hide` having taken the secrets out of it; raises `ToolError` where the server says it failed."""
    answer = _Answer()
    for block in result.content:
        answer.add(block)
    text = "\n\n".join(part for part in answer.parts if part)
    if result.is_error:
        said = cut(hide(text), MAX_ERROR_CHARS)
        raise ToolError(said or f"The MCP server '{server}' says that the call failed, and not why.")
    structured = result.structured_content
    written = to_json(structured, inf_nan_mode="null").decode() if structured is not None else ""
    shown = hide(written)
    # Text can be cut and secrets be taken out of it; structured data is kept as it is or not at all.
    data = structured if shown == written and len(written) <= MAX_RESULT_CHARS else None
    return ToolResult(cut(hide(text) or shown, MAX_RESULT_CHARS), files=tuple(answer.files), data=data)


def cut(text: str, limit: int) -> str:
    """`text` within `limit`, and how much is missing."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} more characters. Ask for less at a time.]"


@dataclass(slots=True)
class _Answer:
    parts: list[str] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)

    def add(self, block: ContentBlock) -> None:
        match block:
            case TextContent():
                self.parts.append(block.text)
            case ImageContent():
                self._add_image(block.data, block.mime_type)
            case AudioContent():
                self.parts.append(f"[audio, {block.mime_type}, {_size(block.data)}: it cannot be played here]")
            case ResourceLink():
                self.parts.append(" ".join(_link(block)))
            case EmbeddedResource(resource=TextResourceContents() as resource):
                self.parts.append(f"{resource.uri}:\n{resource.text}")
            case EmbeddedResource(resource=BlobResourceContents() as resource):
                if (resource.mime_type or "").startswith("image/"):
                    self._add_image(resource.blob, str(resource.mime_type))
                else:
                    kind = resource.mime_type or "no known type"
                    self.parts.append(f"[file {resource.uri}, {kind}, {_size(resource.blob)}: it cannot be shown here]")

    def _add_image(self, data: str, mime_type: str) -> None:
        fits = len(self.files) < MAX_FILES and len(data) <= MAX_FILE_CHARS
        if fits and _IMAGE_TYPE.fullmatch(mime_type) and _BASE64.fullmatch(data):
            self.files.append({"type": "image", "url": f"data:{mime_type};base64,{''.join(data.split())}"})
            self.parts.append(f"[image, {mime_type}, {_size(data)}: the user sees it]")
        else:
            self.parts.append(f"[image, {mime_type[:64]}, {_size(data)}: it cannot be shown here]")


def _link(link: ResourceLink) -> Iterator[str]:
    yield link.title or link.name
    yield f"<{link.uri}>"
    if link.description:
        yield link.description


def _size(base64: str) -> str:
    return f"about {len(base64) * 3 // 4} bytes"
