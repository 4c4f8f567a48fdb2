"""A row of the table: one syntax as data, and the one reader that reads them all.

A block is a `section` (or none) around calls; a call is a head, a body and an end. The body is
JSON, values between tags, Python, or Gemma's notation. Everything is read forward along this
structure: a marker within a value is the value's, for the value ends only where more of the structure follows.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import regex

from callboard_formats.broken import name_of_broken
from callboard_formats.json_text import read_calls, read_value
from callboard_formats.names import is_tool_name, resolve_name
from callboard_formats.python import calls_before_cut, calls_in_source, escaped_json, read_escaped, read_source
from callboard_formats.syntax import END_OF_TURN, Closing, Refusing, Spot, Tags, Watcher, WrittenCall
from callboard_formats.tape import Reading, Tape

Body = Literal["json", "tags", "python", "escaped"]

NAME = r"(?P<name>[^\s<>\"'`{}()\[\]=]{1,128})"
THINK = Tags("<think>", "</think>")

_FENCE_END = regex.compile(r"\s{0,99}+```")


def pattern(text: str) -> "regex.Pattern[str]":
    r"""Compile a pattern of the table: a blank stands for any white space, `\x20` for one blank."""
    return regex.compile(text.replace(" ", r"\s{0,99}+") or "(?!)", regex.IGNORECASE)


@dataclass(frozen=True)
class Row(Closing, Refusing):
    """One syntax.

    All texts but `openers`, `stops`, `markers` and the tags are patterns, in which a blank is any white space.

    `openers`: the literals that a block begins with. `models`: patterns of the names of models that write so;
    `template`: words that only its chat template has. `section` and `section_end` stand around the calls, `head`
    before each, with its name as the group `name` unless the JSON names it; `end` behind it; `tail`: what may stand
    behind the end of a call. Tags: `key` opens a value, with the groups `key` and perhaps `type` (a value that is no
    `string` is JSON), `value_end` closes it. `exact`: a value has no line ends of its own to be taken off. `cdata`: a
    value may stand in `<![CDATA[`. `keyed`: a call is an object of one member, `{name: arguments}`. `name_alone`: a
    name without arguments, alone on its line, is a call. `prompt_opens`: patterns of the names of models whose prompt
    already opens the thought. `stops` are followed by results that a model may only imagine. `markers` are what the
    user is never shown of it, besides `openers`. `title` says whose syntax it is, and `source` where it is specified.
    """

    name: str
    title: str
    source: tuple[str, ...]
    body: Body
    openers: tuple[str, ...]
    head: str
    end: str
    models: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    section: str = ""
    section_end: str = ""
    key: str = ""
    value_end: str = ""
    tail: str = ""
    exact: bool = False
    keyed: bool = False
    cdata: bool = False
    name_alone: bool = False
    reasoning: tuple[Tags, ...] = (THINK,)
    prompt_opens: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return id(self)

    def read(self, tape: Tape, spot: Spot, watcher: Watcher) -> "Reading[Sequence[WrittenCall | str] | None]":
        """Read the block at `tape.at`: see `Syntax`."""
        return _Block(self, tape, spot, watcher).read()

    def refuse(self, tape: Tape, spot: Spot) -> "Reading[Sequence[WrittenCall] | None]":
        """Read the block at `tape.at` as calls that are refused: see `Refusing`."""
        return _Block(self, tape, spot, None).refuse()

    def is_closed(self, block: str) -> bool:
        """Return whether a block of calls has the end that this syntax gives it."""
        return self.has_end and pattern(f"(?:{self._closer}) \\Z").search(block[-200:]) is not None

    @property
    def has_end(self) -> bool:
        """Whether this syntax gives its calls an end."""
        return bool(self._closer)

    @property
    def _closer(self) -> str:
        return "|".join(filter(None, (self.end, self.tail, self.section_end)))

    @cached_property
    def patterns(self) -> "Patterns":
        """The patterns, compiled when the row is first needed."""
        key = self.key or "(?!)"
        cdata = re.escape("<![CDATA[") if self.cdata else "(?!)"
        keys_open = regex.sub(r"\(\?P<\w+>", "(?:", key)
        head = regex.sub(r"\(\?P<\w+>", "(?:", self.head)
        stops = "|".join(regex.escape(stop) for stop in self.stops) or "(?!)"
        tail = f"(?:{self.tail} )?" if self.tail else ""
        inside = f"(?:{self.end}) {tail}(?:{head}|{self.section_end}|{stops})" if self.section else f"(?:{self.end})"
        return Patterns(
            section=pattern(self.section),
            section_end=pattern(self.section_end),
            head=pattern(self.head),
            end=pattern(self.end),
            tail=pattern(self.tail),
            end_or_line=pattern(rf"(?P<end>{self.end})|\n"),
            opener=pattern("|".join(map(regex.escape, sorted(self.openers, key=len, reverse=True)))),
            ends_or_head=pattern(
                "|".join(filter(None, (self.end, self.section_end, head, *map(regex.escape, self.stops))))
            ),
            ends=pattern("|".join(filter(None, (self.end, self.section_end, *map(regex.escape, self.stops))))),
            key=pattern(key),
            value_mark=pattern(f"(?P<close>{self.value_end or '(?!)'})|(?P<open>{keys_open})|(?P<cdata>{cdata})"),
            more=pattern(f"{self.value_end} {keys_open}"),
            over=pattern(f"{self.value_end} (?:{self.end})"),
            over_section=pattern(f"{self.value_end} (?:{inside})"),
            over_at_end=pattern(rf"{self.value_end} (?:{inside}|(?:{self.end}) {tail}\Z)"),
        )


@dataclass(frozen=True, slots=True)
class Patterns:
    """The compiled patterns of a row."""

    section: "regex.Pattern[str]"
    section_end: "regex.Pattern[str]"
    head: "regex.Pattern[str]"
    end: "regex.Pattern[str]"
    tail: "regex.Pattern[str]"
    end_or_line: "regex.Pattern[str]"
    opener: "regex.Pattern[str]"
    ends_or_head: "regex.Pattern[str]"
    ends: "regex.Pattern[str]"
    key: "regex.Pattern[str]"
    value_mark: "regex.Pattern[str]"
    more: "regex.Pattern[str]"
    over: "regex.Pattern[str]"
    over_section: "regex.Pattern[str]"
    over_at_end: "regex.Pattern[str]"


_FENCE_BEGIN = regex.compile(r"```\w{0,12}[ \t]{0,9}+\r?\n")


class _Block:
    """The reading of one block."""

    def __init__(self, row: Row, tape: Tape, spot: Spot, watcher: Watcher | None) -> None:
        self._row = row
        self._patterns = row.patterns
        self._tape = tape
        self._spot = spot
        self._watcher = watcher
        self._in_section = False
        self._in_tokens = False
        """True in a section that begins as only calls do."""
        self._calls_nothing = False
        """True behind a list without calls."""

    def read(self) -> Reading[Sequence[WrittenCall | str] | None]:
        tape = self._tape
        patterns = self._patterns
        while self._row.section and (section := (yield from tape.take(patterns.section))):
            # Some models write it twice.
            self._in_section = True
            self._in_tokens = not _ANYBODYS.fullmatch(section[0])
            yield from tape.space()
        calls: list[WrittenCall] = []
        begun = self._in_section
        while not self._calls_nothing:
            if begun:
                yield from tape.space()
            found = yield from self._call(first=not calls)
            if found is None and self._in_section and calls and not (yield from tape.match(patterns.ends)):
                found = yield from self._refused()
            if found is None:
                break
            begun = True
            calls += found
            if self._row.tail:
                yield from tape.space()
                yield from tape.take(patterns.tail)
            if found and found[-1].truncated and tape.final and tape.is_at_end():
                return calls
        if not begun:
            return None
        yield from tape.space()
        closed = (yield from tape.take(patterns.section_end)) is not None
        if calls or closed or self._calls_nothing or (tape.final and tape.is_at_end()):
            return calls
        return None

    def refuse(self) -> Reading[Sequence[WrittenCall] | None]:
        """Read calls, of which the first cannot be read."""
        tape = self._tape
        start = tape.at
        section = (yield from tape.take(self._patterns.section)) if self._row.section else None
        # Anybody may write `<tool_call>`: there it takes as much to be a call as without a section.
        self._in_section = section is not None and not _ANYBODYS.fullmatch(section[0])
        yield from tape.space()
        again = section is not None and (yield from tape.match(self._patterns.section))
        refused = None if again else (yield from self._refused())
        if refused is None:
            tape.rewind(start)
            return None
        if section is None:
            return refused
        self._in_section = True
        self._watcher = None
        rest = yield from self.read()
        return [*refused, *(one for one in rest or () if isinstance(one, WrittenCall))]

    def _refused(self) -> Reading[list[WrittenCall] | None]:
        """Read a call that names a tool and then is not written as it should be, up to its end; None where it is none.

        Its end is the first end marker that is followed by the line's end or by more of the structure.
        """
        tape = self._tape
        patterns = self._patterns
        start = tape.at
        yield from tape.take(patterns.opener)
        yield from tape.take(_OPENER_ENDS)
        yield from tape.space()
        # An opener too many: at the next one a call may be read.
        again = yield from tape.match(patterns.opener)
        name = None if again else (yield from name_of_broken(tape, self._spot.schemas, in_section=self._in_section))
        if name is None:
            tape.rewind(start)
            return None
        begin = tape.keep()
        while found := (yield from tape.find(patterns.ends_or_head)):
            end = yield from tape.match(patterns.end)
            if not end or not self._row.end:
                break
            over = tape.at
            tape.at += len(found[0])
            if (yield from self._goes_on()):
                return [WrittenCall(name, tape.cut(begin, over).strip(), broken=True)]
        return [WrittenCall(name, tape.cut(begin, tape.at).strip(), broken=True)]

    def _goes_on(self) -> Reading[bool]:
        """Return whether the structure goes on here, or the line ends."""
        tape = self._tape
        patterns = self._patterns
        while (following := (yield from tape.peek())) in (" ", "\t"):
            tape.at += 1
        if following in ("", "\r", "\n"):
            return True
        return bool((yield from tape.match(patterns.ends_or_head)) or (yield from tape.match(patterns.opener)))

    def _call(self, *, first: bool) -> Reading[list[WrittenCall] | None]:
        """Read one call; None where none begins."""
        tape = self._tape
        start = tape.at
        head = yield from tape.take(self._patterns.head)
        if head is None:
            return self._cut_off_head()
        name = head.groupdict().get("name") or ""
        watcher = self._watcher if first else None
        match self._row.body:
            case "tags":
                calls = yield from self._tags(name, watcher)
            case "json":
                calls = yield from self._json(name, watcher, head[0])
            case "python":
                calls = yield from self._python()
            case "escaped":
                calls = yield from self._escaped(name)
        if calls is None:
            tape.rewind(start)
        return calls

    def _cut_off_head(self) -> list[WrittenCall] | None:
        """Return the call whose name the text ends in."""
        tape = self._tape
        if not tape.final or tape.is_at_end():
            return None
        cut = tape.cut_off(self._patterns.head)
        if cut is None:
            return None
        opener = next((one for one in self._row.openers if cut[0].lower().startswith(one.lower())), "")
        if not self._in_section and not opener.endswith((">", "]")):
            return None
        # A group that the text ends in has no text yet.
        name = cut.groupdict().get("name") or _LAST_WORD.search(cut[0])[0]
        is_begun = any(is_tool_name(name, [one]) or one.startswith(name) for one in self._spot.schemas)
        if cut[0].endswith(_ENDS_OF_PROSE) or (name and not is_begun and _ANYBODYS.match(cut[0])):
            return None
        tape.at = tape.end
        return [WrittenCall(name, "", truncated=True)] if name else []

    def _json(self, name: str, watcher: Watcher | None, head: str) -> Reading[list[WrittenCall] | None]:
        tape = self._tape
        patterns = self._patterns
        yield from tape.space()
        fenced = (yield from tape.take(_FENCE_BEGIN)) is not None
        yield from tape.space()
        following = yield from tape.peek()
        if not name:
            if following == "":
                return []
            if following not in "{[":
                return None
            if (yield from tape.take(_EMPTY_LIST)):
                return (yield from self._no_calls(fenced=fenced))
            start = tape.keep()
            calls = list((yield from read_calls(tape, patterns.ends, watcher, keyed=self._row.keyed)))
            if not calls:
                written, closed = yield from self._words()
                written = tape.cut(start, tape.at).strip()
                calls = [WrittenCall("", written, truncated=not closed)]
            yield from self._end(fenced=fenced)
            return calls
        if following == "{":
            value = yield from read_value(tape, patterns.ends, watcher, self._resolved(name))
            return (yield from self._named(name, value.text, whole=value.whole, fenced=fenced))
        if self._row.name_alone and not head.lower().rstrip().endswith("]"):
            # Where the text ends in a name, it may be the beginning of a longer one, and arguments may have followed.
            is_alone = "\n" in head
            return [WrittenCall(name, "", truncated=not is_alone)] if following == "" or is_alone else None
        words, closed = yield from self._words()
        return [WrittenCall(name, words.strip(), truncated=not closed)]

    def _no_calls(self, *, fenced: bool = False) -> Reading[list[WrittenCall] | None]:
        """Move behind the end of a list without calls, and of the turn: so a model says that it calls nothing.

        Amid words, with more of them behind it, it is spoken of: then None.
        """
        tape = self._tape
        yield from self._end(fenced=fenced)
        is_over = False
        while (yield from tape.take(END_OF_TURN)):
            is_over = True
        self._calls_nothing = self._spot.line_start or is_over or (yield from self._goes_on())
        return [] if self._calls_nothing else None

    def _named(self, name: str, written: str, *, whole: bool, fenced: bool) -> Reading[list[WrittenCall]]:
        """Return the call with the object that was read; more text before its end makes it unreadable."""
        tape = self._tape
        start = tape.keep()
        closed = yield from self._end(fenced=fenced)
        if not closed and not (yield from self._may_follow()):
            _, closed = yield from self._words()
            return [WrittenCall(name, written.rstrip() + tape.cut(start, tape.at), truncated=not closed)]
        return [WrittenCall(name, written.rstrip(), truncated=not whole and not closed)]

    def _may_follow(self) -> Reading[bool]:
        """Return whether the call may have ended here without its end."""
        tape = self._tape
        patterns = self._patterns
        if not self._row.end:
            return True
        yield from tape.space()
        if not (yield from tape.peek()):
            return True
        if tape.final and any(tape.cut_off(one) for one in (patterns.end, patterns.ends)):
            tape.at = tape.end
            return True
        return bool((yield from tape.match(patterns.head)) or (yield from tape.match(patterns.ends)))

    def _end(self, *, fenced: bool = False) -> Reading[bool]:
        """Move behind the end of a call, if it stands here."""
        if not self._row.end:
            return False
        tape = self._tape
        yield from tape.space()
        if fenced:
            yield from tape.take(_FENCE_END)
            yield from tape.space()
        return (yield from tape.take(self._patterns.end)) is not None

    def _words(self) -> Reading[tuple[str, bool]]:
        """Return what stands up to the end of the call, and whether that was seen."""
        tape = self._tape
        start = tape.keep()
        found = yield from tape.find(self._patterns.ends)
        words = tape.cut(start, tape.at)
        yield from tape.take(self._patterns.end)
        return words, found is not None

    def _python(self) -> Reading[list[WrittenCall] | None]:
        """Read calls as Python; a program that begins with something else is none."""
        tape = self._tape
        patterns = self._patterns
        yield from tape.space()
        yield from tape.take(_FENCE_BEGIN)
        yield from tape.space()
        if not (yield from tape.peek()):
            return []
        if (yield from tape.take(_EMPTY_LIST)):
            return (yield from self._no_calls())
        named = yield from tape.match(_CALLED)
        if named is None:
            return None
        source, closed = yield from read_source(tape, patterns.ends)
        yield from tape.take(patterns.end)
        source = source.strip().removesuffix("```").rstrip()
        # The name may only have begun when it was first looked at: `print(` may stand around it.
        named = _CALLED.match(source) or named
        calls = calls_in_source(source)
        if calls is None and not closed:
            calls = calls_before_cut(source)
        return list(calls or [WrittenCall(named["name"], "{" + source[len(named[0]) :], truncated=not closed)])

    def _escaped(self, name: str) -> Reading[list[WrittenCall] | None]:
        tape = self._tape
        if (yield from tape.peek()) != "{":
            words, closed = yield from self._words()
            return [WrittenCall(name, words.strip(), truncated=not closed)]
        written, whole = yield from read_escaped(tape, self._patterns.ends)
        arguments = escaped_json(written) if whole else None
        closed = yield from self._end()
        if whole and not closed and not (yield from self._may_follow()):
            # More of the call stands before its end: the bracket was no last one.
            words, closed = yield from self._words()
            return [WrittenCall(name, f"{written} {words.rstrip()}", truncated=not closed)]
        return [WrittenCall(name, arguments or written, truncated=not whole and not closed)]

    def _resolved(self, name: str) -> str:
        resolved = resolve_name(name, self._spot.schemas)
        return resolved.name if resolved else ""

    # Values between tags.

    def _tags(self, name: str, watcher: Watcher | None) -> Reading[list[WrittenCall] | None]:
        tape = self._tape
        patterns = self._patterns
        yield from tape.space()
        if (yield from tape.peek()) == "{":
            return (yield from self._object_in_tags(name, watcher))
        start = tape.keep()
        arguments: list[tuple[str, str]] = []
        untyped = True
        while opening := (yield from tape.take(patterns.key)):
            groups = opening.groupdict()
            text, closed = yield from self._value(name, {key for key, _ in arguments} | {groups["key"]})
            arguments.append((groups["key"].strip(), _as_json(text, groups.get("type"))))
            untyped = untyped and groups.get("type") is None
            if not closed:
                return [WrittenCall(name, _object(arguments), truncated=True, untyped=untyped)]
            yield from tape.space()
        if not arguments and self._is_spoken_of(name):
            return None
        over = tape.at
        if (yield from self._end()):
            return [WrittenCall(name, _object(arguments), untyped=untyped)]
        tape.rewind(over)
        if tape.final and (tape.cut_off(patterns.key) or tape.cut_off(patterns.end)):
            tape.at = tape.end
            return [WrittenCall(name, _object(arguments), truncated=True, untyped=untyped)]
        if not arguments and not (yield from self._ends_on_this_line()):
            return None
        # What is no parameter is shown to the model as it was, never left out.
        rest, closed = yield from self._words()
        if rest.strip():
            return [WrittenCall(name, tape.cut(start, over) + rest.rstrip(), truncated=not closed)]
        return [WrittenCall(name, _object(arguments), truncated=True, untyped=untyped)]

    def _object_in_tags(self, name: str, watcher: Watcher | None) -> Reading[list[WrittenCall] | None]:
        tape = self._tape
        if self._is_spoken_of(name) and not (yield from tape.match(_OBJECT_WITH_KEY)):
            return None
        value = yield from read_value(tape, self._patterns.ends, watcher, self._resolved(name))
        closed = yield from self._end()
        if value.whole and not closed and not (yield from self._may_follow()):
            words, closed = yield from self._words()
            return [WrittenCall(name, f"{value.text} {words.rstrip()}", truncated=True)]
        return [WrittenCall(name, value.text, truncated=not value.whole or not closed)]

    def _is_spoken_of(self, name: str) -> bool:
        """Return whether tags with this name, and no arguments, are spoken of: amid words, and the name no tool's."""
        return not (self._in_tokens or self._spot.line_start or is_tool_name(name, self._spot.schemas))

    def _ends_on_this_line(self) -> Reading[bool]:
        """Return whether the call's end stands before the end of the line, or the answer has ended; `at` stays."""
        tape = self._tape
        start = tape.keep()
        found = yield from tape.find(self._patterns.end_or_line)
        at_once = tape.at == start and found is None
        tape.rewind(start)
        return at_once or (found is not None and found["end"] is not None)

    def _value(self, name: str, given: set[str]) -> Reading[tuple[str, bool]]:
        """Return the value that begins here, and whether its end was seen; move behind its closing tag.

        Tags that are opened and closed within it are its own. A closing tag ends the value if another value follows,
        or if the call's end follows and no closing tag comes after that. If one does, both were inside the value.
        """
        tape = self._tape
        patterns = self._patterns
        start = tape.keep()
        depth = 0
        first_end: int | None = None
        last_closer = start
        while mark := (yield from tape.find(patterns.value_mark)):
            place = tape.at
            if mark["cdata"]:
                yield from tape.find(_CDATA_END)
                tape.at = min(tape.at + len("]]>"), tape.end)
                continue
            if mark["open"]:
                if place > start and self._is_next(mark[0], given, name, place):
                    return self._trimmed(tape.cut(start, place), closed=False), True
                depth += 1
                tape.at += len(mark[0])
                continue
            last_closer = place
            more = yield from tape.match(patterns.more)
            over = None if more else (yield from self._over())
            if over or (more and not depth):
                first_end = place if first_end is None else first_end
                if not depth and (more or not (yield from self._closes_again(place + len(over[0]) if over else place))):
                    tape.at = place
                    return (yield from self._close(start, place))
                tape.at = place
            depth = max(0, depth - 1)
            tape.at = place + len(mark[0])
        if first_end == last_closer and tape.may_look_back() and self._is_only_end(start, first_end):
            tape.rewind(first_end)
            return (yield from self._close(start, first_end))
        return self._trimmed(tape.cut(start, tape.at), closed=False), False

    def _is_only_end(self, start: int, place: int) -> bool:
        """Return whether a value that seems to end at `place`, and no other, cannot go on behind the text's end.

        A call in the value would have its own end there, and half a closer at the end of the text may be the value's.
        """
        holds_call = self._patterns.head.search(self._tape.cut(start, place)) is not None
        return not holds_call and not self._ends_in_half_of_a_mark(place + 1)

    def _close(self, start: int, place: int) -> Reading[tuple[str, bool]]:
        text = self._tape.cut(start, place)
        self._tape.at = place
        closer = yield from self._tape.match(self._patterns.value_mark)
        self._tape.at += len(closer["close"]) if closer else 0
        return self._trimmed(text, closed=True), True

    def _over(self) -> "Reading[regex.Match[str] | None]":
        """Return the match of the value's closing tag and the call's end together; None where they do not stand."""
        tape = self._tape
        patterns = self._patterns
        found = yield from tape.match(patterns.over_section if self._in_section else patterns.over)
        if found is None and tape.final:
            found = yield from tape.match(patterns.over_at_end)
        return found

    def _closes_again(self, after: int) -> Reading[bool]:
        """Return whether after the call's end a closing tag comes that nothing there has opened.

        Or the text ends in part of one.
        """
        tape = self._tape
        tape.at = after
        mark = yield from tape.find(self._patterns.value_mark)
        return mark["close"] is not None if mark else self._ends_in_half_of_a_mark(after)

    def _ends_in_half_of_a_mark(self, start: int) -> bool:
        half = self._patterns.value_mark.search(self._tape.cut(start, self._tape.end), partial=True)
        return half is not None and half.end() > half.start()

    def _is_next(self, opening: str, given: set[str], name: str, place: int) -> bool:
        """Return whether the next value begins here, though this one was not closed."""
        found = self._patterns.key.match(opening)
        key = found["key"].strip() if found else ""
        resolved = resolve_name(name, self._spot.schemas)
        properties = self._spot.schemas[resolved.name].get("properties", {}) if resolved else {}
        return key in properties and key not in given and _at_line_start(self._tape.before(place, 80))

    def _trimmed(self, text: str, *, closed: bool) -> str:
        """Return a value without the line end behind its opening tag and the one before its closing tag.

        Only where both are there: a line end that has no pair is the value's own.
        """
        if self._row.exact:
            return text
        if self._row.cdata and (cdata := _CDATA.fullmatch(text)):
            return str(cdata[1])
        begins = _LINE_BEGIN.match(text)
        ends = _LAST_LINE.search(text)
        if begins and ends and begins.end() <= ends.start():
            return text[begins.end() : ends.start()]
        if not closed:
            return text.strip("\r\n") if begins or ends else text
        # An empty value on two lines shares its only line end.
        return "" if begins and begins.end() == len(text) else text


_ANYBODYS = regex.compile(r"<\w+\s*>")
_OPENER_ENDS = regex.compile(r"\s{0,9}>")
_ENDS_OF_PROSE = (".", ",", ";", "!", "?", ")")
_LAST_WORD = regex.compile(r"[\w.-]*\Z")
_CDATA_END = regex.compile(r"\]\]>")
_CDATA = regex.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", regex.DOTALL)
_LINE_BEGIN = regex.compile(r"\r?\n")
_LAST_LINE = regex.compile(r"\r?\n\Z")
_OBJECT_WITH_KEY = regex.compile(r"\{\s{0,99}+[\"']")
_EMPTY_LIST = regex.compile(r"\[\s{0,99}+\]")
_CALLED = regex.compile(
    r"(?:\[\s{0,99}+)?(?:[A-Za-z_]\w{0,99}+ {0,9}+= {0,9}+)?(?:print\()?(?P<name>[A-Za-z_][\w.]{0,127}+) ?\("
)


def _object(arguments: list[tuple[str, str]]) -> str:
    """Return the arguments as the text of a JSON object; a name that is there twice stays so."""
    return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in arguments) + "}"


def _as_json(text: str, kind: str | None) -> str:
    """Return a value as JSON: as it stands where its tag says that it is no string, and it is JSON."""
    is_json = kind is not None and kind.lower() not in ("true", "string") and _is_json(text)
    return text if is_json else json.dumps(text, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _at_line_start(before: str) -> bool:
    line = before[before.rfind("\n") + 1 :]
    return not line.strip() and "\n" in before
