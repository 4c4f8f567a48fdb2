"""Files of tool calls that are too large for a frame; the client fetches each with a request of its own.

Files are in memory until the run's events are stored, then only in the database.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import structlog

from callboard.data_urls import Data, content_type_of, count_bytes, read_data_url
from callboard.errors import UnknownFile
from callboard.runs.memory_budget import RunMemory

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
