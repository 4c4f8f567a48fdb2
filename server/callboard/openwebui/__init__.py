"""Everything that the server knows about Open WebUI: its HTML, its prompts, its headers and its status events.

`drawing` uses the code of the pipe. The rest of the pipe's copies of this project's code are compared with their
originals by the tests in `tests/openwebui`, because the pipe is one file without imports from this project.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from callboard.openwebui.offered_tools import OpenWebUITools
from callboard.openwebui.requests import (
    CHAT_HEADERS,
    UNSAVED_CHATS,
    USER_HEADERS,
    has_own_header,
    read_headers,
    strip_context,
)

if TYPE_CHECKING:
    from callboard.openwebui.drawing import DetailsWriter, StatusLines, close_markdown, write_block

__all__ = [
    "CHAT_HEADERS",
    "UNSAVED_CHATS",
    "USER_HEADERS",
    "DetailsWriter",
    "OpenWebUITools",
    "StatusLines",
    "close_markdown",
    "has_own_header",
    "read_headers",
    "strip_context",
    "write_block",
]


def __getattr__(name: str) -> object:
    # Imported on first use, because it loads the whole pipe, which only a server needs.
    if name in ("DetailsWriter", "StatusLines", "close_markdown", "write_block"):
        return getattr(import_module("callboard.openwebui.drawing"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
