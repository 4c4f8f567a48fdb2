"""Makes text of models, tools and pages safe to print in a terminal.

Such text may contain escape sequences that move the cursor, set the clipboard or overwrite earlier text, and characters
that change the direction of a line.
"""

import unicodedata

_JOINERS = "\u200c\u200d"
"""Zero-width characters that some scripts and emoji need."""


class _Signs(dict[int, str]):
    """The sign for each character, by its code. Each sign is computed once."""

    def __missing__(self, code: int) -> str:
        self[code] = _choose_sign(chr(code))
        return self[code]


def _choose_sign(character: str) -> str:
    if character in ("\n", "\t", *_JOINERS):
        return character
    if character == "\r":
        # Before a line feed it is redundant. Elsewhere it moves the cursor to the start of the line.
        return ""
    code = ord(character)
    match unicodedata.category(character):
        case "Cc" if code < 0x20:
            return chr(0x2400 + code)
        case "Cc" | "Cf" | "Cs":
            return f"<U+{code:04X}>"
        case "Zl" | "Zp":
            return "\n"
        case _:
            return character


_SIGNS = _Signs()


def make_visible(text: str) -> str:
    """Return the text with a visible sign for each character that controls a terminal, except line feeds and tabs."""
    return text.translate(_SIGNS)


def make_line(text: str) -> str:
    """Return the result of `make_visible` as one line, with one space between words."""
    return " ".join(make_visible(text).split())
