"""Finds the calls at the end of a text that is streamed. All other text passes through unchanged.

If a server does not parse its model's calls, they arrive as text. But text may also contain a call that a web page told
the model to make, or that the model explains. So a call is rescued only if it meets all of these conditions:

- It is all that remains of the answer, begins at the margin, and is complete (`completeness`).
- It is not in code, in a list, in a quotation or the like (`markdown`).
- It repeats nothing from the messages that the model was sent (`repetition`).
- The answer has not mentioned calls before, by a marker in a sentence or by a call that stayed text: then a call on
  lines of its own may be part of an example. Nor does the line before it announce an example.

Text is held back only while it may still become such a call. The same text gives the same result, whole or cut
anywhere.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import regex

from callboard._formats.rescuing.completeness import is_complete
from callboard._formats.rescuing.repetition import is_repeated
from callboard_formats.formats import SYNTAXES
from callboard_formats.grammar import build_grammar, find_meaning
from callboard_formats.literals import Literals
from callboard_formats.markdown import MarkdownTracker
from callboard_formats.quotation import announces_example
from callboard_formats.syntax import (
    END_TOKENS,
    LAST_OBSERVATION,
    BlockContext,
    WrittenCall,
    has_full_call,
)
from callboard_formats.text_buffer import Reading, TextBuffer, read_now

MAX_CALLS = 50
"""The number of calls that are rescued at most: each is searched for in all messages that the model was sent."""

# With limits, because a model in a loop writes back-ticks for ever.
_FENCE = regex.compile(r"(`{3,40}+|~{3,40}+)[ \t]{0,40}+[\w.+-]{0,40}+[ \t]{0,40}+\r?\n")

_TURN_ENDS = Literals((*END_TOKENS, "<|call|>", "<|user|>", "<eos>", "</tool_call>"))
"""Tokens that a model may write after its last call although the turn is over.

Qwen 2.5 may omit the opening tag of a call and write the closing tag: https://github.com/ollama/ollama/issues/13968.
"""
_EVERY_OPENER = tuple(dict.fromkeys(opener for syntax in SYNTAXES for opener in syntax.openers))
# A call behind ReAct's list marker or quotation marker would be part of a list or a quotation.
_OPENERS = Literals(opener for opener in _EVERY_OPENER if not opener.startswith(("- ", "> ")))
_MARKERS = Literals(opener for opener in _EVERY_OPENER if opener[0] in "<[" and len(opener) > 1)
"""The openers that begin with a bracket, as no word does: a text that contains one mentions calls."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A text that a syntax reads as calls. `is_whole`: the calls are complete, and nothing else is in the text."""

    text: str
    calls: Sequence[WrittenCall]
    syntax: str
    is_whole: bool


class Rescuer:
    """Passes text on except the calls at its end. Call `feed` for each piece, then `finish` once."""

    def __init__(self, known: Collection[str]) -> None:
        self.syntax = ""
        """The name of the syntax of the calls that were found, after `finish`."""
        self.is_fenced = False
        """The calls that were found are in a fence that is no part of their syntax, after `finish`."""
        self._grammar = build_grammar(SYNTAXES)
        self._known = known
        self._context = BlockContext(line_start=True, first=False, schemas={name: {} for name in known})
        self.is_stopped = not known
        """All further text is passed on. To be set after `release`."""
        self._markdown = MarkdownTracker()
        self._line: list[str] = []
        """The pieces of the current line that were passed on."""
        self._has_text = False
        self._mentions_calls = False
        self._last_line = ""
        """The last line that is not blank."""
        self._buffer = TextBuffer()
        """The text that was not passed on begins at `emitted_to`."""
        self._reading = self._read()
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        if self.is_stopped:
            return text
        if self._line and "\n" not in text:
            # The fast path for most tokens: in the middle of a line no text is held back.
            self._has_text = self._has_text or not text.isspace()
            self._line.append(text)
            return text
        self._buffer.feed(text)
        next(self._reading)
        return self._take_output()

    def release(self) -> str:
        """Return all held text as text. Call it when something other than text follows."""
        self._pass(self._buffer.end)
        self._reading = self._read()
        return self._take_output()

    def finish(self, sent_texts: Callable[[], Iterable[str]]) -> tuple[str, list[WrittenCall]]:
        """Return the held text, or the calls in it if none of `sent_texts` contains them."""
        if self.is_stopped:
            return self.release(), []
        self._buffer.final = True
        blocks = read_now(self._reading)
        if not blocks or is_repeated([(block.text, block.calls) for block in blocks], sent_texts()):
            return self.release(), []
        self.syntax = blocks[-1].syntax
        return self._take_output(), [call for block in blocks for call in block.calls]

    def _take_output(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self) -> Reading[Sequence[_Block]]:
        """Pass the answer on, and return the calls at its end."""
        while (yield from self._buffer.peek()):
            may_begin = not self._line and not self._mentions_calls and self._markdown.may_begin_call()
            is_opener = may_begin and (yield from self._is_at_opener())
            self._mentions_calls = self._mentions_calls or (is_opener and announces_example(self._last_line))
            if is_opener and not self._mentions_calls:
                # A new buffer, because a syntax must not see the text before.
                self._buffer = TextBuffer(self._buffer.text[self._buffer.index :], final=self._buffer.final)
                self._buffer.keep()
                if blocks := (yield from self._read_calls()):
                    return blocks
                self._pass(self._buffer.position)
            self._pass_line()
        return ()

    def _is_at_opener(self) -> Reading[bool]:
        """Return whether a call may begin here, or a fence that may be the whole answer."""
        if (yield from self._buffer.peek()) in ("`", "~"):
            return not self._has_text and bool((yield from self._buffer.match(_FENCE)))
        return bool((yield from self._buffer.match_literal(_OPENERS)))

    def _read_calls(self) -> Reading[Sequence[_Block]]:
        """Read the calls that begin here. Return none unless they are complete and end the answer."""
        buffer = self._buffer
        opening = yield from buffer.match(_FENCE)
        block = yield from self._read_block()
        fence = ""
        self.is_fenced = block is None and opening is not None
        if block is None and opening is not None:
            # No syntax reads the fence as a part of a call: read the calls inside the fence.
            fence = opening[1]
            buffer.position += len(opening[0])
            yield from buffer.space()
            block = yield from self._read_block()
        is_over = opening is not None and not fence
        blocks: list[_Block] = []
        while block is not None:
            blocks.append(block)
            self._mentions_calls = True
            if not block.is_whole or sum(len(one.calls) for one in blocks) > MAX_CALLS:
                break
            yield from self._skip_end_of_turn()
            if fence and (yield from buffer.take(regex.compile(fence))):
                fence = ""
                is_over = True
                yield from self._skip_end_of_turn()
            if (yield from buffer.take(LAST_OBSERVATION)):
                is_over = True
            if (yield from buffer.ends_here()):
                is_call = any(has_full_call(one.calls) for one in blocks)
                return blocks if is_call and not fence else ()
            block = None if is_over else (yield from self._read_block())
        return ()

    def _read_block(self) -> Reading[_Block | None]:
        """Read the block here with the first syntax that reads calls in it. Return None if none does."""
        buffer = self._buffer
        start = buffer.boundary = buffer.position
        if start and (yield from buffer.peek()) in ("`", "~"):
            # A fence is the whole answer.
            return None
        opener = yield from buffer.match_literal(_OPENERS)
        for owner in find_meaning(self._grammar, opener.lower()).owners if opener else ():
            items = (yield from SYNTAXES[owner].read(buffer, self._context)) or ()
            calls = [item for item in items if isinstance(item, WrittenCall)]
            if calls and buffer.position > start:
                text = buffer.cut(start, buffer.position)
                is_whole = len(calls) == len(items) and is_complete(text, calls, self._known)
                return _Block(text, calls, SYNTAXES[owner].name, is_whole)
            buffer.rewind(start)
        return None

    def _skip_end_of_turn(self) -> Reading[None]:
        """Move behind white space and tokens that end the turn."""
        buffer = self._buffer
        yield from buffer.space()
        while token := (yield from buffer.match_literal(_TURN_ENDS)):
            buffer.position += len(token)
            yield from buffer.space()

    def _pass_line(self) -> None:
        """Pass on the rest of the line, as far as it is known."""
        line_end = self._buffer.text.find("\n", self._buffer.index)
        self._pass(self._buffer.base + line_end + 1 if line_end >= 0 else self._buffer.end)

    def _pass(self, end: int) -> None:
        """Pass on the text up to the position `end`."""
        buffer = self._buffer
        passed = buffer.cut(buffer.emitted_to, end)
        buffer.forget()
        buffer.position = buffer.emitted_to = end
        self._out.append(passed)
        self._has_text = self._has_text or bool(passed.strip())
        *lines, rest = passed.split("\n")
        for line in lines:
            whole = "".join([*self._line, line])
            self._markdown.feed_line(whole)
            self._last_line = whole if whole.strip() else self._last_line
            self._mentions_calls = self._mentions_calls or _MARKERS.search(whole, 0) is not None
            self._line.clear()
        if rest:
            self._line.append(rest)
