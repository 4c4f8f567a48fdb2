"""What of a Markdown text is still open at its end and would swallow what follows. Pure."""

import re

_FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(`{3,}(?=[^`]*$)|~{3,})")
_HTML = re.compile(r" {0,3}<(?:(script|pre|style|textarea)(?=[\s>]|$)|(!--|\?|!\[CDATA\[|![A-Z]))", re.IGNORECASE)
_HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}


class OpenConstruct:
    """A code fence, or HTML that ends at a terminator (CommonMark 4.5 and 4.6, kinds 1 to 5), after the lines so far.

    `end` is the text that closes it, or empty.
    """

    def __init__(self) -> None:
        self.end = ""

    def line(self, line: str) -> None:
        """The next line of the text, without its end."""
        if not self.end:
            self._begin(line)
            return
        marker = self.end.lstrip(" ")
        if marker[0] in "`~":
            said = line.strip()
            closed = said.startswith(marker) and not said.strip(marker[0])
        else:
            closed = marker in line.lower()
        if closed:
            self.end = ""

    def _begin(self, line: str) -> None:
        if fence := _FENCE.match(line):
            self.end = " " * len(fence[1]) + fence[2]
        elif html := _HTML.match(line):
            end = f"</{html[1]}>".lower() if html[1] else _HTML_ENDS.get(html[2].lower(), ">")
            # `<!-->` is a whole comment: its end may share the dashes.
            rest = line[html.end() - (2 if html[2] == "!--" else 0) :]
            self.end = "" if end in rest.lower() else end
