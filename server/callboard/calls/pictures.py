"""Takes the pictures out of the texts of results, in which many tools put them as base64 or as `data:` URLs.

The user sees them; the card and the model get a short mark.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_FILES = 20
"""The most files of a result that has pictures in its text."""

MAX_FILE_CHARS = 20_000_000
"""The largest picture, in characters of base64."""

_STARTS = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_SIGNS = (*_STARTS, "/9j\\/", "_9j_", "data:image")
_TYPE = re.compile(r"image/[\w.+-]{1,64}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)
_DIGIT = "[A-Za-z0-9+/_-]"
_BLANK = re.compile(r"\s|\\[rn]|\\(?=/)")

_PICTURE = re.compile(
    rf"""
    (?: data:(?P<type>image\\?/[\w.+-]{{1,64}})(?:;[\w.+-]+=[\w.+-]+)*+;base64,
      | (?: (?<!{_DIGIT}) | (?<=\\n) )
        (?= iVBORw0KGgo | [/_]9j[/_][2-7] | \\/9j\\/[2-7] | R0lGOD[dl]h | UklGR{_DIGIT}{{7}}RUJQ )
    )
    (?P<data>
        (?= (?: {_DIGIT} | \\/ ){{32}} )
        (?: {_DIGIT}{{60,76}} (?: \r?\n | (?:\\r)?\\n ) )*+
        {_DIGIT}*+ (?: \\/ {_DIGIT}*+ )*+ ={{0,2}}
    )
    """,
    re.VERBOSE | re.ASCII,
)
"""A `data:` URL, or the base64 of a known format, in text or in JSON, where `/` may be escaped. It may be URL-safe, or
wrapped into lines. No picture has fewer than 32 characters: shorter ones are examples."""


def is_picture(text: str) -> bool:
    """Return whether the whole text is a picture."""
    return _PICTURE.fullmatch(text) is not None


def picture_type(digits: str) -> str:
    """Return the content type of a picture in base64, by its beginning; "" if it is unknown."""
    return next((known for start, known in _STARTS.items() if digits.startswith(start)), "")


class Pictures:
    """The files of one result, with the pictures that were found in it."""

    def __init__(self, files: Iterable[Mapping[str, Any]] = (), *, can_show: bool = True) -> None:
        self.files = [dict(file) for file in files]
        self._can_show = can_show

    def take_from(self, text: str) -> str:
        """Return the text with a mark in place of each picture."""
        # Most texts have none, and the search for the pattern takes 60 ns for each character.
        if not any(sign in text for sign in _SIGNS):
            return text
        return _PICTURE.sub(lambda found: self.take(found["data"], found["type"] or ""), text)

    def take(self, data: str, content_type: str) -> str:
        """Add a picture, as base64 or as a `data:` URL, and return its mark, which says if it cannot be shown.

        A content type that is not a picture's is ignored if the data are of a known format.
        """
        digits = _BLANK.sub("", data.rpartition(",")[2]).replace("-", "+").replace("_", "/")
        kind = content_type.replace("\\", "")
        if not _TYPE.fullmatch(kind):
            kind = picture_type(digits)
        file = {"type": "image", "url": f"data:{kind};base64,{digits}"}
        has_room = file in self.files or (len(self.files) < MAX_FILES and len(digits) <= MAX_FILE_CHARS)
        if not (kind and self._can_show and has_room and _BASE64.fullmatch(digits)):
            return f"[image, {kind or content_type[:64]}, {describe_size(data)}: it cannot be shown here]"
        if file not in self.files:
            self.files.append(file)
        return f"[image, {kind}, {describe_size(digits)}: the user sees it]"


def describe_size(base64: str) -> str:
    """Return the size of a file in words."""
    return f"about {len(base64) * 3 // 4} bytes"
