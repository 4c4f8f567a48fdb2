"""Writes tool calls as `<details>` blocks, which Open WebUI draws as cards in a message's text.

`details_parser` reads the blocks back. Open WebUI 0.6 to 0.12 parse this form. The model's text between blocks can
neither fake a block nor break one.
"""

import html
import json
import re

from callboard.openwebui.markdown_state import MarkdownState
from callboard.text import cut_note
from callboard_protocol import FAILED, ToolCallStart, find_ending, format_ending

TAG = "<details"
"""The beginning of a block."""

END = "</details>"

GUARDED = "<\u200bdetails"
"""`<details` in the model's own text, with a zero-width space, so that it is no tag."""

NOTICE = "> **Callboard:** "
"""The beginning of a message line that is from the pipe itself."""

LABEL = " · "
"""The separator between a tool's name and the label behind it on a card. No tool's name contains it."""

INNER = "↳ "
"""The beginning of a line above a call's result that describes a call made by another agent inside of this call."""

FROM_TEXT = f"{LABEL}from text"
"""The label of a call that was read from the model's text. It stays when the call has ended."""

CITED = "#source"
"""The mark between the pipe's number of a citation and the model's number."""

SHOWN_CHARS = 10_000
"""The number of characters of a result that its block contains at most. Open WebUI shows no more at once."""

# `<details>` without attributes is plain HTML, which a message may contain.
_UNSAFE = re.compile(r"<details(?=\s)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def write_block(start: ToolCallStart, result: str, *, error_code: str | None = None, is_from_text: bool = False) -> str:
    """Return the block of a call that has ended. It must begin and end a line.

    `result` is the text that the model read, for failed calls the error. `error_code` is None for a successful call.
    `is_from_text` says that the call was read from the model's text.
    """
    status = ""
    label = start.label.removeprefix(start.tool_name).removeprefix(LABEL)
    name = f"{start.tool_name}{LABEL}{label}" if label else start.tool_name
    name += FROM_TEXT if is_from_text else ""
    if error_code is not None:
        ending = find_ending(error_code)
        status = ' status="failed"' if ending.is_failure else ""
        name += "" if ending is FAILED else f"{LABEL}{ending.label}"
        result = format_ending(error_code, result) if ending.words or not ending.is_failure else result
    shown = cut_note(result[:SHOWN_CHARS], len(result))
    # JSON is ASCII on one line. Open WebUI loses an attribute with a line end or U+2028, and a block with a bare `>`.
    return (
        f'<details type="tool_calls" done="true"{status} id="{escape(break_markup(start.tool_call_id))}"'
        f' name="{escape_label(name)}" arguments="{escape(json.dumps(start.tool_args))}"'
        f' result="{escape(json.dumps(shown))}" round="{start.round_index}">\n'
        "<summary>Tool Executed</summary>\n</details>"
    )


def escape(text: str) -> str:
    """Return the text escaped for an attribute, also from Open WebUI's substitution of {{user}} and the like."""
    return html.escape(text).replace("{{", "&#123;&#123;")


def break_markup(text: str) -> str:
    """Return the text as one line without tags, images and links."""
    return _CONTROL.sub(" ", text).replace("<", "‹").replace(">", "›").replace("](", "] (")


def escape_label(text: str) -> str:
    """Return the text of a label for an attribute; Open WebUI 0.11 and later draw an escaped character as its code."""
    return break_markup(text).replace('"', "”").replace("{{", "{ {")


class DetailsWriter:
    """Writes an answer with blocks as a stream. Each method returns the text to append.

    A stream cannot take text back, so a block is written when its call has ended.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""
        self._markdown = MarkdownState()
        self._empty = True
        self._after_block = False

    def add_text(self, delta: str) -> str:
        """Add the model's text. Its end is held back while it may be the beginning of a tag."""
        text = self._held + delta
        start = text.rfind("<")
        held_from = start if start >= 0 and TAG.startswith(text[start:]) else len(text)
        self._held = text[held_from:]
        return self._append(_UNSAFE.sub(GUARDED, text[:held_from]))

    def add_block(self, block: str) -> str:
        """Add a call's block on separate lines, after closing any open code fence or HTML."""
        before = self.finish()
        if self._line:
            self._markdown.feed_line(self._line)
        if self._markdown.closing:
            before += "\n" if self._line else ""
            before += self._markdown.closing
            self._markdown.closing = ""
        if not self._empty:
            before += "\n" if self._after_block else "\n\n"
        self._line = ""
        self._empty = False
        self._after_block = True
        return before + block

    def finish(self) -> str:
        """Add the text that was held back."""
        text = self._held
        self._held = ""
        return self._append(text.replace(TAG, GUARDED))

    def _append(self, text: str) -> str:
        if self._after_block:
            # Open WebUI groups adjacent blocks, and blank text between two would split the group.
            text = text.lstrip()
        if not text:
            return ""
        apart = "\n\n" if self._after_block else ""
        self._empty = False
        self._after_block = False
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._markdown.feed_line(line)
        return apart + text
