"""Reads values between tags: `<parameter=query>storms</parameter>`.

These values have no escapes, so a closing tag inside a value looks like the tag that ends it. A tag ends the value only
if more of the call's structure follows. If the end is ambiguous, the value is garbled and its call is refused.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import regex

from callboard_formats.names import closest_spelling
from callboard_formats.text_buffer import Reading, TextBuffer

_LONGEST_TAG = 160
_LOOK_BACK_CHARS = 80


@dataclass(frozen=True, slots=True)
class TagPatterns:
    """The patterns of the text around values.

    Attributes:
        key: A tag that opens a value.
        mark: A tag that opens or closes a value, or the beginning of CDATA.
        more: A closing tag and the next opening tag.
        over: A closing tag and the call's end; in a section, also the text that must follow the call.
        over_at_end: The form of `over` at the end of the text.
        over_alone: A closing tag and the call's end only.
        closer: A closing tag.
        goes_on: White space and the text that may follow a call.
        unclosed: The end of the call, of its section, and of the turn, without a closing tag.
        ends: Any text that may follow the last value.
        call: The beginning of a call.
        behind_stray: Text that shows that the closing tag before it is redundant.
    """

    key: "regex.Pattern[str]"
    mark: "regex.Pattern[str]"
    more: "regex.Pattern[str]"
    over: "regex.Pattern[str]"
    over_at_end: "regex.Pattern[str]"
    over_alone: "regex.Pattern[str]"
    closer: "regex.Pattern[str]"
    goes_on: "regex.Pattern[str]"
    unclosed: "regex.Pattern[str]"
    ends: "regex.Pattern[str]"
    call: "regex.Pattern[str]"
    behind_stray: "regex.Pattern[str]"


@dataclass(frozen=True, slots=True)
class OpeningTag:
    """A tag that opens a value. `indent` is the white space before it, if it is the first text in its line."""

    found: "regex.Match[str]"
    indent: str

    @property
    def key(self) -> str:
        """The parameter's name."""
        return str(self.found["key"])

    @property
    def kind(self) -> str | None:
        """The type that the tag declares; None if it declares none."""
        kinds: dict[str, str | None] = self.found.groupdict()
        return kinds.get("type")


@dataclass(frozen=True, slots=True)
class TagValue:
    """A value between tags.

    `closed` means that its end was found. `garbled` means that it is unclear whether a tag at its edge belongs to it.
    """

    text: str
    closed: bool = True
    garbled: bool = False


class TagReader:
    """Reads the values of one call of a tool with these `parameters`.

    With `exact`, line ends next to the tags belong to the value. With `cdata`, a value may be inside `<![CDATA[`.
    """

    def __init__(
        self, buffer: TextBuffer, patterns: TagPatterns, parameters: Collection[str], *, exact: bool, cdata: bool
    ) -> None:
        self._buffer = buffer
        self._patterns = patterns
        self._awaited = set(parameters)
        self._exact = exact
        self._cdata = cdata

    def take_opening(self) -> Reading[OpeningTag | None]:
        """Move behind the tag that opens a value, and return it. Return None if no tag is here."""
        before = self._buffer.line_before()
        found = yield from self._buffer.take(self._patterns.key)
        return OpeningTag(found, before if before.isspace() else "") if found else None

    def read(self, opening: OpeningTag) -> Reading[TagValue]:
        """Return the value that begins here, and move behind its closing tag.

        Tags that are opened and closed inside the value belong to it. A closing tag ends the value if another value
        follows, or if the call's end follows and no other closing tag comes after that end. If there is another closing
        tag, both are inside the value. If the value of another parameter begins inside the value, the value's own
        closing tag may be missing.
        """
        buffer = self._buffer
        self._awaited.discard(opening.key)
        start = buffer.keep()
        depth = 0
        first_end: int | None = None
        last_closer: int | None = None
        holds_another = False
        while mark := (yield from buffer.find(self._patterns.mark)):
            place = buffer.position
            buffer.position += len(mark[0])
            if mark["cdata"]:
                yield from self._skip_cdata()
                continue
            if mark["open"]:
                if self._is_awaited(mark[0]):
                    if place > start and not holds_another and _at_line_start(buffer.before(place, _LOOK_BACK_CHARS)):
                        buffer.rewind(place)
                        return self._make_unclosed(buffer.cut(start, place))
                    holds_another = True
                depth += 1
                continue
            last_closer = place
            end = yield from self._classify_closer(place, is_own=depth == 0)
            if end is _End.SURE:
                return (yield from self._end_value(opening, start, place))
            if end is _End.POSSIBLE and first_end is None:
                first_end = place
            depth = max(0, depth - 1)
            buffer.rewind(place + len(mark[0]))
        if last_closer is None:
            return self._end_unclosed(start, depth)
        if first_end == last_closer and self._is_only_end(start, first_end) and buffer.may_reread(start):
            return (yield from self._end_value(opening, start, first_end))
        return TagValue(self._trim(buffer.cut(start, buffer.position), closed=False), closed=False)

    def _skip_cdata(self) -> Reading[None]:
        yield from self._buffer.find(_CDATA_END)
        self._buffer.position = min(self._buffer.position + len("]]>"), self._buffer.end)

    def _is_awaited(self, opening: str) -> bool:
        found = self._patterns.key.match(opening)
        return found is not None and found["key"].strip() in self._awaited

    def _classify_closer(self, place: int, *, is_own: bool) -> "Reading[_End]":
        """Return whether the closing tag at `place` ends the value. `is_own`: it closes no tag in the value."""
        buffer = self._buffer
        buffer.rewind(place)
        if (yield from buffer.match(self._patterns.more)):
            return _End.SURE if is_own else _End.NONE
        over = yield from self._match_end()
        if over is None:
            return _End.NONE
        if not is_own or (yield from self._closes_again(place + len(over[0]))):
            return _End.POSSIBLE
        return _End.SURE

    def _match_end(self) -> "Reading[regex.Match[str] | None]":
        """Return the match of a closing tag and the call's end here; None if they are not here."""
        buffer = self._buffer
        found = yield from buffer.match(self._patterns.over)
        if found is None and buffer.final:
            found = (yield from buffer.match(self._patterns.over_at_end)) or self._match_cut_off_end()
        return found

    def _match_cut_off_end(self) -> "regex.Match[str] | None":
        """Return the match of a closing tag and the call's end, if the text ends inside the text that must follow."""
        buffer = self._buffer
        place = buffer.position
        over = self._patterns.over_alone.match(buffer.text, place - buffer.base)
        if over is None:
            return None
        buffer.position += len(over[0].rstrip())
        goes_on = buffer.cut_off(self._patterns.goes_on)
        buffer.rewind(place)
        return over if goes_on and goes_on[0].strip() else None

    def _closes_again(self, after: int) -> Reading[bool]:
        """Return whether a closing tag without an opener, or the beginning of one, comes after the call's end."""
        buffer = self._buffer
        buffer.position = after
        mark = yield from buffer.find(self._patterns.mark)
        return mark["close"] is not None if mark else self._ends_inside_closer(after)

    def _ends_inside_closer(self, start: int) -> bool:
        """Return whether the text ends inside a closing tag, and not inside an opening tag or the next call."""
        text = self._buffer.cut(start, self._buffer.end)
        half = self._patterns.closer.search(text, partial=True)
        if half is None or half.start() == len(text):
            return False
        if self._patterns.goes_on.match(text, half.start(), partial=True):
            return False
        first = self._patterns.mark.search(text, partial=True)
        return first is None or first.start() == half.start()

    def _end_unclosed(self, start: int, openings: int) -> TagValue:
        """Return a value that has no closing tag up to the end of the text.

        Its end is certain only if the ends of the call, its section and the turn follow, and it contains no other tag.
        """
        buffer = self._buffer
        text = buffer.cut(start, buffer.end)
        first = None if openings else self._patterns.ends.search(text)
        if first is None or not self._patterns.unclosed.match(text, first.start()) or not buffer.may_reread(start):
            return TagValue(self._trim(text, closed=False), closed=False)
        buffer.rewind(start + first.start())
        return self._make_unclosed(text[: first.start()])

    def _make_unclosed(self, text: str) -> TagValue:
        """Return a value whose closing tag is missing. A tag at its end may be the closing tag with a typo."""
        # The line end before the next tag is not a part of the value.
        value = _LAST_LINE.sub("", text) if self._exact else self._trim(text, closed=False)
        return TagValue(value, garbled=_CLOSING_TAG_AT_END.search(text[-_LONGEST_TAG:]) is not None)

    def _is_only_end(self, start: int, place: int) -> bool:
        """Return whether a value certainly ends at `place`, its only possible end, although the text is incomplete.

        It may continue if it contains a call or the value of a parameter that has not been read yet, because their ends
        would look the same. A typo in the parameter's name does not matter. It may also continue if the text ends
        inside a closing tag. An opening tag in the middle of a sentence is only mentioned.
        """
        text = self._buffer.cut(start, place)
        for found in self._patterns.key.finditer(text):
            before = text[max(0, found.start() - _LOOK_BACK_CHARS) : found.start()]
            is_amid_words = before and not before[-1].isalnum() and not _at_line_start(before)
            if closest_spelling(found["key"].strip(), self._awaited) or not is_amid_words:
                return False
        holds_call = self._patterns.call.search(text) is not None
        return not holds_call and not self._ends_inside_closer(place + 1)

    def _end_value(self, opening: OpeningTag, start: int, place: int) -> Reading[TagValue]:
        """Return the value that ends at `place`, and move behind its closing tag.

        It is garbled if it begins with its opening tag again. It is also garbled if it contains a closing tag without
        an opener, and this tag is at its end or before the beginning of another value.
        """
        text = self._buffer.cut(start, place)
        self._buffer.rewind(place)
        closer = yield from self._buffer.match(self._patterns.mark)
        self._buffer.position += len(closer["close"]) if closer else 0
        tag = opening.found[0]
        openings = (tag.strip(), _LAST_TAG.search(tag)[0].strip())
        is_garbled = text.lstrip().startswith(openings) or self._has_stray_closer(text)
        return TagValue(self._trim(text, opening.indent, closed=True), garbled=is_garbled)

    def _has_stray_closer(self, text: str) -> bool:
        depth = 0
        for mark in self._patterns.mark.finditer(text):
            if mark["open"]:
                depth += 1
            elif mark["close"]:
                if depth == 0 and self._patterns.behind_stray.match(text, mark.end()):
                    return True
                depth = max(0, depth - 1)
        return False

    def _trim(self, text: str, indent: str = "", *, closed: bool) -> str:
        """Return a value without the line end behind its opening tag and the line end before its closing tag.

        They are removed only if both exist. If there is only one, it belongs to the value. If both tags have the same
        indentation `indent`, it is removed before the closing tag, and from all lines if each line begins with it.
        """
        if self._exact:
            return text
        if self._cdata and (cdata := _CDATA.fullmatch(text)):
            return str(cdata[1])
        if indent and _LINE_BEGIN.match(text) and text.endswith("\n" + indent):
            text = text.removesuffix(indent)
            lines = text.split("\n")
            if all(line.startswith(indent) or not line.strip() for line in lines):
                text = "\n".join(line.removeprefix(indent) for line in lines)
        begins = _LINE_BEGIN.match(text)
        ends = _LAST_LINE.search(text)
        if begins and ends and begins.end() <= ends.start():
            return text[begins.end() : ends.start()]
        if not closed:
            return text.strip("\r\n") if begins or ends else text
        # A value that is only one line end is empty: its tags are on two lines.
        return "" if begins and begins.end() == len(text) else text


class _End(Enum):
    """Whether a closing tag ends a value. `POSSIBLE` means that it does, unless a later closing tag does."""

    NONE = 0
    POSSIBLE = 1
    SURE = 2


_CDATA_END = regex.compile(r"\]\]>")
_CDATA = regex.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", regex.DOTALL)
_LAST_TAG = regex.compile(r"[^>]*>\s*\Z")
_CLOSING_TAG_AT_END = regex.compile(r"(?:</[^<>\n]{1,99}>?|<\|close\|>[^<>\n]{0,40}(?:<\|?\w{0,9}\|?/?\d?>?)?)\s*\Z")
_LINE_BEGIN = regex.compile(r"\r?\n")
_LAST_LINE = regex.compile(r"\r?\n\Z")


def _at_line_start(before: str) -> bool:
    line = before[before.rfind("\n") + 1 :]
    return not line.strip() and "\n" in before
