"""Everything that the server knows about Open WebUI: its HTML, its prompts, its headers and its status events.

The pipe is one file without imports from this project, so it has its own copy of some of this code. The tests in
`tests/openwebui` compare both copies.
"""

from typing import TYPE_CHECKING

from callboard.openwebui.details import DetailsWriter, write_block
from callboard.openwebui.markdown_state import close_markdown
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
    from callboard.openwebui.status_lines import StatusLines

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
    if name == "StatusLines":
        from callboard.openwebui.status_lines import StatusLines

        return StatusLines
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
