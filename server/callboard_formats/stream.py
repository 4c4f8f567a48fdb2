"""The reader of an answer as it comes: finds calls and thoughts, and passes everything else through.

Pure: the same text gives the same pieces, whole or cut anywhere. What is no call is shown to
the letter, and as soon as it cannot be the beginning of a marker; markers, tags and results
that the model imagined are never shown.
"""

import json
import re
from collections.abc import Sequence

from callboard_formats.grammar import Meaning, closing, end_of_turn, grammar, in_thought, meaning, opening, tokens
from callboard_formats.literals import Literals
from callboard_formats.outlet import Outlet, Preview, Shown
from callboard_formats.quotation import Quotations, StraightMarks, end_of, ends_in_string, ends_quotation
from callboard_formats.syntax import (
    END_OF_TURN,
    ENDS_OF_TURN,
    Answering,
    Closing,
    Refusing,
    Schemas,
    Spot,
    Syntax,
    Tags,
    WrittenCall,
)
from callboard_formats.tape import LOOK_BACK_CHARS, Reading, Tape

PIECE_CHARS = 1024
MAX_END_CHARS = 80
MAX_REFUSED_IN_THOUGHT = 8
MAX_CLOSERS_IN_CALLS = 8
"""So many attempts to read calls in thoughts may hold closing tags: each may read the rest of the answer anew."""
MAX_FENCE_LINE_CHARS = 80
QUOTES = "`\"'“‘«„‹「"
"""The characters right behind which a marker is spoken of, not used; so is what follows it, up to the closing one."""
CLOSING_QUOTE = {"“": "”", "‘": "’", "«": "»", "„": "“", "‹": "›", "「": "」"}
"""The closing ones that are not the same as the opening ones."""

_FENCE = re.compile(r"`{3,}|~{3,}")
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*[ \t]*")
_BEFORE_CLOSING = re.compile(r"[ \t>]*")
_BLOCK_QUOTATION = re.compile(r" {0,3}>")
_INDENTED_CODE = re.compile(r"\S[^\n]*\n(?:[ \t\r]*\n)+(?:(?: {4}| {0,3}\t)[^\n]*\n)*(?: {4}| {0,3}\t)[ \t]*\Z")
_LATER_IN_INDENTED_CODE = re.compile(
    r"[^\n]*\n(?:[ \t\r]*\n)*(?:(?: {4}| {0,3}\t)[ \t]*[^\s][^\n]*\n(?:[ \t\r]*\n)*){3,}(?: {4}| {0,3}\t)[ \t]*"
)
_FENCE_LINE = re.compile(r"[^`\n]*")
_INFO_WORD = re.compile(r"[\w+#.-]{0,20}[ \t\r]*")
_BACK_TICKS = re.compile("`+")
_TOKEN = re.compile(r"<[|｜]\S+[|｜]>|\[[A-Z_]+\]")
_NOTHING_MORE = re.compile(r"[ \t\r]*(?:\n|\Z)")


class Scanner:
    """A reader of one answer: `feed` what comes, then `finish` once.

    `syntaxes` are asked in their order where several claim a place. With `previews` arguments are shown while
    they are written. `opened` are the tags of a thought that the prompt has opened. Unless that is known `surely`, a
    thought that is never closed, and is all there is, counts as the answer too: it was shown as a thought already.
    """

    def __init__(
        self,
        syntaxes: Sequence[Syntax],
        schemas: Schemas,
        *,
        previews: bool = True,
        opened: Sequence[Tags] = (),
        surely: bool = True,
    ) -> None:
        self.syntaxes = tuple(syntaxes)
        self.grammar = grammar(self.syntaxes)
        self.schemas = schemas
        self._outlet = Outlet(schemas)
        self._watcher = Preview(self._outlet if previews else None, schemas)
        self._tape = Tape()
        self._said = 0
        """The end of the text that was handed on."""
        self._boundary = 0
        """The answer's beginning, or right after a block or a thought: what follows stands as if on a new line."""
        self._quoted_from = -1
        """The last marker that stood right behind a quotation mark; before everything where there is none."""
        self._quotation_end = ""
        self._quotations = Quotations()
        self._double_marks = StraightMarks()
        self._single_marks = StraightMarks(single=True)
        self._quoted_to = 0
        """The end of the last quotation that a marker stood in."""
        self._kept_to = 0
        self._kept_until: re.Pattern[str] | None = None
        """Text quotes a marker, and is shown to the letter, up to this place and then to what this pattern finds."""
        self._sought: dict[str, int] = {}
        """For each closing mark, the place up to which it was searched for and not found."""
        self._fence = ""
        self._fence_sought = 0
        """The place up to which the end of the fence was looked for."""
        self._fence_end = 0
        """The place behind the fence that was closed last."""
        self._tags: tuple[Tags, ...] = ()
        self._until_call = False
        """True in a thought that any block ends."""
        self._within: Literals | None = None
        """What to look for in the thought, if this is one."""
        self._enter(tuple(opened))
        self._may_open = bool(opened)
        """True at the beginning of a thought that the prompt has opened: some models open it again."""
        self._thought_ended = False
        """True once the end of a thought was seen."""
        self._is_cut = False
        """True at the end of a text that would have gone on."""
        self._answering = False
        """True behind the marker of the final answer."""
        self._spoken_of = False
        """True behind an opener of a thought that stood amid words: its closer is spoken of too."""
        self._trial: _Trial | None = None
        """The attempt to read calls at the end of a thought that is never closed."""
        self._closers_left = MAX_CLOSERS_IN_CALLS
        """The attempts that may still take a closing tag for a part of their calls' arguments."""
        self._asked: list[tuple[int, bool]] = []
        """The syntaxes still to be asked about the block at `_start`; empty outside of one.

        First all whether they can read it, then some whether it is a call that they have to refuse.
        """
        self._start = 0
        self._reading: Reading[Sequence[WrittenCall | str] | None] | Reading[Sequence[WrittenCall] | None] | None = None
        if opened:
            self._outlet.begin_reasoning(keep=not surely, is_thought=False)

    def feed(self, text: str) -> list[Shown]:
        """Return what can be shown now, and the calls that have ended."""
        # In pieces: to look ahead to its end for each of many markers would take the square of its length.
        for start in range(0, len(text), PIECE_CHARS):
            if self._outlet.stopped:
                break
            self._tape.feed(text[start : start + PIECE_CHARS])
            if not self._pass_on():
                self._read()
        return self._outlet.take()

    def _pass_on(self) -> bool:
        """Hand on what has come, up to what may yet become a marker; return False where there is more to do.

        The short way for most text, which has no marker: the same as `_read`, for less.
        """
        tape = self._tape
        if self._asked or self._trial or self._may_open or self._kept_until or (self._fence and self._tags):
            return False
        if tape.at != self._said or tape.at < self._kept_to:
            return False
        text = tape.text
        start = tape.at - tape.base
        if self._fence:
            if text.find(self._fence[0], start) >= 0:
                return False
            end = len(text)
        else:
            literals = self._literals()
            end, found = literals.find(text, start, final=False)
            while found:
                tape.at = tape.base + end
                if not self._stands_amid_words(found):
                    return False
                end, found = literals.find(text, end + 1, final=False)
        if end > start:
            plain = text[start:end]
            tape.at = self._said = tape.base + end
            self._quotations.passed(plain)
            self._outlet.say(plain)
        return True

    def _literals(self) -> Literals:
        """Return what to look for here."""
        return self._within or (self.grammar.after_call if self._outlet.called else self.grammar.outside)

    def _enter(self, tags: tuple[Tags, ...]) -> None:
        """Go on in a thought of these tags; outside of one where there are none."""
        self._tags = tags
        self._until_call = any(tag.until_call for tag in tags)
        look_for = closing if self._until_call else in_thought
        self._within = look_for(self.grammar, tags) if tags else None

    def finish(self, *, cut: bool = False) -> list[Shown]:
        """Return what was held back; `cut`: more would have come."""
        self._tape.final = True
        self._is_cut = cut
        self._read()
        self._outlet.finish(cut=cut)
        return self._outlet.take()

    def _read(self) -> None:
        tape = self._tape
        while (tape.at < tape.end or self._reading or self._trial) and not self._outlet.stopped:
            if self._asked:
                decided = self._ask()
            elif self._fence:
                decided = self._in_fence()
            elif self._tags and not self._until_call:
                decided = self._in_thought()
            else:
                decided = self._in_text()
            if not decided:
                break
        if not self._outlet.stopped and not self._asked and not self._trial:
            self._say()

    def _in_text(self) -> bool:
        """Pass text on up to the next literal, and look what it is; return False where more text is needed."""
        tape = self._tape
        index, found = self._literals().find(tape.text, tape.at - tape.base, final=tape.final)
        tape.at = tape.base + index
        if not found:
            return False
        if any(tag.closer.lower() == found for tag in self._tags):
            self._end_thought(len(found))
            return True
        if self._stands_amid_words(found):
            tape.at += 1
            return True
        what = meaning(self.grammar, found)
        if found[0] in "`~":
            if not self._is_spoken_of():
                return self._found(what)
            tape.at += 1
            return True
        is_quoted = self._is_in_closed_quotation()
        is_bracket = found[0] == "{" or found == "["
        if is_quoted is False and not is_bracket:
            # Brackets stand in programs for themselves.
            is_quoted = self._is_in_string()
        if is_quoted is None:
            return False
        if is_quoted or self._is_spoken_of():
            self._pass_quoted(len(found), None if is_quoted else self._quotation_end)
            return True
        return self._found(what)

    def _is_spoken_of(self) -> bool:
        """Return whether what stands before the marker here says that it is quoted, or code."""
        return self._is_in_quotation() or (not self._tags and self._is_in_indented_code())

    def _pass_quoted(self, chars: int, closing_mark: str | None) -> None:
        """Show the marker here to the letter, and all that follows up to the end of its quotation.

        That is at `closing_mark` or the line's end; without a mark, at `_quoted_to`.
        """
        self._say()
        self._tape.at += chars
        self._kept_to = self._tape.at if closing_mark else max(self._tape.at, self._quoted_to)
        self._kept_until = re.compile(f"[{re.escape(closing_mark)}\n]") if closing_mark else None

    def _is_in_closed_quotation(self) -> bool | None:
        """Return whether the marker here stands in a quotation that ends within its paragraph; None if unknown yet."""
        tape = self._tape
        if tape.at < self._quoted_to:
            return True
        self._say()
        for closer in self._quotations.closers():
            if closer == '"' and tape.before(tape.at, 1) != '"':
                if not self._read_marks(self._double_marks):
                    return None
                if (end := self._double_marks.closer(tape.at)) is not None:
                    self._quoted_to = end
                    return True
                self._quotations.forget(closer)
                continue
            start = max(tape.at, self._sought.get(closer, 0))
            found = end_of(closer).search(tape.text, start - tape.base, partial=not tape.final)
            self._sought[closer] = tape.base + found.start() if found else tape.end
            # Another back-tick may follow the last one.
            if not tape.final and (found is None or found.partial or found.end() == len(tape.text)):
                return None
            if found and found["closer"]:
                self._quoted_to = tape.base + found.start()
                return True
            self._quotations.forget(closer)
        return False

    def _is_in_string(self) -> bool | None:
        """Return whether the marker here stands in a program's string that ends in its line; None if unknown yet."""
        if not ends_in_string(self._line_before()):
            return False
        if not self._read_marks(self._single_marks):
            return None
        end = self._single_marks.closer(self._tape.at)
        self._quoted_to = end if end is not None else self._quoted_to
        return end is not None

    def _read_marks(self, marks: StraightMarks) -> bool:
        """Read the straight quotation marks in the rest of the line; return False where that has not come yet."""
        tape = self._tape
        if tape.at < marks.end:
            return True
        sought = max(tape.at, self._sought.get("\n", 0))
        line_end = tape.text.find("\n", sought - tape.base)
        if line_end < 0 and not tape.final:
            self._sought["\n"] = tape.end
            return False
        index = tape.at - tape.base
        marks.read(tape.text[index : line_end if line_end >= 0 else len(tape.text)], tape.at)
        return True

    def _is_in_quotation(self) -> bool:
        """Return whether the marker here stands right behind a quotation mark, or further on in what that began."""
        tape = self._tape
        start = max(0, self._boundary)
        before = tape.before(tape.at, 1)
        if tape.at > start and (before == "\\" or _BLOCK_QUOTATION.match(self._line_before())):
            self._quotation_end = "\n"
            return True
        if self._is_right_behind_opening_mark():
            self._quoted_from = tape.at
            self._quotation_end = CLOSING_QUOTE.get(before, before)
            return True
        if self._quoted_from < max(start, tape.base):
            return False
        since = tape.text[self._quoted_from - tape.base : tape.at - tape.base]
        return self._quotation_end not in since and "\n" not in since

    def _is_right_behind_opening_mark(self) -> bool:
        """Return whether a quotation mark stands right before this place that closes nothing in its line."""
        tape = self._tape
        before = tape.before(tape.at, 1)
        is_mark = tape.at > max(self._boundary, self._fence_end) and bool(before) and before in QUOTES
        return is_mark and not ends_quotation(self._line_before())

    def _is_in_indented_code(self) -> bool:
        """Return whether the marker here begins an indented line of code, with text before the code."""
        tape = self._tape
        if tape.before(tape.at, 1) not in (" ", "\t") or self._line_before().strip():
            return False
        start = max(tape.base, tape.at - LOOK_BACK_CHARS, self._boundary)
        before = tape.text[start - tape.base : tape.at - tape.base]
        # Of a long block the beginning is too far off: there are no lines but the code's then.
        is_later = len(before) == LOOK_BACK_CHARS and _LATER_IN_INDENTED_CODE.fullmatch(before)
        if not is_later and _INDENTED_CODE.search(before) is None:
            return False
        self._quoted_from = tape.at
        self._quotation_end = "\n"
        return True

    def _found(self, found: Meaning) -> bool:
        tape = self._tape
        is_over = self._outlet.called or (self._answering and self._at_line_start())
        if found.is_turn or (found.imagined and is_over):
            self._outlet.stop()
            return True
        if found.closes and self._spoken_of:
            self._spoken_of = False
            tape.at += len(found.closes)
            return True
        if found.closes:
            return self._pass_lone_closer(len(found.closes))
        if found.tags and self._at_line_start() and (tags := self._opened(found.tags)):
            self._begin_thought(tags)
            return True
        self._spoken_of = self._spoken_of or bool(found.tags)
        if found.owners:
            self._say()
            refusing = [one for one in found.owners if isinstance(self.syntaxes[one], Refusing)]
            self._asked = [*((one, False) for one in found.owners), *((one, True) for one in refusing)]
            self._start = tape.keep()
            return True
        return self._no_block()

    def _pass_lone_closer(self, chars: int) -> bool:
        """Leave out the closer of a thought that was not opened here: the first says that all before it was thought.

        Not behind a thought that has ended already, nor between a call and the answer's end: it is a stray one there.
        """
        tape = self._tape
        self._say()
        if not self._thought_ended:
            follows_call = self._outlet.called and not self._outlet.waits and not self._is_cut
            ends = follows_call and self._ends_behind(tape.at - tape.base + chars)
            if ends is None:
                return False
            if not ends:
                self._thought_ended = True
                self._outlet.all_was_thought()
        self._skip(tape.at + chars)
        return True

    def _ends_behind(self, index: int) -> bool | None:
        """Return whether nothing but tokens that end a turn follows `index`; None if unknown yet."""
        tape = self._tape
        rest = tape.text[index : index + MAX_END_CHARS + 1]
        tokens = ENDS_OF_TURN.match(rest, partial=not tape.final)
        if len(rest) > MAX_END_CHARS or tokens is None:
            return False
        return True if tape.final else None

    def _opened(self, tags: tuple[Tags, ...]) -> tuple[Tags, ...]:
        self._say()
        return tuple(tag for tag in tags if not (tag.first and self._outlet.said))

    def _begin_thought(self, tags: tuple[Tags, ...]) -> None:
        self._enter(tags)
        self._skip(self._tape.at + len(tags[0].opener))
        if all(tag.is_text for tag in tags):
            self._outlet.begin_text()
            return
        self._outlet.begin_reasoning(
            keep=any(tag.until_call for tag in tags), is_thought=any(tag.is_thought for tag in tags)
        )

    def _ask(self) -> bool:
        """Ask the next syntax about the block that may begin here."""
        tape = self._tape
        place, refuses = self._asked[0]
        if self._reading is None:
            spot = Spot(
                self._at_line_start(), not self._outlet.said and not self._outlet.called, self.schemas, self._answering
            )
            syntax = self.syntaxes[place]
            if refuses and isinstance(syntax, Refusing):
                self._reading = syntax.refuse(tape, spot)
            else:
                self._reading = syntax.read(tape, spot, self._watcher)
        try:
            next(self._reading)
        except StopIteration as done:
            items: Sequence[WrittenCall | str] | None = done.value
        else:
            return False
        self._reading = None
        if items is not None and tape.at > self._start:
            has_calls = any(isinstance(item, WrittenCall) for item in items)
            if has_calls or "".join(map(str, items)) != tape.cut(self._start, tape.at):
                self._accept(items, place)
                return True
            if len(self._asked) == 1:
                self._leave_block()
                return True
        tape.rewind(self._start)
        self._asked.pop(0)
        if self._asked:
            return True
        self._leave_block()
        return self._no_block()

    def _leave_block(self) -> None:
        self._asked.clear()
        # What was read of it is text: said now, while it is kept.
        self._say()
        self._tape.forget()

    def _accept(self, items: Sequence[WrittenCall | str], place: int) -> None:
        syntax = self.syntaxes[place]
        if not items and isinstance(syntax, Answering):
            self._answering = syntax.begins_answer(self._tape.cut(self._start, self._tape.at))
        self._outlet.block(items, self.syntaxes[place].name)
        self._asked.clear()
        self._enter(())
        self._skip(self._tape.at)
        self._tape.forget()

    def _no_block(self) -> bool:
        """Take what stands here as text after all, perhaps as the beginning of fenced code."""
        tape = self._tape
        index = tape.at - tape.base
        fence = _FENCE.match(tape.text, index)
        if fence is None:
            tape.at += 1
            return True
        line = _FENCE_LINE.match(tape.text, fence.end())
        end = line.end() if line else fence.end()
        if end == len(tape.text) and not tape.final and end - index < MAX_FENCE_LINE_CHARS:
            return False
        rest = tape.text[fence.end() : end]
        # Back-ticks further on in the line make it code within the line, says CommonMark. Nobody waits for them longer.
        follows = tape.text[end : end + 1] if end - index < MAX_FENCE_LINE_CHARS else ""
        is_span = fence[0][0] == "`" and follows == "`"
        if _BEFORE_FENCE.fullmatch(self._line_before()):
            begins = not is_span
        else:
            begins = follows == "\n" and _INFO_WORD.fullmatch(rest) is not None and self._ends_prose(fence[0])
        if begins:
            self._fence = fence[0]
        tape.at += len(fence[0])
        return True

    def _ends_prose(self, run: str) -> bool:
        """Return whether this run of back-ticks stands apart from the words of its line, and closes no code span there.

        CommonMark has no fence there, but models begin one so: the line's end and the closing line say the same.
        """
        before = self._line_before()
        return run[0] == "`" and before[-1:] in (" ", "\t", ":") and _BACK_TICKS.findall(before).count(run) % 2 == 0

    def _in_fence(self) -> bool:
        """Pass fenced code on, up to the line that closes its fence."""
        tape = self._tape
        text = tape.text
        start = max(tape.at, self._fence_sought)
        index = text.find(self._fence, start - tape.base)
        if index < 0:
            held = 0 if tape.final else len(text) - len(text.rstrip(self._fence[0]))
            self._fence_sought = max(start, tape.end - held)
            return self._pass_code(self._fence_sought)
        run = _FENCE.match(text, index)
        end = run.end() if run else index + len(self._fence)
        closes = self._closes_fence(index, end)
        if closes is None:
            return self._pass_code(tape.base + index)
        if closes:
            self._fence = ""
            self._fence_end = tape.at = tape.base + end
            self._say()
            self._quotations.clear()
        else:
            self._fence_sought = tape.base + end
            self._pass_code(self._fence_sought)
        return True

    def _pass_code(self, end: int) -> bool:
        """Pass fenced code on up to `end`; return True where it turns out to be none.

        In a message of a channel that is not known before the fence is closed. Where it never is, what ends the message
        in between did so.
        """
        tape = self._tape
        if self._tags:
            index, closer = closing(self.grammar, self._tags).find(tape.text, tape.at - tape.base, final=tape.final)
            end = min(end, tape.base + index)
            if closer and tape.final:
                self._fence = ""
                tape.at = end
                return True
        tape.at = max(tape.at, end)
        return False

    def _closes_fence(self, start: int, end: int) -> bool | None:
        """Return whether the run of a fence's characters from `start` to `end` closes it; None if unknown yet.

        Nothing more is in its line then, or a token right behind it: no template has a line end before one.
        """
        tape = self._tape
        behind = tokens(self.grammar)
        if not tape.final and (self._may_close(start, end) or behind.may_grow(tape.text, end)):
            return None
        is_last = _NOTHING_MORE.match(tape.text, end) or behind.match(tape.text, end)
        return bool(is_last) and _BEFORE_CLOSING.fullmatch(self._line_before(tape.base + start)) is not None

    def _in_thought(self) -> bool:
        """Pass a thought on, up to its end, or to calls that may be the end of the answer."""
        tape = self._tape
        if self._trial:
            return self._try()
        if self._may_open:
            return self._pass_opener()
        index, found = self._literals().find(tape.text, tape.at - tape.base, final=tape.final)
        tape.at = tape.base + index
        if not found:
            return False
        if found[0] in "`~":
            return self._no_block()
        if closer := next((tag.closer for tag in self._tags if found.startswith(tag.closer.lower())), ""):
            return self._pass_closer(closer)
        if self._is_right_behind_opening_mark():
            tape.at += 1
        elif END_OF_TURN.fullmatch(found):
            return self._pass_end_tokens()
        elif self._stands_amid_words(found):
            tape.at += 1
        else:
            self._say()
            self._trial = _Trial(self, tape.keep(), line_start=self._at_line_start())
        return True

    def _pass_closer(self, closer: str) -> bool:
        """End the thought at its closer here, unless that is quoted."""
        is_quoted = self._is_quoted_closer(len(closer))
        if is_quoted is None:
            return False
        if is_quoted:
            self._tape.at += len(closer)
            return True
        begins_next = any(tag.ends_before and tag.closer == closer for tag in self._tags)
        self._end_thought(0 if begins_next else len(closer))
        return True

    def _pass_end_tokens(self) -> bool:
        """Leave out the tokens here where the answer ends in them; where it goes on, the first is spoken of."""
        tape = self._tape
        ends = self._ends_behind(tape.at - tape.base)
        if ends is None:
            return False
        if not ends:
            tape.at += 1
            return True
        self._say()
        self._skip(tape.end)
        return True

    def _pass_opener(self) -> bool:
        """Pass the opener of the thought that the prompt has opened, if it is here once more."""
        tape = self._tape
        text = tape.text
        index = tape.at - tape.base
        index += len(text[index:]) - len(text[index:].lstrip())
        tape.at = tape.base + index
        openers = opening(self._tags)
        if not tape.final and (index == len(text) or openers.may_grow(text, index)):
            return False
        self._may_open = False
        if found := openers.match(text, index):
            self._skip(tape.base + found.end())
            self._outlet.begin_reasoning(keep=False, is_thought=False)
        return True

    def _is_quoted_closer(self, chars: int) -> bool | None:
        """Return whether the closer here, so many characters long, stands in quotation marks; None if unknown yet."""
        tape = self._tape
        before = tape.before(tape.at, 1)
        behind = tape.at - tape.base + chars
        if not before or before not in QUOTES or tape.at <= self._boundary:
            return False
        if behind == len(tape.text) and not tape.final:
            return None
        is_paired = tape.text[behind : behind + 1] == CLOSING_QUOTE.get(before, before)
        return is_paired and not ends_quotation(self._line_before())

    def _try(self) -> bool:
        """Read on in what may be calls at the end of the answer; the thought's closing tag ends them too."""
        tape = self._tape
        trial = self._trial
        assert trial is not None
        closers = closing(self.grammar, self._tags)
        text = tape.text
        index = tape.at - tape.base
        end, closer = closers.find(text, index, final=tape.final)
        trial.tape.feed(text[index:end])
        tape.at = tape.base + end
        if closer:
            is_quoted = self._is_quoted_closer(len(closer))
            if is_quoted is None:
                return False
            if not is_quoted and trial.first_closer is None:
                trial.first_closer = (tape.at, len(closer))
                self._closers_left -= 1
            if is_quoted or self._closers_left >= 0:
                trial.tape.feed(text[end : end + len(closer)])
                tape.at += len(closer)
                return True
            return self._end_thought_in_trial(trial.first_closer)
        trial.tape.final = tape.final
        if not trial.read():
            return False
        if trial.blocks and (trial.first_closer is None or trial.is_right()):
            self._trial = None
            tape.forget()
            for items, name in trial.blocks:
                self._outlet.block(items, name)
            self._enter(())
            self._skip(tape.at)
            return True
        if trial.first_closer is not None:
            return self._end_thought_in_trial(trial.first_closer)
        # Of several calls in a row none is looked at twice, nor anything once the text has ended.
        tape.rewind(tape.end if tape.final else trial.start + trial.passed)
        self._leave_trial()
        return True

    def _end_thought_in_trial(self, closer: tuple[int, int] | None) -> bool:
        """End the thought at `closer`, its place and length: what was tried before it is thought."""
        assert closer is not None
        place, chars = closer
        self._tape.rewind(place)
        self._leave_trial()
        self._end_thought(chars)
        return True

    def _leave_trial(self) -> None:
        self._trial = None
        if self._tape.at > self._said:
            self._say()
        self._tape.forget()

    def _end_thought(self, closer_chars: int) -> None:
        self._say()
        if any(tag.is_text for tag in self._tags):
            # Or it begins the next message.
            self._enter(())
            if END_OF_TURN.match(self._tape.text, self._tape.at - self._tape.base) and not self._outlet.called:
                self._skip(self._tape.at + closer_chars)
            return
        self._thought_ended = self._thought_ended or not any(tag.until_call or tag.is_result for tag in self._tags)
        answers = self._until_call
        self._answering = self._answering or answers
        self._enter(())
        self._skip(self._tape.at + closer_chars)
        self._outlet.end_reasoning(answers=answers)

    def _say(self) -> None:
        """Hand on what was passed over."""
        tape = self._tape
        while self._said < tape.at:
            end = self._end_of_quoted() if self._kept_until or self._said < self._kept_to else self._said
            quoted = end > self._said
            if not quoted:
                end = tape.at
            text = tape.text[self._said - tape.base : end - tape.base] if self._said >= tape.base else ""
            text = text or tape.cut(self._said, end)
            self._quotations.passed(text)
            self._outlet.say(text, quoted=quoted)
            self._said = end

    def _end_of_quoted(self) -> int:
        """Return up to where the text that is to be said next is quoted; `_said` where it is no more."""
        tape = self._tape
        if self._said < self._kept_to:
            return min(self._kept_to, tape.at)
        text = tape.cut(self._said, tape.at)
        closing_mark = self._kept_until.search(text) if self._kept_until else None
        if closing_mark:
            self._kept_until = None
            return self._said + closing_mark.start()
        return tape.at

    def _skip(self, end: int) -> None:
        """Go on at `end`, behind something that is not shown."""
        self._quotations.clear()
        self._kept_until = None
        self._said = self._tape.at = self._boundary = end

    def _may_close(self, start: int, end: int) -> bool:
        """Return whether the line of the fence from `start` to `end` may go on with nothing."""
        text = self._tape.text
        return len(text) - start < MAX_FENCE_LINE_CHARS and not text[end:].strip(" \t\r")

    def _line_before(self, place: int | None = None) -> str:
        """Return what stands before `place` in its line, or a part of it that is long enough to be no beginning.

        The place is where the tape is, unless it is named.
        """
        tape = self._tape
        end = tape.at if place is None else place
        start = max(tape.base, end - LOOK_BACK_CHARS, self._boundary)
        before = tape.text[start - tape.base : end - tape.base]
        return before[before.rfind("\n") + 1 :]

    def _stands_amid_words(self, found: str) -> bool:
        """Return whether what was found here means nothing but at the beginning of a line, and this is none."""
        return meaning(self.grammar, found).at_line_start and not self._at_line_start()

    def _at_line_start(self) -> bool:
        tape = self._tape
        start = max(tape.base, tape.at - LOOK_BACK_CHARS, self._boundary)
        before = tape.text[start - tape.base : tape.at - tape.base]
        line_end = before.rfind("\n")
        if line_end < 0 and start != self._boundary:
            return False
        return not before[line_end + 1 :].strip()


class _Trial:
    """A look at calls within a thought: are they all that follows?"""

    def __init__(self, scanner: Scanner, start: int, *, line_start: bool) -> None:
        self.start = start
        self.first_closer: tuple[int, int] | None = None
        """The place and the length of the first closer in them: the thought's end, if they are no calls."""
        self.tape = Tape()
        self.passed = 1
        """The number of characters that are passed: no call, or a call after which the thought goes on."""
        self.blocks: list[tuple[Sequence[WrittenCall | str], str]] = []
        """The calls that the answer ends in, once they are read."""
        self._syntaxes = scanner.syntaxes
        self._grammar = scanner.grammar
        self._spot = Spot(line_start, False, scanner.schemas)
        self._refused = 0
        self._reading = self._calls()

    def read(self) -> bool:
        """Read on; return whether it is known what they are."""
        try:
            next(self._reading)
        except StopIteration as done:
            self.blocks = done.value
            return True
        return False

    def is_right(self) -> bool:
        """Return whether none of the calls has to be refused for how it is written."""
        calls = [item for items, _ in self.blocks for item in items if isinstance(item, WrittenCall)]
        return not any(call.truncated or call.broken or not _is_json(call.arguments) for call in calls)

    def _calls(self) -> Reading[list[tuple[Sequence[WrittenCall | str], str]]]:
        tape = self.tape
        blocks: list[tuple[Sequence[WrittenCall | str], str]] = []
        openers = self._grammar.outside
        tokens = end_of_turn(self._grammar)
        while True:
            while not tape.final and openers.may_grow(tape.text, tape.at - tape.base):
                yield
            found = openers.match(tape.text, tape.at - tape.base)
            block = (yield from self._block(found[0])) if found else None
            if block is None:
                return []
            blocks.append(block)
            yield from tape.space()
            self.passed = tape.at
            while (yield from tape.take(tokens)):
                yield from tape.space()
            if not (yield from tape.peek()):
                return blocks

    def _block(self, opener: str) -> "Reading[tuple[Sequence[WrittenCall | str], str] | None]":
        """Read calls that are closed, or whole and on lines of their own, or have no end and stand behind a token."""
        tape = self.tape
        owners = meaning(self._grammar, opener.lower()).owners
        is_token = _TOKEN.fullmatch(opener) is not None
        start = tape.keep()
        for place in owners:
            syntax = self._syntaxes[place]
            items = yield from syntax.read(tape, self._spot, Preview(None, {}))
            calls = [item for item in items or () if isinstance(item, WrittenCall)]
            is_closed = isinstance(syntax, Closing) and syntax.is_closed(tape.cut(start, tape.at))
            # Nobody writes a token in prose.
            is_endless = is_token and isinstance(syntax, Closing) and not syntax.has_end
            stands_apart = self._spot.line_start or is_endless
            if calls and (is_closed or not any(call.truncated for call in calls)):
                return (calls, syntax.name) if is_closed or stands_apart else None
            tape.rewind(start)
        if self.first_closer is not None:
            # With a closer in it only a right call counts.
            return None
        for place in owners:
            syntax = self._syntaxes[place]
            if isinstance(syntax, Refusing) and (refused := (yield from syntax.refuse(tape, self._spot))):
                # Each may have been read to the end of the answer.
                self._refused += 1
                return (refused, syntax.name) if self._refused <= MAX_REFUSED_IN_THOUGHT else None
            tape.rewind(start)
        return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
