"""Finds code fences and HTML that a text has opened and not closed, because they would swallow the text behind."""

import re

_FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(`{3,}(?=[^`]*$)|~{3,})")
_HTML = re.compile(r" {0,3}<(?:(script|pre|style|textarea)(?=[\s>]|$)|(!--|\?|!\[CDATA\[|![A-Z]))", re.IGNORECASE)
_HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}


class MarkdownState:
    """Tracks open code fences and HTML blocks with a terminator (CommonMark 4.5, and 4.6 kinds 1 to 5).

    Attributes:
        closing: The line that closes what is open; empty if nothing is open.
    """

    def __init__(self) -> None:
        self.closing = ""

    def feed_line(self, line: str) -> None:
        """Read the next line of the text, given without its line end."""
        if not self.closing:
            self._open(line)
        elif self._is_closed_by(line):
            self.closing = ""

    def _is_closed_by(self, line: str) -> bool:
        marker = self.closing.lstrip(" ")
        if marker[0] not in "`~":
            return marker in line.lower()
        marks = line.strip()
        return marks.startswith(marker) and not marks.strip(marker[0])

    def _open(self, line: str) -> None:
        if fence := _FENCE.match(line):
            self.closing = " " * len(fence[1]) + fence[2]
        elif html := _HTML.match(line):
            end = f"</{html[1]}>".lower() if html[1] else _HTML_ENDS.get(html[2].lower(), ">")
            # `<!-->` is a complete comment, in which the end shares the dashes of the beginning.
            rest = line[html.end() - (2 if html[2] == "!--" else 0) :]
            self.closing = "" if end in rest.lower() else end


def close_markdown(text: str) -> str:
    """Return the text to append so that no code fence or HTML block of `text` is open; "" if none is."""
    state = MarkdownState()
    for line in text.split("\n"):
        state.feed_line(line)
    if state.closing and not text.endswith("\n"):
        return f"\n{state.closing}"
    return state.closing
