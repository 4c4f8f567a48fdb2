"""Makes text of models, tools and pages safe to print in a terminal.

Such text may contain escape sequences that move the cursor, set the clipboard or overwrite earlier text, and characters
that change the direction of a line.
"""

import regex

# Except line feeds, tabs, and two zero-width characters that some scripts and emoji need.
_CONTROLS = regex.compile(r"[[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]--[\n\t\u200c\u200d]]", regex.VERSION1)


def make_visible(text: str) -> str:
    """Return the text with a visible sign for each character that controls a terminal, except line feeds and tabs."""
    return str(_CONTROLS.sub(_choose_sign, text))


def make_line(text: str) -> str:
    """Return the result of `make_visible` as one line, with one space between words."""
    return " ".join(make_visible(text).split())


def _choose_sign(found: regex.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r":
        # Before a line feed it is redundant. Elsewhere it moves the cursor to the start of the line.
        return ""
    if found[0] in "\u2028\u2029":
        return "\n"
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"
