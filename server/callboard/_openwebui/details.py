"""Tool calls as the `<details>` blocks that Open WebUI draws in a message's text. Pure.

`details_parser` reads them back. The form is that which every Open WebUI parses, 0.6 to 0.12. What the model says
between blocks can neither fake one nor break one.
"""

import html
import json
import re

from callboard._openwebui.markdown_state import MarkdownState
from callboard._text import cut_note
from callboard_protocol import FAILED, ToolCallStart, find_ending, format_ending

TAG = "<details"
"""The beginning of a block."""

END = "</details>"

GUARDED = "<\u200bdetails"
"""`<details` in the model's own words: with an invisible space it is no tag."""

NOTICE = "> **Callboard:** "
"""The beginning of a line that the pipe itself has to say."""

LABEL = " · "
"""The mark between a tool's name and what its card says behind it; no tool's name has it."""

INNER = "↳ "
"""The beginning of a line above a call's result, about a call that another agent made inside it."""

FROM_TEXT = f"{LABEL}from text"
"""The label of a call that was read from the model's text, when it has ended too."""

CITED = "#source"
"""The mark between the number that the pipe gives a citation and the model's own."""

SHOWN_CHARS = 10_000
"""The most of a result that stands in its block; Open WebUI shows no more at once."""

# Without attributes it is HTML's own, which people may use.
_UNSAFE = re.compile(r"<details(?=\s)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def write_block(start: ToolCallStart, result: str, *, error_code: str | None = None, is_from_text: bool = False) -> str:
    """Return the block of a call that has ended, to stand on lines of its own.

    `result` is what the model read, errors too; `error_code` is None for a call that ended well. `is_from_text`: the
    call was read from the model's text, not called natively.
    """
    status = ""
    about = start.label.removeprefix(start.tool_name).removeprefix(LABEL)
    name = f"{start.tool_name}{LABEL}{about}" if about else start.tool_name
    name += FROM_TEXT if is_from_text else ""
    if error_code is not None:
        ending = find_ending(error_code)
        status = ' status="failed"' if ending.is_failure else ""
        name += "" if ending is FAILED else f"{LABEL}{ending.label}"
        result = result if ending.is_failure else format_ending(error_code, result)
    shown = cut_note(result[:SHOWN_CHARS], len(result))
    # JSON is ASCII on one line: a raw line end or U+2028 would lose an attribute, a raw `>` the whole block.
    return (
        f'<details type="tool_calls" done="true"{status} id="{escape_line(start.tool_call_id)}"'
        f' name="{escape_line(name)}" arguments="{escape(json.dumps(start.tool_args))}"'
        f' result="{escape(json.dumps(shown))}" round="{start.round_index}">\n'
        "<summary>Tool Executed</summary>\n</details>"
    )


def escape(text: str) -> str:
    """Return the text for an attribute; Open WebUI substitutes {{user}} and the like everywhere in a message."""
    return html.escape(text).replace("{{", "&#123;&#123;")


def escape_line(text: str) -> str:
    """Return the text for an attribute that is no JSON, as one line without tags, images and links."""
    return escape(_CONTROL.sub(" ", text).replace("<", "‹").replace(">", "›").replace("](", "] ("))


class DetailsWriter:
    """An answer's text with blocks in it, as it grows: each method returns what is to be appended.

    A stream of text can take nothing back, so a block is written when its call has ended.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""
        self._markdown = MarkdownState()
        self._empty = True
        self._after_block = False

    def add_text(self, delta: str) -> str:
        """Add the model's words; the end of them is held back while it may still become a tag."""
        text = self._held + delta
        start = text.rfind("<")
        held_from = start if start >= 0 and TAG.startswith(text[start:]) else len(text)
        self._held = text[held_from:]
        return self._append(_UNSAFE.sub(GUARDED, text[:held_from]))

    def add_block(self, block: str) -> str:
        """Add a call's block where it is drawn as one: on lines of its own, outside of any code."""
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
        """Add what was held back."""
        text = self._held
        self._held = ""
        return self._append(text.replace(TAG, GUARDED))

    def _append(self, text: str) -> str:
        if self._after_block:
            # Blank text between two blocks would only tear their group apart.
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
