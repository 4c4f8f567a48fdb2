"""Converts files that users attach to text, because few models accept file parts.

A file is a content part in OpenAI's format, `{"type": "file", "file": {"filename", "file_data"}}`, with a `data:` URL
as `file_data`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.data_urls import content_type_of
from callboard.errors import ToolError
from callboard.extras import how_to_install, is_installed
from callboard.models import ChatDict
from callboard.reading.apart import read_apart
from callboard.reading.attached import PDF_TYPE, Attached, read_attached
from callboard.text import storable

MAX_INLINE_READ_CHARS = 64 * 1024
"""Text files up to this size are read in this process: that takes less time than starting another one."""

MAX_NAME_CHARS = 255


class ReadableFiles:
    """Reads the files of one request. Each file is read once; a user's files are read one after another."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._read: dict[tuple[str, str], dict[str, Any]] = {}

    async def read(self, messages: Sequence[ChatDict]) -> list[ChatDict]:
        """Return the messages with each file part replaced by a text part; image parts are not changed.

        If a file cannot be read, its text part says so.
        """
        readable: list[ChatDict] = []
        for message in messages:
            content = message.get("content")
            parts = content if isinstance(content, list) else []
            if any(map(_find_file, parts)):
                content = [await self._read_part(file) if (file := _find_file(part)) else part for part in parts]
                message = {**message, "content": content}
            readable.append(message)
        return readable

    async def _read_part(self, file: Mapping[str, Any]) -> dict[str, Any]:
        name = str(file.get("filename") or "file")[:MAX_NAME_CHARS]
        url = str(file.get("file_data") or "")
        if (name, url) not in self._read:
            self._read[name, url] = await _make_text_part(name, url, self._user)
        return self._read[name, url]


def _find_file(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    file = part.get("file") if part.get("type") == "file" else None
    return file if isinstance(file, Mapping) else None


async def _make_text_part(name: str, url: str, user: str) -> dict[str, Any]:
    try:
        read = await _read(url, name, user)
    except ToolError as error:
        return _as_part(f"[The user attached {name}, which cannot be read: {error}]")
    if read.text is None:
        return _as_part(f"[The user attached {name} ({read.content_type}, {read.size_bytes} bytes), which is no text.]")
    cut = f"\n[{read.chars_left_out} more characters]" if read.chars_left_out else ""
    return _as_part(f'<file name="{name}" type="{read.content_type}">\n{read.text}{cut}\n</file>')


async def _read(url: str, name: str, user: str) -> Attached:
    is_pdf = content_type_of(url) == PDF_TYPE
    if is_pdf and not is_installed("web"):
        raise ToolError(f"this server has no reader for PDF files; its admin installs one with {how_to_install('web')}")
    if len(url) <= MAX_INLINE_READ_CHARS and not is_pdf:
        return read_attached(url, name)
    return await read_apart(read_attached, url, name, into=Attached, name=name, user=user)


def _as_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": storable(text)}
