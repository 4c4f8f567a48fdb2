"""Reads an answer while it is streamed: separates calls, thoughts and text.

The same text gives the same result, whole or cut anywhere. Text is passed on unchanged as soon as it cannot be the
beginning of a marker. Markers, tags, and results that the model imagined are dropped.

One generator (see `text_buffer`) reads the whole answer. It consists of methods that yield when they need more text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import regex

from callboard_formats.grammar import (
    Meaning,
    build_grammar,
    closer_literals,
    find_meaning,
    opener_literals,
    result_literals,
    thought_literals,
    token_literals,
    turn_end_pattern,
)
from callboard_formats.json_text import is_json
from callboard_formats.literals import Literals
from callboard_formats.markdown import BEFORE_CLOSING_FENCE, BEFORE_FENCE
from callboard_formats.output import Output, Shown
from callboard_formats.quotation import QuotedText, is_closer_quoted
from callboard_formats.syntax import (
    END_OF_TURN,
    ENDS_OF_TURN,
    BlockContext,
    BlockItems,
    Schemas,
    Syntax,
    Tags,
    TextKind,
    WrittenCall,
)
from callboard_formats.text_buffer import Reading, TextBuffer

PIECE_CHARS = 1024
MAX_END_CHARS = 80
MAX_REFUSED_IN_THOUGHT = 8
"""The number of consecutive malformed calls that are read in a thought. A limit is needed, because each may be read
to the end of the answer."""
MAX_FENCE_LINE_CHARS = 80

_FENCE = re.compile(r"`{3,}|~{3,}")
_FENCE_LINE = re.compile(r"[^`\n]*")
_INFO_WORD = re.compile(r"[\w+#.-]{0,20}[ \t\r]*")
_BACK_TICKS = re.compile("`+")
_OPENING_TOKEN = re.compile(r"<[|｜]\S+[|｜]>|\[[A-Z_]+\]")
_TOKEN_BEFORE_WORD = re.compile(r"<[^>]*>")
_LINE_ENDS = re.compile(rf"[ \t\r]{{0,{MAX_FENCE_LINE_CHARS}}}\n")


class Scanner:
    """Reads one answer. Call `feed` for each piece, then `finish` once.

    Args:
        syntaxes: The syntaxes to read. If several can begin at a position, the first that can read the block does.
        schemas: The parameters of the tools by name.
        previews: Show arguments while they are written.
        opened: The tags of the thought that the prompt has opened.
        is_certain: Whether the prompt has certainly opened the thought. Otherwise, if the thought is never closed and
            the answer contains nothing else, it is also returned as text.
    """

    def __init__(
        self,
        syntaxes: Sequence[Syntax],
        schemas: Schemas,
        *,
        previews: bool = True,
        opened: Sequence[Tags] = (),
        is_certain: bool = True,
    ) -> None:
        self.grammar = build_grammar(tuple(syntaxes))
        self.schemas = schemas
        self._output = Output(schemas)
        self._watcher = self._output.preview if previews else None
        self._buffer = TextBuffer()
        self._quoted = QuotedText(self._buffer)
        self._tags_until_call: tuple[Tags, ...] = ()
        """The tags of the current thought if the next block of calls ends it, as in ReAct; otherwise ()."""
        self._in_message = False
        """The current text is a message to the user. It contains no calls and is passed on unchanged."""
        self._thought_ended = False
        """A thought has ended."""
        self._answering = False
        """The marker of the final answer was read."""
        self._ignores_closer = False
        """An opener of a thought appeared in the middle of a line, so its closer is plain text as well."""
        self._tries_calls_in_thought = True
        """False after too much repeated reading. Then calls in thoughts are no longer read."""
        self._reading = self._read(tuple(opened), is_certain=is_certain)
        if opened:
            self._output.begin_reasoning(keep=not is_certain, is_step=False)

    def feed(self, text: str) -> list[Shown]:
        """Return the pieces that can be shown now, and the calls that have ended."""
        if len(text) > PIECE_CHARS:
            # Reading ahead to the end of a long piece for each of its markers would take quadratic time.
            pieces = (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))
            return [shown for piece in pieces for shown in self.feed(piece)]
        if not self._output.stopped:
            self._buffer.feed(text)
            next(self._reading, None)
        return self._output.take()

    def finish(self, *, cut: bool = False) -> list[Shown]:
        """Return the pieces that were held back. `cut` says that the answer was cut off."""
        self._buffer.final = True
        self._buffer.is_cut = cut
        if not self._output.stopped:
            for _ in self._reading:
                pass
        self._output.finish(cut=cut)
        return self._output.take()

    def _read(self, opened: tuple[Tags, ...], *, is_certain: bool) -> Reading[None]:
        """Read the whole answer."""
        if opened:
            yield from self._skip_second_opener(opened)
            # A thought does not begin with calls. If the answer does, the prompt has opened no thought.
            if is_certain or not (yield from self._begins_with_calls()):
                yield from self._read_thought(opened)
        while not self._output.stopped and (found := (yield from self._find(self._literals()))):
            yield from self._read_literal(found)

    def _begins_with_calls(self) -> Reading[bool]:
        """Read calls at the beginning of the answer. Return whether there are any."""
        opener = yield from self._buffer.match_literal(self.grammar.outside)
        literal_meaning = find_meaning(self.grammar, opener.lower()) if opener else None
        if literal_meaning is None or not literal_meaning.owners or literal_meaning.at_line_start or opener[0] in "`~":
            return False
        return (yield from self._read_block(literal_meaning.owners))

    # Text and the literals in it.

    def _literals(self) -> Literals:
        """Return the literals to search for in text."""
        if self._tags_until_call:
            return closer_literals(self.grammar, self._tags_until_call)
        return self.grammar.after_call if self._output.has_call else self.grammar.outside

    def _find(self, literals: Literals, *, holds_back: bool = False) -> Reading[str]:
        """Move to the next of these literals and return it in lower case; "" at the end of the answer.

        While it waits for more text, the text so far is passed on, unless `holds_back` is true.
        """
        buffer = self._buffer
        while True:
            index, found = literals.find(buffer.text, buffer.index, final=buffer.final)
            buffer.position = buffer.base + index
            if found:
                return found
            if not holds_back:
                self._emit()
            if buffer.final:
                return ""
            yield

    def _read_literal(self, found: str) -> Reading[None]:
        """Decide what the literal here means, and move behind it."""
        buffer = self._buffer
        if any(tag.closer.lower() == found for tag in self._tags_until_call):
            self._end_thought(self._tags_until_call, len(found))
            return
        if self._lacks_line_start(found):
            buffer.position += 1
            return
        self._emit()
        if found[0] in "`~":
            is_quoted = False
        else:
            # A bracket in a program's string is not a quoted marker.
            is_quoted = yield from self._quoted.is_quoted(in_code=found[0] == "{" or found == "[")
        if is_quoted:
            buffer.position += len(found)
            self._quoted.take_verbatim_to_end()
        elif closing_mark := self._closing_mark():
            buffer.position += len(found) if found[0] not in "`~" else 1
            self._quoted.take_verbatim_until(closing_mark)
        else:
            yield from self._read_meaning(found, find_meaning(self.grammar, found))

    def _closing_mark(self) -> str:
        """Return the mark that ends the quotation or the line of indented code around the marker; "" without either."""
        if mark := self._quoted.closing_mark():
            return mark
        return "\n" if not self._tags_until_call and self._quoted.is_in_indented_code() else ""

    def _lacks_line_start(self, found: str) -> bool:
        """Return whether the literal has a meaning only at the beginning of a line, and is not at one."""
        return find_meaning(self.grammar, found).at_line_start and not self._buffer.at_line_start()

    def _read_meaning(self, found: str, literal_meaning: Meaning) -> Reading[None]:
        """Read the block or the thought that the literal begins. Otherwise, the literal is text."""
        buffer = self._buffer
        is_over = self._output.has_call or (self._answering and buffer.at_line_start())
        if literal_meaning.is_turn or (literal_meaning.imagined and is_over):
            self._output.stop()
            return
        if literal_meaning.closes:
            if self._ignores_closer:
                self._ignores_closer = False
                buffer.position += len(literal_meaning.closes)
            else:
                yield from self._read_lone_closer(literal_meaning.closes)
            return
        if literal_meaning.tags and buffer.at_line_start():
            self._emit()
            tags = tuple(tag for tag in literal_meaning.tags if not (tag.first and self._output.has_text))
            if tags and (tags[0].opens is None or (yield from buffer.match(tags[0].opens))):
                yield from self._begin_thought(tags)
                return
        self._ignores_closer = self._ignores_closer or any(tag.opens is None for tag in literal_meaning.tags)
        if literal_meaning.owners and (yield from self._read_block(literal_meaning.owners)):
            return
        if found[0] in "`~":
            yield from self._read_back_ticks(())
        else:
            buffer.position += 1

    # Blocks.

    def _read_block(self, owners: Sequence[int]) -> Reading[bool]:
        """Read the block here with the first of these syntaxes that can read it. Return False if none can.

        `read` is tried with all syntaxes, and then `refuse`.
        """
        buffer = self._buffer
        self._emit()
        start = buffer.keep()
        context = BlockContext(
            line_start=buffer.at_line_start(),
            first=not self._output.has_text and not self._output.has_call,
            schemas=self.schemas,
            answering=self._answering,
            is_introduced=self._output.is_in_sentence,
        )
        watched = replace(context, watcher=self._watcher)
        readers = [self.grammar.syntaxes[place] for place in owners]
        asked = [(syntax, False) for syntax in readers]
        asked += [(syntax, True) for syntax in readers if syntax.refuses]
        for number, (syntax, refuses) in enumerate(asked):
            # Text behind a call of ReAct may be the result that the model imagines, and not the rest of a sentence.
            continuation = self._quoted.continuation(announced=not syntax.answers)
            items: BlockItems | None
            if refuses:
                items = yield from syntax.refuse(buffer, context)
            else:
                items = yield from syntax.read(buffer, context if continuation else watched)
            if items and continuation and (yield from self._may_be_example(items, continuation)):
                # The calls are an example in a sentence.
                self._quoted.quote_up_to(buffer.position)
                items = None
            if items is not None and buffer.position > start:
                is_text = not any(isinstance(item, WrittenCall) for item in items)
                if not is_text or "".join(map(str, items)) != buffer.cut(start, buffer.position):
                    self._add_block(items, syntax, start)
                    return True
                if number == len(asked) - 1:
                    self._pass_block_as_text()
                    return True
            buffer.rewind(start)
            if self._quoted.is_known_to_be_quoted():
                break
        self._pass_block_as_text()
        return False

    def _may_be_example(self, items: BlockItems, continuation: "regex.Pattern[str]") -> Reading[bool]:
        """Return whether `continuation` follows these calls, or may follow because the answer was cut off."""
        buffer = self._buffer
        if (yield from buffer.match(continuation)):
            return True
        is_whole = not any(isinstance(item, WrittenCall) and item.truncated for item in items)
        return is_whole and buffer.is_cut and buffer.is_at_end()

    def _pass_block_as_text(self) -> None:
        # Before `forget`, which drops the text.
        self._emit()
        self._buffer.forget()

    def _add_block(self, items: BlockItems, syntax: Syntax, start: int) -> None:
        if not items and syntax.answers:
            self._answering = syntax.begins_answer(self._buffer.cut(start, self._buffer.position))
        source = self._buffer.cut(start, self._buffer.position) if syntax.is_leak else ""
        self._output.add_block(items, syntax.name, source)
        self._tags_until_call = ()
        self._skip(self._buffer.position)
        self._buffer.forget()

    # Fences.

    def _read_back_ticks(self, message: tuple[Tags, ...]) -> Reading[None]:
        """Move behind back-ticks or tildes, and if they open a fence, behind its code. `message`: see `_read_fence`."""
        buffer = self._buffer
        while True:
            index = buffer.index
            run = _FENCE.match(buffer.text, index)
            if run is None:
                buffer.position += 1
                return
            line = _FENCE_LINE.match(buffer.text, run.end())
            end = line.end() if line else run.end()
            if end < len(buffer.text) or buffer.final or end - index >= MAX_FENCE_LINE_CHARS:
                break
            yield
        rest = buffer.text[run.end() : end]
        # In CommonMark, back-ticks later in the line make it a code span. The search for them is limited.
        follows = buffer.text[end : end + 1] if end - index < MAX_FENCE_LINE_CHARS else ""
        is_span = run[0][0] == "`" and follows == "`"
        if BEFORE_FENCE.fullmatch(buffer.line_before()):
            begins = not is_span
        else:
            begins = follows == "\n" and _INFO_WORD.fullmatch(rest) is not None and self._may_begin_fence(run[0])
        buffer.position += len(run[0])
        if begins and len(run[0]) < MAX_FENCE_LINE_CHARS:
            yield from self._read_fence(run[0], message)

    def _may_begin_fence(self, run: str) -> bool:
        """Return whether this run of back-ticks may open a fence in the middle of a line.

        It must be separated from the text before it, and must not close a code span. CommonMark has no such fences, but
        some models write them.
        """
        before = self._buffer.line_before()
        return run[0] == "`" and before[-1:] in (" ", "\t", ":") and _BACK_TICKS.findall(before).count(run) % 2 == 0

    def _read_fence(self, fence: str, message: tuple[Tags, ...]) -> Reading[None]:
        """Move behind fenced code, up to the line that closes its fence.

        `message` are the tags of the channel's message around the fence; () outside of a message. A closer of the
        message inside the fence is code if the fence is closed later. Otherwise, the first closer ends the message.
        """
        buffer = self._buffer
        marks = _marks_in_fence(fence, message)
        first_closer: int | None = None
        while found := (yield from self._find(marks, holds_back=first_closer is not None)):
            if found[0] != fence[0]:
                if first_closer is None:
                    self._emit()
                    first_closer = buffer.keep()
                buffer.position += len(found)
            elif (yield from self._closes_fence()):
                self._emit()
                buffer.forget()
                self._quoted.leave_fence()
                return
        if first_closer is not None:
            buffer.rewind(first_closer)
            buffer.forget()

    def _closes_fence(self) -> Reading[bool]:
        """Move behind the run of fence characters here. Return whether it closes the fence.

        It does if the rest of its line is empty. A token may follow, because templates write no line end before tokens.
        """
        buffer = self._buffer
        behind = token_literals(self.grammar)
        begins_line = BEFORE_CLOSING_FENCE.fullmatch(buffer.line_before()) is not None
        while True:
            text = buffer.text
            run = _FENCE.match(text, buffer.index)
            end = run.end() if run else len(text)
            rest = text[end : end + MAX_FENCE_LINE_CHARS + 1]
            ends_line = _LINE_ENDS.match(text, end) is not None or behind.match(text, end) != ""
            may_end_line = len(rest) <= MAX_FENCE_LINE_CHARS and not rest.strip(" \t\r")
            if ends_line or buffer.final or not (may_end_line or behind.may_grow(text, end)):
                buffer.position = buffer.base + end
                return begins_line and (ends_line or (buffer.final and may_end_line))
            yield

    # Thoughts.

    def _begin_thought(self, tags: tuple[Tags, ...]) -> Reading[None]:
        """Read the thought or message that these tags open here."""
        self._skip(self._buffer.position + len(tags[0].opener))
        if all(tag.kind is TextKind.MESSAGE for tag in tags):
            self._output.begin_text()
        else:
            until_call = any(tag.until_call for tag in tags)
            opener = tags[0].opener if tags[0].opens else ""
            is_step = any(tag.kind is TextKind.STEP for tag in tags)
            self._output.begin_reasoning(keep=until_call or opener != "", is_step=is_step, opener=opener)
            if until_call:
                self._tags_until_call = tags
                return
        yield from self._read_thought(tags)

    def _skip_second_opener(self, tags: tuple[Tags, ...]) -> Reading[None]:
        """Move behind an opener of the thought at the beginning of the answer, if the prompt has opened it already."""
        buffer = self._buffer
        yield from buffer.space()
        openers = opener_literals(tags)
        while not buffer.final and openers.may_grow(buffer.text, buffer.index):
            yield
        if found := openers.match(buffer.text, buffer.index):
            self._skip(buffer.position + len(found))
            self._output.begin_reasoning(keep=False, is_step=False)

    def _read_thought(self, tags: tuple[Tags, ...]) -> Reading[None]:
        """Read a thought or a message up to its closer, or up to calls that end the answer."""
        buffer = self._buffer
        literals = thought_literals(self.grammar, tags)
        self._in_message = all(tag.kind is TextKind.MESSAGE for tag in tags)
        while found := (yield from self._find(literals)):
            if found[0] in "`~":
                yield from self._read_back_ticks(tags)
            elif closing := next((tag for tag in tags if found.startswith(tag.closer.lower())), None):
                if (yield from self._read_closer(tags, closing)):
                    return
            elif self._quoted.is_right_behind_opening_mark():
                buffer.position += 1
            elif END_OF_TURN.fullmatch(found):
                yield from self._skip_end_tokens()
            elif self._lacks_line_start(found):
                buffer.position += 1
            elif (yield from self._read_calls_in_thought(tags)):
                return

    def _read_closer(self, tags: tuple[Tags, ...], tag: Tags) -> Reading[bool]:
        """End the thought at the closer of `tag`, unless the closer is quoted. Return whether the thought has ended."""
        closer = tag.closer
        is_quoted = yield from self._quoted.is_thought_closer_quoted(len(closer))
        if is_quoted or not (yield from self._is_followed(closer, tag.followed_by)):
            self._buffer.position += len(closer)
            return False
        self._end_thought(tags, 0 if tag.ends_before else len(closer))
        return True

    def _is_followed(self, closer: str, by: "regex.Pattern[str] | None") -> Reading[bool]:
        """Return whether `by` matches behind the closer here. At the end of the answer, a partial match is enough."""
        if by is None:
            return True
        buffer = self._buffer
        start = buffer.position
        buffer.position += len(closer)
        is_followed = bool((yield from buffer.match(by)) or (buffer.final and buffer.cut_off(by)))
        buffer.position = start
        return is_followed

    def _skip_end_tokens(self) -> Reading[None]:
        """Drop the tokens here if they end the answer. Otherwise, the first token is text."""
        buffer = self._buffer
        if (yield from self._ends_behind(0)):
            self._emit()
            self._skip(buffer.end)
        else:
            buffer.position += 1

    def _read_lone_closer(self, closer: str) -> Reading[None]:
        """Drop a closer without an opener. The first such closer turns all text before it into a thought.

        Exceptions are a closer after another thought, and a closer between a call and the end of the answer. They are
        stray tokens and change nothing.
        """
        self._emit()
        if not self._thought_ended:
            follows_call = self._output.has_call and self._is_opener(self._output.waiting, closer)
            is_stray = follows_call and (yield from self._ends_behind(len(closer))) and not self._buffer.is_cut
            if not is_stray:
                self._thought_ended = True
                self._output.all_was_thought()
        self._skip(self._buffer.position + len(closer))

    def _is_opener(self, words: str, closer: str) -> bool:
        """Return whether `words` are empty, or are the rest of this closer's opener without its token.

        For example, Gemma 4 sometimes writes `thought` and `<channel|>` behind a call.
        """
        rest = words.strip()
        openers = (tag.opener for group in self.grammar.tags.values() for tag in group if tag.closer.lower() == closer)
        return not rest or any(rest == _TOKEN_BEFORE_WORD.sub("", opener) for opener in openers)

    def _ends_behind(self, chars: int) -> Reading[bool]:
        """Return whether only tokens that end a turn follow behind the next `chars` characters."""
        buffer = self._buffer
        while True:
            start = buffer.index + chars
            rest = buffer.text[start : start + MAX_END_CHARS + 1]
            if len(rest) > MAX_END_CHARS or ENDS_OF_TURN.match(rest, partial=not buffer.final) is None:
                return False
            if buffer.final:
                return True
            yield

    def _end_thought(self, tags: tuple[Tags, ...], closer_chars: int) -> None:
        """End a thought or a message at the closer here, which has `closer_chars` characters."""
        buffer = self._buffer
        self._emit()
        self._in_message = False
        self._tags_until_call = ()
        if any(tag.kind is TextKind.MESSAGE for tag in tags):
            # Any other closer is the beginning of the next message.
            if END_OF_TURN.match(buffer.text, buffer.index) and not self._output.has_call:
                self._skip(buffer.position + closer_chars)
            return
        answers = any(tag.until_call for tag in tags)
        self._thought_ended = self._thought_ended or not answers
        self._answering = self._answering or answers
        self._skip(buffer.position + closer_chars)
        self._output.end_reasoning(answers=answers)

    # Calls at the end of a thought that is never closed.

    def _read_calls_in_thought(self, tags: tuple[Tags, ...]) -> Reading[bool]:
        """Read the calls that begin here in a thought, if they end the answer. Return whether the thought has ended.

        If the text of the calls contains the thought's closer, it is a part of an argument if all calls are
        well-formed. Otherwise, it ends the thought.
        """
        buffer = self._buffer
        if not self._tries_calls_in_thought:
            buffer.position += 1
            return False
        self._emit()
        start = buffer.keep()
        calls = yield from self._read_last_calls()
        if not calls.end_the_answer:
            # Continue behind these calls, so that they are not read again.
            self._tries_calls_in_thought = buffer.may_reread(start)
            buffer.rewind(max(calls.end, start + 1))
            self._pass_block_as_text()
            return False
        closer = self._find_first_closer(tags, buffer.cut(start, buffer.position))
        if closer and not calls.are_well_formed:
            place, found = closer
            buffer.rewind(start + place)
            self._end_thought(tags, len(found))
            buffer.forget()
            return True
        buffer.forget()
        for items, name in calls.blocks:
            self._output.add_block(items, name)
        self._in_message = False
        self._skip(buffer.position)
        return True

    def _read_last_calls(self) -> "Reading[_LastCalls]":
        """Read consecutive blocks of calls here, up to the end of the answer or to an imagined result."""
        buffer = self._buffer
        context = BlockContext(line_start=buffer.at_line_start(), first=False, schemas=self.schemas)
        openers = self.grammar.outside
        ends = turn_end_pattern(self.grammar)
        results = result_literals(self.grammar)
        calls = _LastCalls(buffer.position)
        while True:
            opener = yield from buffer.match_literal(openers)
            block = (yield from self._read_block_in_thought(opener, context, calls)) if opener else None
            if block is None:
                return calls
            calls.blocks.append(block)
            yield from buffer.space()
            calls.end = buffer.position
            is_over = False
            while (yield from buffer.take(ends)):
                is_over = True
                yield from buffer.space()
            if not (yield from buffer.peek()):
                # If the answer was cut off, the thought may have continued.
                calls.end_the_answer = is_over or not self._buffer.is_cut
                return calls
            if (yield from buffer.match_literal(results)):
                calls.end_the_answer = True
                return calls

    def _read_block_in_thought(
        self, opener: str, context: BlockContext, before: "_LastCalls"
    ) -> "Reading[tuple[Sequence[WrittenCall], str] | None]":
        """Read one block of calls in a thought; return None if there is none.

        The block must have its end marker. Complete calls without it count if they begin a line, or if they follow a
        token of a syntax that has no end markers.
        """
        buffer = self._buffer
        owners = [self.grammar.syntaxes[place] for place in find_meaning(self.grammar, opener.lower()).owners]
        owners = [syntax for syntax in owners if not syntax.is_leak]
        is_token = _OPENING_TOKEN.fullmatch(opener) is not None
        start = buffer.position
        for syntax in owners:
            items = yield from syntax.read(buffer, context)
            calls = [item for item in items or () if isinstance(item, WrittenCall)]
            is_closed = syntax.is_closed(buffer.cut(start, buffer.position))
            # Prose contains no tokens.
            is_endless = is_token and not syntax.has_end
            if calls and (is_closed or not any(call.truncated for call in calls)):
                return (calls, syntax.name) if is_closed or context.line_start or is_endless else None
            buffer.rewind(start)
        for syntax in owners:
            if syntax.refuses and (refused := (yield from syntax.refuse(buffer, context))):
                before.refused += 1
                return (refused, syntax.name) if before.refused <= MAX_REFUSED_IN_THOUGHT else None
            buffer.rewind(start)
        return None

    def _find_first_closer(self, tags: tuple[Tags, ...], text: str) -> tuple[int, str] | None:
        """Return the index and the text of the first closer in `text` that is not quoted; None if there is none."""
        closers = closer_literals(self.grammar, tags)
        found = closers.search(text, 0)
        while found:
            place, closer = found
            end = place + len(closer)
            if not is_closer_quoted(text[:place], text[end : end + 1]):
                break
            found = closers.search(text, end)
        return found

    # Passing text on.

    def _emit(self) -> None:
        """Pass on the text up to this position."""
        buffer = self._buffer
        while buffer.emitted_to < buffer.position:
            end = self._quoted.find_verbatim_end(buffer.emitted_to)
            is_verbatim = end > buffer.emitted_to
            if not is_verbatim:
                end = buffer.position
            text = buffer.cut(buffer.emitted_to, end)
            self._quoted.passed(text)
            self._output.add_text(text, quoted=is_verbatim or self._in_message)
            buffer.emitted_to = end

    def _skip(self, end: int) -> None:
        """Continue at `end`. The text before it is not shown."""
        self._quoted.clear()
        self._buffer.emitted_to = self._buffer.position = self._buffer.boundary = end


@dataclass(slots=True)
class _LastCalls:
    """Consecutive calls in a thought.

    Attributes:
        end: The position behind them.
        blocks: The calls of each block and the name of its syntax.
        end_the_answer: Nothing follows them, except perhaps an imagined result.
        refused: The number of refused blocks.
    """

    end: int
    blocks: list[tuple[Sequence[WrittenCall], str]] = field(default_factory=list)
    end_the_answer: bool = False
    refused: int = 0

    @property
    def are_well_formed(self) -> bool:
        """Whether all calls are complete, well-formed, and have valid JSON."""
        calls = [call for found, _ in self.blocks for call in found]
        return not any(call.truncated or call.broken or not is_json(call.arguments, strict=False) for call in calls)


@cache
def _marks_in_fence(fence: str, message: tuple[Tags, ...]) -> Literals:
    return Literals({fence, *(tag.closer for tag in message)})
