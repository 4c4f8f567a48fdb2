"""The two things to know: `parse`, which reads a whole answer, and `StreamParser`, which reads one as it comes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard_formats.at_end import BareCalls, bare_calls
from callboard_formats.calls import MeantCall, tool_meant, understand
from callboard_formats.cleaning import Cleaner
from callboard_formats.detection import opened_thought_tags, prompt_ends_with_separator
from callboard_formats.formats import other_syntaxes, read_besides, syntaxes_of
from callboard_formats.functionary import FirstMessage
from callboard_formats.output import (
    AllWasThought,
    AnswerBegan,
    CallPiece,
    FoundCall,
    ReasoningPiece,
    Shown,
    TextPiece,
)
from callboard_formats.stream import Scanner
from callboard_formats.syntax import CallError, Schemas, Syntax, WrittenCall

BYTE_ORDER_MARK = "\ufeff"
"""What some servers send before an answer, and is no text of it."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call: with `arguments` that fit the tool and what was repaired in them, or with an `error`.

    `name` is the tool's where it is known, else what the model wrote.
    """

    name: str
    arguments: dict[str, Any] | None
    repairs: tuple[str, ...] = ()
    error: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """An answer: `content` for the user, `reasoning`, and the calls in their order."""

    content: str
    reasoning: str
    tool_calls: tuple[ParsedCall, ...]


Piece = TextPiece | ReasoningPiece | CallPiece


class StreamParser:
    """A reader of one answer as it comes: `feed` each piece, then `finish` once; then there are `calls`.

    `tools` are OpenAI function schemas. `formats` are the names of the syntaxes to read, every one where it is
    None. `model`: the model's name, by which the model's quirks are cleaned up.

    What the prompt has opened is a thought from its first word up to its closer. `thinking` says for certain whether it
    has opened one, else `prompt_opens` does, else the model's name. Where no closer comes:

    - By `thinking` all of it is the thought.
    - Else it may have been none: thinking can be switched off, some templates open none behind a tool's result, and an
      endpoint may leave thoughts out. So a text that is whole, and has no call either, is the content too, at its end:
      an answer is never lost.
    - One that was `cut` off stays the thought.

    With `falls_back` a whole call at the answer's end is found in every other syntax too; its text is its `source`.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]],
        formats: Sequence[str] | None = None,
        *,
        model: str = "",
        thinking: bool | None = None,
        prompt_opens: bool | None = None,
        previews: bool = True,
        falls_back: bool = False,
    ) -> None:
        self.schemas = schemas_of(tools)
        others: Sequence[Syntax] = other_syntaxes(tuple(formats)) if falls_back and formats is not None else ()
        if formats is not None and BareCalls.name in formats and self.schemas:
            others = (*others, bare_calls(tuple(self.schemas)))
        self._scanner = Scanner(
            (*syntaxes_of(formats), *others),
            self.schemas,
            previews=previews,
            opened=opened_thought_tags(model, formats, thinking=thinking, prompt_opens=prompt_opens),
            surely=bool(thinking),
        )
        self._cleaner = Cleaner(None if formats is None else (*formats, *read_besides(formats)), model)
        self._first_message = FirstMessage(self.schemas) if prompt_ends_with_separator(model, formats) else None
        self._found: list[FoundCall] = []
        self._has_begun = False

    def feed(self, text: str) -> list[Piece]:
        """Return what can be shown now."""
        if text and not self._has_begun:
            self._has_begun = True
            text = text.removeprefix(BYTE_ORDER_MARK)
        if self._first_message:
            text = self._first_message.feed(text)
        return self._pieces(self._scanner.feed(text))

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Return what was held back; `cut`: the model had no room for more."""
        pieces = self._pieces(self._scanner.feed(self._first_message.finish())) if self._first_message else []
        pieces += self._pieces(self._scanner.finish(cut=cut))
        if text := self._cleaner.finish():
            pieces.append(TextPiece(text))
        return pieces

    @property
    def found(self) -> Sequence[FoundCall]:
        """The calls as they were written, after `finish`; the `number` of each is that of its pieces."""
        return self._found

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        """The calls and what they mean, after `finish`."""
        return tuple(_parsed(found.call, self.schemas) for found in self._found)

    def _pieces(self, shown: Sequence[Shown]) -> list[Piece]:
        pieces: list[Piece] = []
        for one in shown:
            # The first of them is asked for with each token of a model, for which `match` takes twice as long.
            if isinstance(one, TextPiece):
                text = self._cleaner.pass_on(one.text) if one.quoted else self._cleaner.feed(one.text)
                if text == one.text and not one.quoted:
                    pieces.append(one)
                elif text:
                    pieces.append(TextPiece(text))
            elif isinstance(one, AnswerBegan):
                self._cleaner.answer_begins()
            elif isinstance(one, AllWasThought):
                self._found.clear()
            elif isinstance(one, FoundCall):
                self._found.append(one)
            else:
                pieces.append(one)
        return pieces


def parse(
    text: str,
    tools: Sequence[Mapping[str, Any]],
    formats: Sequence[str] | None = None,
    *,
    model: str = "",
    thinking: bool | None = None,
) -> Parsed:
    """Return what `text`, a model's whole answer, says; see `StreamParser`.

    Nothing runs, and nothing that is no call of these tools gets `arguments`: an unknown tool,
    arguments that cannot be read and a call that was cut off have an `error` instead, which
    says what the model should do. Raises `ValueError` for a format that there is not.
    """
    parser = StreamParser(tools, formats, model=model, thinking=thinking, previews=False)
    pieces = [*parser.feed(text), *parser.finish()]
    return Parsed(
        "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)),
        "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)),
        parser.calls,
    )


def _parsed(call: WrittenCall, schemas: Schemas) -> ParsedCall:
    try:
        meant: MeantCall = understand(call, schemas)
    except CallError as error:
        return ParsedCall(tool_meant(call.name, schemas), None, error=str(error), error_code=error.code)
    return ParsedCall(meant.name, meant.arguments, meant.repairs)


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return parameters by name, of `{"type": "function", "function": {…}}` or of the inner object alone."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        found[function["name"]] = function.get("parameters") or {"type": "object"}
    return found
