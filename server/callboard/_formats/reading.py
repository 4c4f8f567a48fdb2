"""The reader of answers whose text is read for calls: the package's parser, and native calls beside it.

A server may still send native `tool_calls` although it was asked for text; then those are the
calls, for what stands in the text beside them says the same again.
"""

from collections.abc import Sequence
from itertools import groupby

import structlog

from callboard._formats.format import ArgumentsPiece, ClaimId, Piece, shown_pieces
from callboard._formats.native_reader import NativeReader
from callboard._formats.rescuing.completeness import is_complete
from callboard._formats.rescuing.repetition import is_repeated, told
from callboard._formats.rescuing.scaffold import Scaffold
from callboard.calls import Tool, ToolCall
from callboard.models import ChatDict, Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard_formats import CallPiece, StreamParser, TextPiece
from callboard_formats import Piece as ParsedPiece
from callboard_formats.calls import tool_meant
from callboard_formats.formats import is_written_by
from callboard_formats.outlet import FoundCall
from callboard_formats.syntax import LAST_OBSERVATION, WrittenCall

_log = structlog.get_logger(__name__)


class ScanningReader:
    """A reader of one answer.

    `chosen` is the name of the syntax in use, "rescue" for every one. `prompt_opens`: whether the prompt has opened a
    thought, None where that is known by the name of the `model` alone. With `previews` arguments are shown
    while they are written. `rescued`: nobody asked for calls in the text, and with
    `asks_first` they run unasked only where their tool reads.

    With `falls_back`, for a model that was asked for `chosen` in words, a call at the answer's end in another syntax
    counts too. It is rescued and asks first; it is text if it repeats what stands in the `messages` that the model was
    sent. ReAct's labels are taken off as they are for `auto`.
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
        previews: bool = True,
        rescued: bool = False,
        asks_first: bool = False,
        falls_back: bool = False,
    ) -> None:
        self._chosen = chosen
        self._tools = [tool.schema() for tool in tools]
        self._known = [tool.name for tool in tools]
        self._claim_id = claim_id
        self._messages = messages
        self._model = model
        self._prompt_opens = prompt_opens
        self._previews = previews
        self._rescued = rescued
        self._asks_first = asks_first
        self._falls_back = falls_back
        self._thinks_apart = False
        self._is_cut = False
        self._native = NativeReader(claim_id)
        self._ids: dict[tuple[int, int], str] = {}
        self._found: list[tuple[int, FoundCall]] = []
        self._held: list[ArgumentsPiece] = []
        self._parts = 0
        self._has_text = False
        self._scaffold = Scaffold(lambda: told(messages)) if falls_back else None
        self._parser: StreamParser | None = None

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what `delta` adds."""
        match delta:
            case TextDelta():
                if self._parser is None:
                    self._parser = self._new_parser()
                return self._pieces(self._parser.feed(delta.text))
            case ToolCallDelta():
                # A native call ends the text before it: what is held of that must not come out behind the call.
                return [*self._release(), *self._native.feed(delta)]
            case ReasoningDelta():
                self._thinks_apart = True
            case Finish(reason="length"):
                self._is_cut = True
            case _:
                pass
        return self._native.feed(delta)

    def finish(self) -> list[Piece]:
        """Return what was held back."""
        pieces = self._release()
        if self._scaffold:
            pieces += shown_pieces(*self._scaffold.finish(is_rescued=bool(self._found)))
        pieces += self._native.finish()
        self._warn()
        if self._native.calls():
            self._found.clear()
        else:
            pieces += self._held
        return pieces

    def calls(self) -> list[ToolCall]:
        """Return the native calls, or those in the text; in the order they began."""
        return self._native.calls() or [self._requested(part, found) for part, found in self._found]

    def _requested(self, part: int, found: FoundCall) -> ToolCall:
        call = found.call
        return ToolCall(
            self._id(part, found.number),
            call.name,
            call.arguments,
            truncated=call.truncated,
            in_text=True,
            untyped=call.untyped,
            words=call.words,
            broken=call.broken,
            syntax=found.syntax,
            rescued=self._rescued or bool(found.source),
            asks_first=self._asks_first or bool(found.source),
            # Of a leaked call it is left out: its format never has the model read it again.
            thought=found.thought if found.syntax == self._chosen else "",
        )

    def _release(self) -> list[Piece]:
        """Return what is held of the text so far; what follows is read anew."""
        if self._parser is None:
            return []
        pieces = self._pieces(self._parser.finish(cut=self._is_cut))
        for source, group in groupby(self._parser.found, key=lambda found: found.source):
            calls = list(group)
            if source and not self._is_meant(source, [found.call for found in calls]):
                numbers = {self._id(self._parts, found.number) for found in calls}
                self._held = [piece for piece in self._held if piece.call_id not in numbers]
                pieces += self._without_labels(TextPiece(f"\n\n{source}" if self._has_text else source))
            else:
                self._found += [(self._parts, found) for found in calls]
        self._parts += 1
        self._parser = None
        return pieces

    def _is_meant(self, source: str, calls: Sequence[WrittenCall]) -> bool:
        """Return whether calls that the model was not asked to write so are whole, and nothing that it was told."""
        block = LAST_OBSERVATION.sub("", source)
        return is_complete(block, calls, self._known) and not is_repeated([(block, calls)], told(self._messages))

    def _new_parser(self) -> StreamParser:
        formats = None if self._chosen == "rescue" else [self._chosen]
        # What the endpoint tells apart is not in the text; one that is not known to leave it there may.
        thinking = False if self._thinks_apart or formats is None else None
        return StreamParser(
            self._tools,
            formats,
            model=self._model,
            thinking=thinking,
            prompt_opens=self._prompt_opens,
            previews=self._previews,
            falls_back=self._falls_back,
        )

    def _pieces(self, shown: Sequence[ParsedPiece]) -> list[Piece]:
        pieces: list[Piece] = []
        leaked = {found.number for found in self._parser.found if found.source} if self._parser else ()
        for one in shown:
            if isinstance(one, CallPiece):
                name = tool_meant(one.name, self._known)
                piece = ArgumentsPiece(self._id(self._parts, one.number), name, one.text)
                (pieces if self._previews and one.number not in leaked else self._held).append(piece)
            else:
                self._has_text = self._has_text or isinstance(one, TextPiece)
                pieces += self._without_labels(one) if isinstance(one, TextPiece) else [one]
        return pieces

    def _without_labels(self, piece: TextPiece) -> list[Piece]:
        return shown_pieces(*self._scaffold.feed(piece.text)) if self._scaffold else [piece]

    def _id(self, part: int, number: int) -> str:
        if (part, number) not in self._ids:
            self._ids[part, number] = self._claim_id("")
        return self._ids[part, number]

    def _warn(self) -> None:
        written = {found.syntax for _, found in self._found}
        others = {syntax for syntax in written if not is_written_by(syntax, self._chosen)}
        if others:
            _log.warning(
                "calls_in_another_format",
                chosen=self._chosen,
                found=sorted(others),
                calls=len(self._found),
                ignored=bool(self._native.calls()),
            )
