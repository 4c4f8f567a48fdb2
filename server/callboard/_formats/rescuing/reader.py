"""The reader of answers to requests for native calls: text passes to the letter, but for a call that is its end.

Pure: the same deltas give the same pieces. Above: formats.
"""

from collections.abc import Collection, Sequence

import structlog

from callboard._formats.format import ArgumentsPiece, ClaimId, Piece, shown_pieces
from callboard._formats.native_reader import NativeReader
from callboard._formats.rescuing.repetition import told
from callboard._formats.rescuing.rescuer import Rescuer
from callboard._formats.rescuing.scaffold import Scaffold
from callboard._formats.rescuing.thought import LeadingThought
from callboard.calls import ToolCall
from callboard.models import ChatDict, Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard_formats.calls import tool_meant

_log = structlog.get_logger(__name__)


class RescuingReader:
    """A reader of one answer; `known` are the tools' names, none where nothing is to be rescued.

    Reasoning that the answer begins with (`<think>`) is shown as such; calls in it are none.
    `messages` are what the model was sent. Native calls go before what stands in the text, and
    end the looking there. Of an answer that was cut off nobody saw the end, so nothing in it is a call.
    """

    def __init__(self, known: Collection[str], claim_id: ClaimId, messages: Sequence[ChatDict]) -> None:
        self._known = known
        self._claim_id = claim_id
        self._messages = messages
        self._native = NativeReader(claim_id)
        self._thought = LeadingThought()
        self._rescuer = Rescuer(known)
        self._scaffold = Scaffold(self._told)
        self._rescued: list[ToolCall] = []

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what `delta` adds."""
        match delta:
            case TextDelta():
                return self._text(*self._thought.feed(delta.text))
            case ToolCallDelta() if delta.id or delta.name or delta.arguments:
                released = self._release()
                self._rescuer.stop()
                return [*released, *self._native.feed(delta)]
            case ReasoningDelta() if delta.text.strip():
                # A call that the model thinks on after was not its last word.
                return [*self._shown("", self._rescuer.release()), *self._native.feed(delta)]
            case Finish(reason="length"):
                released = self._release()
                self._rescuer.stop()
                return [*released, *self._native.feed(delta)]
            case _:
                return self._native.feed(delta)

    def finish(self) -> list[Piece]:
        """Return what was held back, or the arguments of the calls that it is."""
        pieces = [*self._text(*self._thought.finish())]
        text, calls = self._rescuer.finish(self._told)
        pieces += self._shown("", text)
        pieces += shown_pieces(*self._scaffold.finish(is_rescued=bool(calls)))
        if calls:
            _log.warning("calls_in_another_format", chosen="auto", found=[self._rescuer.syntax], calls=len(calls))
        for call in calls:
            call_id = self._claim_id("")
            self._rescued.append(
                ToolCall(
                    call_id,
                    call.name,
                    call.arguments,
                    in_text=True,
                    untyped=call.untyped,
                    words=call.words,
                    syntax=self._rescuer.syntax,
                    rescued=True,
                    asks_first=True,
                )
            )
            if call.arguments:
                pieces.append(ArgumentsPiece(call_id, tool_meant(call.name, self._known), call.arguments))
        return [*pieces, *self._native.finish()]

    def calls(self) -> list[ToolCall]:
        """Return the native calls, or those that were rescued."""
        return self._native.calls() or self._rescued

    def _told(self) -> list[str]:
        return told(self._messages)

    def _text(self, reasoning: str, text: str) -> list[Piece]:
        return self._shown(reasoning, self._rescuer.feed(text) if text else "")

    def _release(self) -> list[Piece]:
        pieces = self._text(*self._thought.finish())
        return [*pieces, *self._shown("", self._rescuer.release()), *shown_pieces(*self._scaffold.finish())]

    def _shown(self, reasoning: str, text: str) -> list[Piece]:
        if not text:
            return shown_pieces(reasoning, "")
        thought, shown = self._scaffold.feed(text)
        return [*shown_pieces(reasoning, ""), *shown_pieces(thought, shown)]
