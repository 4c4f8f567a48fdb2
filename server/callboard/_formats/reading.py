"""Reads calls in an answer's text with the parser of `callboard_formats`, and native calls as well.

A server may send native `tool_calls` although the model was asked to write calls as text. Then only the native calls
count, because the text repeats them.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import structlog

from callboard._formats.native_reader import NativeReader
from callboard._formats.pieces import ArgumentsPiece, ClaimId, Piece, make_pieces
from callboard._formats.rescuing.completeness import is_complete
from callboard._formats.rescuing.react_labels import LabelRemover
from callboard._formats.rescuing.repetition import is_repeated, sent_texts
from callboard.calls import Tool, ToolCall
from callboard.models import ChatDict, Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard_formats import CallPiece, StreamParser, TextPiece
from callboard_formats.calls import resolve_tool_name
from callboard_formats.formats import is_written_by
from callboard_formats.output import FoundCall
from callboard_formats.parser import Piece as ParsedPiece
from callboard_formats.syntax import LAST_OBSERVATION, WrittenCall

_log = structlog.get_logger(__name__)


class ScanningReader:
    """Reads one answer.

    Args:
        chosen: The name of the syntax to read, or "rescue" for every syntax.
        tools: The offered tools.
        claim_id: Makes the ids of the calls.
        messages: The messages that the model was sent.
        model: The model's name.
        prompt_opens: Whether the prompt has opened a thought; None leaves that to the model's name.
        is_requested: The model was asked to write its calls in the syntax. Arguments are then shown while they are
            written, and a call at the end of the answer in another syntax is read too. Such a call is `rescued` and
            `asks_first`, and stays text if it repeats `messages`.
        asks_first: Calls are `rescued`, and need an approval unless their tool is `read_only`.
    """

    def __init__(
        self,
        chosen: str,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),
        *,
        model: str = "",
        prompt_opens: bool | None = None,
        is_requested: bool = False,
        asks_first: bool = False,
    ) -> None:
        self._chosen = chosen
        self._tools = [tool.schema() for tool in tools]
        self._known = [tool.name for tool in tools]
        self._claim_id = claim_id
        self._messages = messages
        self._model = model
        self._prompt_opens = prompt_opens
        self._is_requested = is_requested
        self._asks_first = asks_first
        self._sends_reasoning = False
        self._is_cut = False
        self._native = NativeReader(claim_id)
        self._ids: dict[int, str] = {}
        """The ids of the calls that the parser is reading, by their numbers."""
        self._found: list[ToolCall] = []
        self._held: list[ArgumentsPiece] = []
        self._labels = LabelRemover(partial(sent_texts, messages))
        self._parser: StreamParser | None = None

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return the pieces that `delta` adds."""
        match delta:
            case TextDelta():
                if self._parser is None:
                    self._parser = self._new_parser()
                return self._pieces(self._parser.feed(delta.text))
            case ToolCallDelta():
                # The text before a native call ends here: held text must not be shown after the call.
                return [*self._release(), *make_pieces(*self._labels.finish()), *self._native.feed(delta)]
            case ReasoningDelta():
                self._sends_reasoning = True
            case Finish(reason="length"):
                self._is_cut = True
            case _:
                pass
        return self._native.feed(delta)

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back."""
        pieces = self._release()
        pieces += make_pieces(*self._labels.finish(is_rescued=bool(self._found)))
        pieces += self._native.finish()
        self._warn()
        if self._native.calls():
            self._found.clear()
        else:
            pieces += self._held
        return pieces

    def calls(self) -> list[ToolCall]:
        """Return the native calls, or else the calls in the text, in the order they began."""
        return self._native.calls() or self._found

    def _to_call(self, found: FoundCall) -> ToolCall:
        call = found.call
        asks_first = self._asks_first or bool(found.source)
        return ToolCall(
            self._id(found.number),
            call.name,
            call.arguments,
            written=call,
            syntax=found.syntax,
            rescued=asks_first or self._chosen == "rescue",
            asks_first=asks_first,
            # Only the chosen syntax shows a thought to the model again.
            thought=found.thought if found.syntax == self._chosen else "",
        )

    def _release(self) -> list[Piece]:
        """Return the pieces held of the text so far. Text that follows is read by a new parser."""
        if self._parser is None:
            return []
        pieces = self._pieces(self._parser.finish(cut=self._is_cut))
        for source, group in groupby(self._parser.found, key=lambda found: found.source):
            calls = list(group)
            if source and not self._is_call(source, [found.call for found in calls]):
                ids = {self._id(found.number) for found in calls}
                self._held = [piece for piece in self._held if piece.call_id not in ids]
                pieces += self._without_labels(TextPiece(source))
            else:
                self._found += map(self._to_call, calls)
        self._ids.clear()
        self._parser = None
        return pieces

    def _is_call(self, source: str, calls: Sequence[WrittenCall]) -> bool:
        """Return whether calls in another syntax are complete, and no repetition of the messages."""
        block = LAST_OBSERVATION.sub("", source).lstrip()
        named = [call.name for call in calls]
        return is_complete(block, calls, named) and not is_repeated([(block, calls)], sent_texts(self._messages))

    def _new_parser(self) -> StreamParser:
        formats = None if self._chosen == "rescue" else [self._chosen]
        # An endpoint that sends reasoning separately leaves no thought in the text.
        thinking = False if self._sends_reasoning or formats is None else None
        return StreamParser(
            self._tools,
            formats,
            model=self._model,
            thinking=thinking,
            prompt_opens=self._prompt_opens,
            previews=self._is_requested,
            falls_back=self._is_requested,
        )

    def _pieces(self, shown: Sequence[ParsedPiece]) -> list[Piece]:
        pieces: list[Piece] = []
        leaked = {found.number for found in self._parser.found if found.source} if self._parser else ()
        for one in shown:
            if isinstance(one, CallPiece):
                name = resolve_tool_name(one.name, self._known)
                piece = ArgumentsPiece(self._id(one.number), name, one.text)
                (pieces if self._is_requested and one.number not in leaked else self._held).append(piece)
            else:
                pieces += self._without_labels(one) if isinstance(one, TextPiece) else [one]
        return pieces

    def _without_labels(self, piece: TextPiece) -> list[Piece]:
        return make_pieces(*self._labels.feed(piece.text))

    def _id(self, number: int) -> str:
        if number not in self._ids:
            self._ids[number] = self._claim_id("")
        return self._ids[number]

    def _warn(self) -> None:
        others = {call.syntax for call in self._found if not is_written_by(call.syntax, self._chosen)}
        if others:
            _log.warning(
                "calls_in_another_format",
                chosen=self._chosen,
                found=sorted(others),
                calls=len(self._found),
                ignored=bool(self._native.calls()),
            )
