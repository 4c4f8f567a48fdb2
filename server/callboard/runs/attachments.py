"""Files that users attach, as text that any model can read.

A file comes as OpenAI's content part `{"type": "file", "file": {"filename", "file_data"}}`, its
data a `data:` URL. Few models take such parts, all take text.
"""

import asyncio
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from callboard.data_urls import Data, read_data_url
from callboard.extras import how_to_install, is_installed
from callboard.text import storable
from callboard_protocol import ChatMessage, RunRequest

MAX_FILE_CHARS = 200_000
"""What of one file a model is given."""

_TEXT_TYPES = re.compile(r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-sh|sql|x-ndjson)")


async def with_readable_files(request: RunRequest) -> RunRequest:
    """The request with a text part in place of each file part; images stay as they are."""
    if not any(_file_of(part) for message in request.messages for part in _parts(message)):
        return request
    messages = await asyncio.to_thread(lambda: tuple(_readable(message) for message in request.messages))
    return request.model_copy(update={"messages": messages})


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    return message.content if isinstance(message.content, list) else []


def _file_of(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    file = part.get("file") if part.get("type") == "file" else None
    return file if isinstance(file, Mapping) else None


def _readable(message: ChatMessage) -> ChatMessage:
    if not any(_file_of(part) for part in _parts(message)):
        return message
    parts = [_text_part(file) if (file := _file_of(part)) else part for part in _parts(message)]
    return message.model_copy(update={"content": parts})


def _text_part(file: Mapping[str, Any]) -> dict[str, Any]:
    name = str(file.get("filename") or "file")
    try:
        data = read_data_url(str(file.get("file_data") or ""))
        text = _text_of(data)
    except (ValueError, RecursionError) as error:
        return _as_part(f"[The user attached {name}, which cannot be read: {error}]")
    kind = data.content_type
    if text is None:
        return _as_part(f"[The user attached {name} ({kind}, {len(data.content)} bytes), which is no text.]")
    cut = f"\n[{len(text) - MAX_FILE_CHARS} more characters]" if len(text) > MAX_FILE_CHARS else ""
    return _as_part(f'<file name="{name}" type="{kind}">\n{text[:MAX_FILE_CHARS]}{cut}\n</file>')


def _text_of(data: Data) -> str | None:
    if data.content_type == "application/pdf":
        return _text_of_pdf(data.content)
    if _TEXT_TYPES.fullmatch(data.content_type):
        return data.content.decode("utf-8", "replace")
    return None


def _text_of_pdf(content: bytes) -> str:
    if not is_installed("web"):
        raise ValueError(
            f"this server has no reader for PDF files; its admin installs one with {how_to_install('web')}"
        )
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        return "\n\n".join(page.extract_text() for page in PdfReader(BytesIO(content)).pages)
    except PyPdfError as error:
        raise ValueError(str(error)) from error


def _as_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": storable(text)}
