"""Which syntaxes there are, by name, and which of them a model writes."""

from collections.abc import Mapping, Sequence
from functools import cache

import regex

from callboard_formats.at_end import AtEnd
from callboard_formats.functionary import Functionary
from callboard_formats.harmony import Harmony
from callboard_formats.minimax import MiniMaxM3
from callboard_formats.quotation import introduces_example
from callboard_formats.react import React
from callboard_formats.row import THINK
from callboard_formats.syntax import END_OF_TURN, NO_WATCHER, BlockContext, BlockItems, Syntax, Watcher, WrittenCall
from callboard_formats.table import ROWS
from callboard_formats.text_buffer import LOOK_BACK_CHARS, Reading, TextBuffer
from callboard_formats.unmarked import PythonTag, Unmarked, UnmarkedNotation
from callboard_formats.wrapped import WrappedJson

REACT = React()
LEAKED_REACT = React(leaked=True, last=False)
LAST_REACT = React(leaked=True)
UNMARKED = Unmarked()
LAST_UNMARKED = Unmarked(last=True)
FUNCTIONARY = Functionary()
LEAKED_FUNCTIONARY = Functionary(leaked=True)

SYNTAXES: tuple[Syntax, ...] = (
    *ROWS, MiniMaxM3(), PythonTag(), Harmony(), LEAKED_FUNCTIONARY, UNMARKED, UnmarkedNotation(),
    WrappedJson("hermes"), WrappedJson("xml"), WrappedJson("gigachat3"), LEAKED_REACT,
)  # fmt: skip
"""Every syntax, in the order in which they are asked about a place that several claim."""

_LAST: Mapping[Syntax, Syntax] = {UNMARKED: LAST_UNMARKED, LEAKED_REACT: LAST_REACT}
_IN_ANSWERS = tuple(_LAST.get(one, one) for one in SYNTAXES)
"""Every syntax for `StreamParser`; whoever looks himself at what follows a call takes `SYNTAXES`."""

_ASKED_FOR: Mapping[Syntax, Syntax] = {LAST_REACT: REACT, LEAKED_FUNCTIONARY: FUNCTIONARY}
"""Syntaxes that accept more where they were asked for than where they leak."""


class Thoughts(Syntax):
    """A syntax without calls: the tags that models think between whatever they were asked to write."""

    name = "thoughts"
    openers = ()
    reasoning = (THINK,)

    def read(
        self,
        buffer: TextBuffer,  # noqa: ARG002 - the contract's
        context: BlockContext,  # noqa: ARG002 - the contract's
        watcher: Watcher,  # noqa: ARG002 - the contract's
    ) -> Reading[BlockItems | None]:
        """Read nothing: no block begins so."""
        yield from ()
        return None


class FencedJson(Syntax):
    """A fence of JSON that calls tools, at the answer's end: what is unmarked may stand in one."""

    name = UNMARKED.name
    openers = ("```",)

    def read(self, buffer: TextBuffer, context: BlockContext, watcher: Watcher) -> Reading[BlockItems | None]:
        """Read the fence as ReAct does."""
        if not (yield from buffer.match(_JSON_FENCE)):
            return None
        return (yield from LAST_REACT.read(buffer, context, watcher))


class XmlFence(Syntax):
    """A fence around calls that were asked for, at the answer's end: what goes on behind it speaks of an example."""

    name = "xml"
    openers = ("```",)

    def read(
        self,
        buffer: TextBuffer,
        context: BlockContext,
        watcher: Watcher,  # noqa: ARG002 - until the answer's end nobody knows whether they are calls
    ) -> Reading[BlockItems | None]:
        """Read the fence, if it holds nothing but calls and nothing follows but such fences or an imagined result."""
        if not context.line_start or introduces_example(buffer.before(buffer.position, LOOK_BACK_CHARS)):
            return None
        if not (yield from buffer.match(_FENCE)) or not buffer.may_look_back("xml", MAX_XML_FENCES):
            return None
        calls: list[WrittenCall | str] = []
        while (yield from buffer.take(_FENCE)):
            while found := (yield from self._calls(buffer, context)):
                calls += found
                yield from buffer.space()
            if not (yield from buffer.take(_FENCE_END)) and not (
                buffer.final and (yield from buffer.take(_LAST_FENCE_END))
            ):
                return None
            yield from buffer.space()
        while (yield from buffer.take(END_OF_TURN)):
            yield from buffer.space()
        is_last = (yield from buffer.ends_here()) or (yield from buffer.match(_RESULT))
        return calls if is_last else None

    def _calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[list[WrittenCall | str]]:
        """Read the calls here; none where there are none."""
        start = buffer.keep()
        for row in _XML_ROWS:
            if (yield from buffer.match(row.patterns.opener)) and (
                calls := (yield from row.read(buffer, context, NO_WATCHER))
            ):
                return list(calls)
            buffer.rewind(start)
        for row in _XML_ROWS:
            if (yield from buffer.match(row.patterns.opener)) and (refused := (yield from row.refuse(buffer, context))):
                return list(refused)
            buffer.rewind(start)
        return []


MAX_XML_FENCES = 8
"""So many are read to the answer's end, from which the reader may have to go back."""
_XML_ROWS = tuple(row for row in ROWS if row.name == XmlFence.name)
_RESULT = regex.compile("|".join(regex.escape(stop) for row in _XML_ROWS for stop in row.stops), regex.IGNORECASE)
_FENCE = regex.compile(
    r"```(?:xml|html|tool_call|text|json)?[ \t]{0,9}+\r?\n\s{0,99}+"
    r"(?=<(?:tool|function)_call|<function[\s=]|<invoke\s)",
    regex.IGNORECASE,
)
_FENCE_END = regex.compile(r"```[ \t\r]{0,9}+(?=[\n<\[])")
_LAST_FENCE_END = regex.compile(r"(?:```)?[ \t\r]{0,9}+\Z")
_JSON_FENCE = regex.compile(
    r"```[ \t]{0,4}(?:json5?|tool_calls?)?[ \t]{0,4}\r?\n(?=\s{0,99}[\[{])",
    regex.IGNORECASE,
)
_THOUGHTS = Thoughts()
_FENCED_JSON = FencedJson()

FELLOWS = {
    "deepseek": ("deepseek_v3_2",),
    "deepseek_v3_2": ("deepseek", "deepseek_v4", "xml"),
    "deepseek_v4": ("deepseek_v3_2", "xml"),
    "glm": ("hermes", "qwen3_coder", "xml"),
    "granite": ("hermes", "xml"),
    "hermes": ("qwen3_coder",),
    "llama3": ("qwen3_coder", "nemotron_nano"),
    "llama4": ("llama3",),
    "minicpm": ("lfm2",),
    "phi4_mini": ("granite",),
    "qwen3_coder": ("hermes", "xml"),
}
"""The other syntaxes that models of a family write, by the family's own: those of its older or smaller members.

A family is read in its own syntax first, then in these, and in no other: what one of its models says of
another's syntax is prose.
"""

UNMARKED_TOO = frozenset({
    "command", "gemma", "granite", "hermes", "internlm2", "lfm2", "llama3", "llama4", "mistral", "phi4_mini",
})  # fmt: skip
"""The families whose calls may stand there unmarked: their models leave the marks out, or a server does.

Marks that are special tokens go where a server is told to leave those out. Such a call is of no other syntax: it is
data alone on its lines, which names a tool that there is.
"""


@cache
def names() -> tuple[str, ...]:
    """Return the names of the syntaxes."""
    return tuple(dict.fromkeys(("react", "xml", *(one.name for one in SYNTAXES))))


def syntaxes_of(formats: Sequence[str] | None) -> tuple[Syntax, ...]:
    """Return the syntaxes of these names, every one for None. Raises `ValueError` for a name that there is not."""
    if formats is None:
        return _IN_ANSWERS
    return _of(tuple(formats))


@cache
def other_syntaxes(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    """Return the syntaxes of all other names, for calls at an answer's end."""
    return tuple(AtEnd(one) for one in SYNTAXES if one.name not in formats)


def read_besides(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the syntaxes that are read with those of these names, for their models write them too."""
    return tuple(dict.fromkeys(fellow for one in formats for fellow in FELLOWS.get(one, ())))


def is_written_by(syntax: str, family: str) -> bool:
    """Return whether models of `family` write `syntax`."""
    unmarked = UNMARKED.name if family in UNMARKED_TOO else family
    return syntax in (family, unmarked, *FELLOWS.get(family, ()))


@cache
def _of(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    if strange := set(formats) - set(names()):
        raise ValueError(f"There is no format {sorted(strange)}; there are: {', '.join(names())}")
    every = [_ASKED_FOR.get(one, one) for one in _IN_ANSWERS]
    fence = (XmlFence(),) if "xml" in formats else ()
    own = [one for one in every if one.name in formats]
    fellows = read_besides(formats)
    others = [one for one in every if one.name in fellows and one not in own and one is not LAST_UNMARKED]
    if not UNMARKED_TOO.isdisjoint(formats):
        others += [one for one in (LAST_UNMARKED, _FENCED_JSON) if one not in own]
    return (*fence, *own, *others, _THOUGHTS)


@cache
def stops_of(name: str) -> tuple[str, ...]:
    """Return the stop sequences of a syntax."""
    every = (_ASKED_FOR.get(one, one) for one in _IN_ANSWERS)
    return tuple(dict.fromkeys(stop for one in every if one.name == name for stop in one.stops))
