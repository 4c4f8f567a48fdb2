"""Files of a run's tool calls that are too large for a frame: fetched by the client, one request each."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import uuid4

import structlog

from callboard.errors import UnknownFile

MAX_INLINE_CHARS = 64 * 1024
MAX_RUN_CHARS = 64 * 1024 * 1024
"""What the files of one run may take in memory, as data URLs."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,", re.ASCII)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file as it was in its data URL."""

    content_type: str
    content: bytes


class RunFiles:
    """The files of one run, kept as long as its log."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._urls: dict[str, str] = {}
        self._chars = 0

    def linked(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """The file with a path of this server in place of a long `data:` URL; `content_type` says what it is."""
        url = file.get("url")
        if not isinstance(url, str) or len(url) <= MAX_INLINE_CHARS or not (match := _DATA_URL.match(url)):
            return dict(file)
        if self._chars + len(url) > MAX_RUN_CHARS:
            _log.warning("file_dropped", run_id=self._run_id, chars=len(url), limit=MAX_RUN_CHARS)
            return {**file, "url": "", "dropped": f"over {MAX_RUN_CHARS} characters of files in one run"}
        file_id = uuid4().hex
        self._urls[file_id] = url
        self._chars += len(url)
        kind = match[1] or "text/plain"
        return {"content_type": kind, **file, "url": f"/v1/runs/{self._run_id}/files/{file_id}"}

    def get(self, file_id: str) -> RunFile:
        """The file; raises `UnknownFile`."""
        url = self._urls.get(file_id, "")
        match = _DATA_URL.match(url)
        if not match:
            raise UnknownFile(f"run {self._run_id!r} has no file {file_id!r}")
        data = url[match.end() :]
        try:
            content = base64.b64decode(data) if match[3] else unquote_to_bytes(data)
        except binascii.Error as error:
            raise UnknownFile(f"the file {file_id!r} is no base64: {error}") from error
        return RunFile(match[1] or "text/plain", content)
