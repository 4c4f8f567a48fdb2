"""A row of the table of syntaxes, and the reader for all rows.

A block consists of calls, perhaps in a section. A call consists of a head, a body and an end. The body is JSON, values
between tags, Python, or Gemma's notation. Blocks are read forward along this structure. A marker inside a value belongs
to the value, because a value ends only if more of the structure follows.
"""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import regex

from callboard_formats.broken import read_broken_name
from callboard_formats.json_text import is_json, read_arguments_object, read_calls, read_value
from callboard_formats.names import is_tool_name, resolve_name
from callboard_formats.python import notation_to_json, parse_calls, parse_incomplete_calls, read_notation, read_source
from callboard_formats.schemas import properties_of
from callboard_formats.syntax import END_OF_TURN, BlockContext, BlockItems, Syntax, Tags, Watcher, WrittenCall
from callboard_formats.tag_value import TagPatterns, TagReader
from callboard_formats.text_buffer import Reading, TextBuffer

Body = Literal["json", "tags", "python", "escaped"]

NAME = r"(?P<name>[^\s<>\"'`{}()\[\]=]{1,128})"
THINK = Tags("<think>", "</think>")

_LONGEST_END_CHARS = 200
_LINE_CHARS = 1000
"""The number of characters of a line that are searched for the end of a call.

Without a limit, many calls in one line would take quadratic time.
"""

MAX_SECTIONS = 3
"""The number of consecutive section openers that are read, because some models write the opener twice."""

_NEVER = "(?!)"
_GROUP = regex.compile(r"\(\?P<\w+>")
_FENCE_END = regex.compile(r"\s{0,99}+```")
_TAG_NAME = regex.compile(r"(?:\[[^\]]*\](?:\{[^}]*\})?|\\[^\w]|[^\s\\()\[\]{}>])*")
"""Matches the beginning of a pattern that stands for a tag's name: letters, marks, and sets of marks."""


def compile_pattern(text: str) -> "regex.Pattern[str]":
    r"""Compile a pattern of the table. A blank matches any white space, also none; `\x20` matches one blank."""
    return regex.compile(text.replace(" ", r"\s{0,99}+") or "(?!)", regex.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Row(Syntax):
    """One syntax as data. `Syntax` documents the fields that all syntaxes have.

    `head`, `end`, `section`, `section_end`, `key`, `value_end` and `tail` are patterns (see `compile_pattern`).
    """

    name: str
    title: str
    """The models that write it, for documentation."""
    source: tuple[str, ...]
    """The URLs of its specification."""
    body: Body
    """The notation of a call's arguments."""
    openers: tuple[str, ...]
    head: str
    """The text before each call, with the tool's name as the group `name` unless the JSON contains it.

    A group `closed` means that the head is the whole call, which has no arguments.
    """
    end: str
    """The text behind each call."""
    models: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    section: str = ""
    """The text before all calls; "" if there is none."""
    section_end: str = ""
    key: str = ""
    """The tag that opens a value, with the group `key`. With a group `type` other than `string`, the value is JSON."""
    value_end: str = ""
    """The tag that closes a value."""
    tail: str = ""
    """Optional text behind the end of a call."""
    exact: bool = False
    """Line ends around a value between tags belong to the value, because the template writes none there."""
    keyed: bool = False
    """A call is an object with one member, `{name: arguments}`."""
    cdata: bool = False
    """A value between tags may be inside `<![CDATA[`."""
    entities: bool = False
    """Names contain HTML entities, `&amp;` for `&`."""
    words: bool = False
    """Arguments that are not JSON are the value of the tool's only string argument."""
    name_alone: bool = False
    """A name that is alone in its line is a call without arguments."""
    reasoning: tuple[Tags, ...] = (THINK,)
    prompt_opens: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    refuses = True

    def read(self, buffer: TextBuffer, context: BlockContext) -> "Reading[BlockItems | None]":
        """Read the block at `buffer.position` (see `Syntax`)."""
        return _Block(self, buffer, context).read()

    def refuse(self, buffer: TextBuffer, context: BlockContext) -> "Reading[Sequence[WrittenCall] | None]":
        """Read the block at `buffer.position` as broken calls (see `Syntax`)."""
        return _Block(self, buffer, context).refuse()

    def is_closed(self, block: str) -> bool:
        """Return whether a block of calls ends with the end marker of this syntax."""
        return self.has_end and self.patterns.closed.search(block[-_LONGEST_END_CHARS:]) is not None

    @property
    def has_end(self) -> bool:
        """Whether calls in this syntax have an end marker."""
        return bool(self.closer)

    @property
    def closer(self) -> str:
        """The pattern of the text that may end a block; "" if there is none."""
        return "|".join(filter(None, (self.end, self.tail, self.section_end)))

    @property
    def _tag_of_key(self) -> str:
        """The pattern of the tag that opens a value, up to the end of the tag's name."""
        tag = self.key.partition("(?P<key>")[0].rpartition("<")[2]
        return "<" + _TAG_NAME.match(tag)[0] if tag else ""

    @cached_property
    def patterns(self) -> "Patterns":
        """The patterns of blocks and calls, compiled on first use."""
        return Patterns(self)

    @cached_property
    def tags(self) -> TagPatterns:
        """The patterns of values between tags, for calls outside of a section."""
        over = f"{self.value_end} (?:{self.end})"
        # The end of the call alone may belong to a value that was cut off, so the turn's end or the tail must follow.
        unclosed = rf"(?:{self.end}) (?:(?:{self.tail or _NEVER}) (?:{self._end_of_turn}|\Z)|{self._end_of_turn})"
        return self._compile_tag_patterns(over, over, unclosed, f"{_remove_group_names(self.head)}|{self._any_stop}")

    @cached_property
    def tags_in_section(self) -> TagPatterns:
        """The patterns of values between tags, for calls in a section."""
        tail = self._optional_tail
        next_call = f"{_remove_group_names(self.head)}|{self.section_end}|{self._any_stop}"
        # Some models omit the end of the call, and some write it twice.
        forgotten = f"{self.section_end} (?:{self.section}|{self._end_of_turn})"
        inside = f"(?:(?:{self.end}) ){{1,2}}{tail}(?:{next_call})|{forgotten}"
        over_at_end = rf"{self.value_end} (?:{inside}|(?:{self.end}) {tail}\Z|{self.section_end} \Z)"
        unclosed = rf"(?:{self.end}) {tail}{self.section_end} (?:{self._end_of_turn}|\Z)"
        return self._compile_tag_patterns(
            f"{self.value_end} (?:{inside})", over_at_end, unclosed, f"{tail}(?:{next_call})"
        )

    def _compile_tag_patterns(self, over: str, over_at_end: str, unclosed: str, goes_on: str) -> TagPatterns:
        key = _remove_group_names(self.key)
        cdata = re.escape("<![CDATA[") if self.cdata else _NEVER
        return TagPatterns(
            key=compile_pattern(self.key or _NEVER),
            mark=compile_pattern(f"(?P<close>{self.value_end or _NEVER})|(?P<open>{key or _NEVER})|(?P<cdata>{cdata})"),
            more=compile_pattern(f"{self.value_end} {key}"),
            over=compile_pattern(over),
            over_at_end=compile_pattern(over_at_end),
            over_alone=compile_pattern(f"{self.value_end} (?:{self.end})"),
            closer=compile_pattern(self.value_end or _NEVER),
            goes_on=compile_pattern(f" (?:{goes_on})"),
            unclosed=compile_pattern(unclosed),
            ends=self.patterns.ends_or_head,
            call=compile_pattern(rf"(?:{_remove_group_names(self.head)}) (?:{key}|{self.end or _NEVER}|\{{)"),
            behind_stray=compile_pattern(rf" (?:{self._tag_of_key or _NEVER}|\Z)"),
        )

    @property
    def _any_stop(self) -> str:
        return _match_any(self.stops) or _NEVER

    @property
    def _end_of_turn(self) -> str:
        return f"(?:{self._any_stop}|{END_OF_TURN.pattern})"

    @property
    def _optional_tail(self) -> str:
        return f"(?:{self.tail} )?" if self.tail else ""


def _remove_group_names(text: str) -> str:
    """Return a pattern without group names, so that it can occur several times in another pattern."""
    return str(_GROUP.sub("(?:", text))


def _match_any(literals: Sequence[str]) -> str:
    return "|".join(map(regex.escape, sorted(literals, key=len, reverse=True)))


class Patterns:
    """The compiled patterns of a row's blocks and calls.

    Attributes:
        opener: Any of the openers.
        doubled: A redundant opener before a head, which contains an opener itself.
        ends: Any text that may follow the body of a call.
        ends_or_head: Any text that may follow the body of a call, or the head of the next call.
        ends_line: The rest of a line up to the end of a call.
        closed: The end marker of a block at the end of a text.
    """

    def __init__(self, row: Row) -> None:
        opener = _match_any(row.openers)
        ends = "|".join(filter(None, (row.end, row.section_end, *map(regex.escape, row.stops))))
        self.section = compile_pattern(row.section)
        self.section_end = compile_pattern(row.section_end)
        self.head = compile_pattern(row.head)
        self.end = compile_pattern(row.end)
        self.tail = compile_pattern(row.tail)
        self.opener = compile_pattern(opener)
        self.doubled = compile_pattern(f"(?:{opener}) (?={row.head})")
        self.ends = compile_pattern(ends)
        self.ends_or_head = compile_pattern(f"{ends or _NEVER}|{_remove_group_names(row.head)}")
        self.ends_line = compile_pattern(rf"(?:(?!{row.end})[^\n]){{0,{_LINE_CHARS}}}+(?:{row.end})")
        self.closed = compile_pattern(f"(?:{row.closer}) \\Z")


_FENCE_BEGIN = regex.compile(r"```\w{0,12}[ \t]{0,9}+\r?\n")


class _Block:
    """Reads one block."""

    def __init__(self, row: Row, buffer: TextBuffer, context: BlockContext) -> None:
        self._row = row
        self._patterns = row.patterns
        self._buffer = buffer
        self._context = context
        self._watcher = context.watcher
        self._in_section = False
        self._in_tokens = False
        """The section was opened by a special token, and not by an XML-like tag, which also occurs in text."""
        self._calls_nothing = False
        """An empty list of calls was read."""

    def read(self) -> Reading[BlockItems | None]:
        buffer = self._buffer
        patterns = self._patterns
        yield from self._open_section()
        calls: list[WrittenCall] = []
        begun = self._in_section
        while not self._calls_nothing:
            if begun:
                yield from buffer.space()
            # Some models write the opener of a call twice.
            yield from buffer.take(patterns.doubled)
            found = yield from self._read_call(first=not calls)
            if found is None and self._in_section and calls and not (yield from self._ends_here()):
                found = yield from self._read_refused()
            if found is None:
                break
            begun = True
            calls += found
            if self._row.tail:
                yield from buffer.space()
                yield from buffer.take(patterns.tail)
            if found and found[-1].truncated and buffer.final and buffer.is_at_end():
                return calls
        if not begun:
            return None
        yield from buffer.space()
        closed = (yield from buffer.take(patterns.section_end)) is not None
        if calls or closed or self._calls_nothing or (buffer.final and buffer.is_at_end()):
            return calls
        return None

    def _open_section(self) -> Reading[None]:
        """Move behind the opener of a section, if it is here."""
        for _ in range(MAX_SECTIONS if self._row.section else 0):
            section = yield from self._buffer.take(self._patterns.section)
            if section is None:
                return
            self._in_section = True
            self._in_tokens = not _XML_LIKE_TAG.fullmatch(section[0])
            yield from self._buffer.space()

    def _ends_here(self) -> Reading[bool]:
        """Return whether a call, a section or a turn ends here. At the answer's end, half of a marker is enough."""
        buffer = self._buffer
        ends = self._patterns.ends
        return (yield from buffer.match(ends)) is not None or (buffer.final and buffer.cut_off(ends) is not None)

    def refuse(self) -> Reading[Sequence[WrittenCall] | None]:
        """Read a block whose first call is malformed."""
        buffer = self._buffer
        start = buffer.position
        section = (yield from buffer.take(self._patterns.section)) if self._row.section else None
        # `<tool_call>` also occurs in text. So the rules behind it are as strict as outside of a section.
        self._in_section = section is not None and not _XML_LIKE_TAG.fullmatch(section[0])
        yield from buffer.space()
        again = section is not None and (yield from buffer.match(self._patterns.section))
        refused = None if again else (yield from self._read_refused())
        if refused is None:
            buffer.rewind(start)
            return None
        if section is None:
            return refused
        self._in_section = True
        self._watcher = None
        rest = yield from self.read()
        return [*refused, *(one for one in rest or () if isinstance(one, WrittenCall))]

    def _read_refused(self) -> Reading[list[WrittenCall] | None]:
        """Read a malformed call that names a tool, up to its end. Return None if it is not a call.

        It ends with the first end marker that is the last text in its line, or that more of the structure follows.
        """
        buffer = self._buffer
        patterns = self._patterns
        start = buffer.position
        yield from buffer.take(patterns.opener)
        yield from buffer.take(_OPENER_ENDS)
        yield from buffer.space()
        # If another opener follows, a correct call may begin there.
        again = yield from buffer.match(patterns.opener)
        name = (
            None if again else (yield from read_broken_name(buffer, self._context.schemas, in_section=self._in_section))
        )
        if name is None:
            buffer.rewind(start)
            return None
        begin = buffer.keep()
        while found := (yield from buffer.find(patterns.ends_or_head)):
            end = yield from buffer.match(patterns.end)
            if not end or not self._row.end:
                break
            over = buffer.position
            buffer.position += len(found[0])
            if (yield from self._is_followed()):
                return [WrittenCall(name, buffer.cut(begin, over).strip(), broken=True)]
        return [WrittenCall(name, buffer.cut(begin, buffer.position).strip(), broken=True)]

    def _is_followed(self) -> Reading[bool]:
        """Return whether the line ends here or more of the structure follows."""
        buffer = self._buffer
        patterns = self._patterns
        while (following := (yield from buffer.peek())) in (" ", "\t"):
            buffer.position += 1
        if following in ("", "\r", "\n"):
            return True
        return bool((yield from buffer.match(patterns.ends_or_head)) or (yield from buffer.match(patterns.opener)))

    def _read_call(self, *, first: bool) -> Reading[list[WrittenCall] | None]:
        """Read one call; return None if none begins here."""
        buffer = self._buffer
        start = buffer.position
        head = yield from buffer.take(self._patterns.head)
        if head is None:
            return self._read_cut_off_head()
        name = self._unescape(head.groupdict().get("name") or "")
        watcher = self._watcher if first else None
        match self._row.body:
            case "tags":
                is_closed = head.groupdict().get("closed") is not None
                calls = yield from (self._read_closed_head(name) if is_closed else self._read_tags_body(name, watcher))
            case "json":
                calls = yield from self._read_json_body(name, watcher, head[0])
            case "python":
                calls = yield from self._read_python_body()
            case "escaped":
                calls = yield from self._read_escaped_body(name)
        if calls is None:
            buffer.rewind(start)
        return calls

    def _read_cut_off_head(self) -> list[WrittenCall] | None:
        """Return the call if the answer ends inside its head."""
        buffer = self._buffer
        if not buffer.final or buffer.is_at_end():
            return None
        cut = buffer.cut_off(self._patterns.head)
        if cut is None:
            return None
        opener = next((one for one in self._row.openers if cut[0].lower().startswith(one.lower())), "")
        # A partial match has no text for the group in which it ends.
        is_tag = any(one.lower().startswith(cut[0].lower()) for one in self._row.openers)
        name = cut.groupdict().get("name") or ("" if is_tag else _LAST_WORD.search(cut[0])[0])
        is_begun = any(is_tool_name(name, [one]) or one.startswith(name) for one in self._context.schemas)
        is_marked = self._in_section or opener.endswith((">", "]"))
        if not is_marked and not (self._context.line_start and name and is_begun):
            return None
        if cut[0].rstrip().endswith(_ENDS_OF_PROSE) or (name and not is_begun and _XML_LIKE_TAG.match(cut[0])):
            return None
        buffer.position = buffer.end
        return [WrittenCall(name, "", truncated=True)] if name else []

    def _read_json_body(self, name: str, watcher: Watcher | None, head: str) -> Reading[list[WrittenCall] | None]:
        buffer = self._buffer
        patterns = self._patterns
        yield from buffer.space()
        fenced = (yield from buffer.take(_FENCE_BEGIN)) is not None
        yield from buffer.space()
        following = yield from buffer.peek()
        if not name:
            if following == "":
                return []
            if following not in "{[":
                return None
            if (yield from buffer.take(_EMPTY_LIST)):
                return (yield from self._skip_empty_list(fenced=fenced))
            start = buffer.keep()
            calls = list((yield from read_calls(buffer, patterns.ends, watcher, keyed=self._row.keyed)))
            if not calls:
                _, closed = yield from self._read_to_end()
                written = buffer.cut(start, buffer.position).strip()
                calls = [WrittenCall("", written, truncated=not closed)]
            yield from self._take_end(fenced=fenced)
            return calls
        if following == "{":
            reading = read_value if self._row.end else read_arguments_object
            value = yield from reading(buffer, patterns.ends, watcher, self._resolve(name))
            return (yield from self._end_named(name, value.text, whole=value.whole, fenced=fenced))
        if self._row.name_alone and not head.lower().rstrip().endswith("]"):
            # At the end of an answer that was cut off, the name may be incomplete, or arguments may have followed.
            is_alone = "\n" in head and not (buffer.is_cut and following == "")
            return [WrittenCall(name, "", truncated=not is_alone)] if following == "" or is_alone else None
        if self._row.words:
            return [(yield from self._read_bare_words(name))]
        words, closed = yield from self._read_to_end()
        return [WrittenCall(name, words.strip(), truncated=not closed)]

    def _read_bare_words(self, name: str) -> Reading[WrittenCall]:
        """Read bare text up to the end marker before the next call or the end of the turn.

        An end marker before other text makes the call broken, because it may be a part of the text: `echo "</tool>"`.
        """
        buffer = self._buffer
        patterns = self._patterns
        start = buffer.keep()
        first: int | None = None
        while (yield from buffer.find(patterns.ends_or_head)):
            over = buffer.position
            if not (yield from buffer.take(patterns.end)):
                if first is not None:
                    break
                buffer.position += 1
                continue
            words = buffer.cut(start, over).strip()
            end = buffer.position
            yield from buffer.space()
            is_over = (yield from buffer.match(patterns.head)) or (yield from buffer.match(END_OF_TURN))
            if not words or is_over or (yield from buffer.ends_here()):
                buffer.rewind(end)
                return WrittenCall(name, words, words=True, broken=first is not None)
            first = first or end
        if first is not None:
            buffer.rewind(first)
        return WrittenCall(name, buffer.cut(start, buffer.position).strip(), truncated=True, broken=first is not None)

    def _skip_empty_list(self, *, fenced: bool = False) -> Reading[list[WrittenCall] | None]:
        """Move behind an empty list of calls and the end of the turn. With the list, the model calls no tool.

        Return [], or None if the list is only mentioned in a sentence.
        """
        buffer = self._buffer
        yield from self._take_end(fenced=fenced)
        is_over = False
        while (yield from buffer.take(END_OF_TURN)):
            is_over = True
        self._calls_nothing = self._context.line_start or is_over or (yield from self._is_followed())
        return [] if self._calls_nothing else None

    def _end_named(self, name: str, written: str, *, whole: bool, fenced: bool) -> Reading[list[WrittenCall]]:
        """Move behind the end of a call whose object was read, and return the call.

        Text between the object and the end is added to the arguments, so that they are unreadable.
        """
        buffer = self._buffer
        start = buffer.keep()
        closed = yield from self._take_end(fenced=fenced)
        if not closed and not (yield from self._may_end()):
            _, closed = yield from self._read_to_end()
            return [WrittenCall(name, written.rstrip() + buffer.cut(start, buffer.position), truncated=not closed)]
        return [WrittenCall(name, written.rstrip(), truncated=not whole and not closed)]

    def _may_end(self) -> Reading[bool]:
        """Return whether the call may end here without an end marker."""
        buffer = self._buffer
        patterns = self._patterns
        if not self._row.end:
            return True
        yield from buffer.space()
        if not (yield from buffer.peek()):
            return True
        if buffer.final and any(buffer.cut_off(one) for one in (patterns.end, patterns.ends)):
            buffer.position = buffer.end
            return True
        return (yield from buffer.match(patterns.ends_or_head)) is not None

    def _take_end(self, *, fenced: bool = False) -> Reading[bool]:
        """Move behind the end marker of a call, if it is here. Return whether it is."""
        if not self._row.end:
            return False
        buffer = self._buffer
        yield from buffer.space()
        if fenced:
            yield from buffer.take(_FENCE_END)
            yield from buffer.space()
        found = yield from buffer.take(self._patterns.end)
        if found and self._in_section:
            # Some models write the end marker twice.
            yield from buffer.space()
            yield from buffer.take(self._patterns.end)
        return found is not None

    def _read_to_end(self) -> Reading[tuple[str, bool]]:
        """Move behind the end of the call. Return the text before it, and whether there is an end."""
        buffer = self._buffer
        start = buffer.keep()
        found = yield from buffer.find(self._patterns.ends)
        words = buffer.cut(start, buffer.position)
        yield from buffer.take(self._patterns.end)
        return words, found is not None

    def _read_python_body(self) -> Reading[list[WrittenCall] | None]:
        """Read calls as Python; return None for a program that does not begin with a call."""
        buffer = self._buffer
        patterns = self._patterns
        yield from buffer.space()
        yield from buffer.take(_FENCE_BEGIN)
        yield from buffer.space()
        if not (yield from buffer.peek()):
            return []
        if (yield from buffer.take(_EMPTY_LIST)):
            return (yield from self._skip_empty_list())
        named = yield from buffer.match(_CALLED)
        if named is None:
            return None
        source, closed = yield from read_source(buffer, patterns.ends)
        yield from buffer.take(patterns.end)
        source = source.strip().removesuffix("```").rstrip()
        # Match again, because the first match may have seen only a part of the name.
        named = _CALLED.match(source) or named
        calls = parse_calls(source)
        if calls is None and not closed:
            calls = parse_incomplete_calls(source)
        return list(calls or [WrittenCall(named["name"], "{" + source[len(named[0]) :], truncated=not closed)])

    def _read_escaped_body(self, name: str) -> Reading[list[WrittenCall] | None]:
        buffer = self._buffer
        opener = yield from buffer.peek()
        written, whole = yield from read_notation(buffer, self._patterns.ends)
        arguments = notation_to_json(written) if whole else None
        closed = yield from self._take_end()
        if not whole and closed and _SURELY_A_VALUE.search(written) and (yield from self._is_over()):
            arguments = notation_to_json(written + ("}" if opener == "{" else ")"))
        if whole and not closed and not (yield from self._may_end()):
            # There is more text before the end of the call, so the bracket did not end the arguments.
            words, closed = yield from self._read_to_end()
            return [WrittenCall(name, f"{written} {words.rstrip()}", truncated=not closed)]
        return [WrittenCall(name, arguments or written, truncated=not whole and not closed)]

    def _is_over(self) -> Reading[bool]:
        """Return whether the next call or the end of the turn follows here."""
        return (yield from self._may_end()) or (yield from self._buffer.match(END_OF_TURN)) is not None

    def _resolve(self, name: str) -> str:
        resolved = resolve_name(name, self._context.schemas)
        return resolved.name if resolved else ""

    # Values between tags.

    def _read_closed_head(self, name: str) -> Reading[list[WrittenCall] | None]:
        """Return the call that is only a head. Arguments behind it make it broken, because they may belong to it."""
        if self._is_only_mentioned(name):
            return None
        end = self._buffer.keep()
        yield from self._buffer.space()
        has_arguments = yield from self._buffer.match(self._row.tags.key)
        self._buffer.rewind(end)
        return [WrittenCall(name, "", broken=has_arguments is not None)]

    def _read_tags_body(self, name: str, watcher: Watcher | None) -> Reading[list[WrittenCall] | None]:
        buffer = self._buffer
        yield from buffer.space()
        if (yield from buffer.peek()) == "{":
            return (yield from self._read_object_in_tags(name, watcher))
        row = self._row
        patterns = row.tags_in_section if self._in_section else row.tags
        reader = TagReader(buffer, patterns, self._list_parameters(name), exact=row.exact, cdata=row.cdata)
        start = buffer.keep()
        arguments: list[tuple[str, str]] = []
        untyped = True
        broken = False
        while tag := (yield from reader.take_opening()):
            value = yield from reader.read(tag)
            arguments.append((self._unescape(tag.key.strip()), _convert_to_json(value.text, tag.kind)))
            untyped = untyped and tag.kind is None
            broken = broken or value.garbled
            if not value.closed:
                return [WrittenCall(name, _make_object(arguments), truncated=True, untyped=untyped)]
            yield from buffer.space()
        if not arguments and self._is_only_mentioned(name):
            return None
        over = buffer.position
        if (yield from self._take_end()):
            return [WrittenCall(name, _make_object(arguments), untyped=untyped, broken=broken)]
        buffer.rewind(over)
        if arguments and self._in_section and (yield from buffer.match(self._patterns.section_end)):
            return [WrittenCall(name, _make_object(arguments), untyped=untyped, broken=broken)]
        if buffer.final and (buffer.cut_off(patterns.key) or buffer.cut_off(self._patterns.end)):
            buffer.position = buffer.end
            return [WrittenCall(name, _make_object(arguments), truncated=True, untyped=untyped)]
        if not arguments and not (yield from self._ends_on_this_line()):
            return None
        # Text that is not a parameter is added to the arguments, so that the error shows it to the model.
        rest, closed = yield from self._read_to_end()
        if rest.strip():
            return [WrittenCall(name, buffer.cut(start, over) + rest.rstrip(), truncated=not closed)]
        return [WrittenCall(name, _make_object(arguments), truncated=True, untyped=untyped)]

    def _read_object_in_tags(self, name: str, watcher: Watcher | None) -> Reading[list[WrittenCall] | None]:
        buffer = self._buffer
        if self._is_only_mentioned(name) and not (yield from buffer.match(_OBJECT_WITH_KEY)):
            return None
        value = yield from read_value(buffer, self._patterns.ends, watcher, self._resolve(name))
        closed = yield from self._take_end()
        if value.whole and not closed and not (yield from self._may_end()):
            words, closed = yield from self._read_to_end()
            return [WrittenCall(name, f"{value.text} {words.rstrip()}", truncated=True)]
        return [WrittenCall(name, value.text, truncated=not value.whole or not closed)]

    def _is_only_mentioned(self, name: str) -> bool:
        """Return whether tags without arguments are only mentioned: in a sentence, and without the name of a tool."""
        return not (self._in_tokens or self._context.line_start or is_tool_name(name, self._context.schemas))

    def _ends_on_this_line(self) -> Reading[bool]:
        """Return whether the call ends in this line, or the answer ends here."""
        buffer = self._buffer
        return not (yield from buffer.peek()) or (yield from buffer.match(self._patterns.ends_line)) is not None

    def _list_parameters(self, name: str) -> set[str]:
        """Return the names of a tool's parameters as models write them, perhaps with HTML entities."""
        resolved = resolve_name(name, self._context.schemas)
        names = set(properties_of(self._context.schemas[resolved.name])) if resolved else set()
        return {html.escape(one) for one in names} if self._row.entities else names

    def _unescape(self, name: str) -> str:
        return html.unescape(name) if self._row.entities else name


_XML_LIKE_TAG = regex.compile(r"<\w+\s*>")
_OPENER_ENDS = regex.compile(r"\s{0,9}>")
_ENDS_OF_PROSE = (".", ",", ";", "!", "?", ")")
_SURELY_A_VALUE = regex.compile(
    r"(?:<\|\"\|>|<escape>|[\"'\]}]|[:=,] ?(?:-?[\d.]+|true|false|null))\s*\Z", regex.IGNORECASE
)
"""The end of a text that is certainly the end of a value: a closed string, a bracket, a number, or a constant."""
_LAST_WORD = regex.compile(r"[\w.-]*\Z")
_OBJECT_WITH_KEY = regex.compile(r"\{\s{0,99}+[\"']")
_EMPTY_LIST = regex.compile(r"\[\s{0,99}+\]")
_CALLED = regex.compile(
    r"(?:\[\s{0,99}+)?(?:[A-Za-z_]\w{0,99}+ {0,9}+= {0,9}+)?(?:print\()?(?P<name>[A-Za-z_][\w.]{0,127}+) ?\("
)


def _make_object(arguments: list[tuple[str, str]]) -> str:
    """Return the arguments as the text of a JSON object. A repeated name is kept, so that the call is refused."""
    return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in arguments) + "}"


def _convert_to_json(text: str, kind: str | None) -> str:
    """Return a value as JSON. It is unchanged if its tag declares another type than a string and it is valid JSON."""
    declares_json = kind is not None and kind.lower() not in ("true", "string")
    return text if declares_json and is_json(text) else json.dumps(text, ensure_ascii=False)
