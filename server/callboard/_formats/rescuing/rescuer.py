"""The finder of the calls that a text ends in, as it comes; everything else passes through to the letter.

A server that does not parse its model's calls leaves them in the text; there too stands a call
that a web page told the model to make, or that the model explains. So a call is rescued only
where it is the whole of what remains of the answer, begins at the margin, is complete, is
shown as nobody's words (`markdown`) and repeats nothing that the model was told (`repetition`).
An answer that has spoken of calls, by a marker amid its words or a call that stayed text, has
none rescued any more: what stands in lines of its own there may be a part of what is shown.
Everything else stays text, in its place. What is held back is what may still become such a call.

Pure: the same text gives the same pieces, whole or cut anywhere. Linear: a long block is asked
after only when it has grown by a part of its length, and nothing within a block that was
refused is looked at again. Above: the reader. Below: syntaxes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from callboard._formats.rescuing.completeness import is_complete
from callboard._formats.rescuing.marks import (
    FENCE,
    FENCE_END,
    HALF_FENCE,
    HALF_FENCE_END,
    MARKERS,
    MAX_FENCE_LINE_CHARS,
    OPENERS,
    TURN_ENDS,
)
from callboard._formats.rescuing.repetition import is_repeated
from callboard_formats.formats import SYNTAXES
from callboard_formats.grammar import grammar, meaning
from callboard_formats.markdown import MarkdownTracker
from callboard_formats.syntax import LAST_OBSERVATION, NOBODY, Spot, Syntax, WrittenCall
from callboard_formats.tape import Tape

ASK_ALWAYS_CHARS = 256
ASK_AGAIN_GROWTH = 8
MAX_CALLS = 50
"""The most calls that are rescued, more than a turn may have; each is looked for in all that the model was told."""


@dataclass(slots=True)
class _Group:
    """Calls one after another that may end the answer; what follows `at` is not read yet.

    `owners` are the syntaxes still to be asked about the block at `at`. `fence`: the marks of
    the fence that must hold them all; `closed` once that has ended.
    """

    at: int
    owners: list[int] = field(default_factory=list)
    asked_chars: int = 0
    blocks: list[tuple[str, Sequence[WrittenCall]]] = field(default_factory=list)
    syntax: str = ""
    calls: int = 0
    refused: bool = False
    fence: str = ""
    inside: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that was read: its characters, and what stands in it, None where it is no block."""

    chars: int
    items: Sequence[WrittenCall | str] | None


def read_block(syntax: Syntax, text: str, spot: Spot, *, final: bool) -> _Block | None:
    """Read the block that `text` begins with; None while more of it is needed."""
    tape = Tape(text, final=final)
    try:
        next(syntax.read(tape, spot, NOBODY))
    except StopIteration as done:
        return _Block(tape.at, done.value)
    return None


_SPACE = re.compile(r"\s*")


def after_space(text: str, start: int) -> int:
    """Return the first place from `start` on that is no white space, or the end."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


class Rescuer:
    """The passage of text but for the calls that it ends in: `feed` what comes, then `finish` once."""

    def __init__(self, known: Collection[str]) -> None:
        self.syntax = ""
        """The name of the syntax of the calls that were found, after `finish`."""
        self._grammar = grammar(SYNTAXES)
        self._known = known
        self._spot = Spot(line_start=True, first=False, schemas={name: {} for name in known})
        self._stopped = not known
        self._markdown = MarkdownTracker()
        self._line: list[str] = []
        """The pieces that were passed of the line that `_at` is in."""
        self._passes_line = False
        """True where the rest of this line is text, whatever it looks like."""
        self._begun = False
        self._speaks_of_calls = False
        self._text = ""
        self._at = 0
        """The place up to which `_text` was passed on."""
        self._coming: list[str] = []
        self._coming_chars = 0
        self._group: _Group | None = None
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        if self._stopped:
            return text
        if self._line and self._at == len(self._text) and "\n" not in text:
            # Amid a line nothing is held back: most of what comes.
            self._begun = self._begun or not text.isspace()
            self._line.append(text)
            return text
        self._coming.append(text)
        self._coming_chars += len(text)
        if self._group is not None and not self._group.owners and text.isspace():
            return ""
        if self._group is not None and self._group.owners:
            waiting = len(self._text) - self._group.at + self._coming_chars
            asked = self._group.asked_chars
            if waiting > ASK_ALWAYS_CHARS and waiting < asked + asked // ASK_AGAIN_GROWTH:
                return ""
        self._read(final=False)
        return self._taken()

    def release(self) -> str:
        """Return all that is held back, for something else follows it: none of it is a call."""
        self._take()
        if self._at < len(self._text):
            self._group = None
            self._pass(len(self._text))
        return self._taken()

    def stop(self) -> None:
        """Take what comes from now on for text; to be called after `release`."""
        self._stopped = True

    def finish(self, told: Callable[[], Iterable[str]]) -> tuple[str, list[WrittenCall]]:
        """Return what was held back: text, or calls that repeat none of the texts that were `told`."""
        if self._stopped:
            return self.release(), []
        self._read(final=True)
        calls: list[WrittenCall] = []
        if (group := self._group) is not None and not is_repeated(group.blocks, told()):
            calls = [call for _, written in group.blocks for call in written]
            self._at = len(self._text)
            self.syntax = group.syntax
        self._group = None
        return self.release(), calls

    def _take(self) -> None:
        if self._at:
            self._text = self._text[self._at :]
            if self._group is not None:
                self._group.at -= self._at
                self._group.inside -= self._at
            self._at = 0
        self._text += "".join(self._coming)
        self._coming.clear()
        self._coming_chars = 0

    def _taken(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self, *, final: bool) -> None:
        self._take()
        while self._at < len(self._text):
            if self._group is None:
                if self._line or self._passes_line or self._speaks_of_calls or not self._markdown.may_begin_call():
                    self._pass_line()
                    continue
                if not self._begin(final=final):
                    return
            elif not self._go_on(final=final):
                return

    def _begin(self, *, final: bool) -> bool:
        """Look whether a call may begin here, at the margin; False where more text is needed."""
        text = self._text
        start = self._at
        group = _Group(start)
        if text[start] in "`~":
            fence = None if self._begun else FENCE.match(text, start)
            if fence:
                group.fence = fence[1]
                group.inside = after_space(text, fence.end())
            elif not final and not self._begun and self._is_half_fence():
                return False
            else:
                self._pass_line()
                return True
        elif not final and OPENERS.may_grow(text, start):
            return False
        group.owners = self._owners(start)
        if group.owners or group.fence:
            self._group = group
        else:
            self._pass_line()
        return True

    def _is_half_fence(self) -> bool:
        rest = len(self._text) - self._at
        return rest < MAX_FENCE_LINE_CHARS and HALF_FENCE.match(self._text, self._at) is not None

    def _owners(self, start: int) -> list[int]:
        """Return the syntaxes whose block may begin at `start`."""
        found = OPENERS.match(self._text, start)
        return list(meaning(self._grammar, found.lower()).owners) if found else []

    def _go_on(self, *, final: bool) -> bool:
        """Read the group on; False where more text is needed, and at its end."""
        group = self._group
        assert group is not None
        if group.owners:
            return self._ask(group, final=final)
        if group.fence and not group.blocks and group.at < group.inside:
            # No syntax takes the fence with what is in it: perhaps what is in it alone.
            group.inside = after_space(self._text, group.inside)
            if group.inside == len(self._text) and not final:
                return False
            return self._next(group, group.inside, final=final)
        return self._between(group, final=final)

    def _between(self, group: _Group, *, final: bool) -> bool:
        """Read what follows a block: white space, the end of the turn or of the fence, another block."""
        text = self._text
        at = after_space(text, group.at)
        group.at = at
        if at == len(text):
            return final and not self._is_whole(group) and self._refuse(at)
        if not group.blocks:
            return self._next(group, at, final=final)
        if (is_passed := self._pass_end_of_turn(group, at, final=final)) is not None:
            return is_passed
        if group.closed:
            return self._refuse(at)
        if group.fence:
            closing = FENCE_END.match(text, at)
            if closing and closing[1].startswith(group.fence):
                group.at = closing.end()
                group.closed = True
                return True
            if not final and HALF_FENCE_END.match(text, at):
                return False
        return self._next(group, at, final=final)

    def _pass_end_of_turn(self, group: _Group, at: int, *, final: bool) -> bool | None:
        """Pass a token that ends the turn, or the label of a result that ends the text; None where there is neither.

        False where more text is needed.
        """
        text = self._text
        if end := TURN_ENDS.match(text, at):
            group.at = at + len(end)
            return True
        if not final and TURN_ENDS.may_grow(text, at):
            return False
        if LAST_OBSERVATION.match(text, at, partial=not final):
            group.at = len(text) if final else at
            return final
        return None

    def _is_whole(self, group: _Group) -> bool:
        return bool(group.blocks) and not group.refused and (group.closed or not group.fence)

    def _next(self, group: _Group, at: int, *, final: bool) -> bool:
        """Look for the block that begins at `at`, where nothing else may stand."""
        group.at = at
        if not final and OPENERS.may_grow(self._text, at):
            return False
        group.owners = self._owners(at) if self._text[at : at + 1] not in ("`", "~") else []
        group.asked_chars = 0
        return True if group.owners else self._refuse(at)

    def _ask(self, group: _Group, *, final: bool) -> bool:
        """Ask the next syntax about the block that may begin here."""
        syntax = SYNTAXES[group.owners[0]]
        read = read_block(syntax, self._text[group.at :], self._spot, final=final)
        group.asked_chars = len(self._text) - group.at
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
        """Pass on what was held back: it is text, and so is the rest of the line that `end` is in."""
        if self._group is not None and self._group.blocks:
            self._speaks_of_calls = True
        self._group = None
        self._pass(end)
        self._pass_line()
        return True

    def _pass_line(self) -> None:
        self._passes_line = True
        end = self._text.find("\n", self._at)
        self._pass(end + 1 if end >= 0 else len(self._text))

    def _pass(self, end: int) -> None:
        passed = self._text[self._at : end]
        self._at = end
        if not passed:
            return
        self._out.append(passed)
        self._begun = self._begun or not passed.isspace()
        *lines, rest = passed.split("\n")
        for line in lines:
            whole = "".join([*self._line, line])
            self._markdown.feed(f"{whole}\n")
            self._speaks_of_calls = self._speaks_of_calls or MARKERS.search(whole, 0) is not None
            self._line.clear()
            self._passes_line = False
        if rest:
            self._line.append(rest)
