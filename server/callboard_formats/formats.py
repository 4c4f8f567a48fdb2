"""The list of all syntaxes, and the syntaxes to read for each format name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import regex

from callboard_formats.at_end import OtherSyntax
from callboard_formats.harmony import Harmony
from callboard_formats.minimax import MiniMaxM3
from callboard_formats.quotation import is_introduced_as_example
from callboard_formats.react import React
from callboard_formats.row import THINK
from callboard_formats.syntax import END_OF_TURN, BlockContext, BlockItems, Syntax, WrittenCall
from callboard_formats.table import ROWS
from callboard_formats.text_buffer import Reading, TextBuffer
from callboard_formats.unmarked import PythonTag, Unmarked, UnmarkedNotation
from callboard_formats.wrapped import WrappedJson

REACT = React()
LEAKED_REACT = React(leaked=True, last=False)
LAST_REACT = React(leaked=True)
UNMARKED = Unmarked()
LAST_UNMARKED = Unmarked(last=True)

SYNTAXES: tuple[Syntax, ...] = (
    *ROWS, MiniMaxM3(), PythonTag(), Harmony(), UNMARKED, UnmarkedNotation(),
    WrappedJson("hermes"), WrappedJson("xml"), WrappedJson("gigachat3"), LEAKED_REACT,
)  # fmt: skip
"""Every syntax. If several can begin at a position, they are tried in this order."""

_AT_END: Mapping[Syntax, Syntax] = {UNMARKED: LAST_UNMARKED, LEAKED_REACT: LAST_REACT}
_IN_ANSWERS = tuple(_AT_END.get(one, one) for one in SYNTAXES)
"""The syntaxes for `StreamParser`. Callers that check the text behind a call themselves use `SYNTAXES`."""

_REQUESTED: Mapping[Syntax, Syntax] = {LAST_REACT: REACT}
"""The syntax that accepts more if the model was asked to write it, with its more tolerant replacement."""


class Thoughts(Syntax):
    """A syntax without calls: the `<think>` tags, which models write in all formats."""

    name = "thoughts"
    openers = ()
    reasoning = (THINK,)

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:  # noqa: ARG002 - required by the base class
        """Return None, because this syntax has no calls."""
        yield from ()
        return None


class FencedJson(Syntax):
    """Reads a fence of JSON calls at the end of the answer, for families whose calls may have no markers."""

    name = UNMARKED.name
    openers = ("```",)

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read the fence with the reader of ReAct."""
        if not (yield from buffer.match(_JSON_FENCE)):
            return None
        return (yield from LAST_REACT.read(buffer, context))


class XmlFence(Syntax):
    """Reads a fence of XML calls at the end of the answer. If text follows, the fence is an example."""

    name = "xml"
    openers = ("```",)

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read fences that contain only calls, if the answer ends behind them or an imagined result follows."""
        if not context.line_start or is_introduced_as_example(buffer):
            return None
        # Only the end of the answer shows whether they are calls.
        context = replace(context, watcher=None)
        if not (yield from buffer.match(_FENCE)) or not buffer.may_reread(buffer.position):
            return None
        calls: list[WrittenCall | str] = []
        while (yield from buffer.take(_FENCE)):
            while found := (yield from self._calls(buffer, context)):
                calls += found
                yield from buffer.space()
            is_closed = (yield from buffer.take(_FENCE_END)) or (
                buffer.final and (yield from buffer.take(_LAST_FENCE_END))
            )
            # Behind other text, a fence that was broken off may be an example. A call that is cut off does not run.
            is_harmless = context.first or any(call.truncated for call in calls if isinstance(call, WrittenCall))
            if not is_closed and not (is_harmless and (yield from buffer.ends_here())):
                return None
            yield from buffer.space()
        while (yield from buffer.take(END_OF_TURN)):
            yield from buffer.space()
        is_last = (yield from buffer.ends_here()) or (yield from buffer.match(_RESULT))
        return calls if is_last else None

    def _calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[list[WrittenCall | str]]:
        """Return the calls at this position; an empty list if there are none."""
        start = buffer.keep()
        for row in _XML_ROWS:
            if (yield from buffer.match(row.patterns.opener)) and (calls := (yield from row.read(buffer, context))):
                return list(calls)
            buffer.rewind(start)
        for row in _XML_ROWS:
            if (yield from buffer.match(row.patterns.opener)) and (refused := (yield from row.refuse(buffer, context))):
                return list(refused)
            buffer.rewind(start)
        return []


_XML_ROWS = tuple(row for row in ROWS if row.name == XmlFence.name)
_RESULT = regex.compile("|".join(regex.escape(stop) for row in _XML_ROWS for stop in row.stops), regex.IGNORECASE)
_FENCE = regex.compile(
    r"```(?:xml|html|tool_call|text|json)?[ \t]{0,9}+\r?\n\s{0,99}+"
    r"(?=<(?:tool|function)_call|<function[\s=]|<invoke\s)",
    regex.IGNORECASE,
)
_FENCE_END = regex.compile(r"```[ \t\r]{0,9}+(?=[\n<\[])")
_LAST_FENCE_END = regex.compile(r"```[ \t\r]{0,9}+\Z")
_JSON_FENCE = regex.compile(
    r"```[ \t]{0,4}(?:json5?|tool_calls?)?[ \t]{0,4}\r?\n(?=\s{0,99}[\[{])",
    regex.IGNORECASE,
)
_THOUGHTS = Thoughts()
_FENCED_JSON = FencedJson()

RELATED_FORMATS = {
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
"""The other syntaxes that models of a family write, for example the syntaxes of older or smaller models.

Answers of a family are read in its own syntax first and then in these. Calls in every other syntax are text.
"""

MAYBE_UNMARKED = frozenset({
    "command", "gemma", "granite", "hermes", "internlm2", "lfm2", "llama3", "llama4", "mistral", "phi4_mini",
})  # fmt: skip
"""The families whose calls may have no markers: models omit the markers, or a server removes special tokens.

Such a call is JSON or Python that fills its lines and names a known tool.
"""


@cache
def list_formats() -> tuple[str, ...]:
    """Return the names of all formats. Several syntaxes may share a name."""
    return tuple(dict.fromkeys(("react", "xml", *(one.name for one in SYNTAXES))))


def syntaxes_of(formats: Sequence[str] | None) -> tuple[Syntax, ...]:
    """Return the syntaxes to read for these formats; None means all. Raises `ValueError` for an unknown name."""
    if formats is None:
        return _IN_ANSWERS
    return _select(tuple(formats))


@cache
def other_syntaxes(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    """Return the syntaxes of all other formats, which count only at the end of an answer."""
    return tuple(OtherSyntax(one) for one in SYNTAXES if one.name not in formats)


def related_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the other formats that models of these families write."""
    return tuple(dict.fromkeys(other for one in formats for other in RELATED_FORMATS.get(one, ())))


def is_written_by(syntax: str, family: str) -> bool:
    """Return whether models of `family` are known to write `syntax`."""
    unmarked = UNMARKED.name if family in MAYBE_UNMARKED else family
    return syntax in (family, unmarked, *RELATED_FORMATS.get(family, ()))


@cache
def _select(formats: tuple[str, ...]) -> tuple[Syntax, ...]:
    if unknown := set(formats) - set(list_formats()):
        raise ValueError(f"There is no format {sorted(unknown)}. The formats are: {', '.join(list_formats())}")
    every = [_REQUESTED.get(one, one) for one in _IN_ANSWERS]
    fence = (XmlFence(),) if "xml" in formats else ()
    own = [one for one in every if one.name in formats]
    related = related_formats(formats)
    others = [one for one in every if one.name in related and one not in own and one is not LAST_UNMARKED]
    if not MAYBE_UNMARKED.isdisjoint(formats):
        others += [one for one in (LAST_UNMARKED, _FENCED_JSON) if one not in own]
    return (*fence, *own, *others, _THOUGHTS)


@cache
def list_stops(name: str) -> tuple[str, ...]:
    """Return the stop sequences of a format."""
    every = (_REQUESTED.get(one, one) for one in _IN_ANSWERS)
    return tuple(dict.fromkeys(stop for one in every if one.name == name for stop in one.stops))
