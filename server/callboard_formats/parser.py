"""The interface of the package: `parse` reads a whole answer, `StreamParser` reads a stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard_formats.calls import RunnableCall, read_call, resolve_tool_name
from callboard_formats.cleaning import Cleaner
from callboard_formats.detection import opened_thought_tags
from callboard_formats.formats import other_syntaxes, related_formats, syntaxes_of
from callboard_formats.output import (
    AllWasThought,
    AnswerBegan,
    CallPiece,
    FoundCall,
    ReasoningPiece,
    Shown,
    TextPiece,
)
from callboard_formats.scanner import Scanner
from callboard_formats.syntax import CallError, Schemas, Syntax, WrittenCall

BYTE_ORDER_MARK = "\ufeff"
"""Some servers send this character before an answer. It is not part of the answer."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call that can run, with `arguments` that fit the tool's schema, or a call with an `error`.

    Attributes:
        name: The tool's name, or the written name if no tool is known by it.
        arguments: None if there is an error.
        repairs: A short text about each difference from the text that the model wrote.
        error: The reason why the call cannot run, as a message for the model.
        error_code: `unknown_tool` or `invalid_args`.
    """

    name: str
    arguments: dict[str, Any] | None
    repairs: tuple[str, ...] = ()
    error: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """An answer: its text for the user, its reasoning, and its calls in order."""

    content: str
    reasoning: str
    tool_calls: tuple[ParsedCall, ...]


Piece = TextPiece | ReasoningPiece | CallPiece


class StreamParser:
    """Reads one answer while it is streamed. Call `feed` for each piece, then `finish` once, then read `calls`.

    If the prompt has opened a thought, the answer is reasoning up to the thought's closer. If the closer is missing:

    - With `thinking=True`, the whole answer is reasoning.
    - Otherwise, it is possible that the prompt has opened no thought: thinking can be switched off, some templates open
      no thought after a tool's result, and an endpoint may remove thoughts. A complete answer without a call is
      therefore also returned as text at the end, so that it is not lost.
    - An answer that was cut off stays reasoning.

    Args:
        tools: OpenAI function schemas.
        formats: The names of the syntaxes to read; None for all.
        model: The model's name. Tokens that this model is known to leak are removed.
        thinking: Whether the prompt has opened a thought, if that is certain.
        prompt_opens: Whether the prompt has probably opened a thought. If it is None, the model's name decides.
        previews: Return arguments as `CallPiece` while they are written.
        falls_back: Also read complete calls at the end of the answer in all other syntaxes. The `source` of such a call
            is its text.

    Raises `ValueError` for an unknown format.
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
        self._scanner = Scanner(
            (*syntaxes_of(formats), *others),
            self.schemas,
            previews=previews,
            opened=opened_thought_tags(model, formats, thinking=thinking, prompt_opens=prompt_opens),
            is_certain=bool(thinking),
        )
        self._cleaner = Cleaner(None if formats is None else (*formats, *related_formats(formats)), model)
        self._found: list[FoundCall] = []
        self._has_begun = False

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that can be shown now."""
        if text and not self._has_begun:
            self._has_begun = True
            text = text.removeprefix(BYTE_ORDER_MARK)
        return self._pieces(self._scanner.feed(text))

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Return the pieces that were held back. `cut` says that the endpoint cut the answer off."""
        pieces = self._pieces(self._scanner.finish(cut=cut))
        if text := self._cleaner.finish():
            pieces.append(TextPiece(text))
        return pieces

    @property
    def found(self) -> Sequence[FoundCall]:
        """The calls as they were written; complete after `finish`."""
        return self._found

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        """The calls with their tools and arguments, or errors; complete after `finish`."""
        return tuple(_parsed(found.call, self.schemas) for found in self._found)

    def _pieces(self, shown: Sequence[Shown]) -> list[Piece]:
        pieces: list[Piece] = []
        for one in shown:
            # Most pieces are text, and `match` takes twice as long as `isinstance` for them.
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
    """Return the text, the reasoning and the calls of `text`, a model's whole answer. No tool runs.

    A call that cannot run (an unknown tool, unreadable arguments, a call that was cut off) has no `arguments` but an
    `error` that tells the model what to do. For the parameters see `StreamParser`. Raises `ValueError` for an unknown
    format.
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
        meant: RunnableCall = read_call(call, schemas)
    except CallError as error:
        return ParsedCall(resolve_tool_name(call.name, schemas), None, error=str(error), error_code=error.code)
    return ParsedCall(meant.name, meant.arguments, meant.repairs)


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the tools' parameters by name. A tool is `{"type": "function", "function": {…}}` or the inner object."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        found[function["name"]] = function.get("parameters") or {"type": "object"}
    return found
