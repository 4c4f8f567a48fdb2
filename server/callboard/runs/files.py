"""The files of a run: those that users attach, and those of tool calls that are too large for a frame.

An attachment is a content part in OpenAI's format, `{"type": "file", "file": {"filename", "file_data"}}`, with a
`data:` URL as `file_data`. It is converted to text, because few models accept file parts.

Clients fetch each file of a call with a request of its own. Such files are in memory until the run's events are stored,
then only in the database.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import structlog

from callboard.data_urls import Data, content_type_of, count_bytes, read_data_url
from callboard.errors import ToolError, UnknownFile
from callboard.extras import how_to_install, is_installed
from callboard.models import ChatDict
from callboard.reading.apart import read_apart
from callboard.reading.attached import PDF_TYPE, Attached, read_attached
from callboard.runs.limits import RunMemory
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


MAX_INLINE_CHARS = 64 * 1024
MAX_RUN_CHARS = 64 * 1024 * 1024
"""The most characters of `data:` URLs that the files of one run may have."""

_log = structlog.get_logger(__name__)


class RunFiles:
    """The files of one run that are in memory."""

    def __init__(self, run_id: str, memory: RunMemory | None = None) -> None:
        self._run_id = run_id
        self._memory = memory or RunMemory()
        self._urls: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._chars = 0

    def link(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file with a path of this server instead of its `data:` URL, `content_type`, and `size` in bytes.

        Small images keep their `data:` URL. Other files cannot, because browsers do not open `data:` links. A file for
        which there is no room loses its content, and `dropped` says why.
        """
        url = file.get("url")
        if not isinstance(url, str) or not (kind := content_type_of(url)):
            return dict(file)
        if len(url) <= MAX_INLINE_CHARS and kind.startswith("image/"):
            return dict(file)
        if self._chars + len(url) > MAX_RUN_CHARS:
            return self._drop(file, f"over {MAX_RUN_CHARS} characters of files in one run")
        self._memory.add(len(url))
        if not self._memory.make_room():
            self._memory.add(-len(url))
            return self._drop(file, "the memory for the runs of this user, or of all users, is full")
        file_id = uuid4().hex
        self._urls[file_id] = self._new[file_id] = url
        self._chars += len(url)
        return {
            "content_type": kind,
            "size": count_bytes(url),
            **file,
            "url": f"/v1/runs/{self._run_id}/files/{file_id}",
        }

    def _drop(self, file: Mapping[str, Any], reason: str) -> dict[str, Any]:
        _log.warning("file_dropped", run_id=self._run_id, chars=len(file["url"]), reason=reason)
        return {**file, "url": "", "dropped": reason}

    def take_new(self) -> dict[str, str]:
        """Return the `data:` URLs of the files that were linked since the last call, by file ids."""
        new = self._new
        self._new = {}
        return new

    def find(self, file_id: str) -> str | None:
        """Return the `data:` URL of a file; None if it is not in memory."""
        return self._urls.get(file_id)

    def drop_stored(self) -> None:
        """Drop the files from memory, because they are in the database."""
        if self._urls:
            size_bytes = sum(map(len, self._urls.values()))
            self._urls.clear()
            self._memory.add(-size_bytes)


def read_file(run_id: str, file_id: str, url: str | None) -> Data:
    """Return the content of a `data:` URL. Raises `UnknownFile` if `url` is None or cannot be decoded."""
    if url is None:
        raise UnknownFile(f"run {run_id!r} has no file {file_id!r}")
    try:
        return read_data_url(url)
    except ValueError as error:
        raise UnknownFile(f"the file {file_id!r} cannot be read: {error}") from error
