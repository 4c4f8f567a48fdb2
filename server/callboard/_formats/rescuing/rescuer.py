"""Finds the calls at the end of a text that is streamed. All other text passes through unchanged.

If a server does not parse its model's calls, they arrive as text. But text may also contain a call that a web page told
the model to make, or that the model explains. So a call is rescued only if it meets all of these conditions:

- It is all that remains of the answer, begins at the margin, and is complete (`completeness`).
- It is not in code, in a list, in a quotation or the like (`markdown`).
- It repeats nothing from the messages that the model was sent (`repetition`).
- The answer has not mentioned calls before, by a marker in a sentence or by a call that stayed text: then a call on
  lines of its own may be part of an example.

Text is held back only while it may still become such a call. The same text gives the same result, whole or cut
anywhere. The time is proportional to the text's length: a long block is read again only after it has grown by a share
of its length, and a refused block is never read again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from callboard._formats.rescuing.completeness import is_complete
from callboard._formats.rescuing.repetition import is_repeated
from callboard_formats.formats import SYNTAXES
from callboard_formats.grammar import build_grammar, find_meaning
from callboard_formats.literals import Literals
from callboard_formats.markdown import MarkdownTracker
from callboard_formats.syntax import (
    END_TOKENS,
    LAST_OBSERVATION,
    NO_WATCHER,
    BlockContext,
    Syntax,
    WrittenCall,
    has_full_call,
)
from callboard_formats.text_buffer import TextBuffer

REREAD_ALWAYS_CHARS = 256
REREAD_GROWTH = 8
MAX_CALLS = 50
"""The number of calls that are rescued at most: each is searched for in all messages that the model was sent."""


MAX_FENCE_LINE_CHARS = 40
_FENCE = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+[\w.+-]*+[ \t]*+\r?\n")
_HALF_FENCE = re.compile(r"(?:`+|~+)[ \t]*+[\w.+-]*+[ \t]*+\r?\Z")
_FENCE_END = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+(?=[\r\n]|\Z)")
_HALF_FENCE_END = re.compile(r"(?:`+|~+)\Z")

_TURN_ENDS = Literals((*END_TOKENS, "<|call|>", "<|user|>", "<eos>", "</tool_call>"))
"""Tokens that a model may write after its last call although the turn is over.

Qwen 2.5 may omit the opening tag of a call and write the closing tag: https://github.com/ollama/ollama/issues/13968.
"""
_EVERY_OPENER = tuple(dict.fromkeys(opener for syntax in SYNTAXES for opener in syntax.openers))
# A call behind ReAct's list marker or quotation marker would be part of a list or a quotation.
_OPENERS = Literals(opener for opener in _EVERY_OPENER if not opener.startswith(("- ", "> ")))
_MARKERS = Literals(opener for opener in _EVERY_OPENER if opener[0] in "<[" and len(opener) > 1)
"""The openers that begin with a bracket, as no word does: a text that contains one mentions calls."""


@dataclass(slots=True)
class _Group:
    """Consecutive calls that may end the answer.

    Attributes:
        at: The index of the text that is not read yet.
        owners: The indexes of the syntaxes that may still read the block at `at`.
        read_chars: The length of the block when it was last read.
        blocks: The text and the calls of each block.
        fence: The marks of the fence around all calls; "" without a fence.
        inside: The index behind the opening line of the fence.
        closed: The fence has ended.
    """

    at: int
    owners: list[int] = field(default_factory=list)
    read_chars: int = 0
    blocks: list[tuple[str, Sequence[WrittenCall]]] = field(default_factory=list)
    syntax: str = ""
    calls: int = 0
    refused: bool = False
    fence: str = ""
    inside: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    """The result of reading a block: its length, and the calls and texts in it; None if it is no block."""

    chars: int
    items: Sequence[WrittenCall | str] | None


def read_block(syntax: Syntax, text: str, context: BlockContext, *, final: bool) -> _Block | None:
    """Read the block at the beginning of `text`; return None if more text is needed."""
    buffer = TextBuffer(text, final=final)
    try:
        next(syntax.read(buffer, context, NO_WATCHER))
    except StopIteration as done:
        return _Block(buffer.position, done.value)
    return None


_SPACE = re.compile(r"\s*")


def after_space(text: str, start: int) -> int:
    """Return the index of the first character from `start` on that is no white space, or the length."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


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
        self._passes_line = False
        """The rest of this line is text, whatever it contains."""
        self._begun = False
        self._mentions_calls = False
        self._text = ""
        self._passed_to = 0
        """The index up to which `_text` was passed on."""
        self._unread: list[str] = []
        self._unread_chars = 0
        self._group: _Group | None = None
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        if self.is_stopped:
            return text
        if self._line and self._passed_to == len(self._text) and "\n" not in text:
            # The fast path for most tokens: in the middle of a line no text is held back.
            self._begun = self._begun or not text.isspace()
            self._line.append(text)
            return text
        self._unread.append(text)
        self._unread_chars += len(text)
        if self._group is not None and not self._group.owners and text.isspace():
            return ""
        if self._group is not None and self._group.owners:
            waiting = len(self._text) - self._group.at + self._unread_chars
            read = self._group.read_chars
            if waiting > REREAD_ALWAYS_CHARS and waiting < read + read // REREAD_GROWTH:
                return ""
        self._read(final=False)
        return self._take_output()

    def release(self) -> str:
        """Return all held text as text. Call it when something other than text follows."""
        self._join_unread()
        if self._passed_to < len(self._text):
            self._group = None
            self._pass(len(self._text))
        return self._take_output()

    def finish(self, sent_texts: Callable[[], Iterable[str]]) -> tuple[str, list[WrittenCall]]:
        """Return the held text, or the calls in it if none of `sent_texts` contains them."""
        if self.is_stopped:
            return self.release(), []
        self._read(final=True)
        calls: list[WrittenCall] = []
        if (group := self._group) is not None and not is_repeated(group.blocks, sent_texts()):
            calls = [call for _, written in group.blocks for call in written]
            self._passed_to = len(self._text)
            self.syntax = group.syntax
            self.is_fenced = bool(group.fence) and not group.blocks[0][0].startswith(group.fence)
        self._group = None
        return self.release(), calls

    def _join_unread(self) -> None:
        if self._passed_to:
            self._text = self._text[self._passed_to :]
            if self._group is not None:
                self._group.at -= self._passed_to
                self._group.inside -= self._passed_to
            self._passed_to = 0
        self._text += "".join(self._unread)
        self._unread.clear()
        self._unread_chars = 0

    def _take_output(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self, *, final: bool) -> None:
        self._join_unread()
        while self._passed_to < len(self._text):
            if self._group is None:
                if self._line or self._passes_line or self._mentions_calls or not self._markdown.may_begin_call():
                    self._pass_line()
                    continue
                if not self._begin_group(final=final):
                    return
            elif not self._read_group(final=final):
                return

    def _begin_group(self, *, final: bool) -> bool:
        """Begin a group if a call may begin here, at the margin; return False if more text is needed."""
        text = self._text
        start = self._passed_to
        group = _Group(start)
        if text[start] in "`~":
            fence = None if self._begun else _FENCE.match(text, start)
            if fence:
                group.fence = fence[1]
                group.inside = after_space(text, fence.end())
            elif not final and not self._begun and self._is_half_fence():
                return False
            else:
                self._pass_line()
                return True
        elif not final and _OPENERS.may_grow(text, start):
            return False
        group.owners = self._owners(start)
        if group.owners or group.fence:
            self._group = group
        else:
            self._pass_line()
        return True

    def _is_half_fence(self) -> bool:
        rest = len(self._text) - self._passed_to
        return rest < MAX_FENCE_LINE_CHARS and _HALF_FENCE.match(self._text, self._passed_to) is not None

    def _owners(self, start: int) -> list[int]:
        """Return the indexes of the syntaxes whose block may begin at `start`."""
        found = _OPENERS.match(self._text, start)
        return list(find_meaning(self._grammar, found.lower()).owners) if found else []

    def _read_group(self, *, final: bool) -> bool:
        """Continue to read the group; return False if more text is needed, and at the end of the answer."""
        group = self._group
        assert group is not None
        if group.owners:
            return self._read_next_block(group, final=final)
        if group.fence and not group.blocks and group.at < group.inside:
            # No syntax reads the fence as a part of a call: read the calls inside the fence.
            group.inside = after_space(self._text, group.inside)
            if group.inside == len(self._text) and not final:
                return False
            return self._expect_block(group, group.inside, final=final)
        return self._read_after_block(group, final=final)

    def _read_after_block(self, group: _Group, *, final: bool) -> bool:
        """Read the text after a block: white space, the end of the turn or of the fence, or another block."""
        text = self._text
        at = after_space(text, group.at)
        group.at = at
        if at == len(text):
            return final and not self._is_complete(group) and self._refuse(at)
        if not group.blocks:
            return self._expect_block(group, at, final=final)
        if (is_passed := self._pass_end_of_turn(group, at, final=final)) is not None:
            return is_passed
        if group.closed:
            return self._refuse(at)
        if group.fence:
            closing = _FENCE_END.match(text, at)
            if closing and closing[1].startswith(group.fence):
                group.at = closing.end()
                group.closed = True
                return True
            if not final and _HALF_FENCE_END.match(text, at):
                return False
        return self._expect_block(group, at, final=final)

    def _pass_end_of_turn(self, group: _Group, at: int, *, final: bool) -> bool | None:
        """Move behind a token that ends the turn, or behind an empty `Observation:` at the end of the text.

        Return False if more text is needed, and None if neither is here.
        """
        text = self._text
        if end := _TURN_ENDS.match(text, at):
            group.at = at + len(end)
            return True
        if not final and _TURN_ENDS.may_grow(text, at):
            return False
        if LAST_OBSERVATION.match(text, at, partial=not final):
            group.at = len(text) if final else at
            return final
        return None

    def _is_complete(self, group: _Group) -> bool:
        is_call = any(has_full_call(calls) for _, calls in group.blocks)
        return is_call and not group.refused and (group.closed or not group.fence)

    def _expect_block(self, group: _Group, at: int, *, final: bool) -> bool:
        """Look for a block at `at`; refuse the group if none begins there."""
        group.at = at
        if not final and _OPENERS.may_grow(self._text, at):
            return False
        group.owners = self._owners(at) if self._text[at : at + 1] not in ("`", "~") else []
        group.read_chars = 0
        return True if group.owners else self._refuse(at)

    def _read_next_block(self, group: _Group, *, final: bool) -> bool:
        """Read the block with the next syntax that may own it."""
        syntax = SYNTAXES[group.owners[0]]
        read = read_block(syntax, self._text[group.at :], self._context, final=final)
        group.read_chars = len(self._text) - group.at
        if read is None:
            return False
        if read.items is not None and read.chars:
            items = read.items
            end = group.at + read.chars
            block = self._text[group.at : end]
            calls = [item for item in items if isinstance(item, WrittenCall)]
            if calls:
                is_call = len(calls) == len(items) and is_complete(block, calls, self._known)
                group.refused = group.refused or not is_call or group.calls + len(calls) > MAX_CALLS
                group.blocks.append((block, calls))
                group.syntax = syntax.name
                group.calls += len(calls)
                group.closed = group.closed or block.startswith(("```", "~~~"))
                group.owners.clear()
                group.at = end
                return True
        group.owners.pop(0)
        if group.owners or (group.fence and group.at < group.inside):
            return True
        return self._refuse(group.at)

    def _refuse(self, end: int) -> bool:
        """Pass the held text on up to the end of the line that contains `end`."""
        if self._group is not None and self._group.blocks:
            self._mentions_calls = True
        self._group = None
        self._pass(end)
        self._pass_line()
        return True

    def _pass_line(self) -> None:
        self._passes_line = True
        end = self._text.find("\n", self._passed_to)
        self._pass(end + 1 if end >= 0 else len(self._text))

    def _pass(self, end: int) -> None:
        passed = self._text[self._passed_to : end]
        self._passed_to = end
        if not passed:
            return
        self._out.append(passed)
        self._begun = self._begun or not passed.isspace()
        *lines, rest = passed.split("\n")
        for line in lines:
            whole = "".join([*self._line, line])
            self._markdown.feed_line(whole)
            self._mentions_calls = self._mentions_calls or _MARKERS.search(whole, 0) is not None
            self._line.clear()
            self._passes_line = False
        if rest:
            self._line.append(rest)
