"""Reads files that users attach, given as `data:` URLs."""

import re
from dataclasses import dataclass

from callboard.data_urls import read_data_url
from callboard.errors import ToolError
from callboard.text import storable

MAX_FILE_CHARS = 200_000
"""The number of characters of one file that a model gets at most."""

PDF_TYPE = "application/pdf"

_TEXT_TYPES = re.compile(r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-sh|sql|x-ndjson)")


@dataclass(frozen=True, slots=True)
class Attached:
    """An attached file. `text` is None if the file is not text; `chars_left_out` counts the characters cut off."""

    content_type: str
    size_bytes: int
    text: str | None
    chars_left_out: int = 0


def read_attached(url: str, name: str) -> Attached:
    """Read an attached file. `name` is its name in error messages. Raises `ToolError` if it cannot be read."""
    try:
        data = read_data_url(url)
    except ValueError as error:
        raise ToolError(str(error)) from error
    size_bytes = len(data.content)
    if data.content_type == PDF_TYPE:
        # Imported here, because the import takes as long as reading a small file.
        from callboard.reading.pdf import read_pdf

        text = read_pdf(data.content, name, MAX_FILE_CHARS).text
    elif _TEXT_TYPES.fullmatch(data.content_type):
        text = data.content.decode("utf-8", "replace")
    else:
        return Attached(data.content_type, size_bytes, None)
    left_out = max(0, len(text) - MAX_FILE_CHARS)
    return Attached(data.content_type, size_bytes, storable(text[:MAX_FILE_CHARS]), left_out)
