"""The reader of answers whose text is read for calls: the package's parser, and native calls beside it.

A server may still send native `tool_calls` although it was asked for text; then those are the
calls, for what stands in the text beside them says the same again.
"""

from collections.abc import Sequence

import structlog

from callboard._formats.format import ArgumentsPiece, ClaimId, Piece, RequestedCall
from callboard._formats.native_reader import NativeReader
from callboard._tools import Tool
from callboard.models import Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard_formats import CallPiece, StreamParser
from callboard_formats import Piece as ParsedPiece
from callboard_formats.calls import tool_meant
from callboard_formats.formats import is_written_by
from callboard_formats.outlet import FoundCall

_log = structlog.get_logger(__name__)


class ScanningReader:
    """A reader of one answer.

    `chosen` is the name of the syntax in use, "rescue" for every one. `prompt_opens`: whether the prompt has opened a
    thought, None where that is known by the name of the `model` alone. With `previews` arguments are shown
    while they are written. `rescued`: nobody asked for calls in the text, and with
    `asks_first` they run unasked only where their tool reads.
    """

    def __init__(
        self,
        chosen: str,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        *,
        model: str = "",
        prompt_opens: bool | None = None,
        previews: bool = True,
        rescued: bool = False,
        asks_first: bool = False,
    ) -> None:
        self._chosen = chosen
        self._tools = [tool.schema() for tool in tools]
        self._known = [tool.name for tool in tools]
        self._claim_id = claim_id
        self._model = model
        self._prompt_opens = prompt_opens
        self._previews = previews
        self._rescued = rescued
        self._asks_first = asks_first
        self._thinks_apart = False
        self._is_cut = False
        self._native = NativeReader(claim_id)
        self._ids: dict[tuple[int, int], str] = {}
        self._found: list[tuple[int, FoundCall]] = []
        self._held: list[ArgumentsPiece] = []
        self._parts = 0
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
        pieces = [*self._release(), *self._native.finish()]
        self._warn()
        if self._native.calls():
            self._found.clear()
        else:
            pieces += self._held
        return pieces

    def calls(self) -> list[RequestedCall]:
        """Return the native calls, or those in the text; in the order they began."""
        return self._native.calls() or [self._requested(part, found) for part, found in self._found]

    def _requested(self, part: int, found: FoundCall) -> RequestedCall:
        call = found.call
        return RequestedCall(
            self._id(part, found.number),
            call.name,
            call.arguments,
            truncated=call.truncated,
            in_text=True,
            untyped=call.untyped,
            words=call.words,
            broken=call.broken,
            syntax=found.syntax,
            rescued=self._rescued,
            asks_first=self._asks_first,
            # Of a leaked call it is left out: its format never has the model read it again.
            thought=found.thought if found.syntax == self._chosen else "",
        )

    def _release(self) -> list[Piece]:
        """Return what is held of the text so far; what follows is read anew."""
        if self._parser is None:
            return []
        pieces = self._pieces(self._parser.finish(cut=self._is_cut))
        self._found += [(self._parts, found) for found in self._parser.found]
        self._parts += 1
        self._parser = None
        return pieces

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
        )

    def _pieces(self, shown: Sequence[ParsedPiece]) -> list[Piece]:
        pieces: list[Piece] = []
        for one in shown:
            if isinstance(one, CallPiece):
                name = tool_meant(one.name, self._known)
                piece = ArgumentsPiece(self._id(self._parts, one.number), name, one.text)
                (pieces if self._previews else self._held).append(piece)
            else:
                pieces.append(one)
        return pieces

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
