"""Tool calls as the `<details>` blocks that Open WebUI draws in a message's text.

`callboard.http.past_answers` reads them back. A stream of text can take nothing back, so a block is written
when its call has ended. What the model says between blocks can neither fake one nor break
one. The form is that which every Open WebUI parses, 0.6 to 0.12.
"""

import html
import json
import re

from callboard.http.openai.calls import EndedCall, cut_note
from callboard.http.openai.constructs import OpenConstruct
from callboard.http.past_answers import FROM_TEXT, GUARDED

SHOWN_CHARS = 10_000
"""What of a result stands in its block; Open WebUI shows no more at once."""

_TAG = "<details"
# Without attributes it is HTML's own, which people may use.
_UNSAFE = re.compile(r"<details(?=\s)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def write_block(call: EndedCall) -> str:
    """The call's block, to stand on lines of its own."""
    status = ' status="failed"' if call.failed else ""
    name = f"{call.tool_name}{FROM_TEXT}" if call.from_text else call.tool_name
    result = cut_note(call.result[:SHOWN_CHARS], len(call.result))
    # JSON is ASCII on one line: a raw line end or U+2028 would lose an attribute, a raw `>` the whole block.
    return (
        f'<details type="tool_calls" done="true"{status} id="{_plain(call.tool_call_id)}"'
        f' name="{_plain(name)}" arguments="{_escape(json.dumps(call.arguments))}"'
        f' result="{_escape(json.dumps(result))}" round="{call.round_index}">\n'
        "<summary>Tool Executed</summary>\n</details>"
    )


def _plain(text: str) -> str:
    return _escape(_CONTROL.sub(" ", text))


def _escape(text: str) -> str:
    # Open WebUI substitutes {{user}} and the like everywhere in a message.
    return html.escape(text).replace("{{", "&#123;&#123;")


class BlockText:
    """An answer's text with blocks in it, as it grows: each method returns what is to be appended."""

    def __init__(self) -> None:
        self._held = ""
        self._line = ""
        self._construct = OpenConstruct()
        self._empty = True
        self._after_block = False

    def say(self, delta: str) -> str:
        """The model's words; the end of them is held back while it may still become a tag."""
        text = self._held + delta
        start = text.rfind("<")
        held_from = start if start >= 0 and _TAG.startswith(text[start:]) else len(text)
        self._held = text[held_from:]
        return self._add(_UNSAFE.sub(GUARDED, text[:held_from]))

    def block(self, call: EndedCall) -> str:
        """A block, where it is drawn as one: on lines of its own, outside of any code."""
        before = self.finish()
        if self._line:
            self._construct.line(self._line)
        if self._construct.end:
            before += "\n" * bool(self._line) + self._construct.end
            self._construct.end = ""
        if not self._empty:
            before += "\n" if self._after_block else "\n\n"
        self._line, self._empty, self._after_block = "", False, True
        return before + write_block(call)

    def finish(self) -> str:
        """What was held back."""
        text, self._held = self._held, ""
        return self._add(text.replace(_TAG, GUARDED))

    def _add(self, text: str) -> str:
        if self._after_block:
            # Blank text between two blocks would only tear their group apart.
            text = text.lstrip()
        if not text:
            return ""
        apart = "\n\n" if self._after_block else ""
        self._empty = self._after_block = False
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._construct.line(line)
        return apart + text
