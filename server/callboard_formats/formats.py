"""The list of all syntaxes, and the syntaxes that are read for each name."""

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
"""Every syntax. If several can begin at a position, the first one is asked first."""

_LAST: Mapping[Syntax, Syntax] = {UNMARKED: LAST_UNMARKED, LEAKED_REACT: LAST_REACT}
_IN_ANSWERS = tuple(_LAST.get(one, one) for one in SYNTAXES)
"""Every syntax for `StreamParser`. Callers that check themselves which text follows a call use `SYNTAXES`."""

_ASKED_FOR: Mapping[Syntax, Syntax] = {LAST_REACT: REACT, LEAKED_FUNCTIONARY: FUNCTIONARY}
"""The replacements for syntaxes that accept more if the model was asked to write them."""


class Thoughts(Syntax):
    """A syntax without calls: the `<think>` tags, which models write whatever syntax they were asked for."""

    name = "thoughts"
    openers = ()
    reasoning = (THINK,)

    def read(
        self,
        buffer: TextBuffer,  # noqa: ARG002 - required by the base class
        context: BlockContext,  # noqa: ARG002 - required by the base class
        watcher: Watcher,  # noqa: ARG002 - required by the base class
    ) -> Reading[BlockItems | None]:
        """Return None, because the syntax has no openers."""
        yield from ()
        return None


class FencedJson(Syntax):
    """A fence of JSON calls at the end of the answer, for families whose calls may be unmarked."""

    name = UNMARKED.name
    openers = ("```",)

    def read(self, buffer: TextBuffer, context: BlockContext, watcher: Watcher) -> Reading[BlockItems | None]:
        """Read the fence with the reader of ReAct."""
        if not (yield from buffer.match(_JSON_FENCE)):
            return None
        return (yield from LAST_REACT.read(buffer, context, watcher))


class XmlFence(Syntax):
    """A fence around XML calls at the end of the answer. If text follows it, the fence is an example."""

    name = "xml"
    openers = ("```",)

    def read(
        self,
        buffer: TextBuffer,
        context: BlockContext,
        watcher: Watcher,  # noqa: ARG002 - only the end of the answer shows whether they are calls
    ) -> Reading[BlockItems | None]:
        """Read fences that contain only calls, if only an imagined result or the end of the answer follows them."""
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
        """Return the calls here; an empty list if there are none."""
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
"""The number of fences that may be read to the end of the answer and then again as text."""
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
"""The other syntaxes that models of a family write, for example those of older or smaller models.

A family is read in its own syntax first and then in these. Every other syntax in its answers is text.
"""

UNMARKED_TOO = frozenset({
    "command", "gemma", "granite", "hermes", "internlm2", "lfm2", "llama3", "llama4", "mistral", "phi4_mini",
})  # fmt: skip
"""The families whose calls may be unmarked: their models leave the markers out, or a server removes special tokens.

Such a call is JSON or Python that fills its lines and names a known tool.
"""


@cache
def names() -> tuple[str, ...]:
    """Return the names of all syntaxes."""
    return tuple(dict.fromkeys(("react", "xml", *(one.name for one in SYNTAXES))))


def syntaxes_of(formats: Sequence[str] | None) -> tuple[Syntax, ...]:
    """Return the syntaxes to read for these names; all for None. Raises `ValueError` for an unknown name."""
    if formats is None:
        return _IN_ANSWERS
    return _of(tuple(formats))


@cache
def other_syntaxes(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    """Return the syntaxes of all other names, for calls at the end of an answer."""
    return tuple(AtEnd(one) for one in SYNTAXES if one.name not in formats)


def related_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the other syntaxes that models of these families write."""
    return tuple(dict.fromkeys(fellow for one in formats for fellow in FELLOWS.get(one, ())))


def is_written_by(syntax: str, family: str) -> bool:
    """Return whether models of `family` write `syntax`."""
    unmarked = UNMARKED.name if family in UNMARKED_TOO else family
    return syntax in (family, unmarked, *FELLOWS.get(family, ()))


@cache
def _of(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    if strange := set(formats) - set(names()):
        raise ValueError(f"There is no format {sorted(strange)}. The formats are: {', '.join(names())}")
    every = [_ASKED_FOR.get(one, one) for one in _IN_ANSWERS]
    fence = (XmlFence(),) if "xml" in formats else ()
    own = [one for one in every if one.name in formats]
    fellows = related_formats(formats)
    others = [one for one in every if one.name in fellows and one not in own and one is not LAST_UNMARKED]
    if not UNMARKED_TOO.isdisjoint(formats):
        others += [one for one in (LAST_UNMARKED, _FENCED_JSON) if one not in own]
    return (*fence, *own, *others, _THOUGHTS)


@cache
def stops_of(name: str) -> tuple[str, ...]:
    """Return the stop sequences of a syntax."""
    every = (_ASKED_FOR.get(one, one) for one in _IN_ANSWERS)
    return tuple(dict.fromkeys(stop for one in every if one.name == name for stop in one.stops))
