"""The pieces of an answer: text, reasoning, arguments of calls, and calls.

Text behind a call is held back until another call follows. If no call follows, the model has imagined the text, and it
is dropped.
"""

from dataclasses import dataclass

from callboard_formats.fitting import convert_strings
from callboard_formats.names import resolve_name
from callboard_formats.syntax import BlockItems, Schemas, WrittenCall

MAX_HELD_SPACE = 80
MAX_MARKS = 8
"""The number of characters at the end of a text that show whether its last sentence is complete."""

_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
_BEHIND_SENTENCES = " \t\r\n*_`\"'”’»)"


# Not frozen, because there is one for each token of a model, and a frozen one takes three times as long to create.
@dataclass(slots=True)
class TextPiece:
    """Answer text for the user. `quoted` text may contain quoted markers, which must be shown."""

    text: str
    quoted: bool = False


@dataclass(slots=True)
class ReasoningPiece:
    """Reasoning text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of the arguments of the call `number`. Together, the pieces of a call are its arguments."""

    number: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call that has ended.

    Attributes:
        number: The number of the call in the answer, as in `CallPiece`.
        syntax: The name of the syntax that read it.
        call: The call as it was written.
        thought: The text behind `Thought:` since the previous call (ReAct).
        source: The text of the block, with the white space before it, if the model was asked for another syntax;
            otherwise "". If the caller does not accept the call, it shows this text instead.
    """

    number: int
    syntax: str
    call: WrittenCall
    thought: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class AnswerBegan:
    """The marker of the final answer was read, so the final answer begins here."""


@dataclass(frozen=True, slots=True)
class AllWasThought:
    """A thought's closer without an opener was read. All text before it was a thought, whose calls do not count."""


Shown = AllWasThought | AnswerBegan | TextPiece | ReasoningPiece | CallPiece | FoundCall


class Output:
    """Collects the pieces of one answer."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.has_call = False
        """The answer contains a call."""
        self.stopped = False
        """The model continued with imagined results, so all further text is dropped."""
        self.has_text = False
        """The answer contains text."""
        self._last_chars = ""
        """The last characters of the text so far."""
        self._out: list[Shown] = []
        self._waiting: list[TextPiece | ReasoningPiece] = []
        self._space = ""
        self._reasoning = False
        self._thought: list[str] | None = None
        self._is_step = False
        self._before_call: list[str] = []
        self._begins = False
        self._separate = False
        self._calls = 0
        self._previewed: int | None = None
        self._previewed_chars = 0

    @property
    def waiting(self) -> str:
        """The text that has followed the last call so far."""
        return "".join(piece.text for piece in self._waiting)

    @property
    def is_in_sentence(self) -> bool:
        """Whether the text so far ends in the middle of a sentence."""
        return self.has_text and not self._last_chars.rstrip(_BEHIND_SENTENCES).endswith(_SENTENCE_ENDS)

    def take(self) -> list[Shown]:
        """Return the pieces since the last call of this method."""
        out = self._out
        self._out = []
        return out

    def add_text(self, text: str, *, quoted: bool = False) -> None:
        """Add text of the answer or of the current thought."""
        if self._begins:
            text = text.lstrip()
        if not text:
            return
        self._begins = False
        if self._space or text[-1].isspace():
            text = self._hold_space(self._space + text)
            if not text:
                return
        if self._reasoning:
            if self._thought is not None:
                self._thought.append(text)
            if self._is_step:
                self._before_call.append(text)
            (self._waiting if self.has_call else self._out).append(ReasoningPiece(text))
            return
        if self._separate and self.has_text:
            text = "\n\n" + text
        self._separate = False
        self.has_text = True
        self._last_chars = (self._last_chars + text)[-MAX_MARKS:]
        (self._waiting if self.has_call else self._out).append(TextPiece(text, quoted))

    def _hold_space(self, text: str) -> str:
        """Return the text without the white space at its end, which is held back until more text follows."""
        shown = text.rstrip()
        if len(text) - len(shown) > MAX_HELD_SPACE:
            shown = text[: len(text) - MAX_HELD_SPACE]
        self._space = text[len(shown) :]
        return shown

    def begin_reasoning(self, *, keep: bool, is_step: bool, opener: str = "") -> None:
        """Treat further text as reasoning.

        With `keep`, the reasoning and its `opener` become the answer if there is no other text at the end. With
        `is_step`, the reasoning also becomes the `thought` of the next call.
        """
        self._begin_part()
        self._is_step = is_step
        if is_step and self._before_call:
            self._before_call.append("\nThought: ")
        self._reasoning = True
        if keep and self._thought is None:
            self._thought = [opener] if opener else []
        if not keep:
            self._thought = None

    def begin_text(self) -> None:
        """Treat further text as the answer."""
        self._begin_part()
        self._reasoning = False

    def end_reasoning(self, *, answers: bool) -> None:
        """Treat further text as the answer. `answers` means that a marker of the final answer was read."""
        self._begin_part()
        self._reasoning = False
        if not answers:
            # A thought that is closed cannot be the answer.
            self._thought = None
        if answers and not self.has_call:
            self._out.append(AnswerBegan())

    def add_block(self, items: BlockItems, syntax: str, source: str = "") -> None:
        """Add the calls and the texts of a block. `source` is the block's text if its syntax was not requested."""
        if source:
            source = (self._space or ("\n\n" if self.has_text else "")) + source
        self._begin_part()
        self._reasoning = False
        if not items and not self.has_call:
            self._out.append(AnswerBegan())
        for item in items:
            if isinstance(item, WrittenCall):
                self._add_call(item, syntax, source)
            else:
                self.add_text(item)
        self._previewed = None
        self._previewed_chars = 0

    def preview(self, name: str, text: str) -> None:
        """Add a piece of the arguments of the call that is being written, if its tool is known."""
        resolved = resolve_name(name, self._schemas)
        if resolved is None:
            return
        self._release_waiting()
        if self._previewed is None:
            self._previewed = self._take_number()
        self._previewed_chars += len(text)
        self._out.append(CallPiece(self._previewed, resolved.name, text))

    def all_was_thought(self) -> None:
        """Turn everything so far into a thought, including calls."""
        self._begin_part()
        self.has_call = False
        self._release_waiting()
        self._out.append(AllWasThought())

    def stop(self) -> None:
        """Drop all further text, because the model imagines results from here on."""
        self.stopped = True

    def finish(self, *, cut: bool = False) -> None:
        """Add the white space at the end, or drop the text behind the last call.

        If there is no text and no call, a thought that was never closed is also added as text. If the answer was `cut`
        off, it is not, because the text would have followed.
        """
        if self.has_call:
            self._waiting.clear()
        elif not self.has_text and self._thought and not cut:
            self._out.append(TextPiece("".join(self._thought)))
        elif self._space and not self._reasoning:
            self._out.append(TextPiece(self._space))

    def _begin_part(self) -> None:
        self._space = ""
        self._begins = True
        self._separate = True

    def _add_call(self, call: WrittenCall, syntax: str, source: str) -> None:
        self._release_waiting()
        self._space = ""
        self.has_call = True
        number = self._previewed
        rest = self._convert_arguments(call)
        if number is not None:
            rest = rest[self._previewed_chars :]
            self._previewed = None
            self._previewed_chars = 0
        else:
            number = self._take_number()
        if rest:
            self._out.append(CallPiece(number, call.name, rest))
        self._out.append(FoundCall(number, syntax, call, "".join(self._before_call), source))
        self._before_call.clear()

    def _convert_arguments(self, call: WrittenCall) -> str:
        """Return the arguments. Strings from between tags are converted to the types of the schema."""
        resolved = resolve_name(call.name, self._schemas) if call.untyped and not call.truncated else None
        return convert_strings(call.arguments, self._schemas[resolved.name]) if resolved else call.arguments

    def _take_number(self) -> int:
        self._calls += 1
        return self._calls - 1

    def _release_waiting(self) -> None:
        self._out += self._waiting
        self._waiting.clear()
