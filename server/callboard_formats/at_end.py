"""Reads calls that count only at the end of the answer, because their syntax was not requested.

A model that is asked to write ReAct may write `<tool_call>` because it was trained to, and a model that is asked for
XML may write `Action:`. Such a call is read if it is complete, begins a line and ends the answer. The caller also gets
the text of the call (`FoundCall.source`), and decides whether the call runs or its text is shown.
"""

from collections.abc import Sequence
from dataclasses import replace

from callboard_formats.names import resolve_name
from callboard_formats.syntax import (
    END_OF_TURN,
    LAST_OBSERVATION,
    BlockContext,
    BlockItems,
    Syntax,
    WrittenCall,
    has_full_call,
)
from callboard_formats.text_buffer import Reading, TextBuffer
from callboard_formats.unmarked import LastCalls

MAX_FAILED_BLOCKS = 24
"""The number of blocks that may turn out to be text. It is limited because each may be read to the answer's end."""


class OtherSyntax(LastCalls):
    """Reads the calls of a syntax that was not requested, at the end of the answer."""

    is_leak = True

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self.name = syntax.name
        # A call in a fence, a list item or a block quotation is an example, so their openers are left out.
        self.openers = tuple(one for one in syntax.openers if not one.startswith(("`", "~", "- ", "> ")))

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read the calls here if they end the answer."""
        if context.answering or buffer.failed_blocks >= MAX_FAILED_BLOCKS:
            return None
        items = yield from super().read(buffer, context)
        calls = [item for item in items or () if isinstance(item, WrittenCall)]
        if items is not None and not (has_full_call(calls) and (yield from self._is_end(buffer))):
            buffer.failed_blocks += 1
            return None
        return items

    def _is_end(self, buffer: TextBuffer) -> Reading[bool]:
        """Return whether only tokens and an empty `Observation:` follow.

        An `Observation:` with text does not count, because the text may be an explanation.
        """
        while (yield from buffer.take(END_OF_TURN)):
            yield from buffer.space()
        yield from buffer.space()
        yield from buffer.take(LAST_OBSERVATION)
        return (yield from buffer.ends_here())

    def read_calls(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read one block of the syntax."""
        start = buffer.keep()
        items = (yield from self._syntax.read(buffer, replace(context, watcher=None))) or ()
        calls = [item for item in items if isinstance(item, WrittenCall)]
        if not calls or len(calls) < len(items):
            buffer.rewind(start)
            return None
        is_whole = not any(call.truncated or call.broken for call in calls)
        # A tag or a token is no prose: behind one, the name may be invented, and the model is told so.
        is_marked = buffer.cut(start, start + 1) in ("<", "[")
        is_known = all(call.name if is_marked else resolve_name(call.name, context.schemas) for call in calls)
        return calls if is_whole and is_known else []
