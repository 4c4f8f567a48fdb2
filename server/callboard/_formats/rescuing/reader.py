"""Reads answers to requests for native calls. Text passes on unchanged, except calls at its end.

The same deltas always give the same pieces.
"""

from collections.abc import Collection, Sequence
from functools import partial

import structlog

from callboard._formats.native_reader import NativeReader
from callboard._formats.pieces import ArgumentsPiece, ClaimId, Piece, make_pieces
from callboard._formats.rescuing.react_labels import LabelRemover
from callboard._formats.rescuing.repetition import sent_texts
from callboard._formats.rescuing.rescuer import Rescuer
from callboard.calls import ToolCall
from callboard.models import ChatDict, Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from callboard_formats.calls import resolve_tool_name
from callboard_formats.leading_thought import LeadingThought

_log = structlog.get_logger(__name__)


class RescuingReader:
    """Reads one answer. `known` are the names of the tools whose calls are rescued; empty to rescue none.

    `<think>` tags at the beginning are read as reasoning, and calls inside of them do not count. A native call ends the
    search for calls in the text. An answer that was cut off contains no rescued calls, because its end is unknown.
    `messages` are the messages that the model was sent.
    """

    def __init__(self, known: Collection[str], claim_id: ClaimId, messages: Sequence[ChatDict]) -> None:
        self._known = known
        self._claim_id = claim_id
        self._sent_texts = partial(sent_texts, messages)
        self._native = NativeReader(claim_id)
        self._thought = LeadingThought()
        self._rescuer = Rescuer(known)
        self._labels = LabelRemover(self._sent_texts)
        self._rescued: list[ToolCall] = []

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return the pieces that `delta` adds."""
        match delta:
            case TextDelta():
                return self._text(*self._thought.feed(delta.text))
            case ToolCallDelta() if delta.id or delta.name or delta.arguments:
                return [*self._stop(), *self._native.feed(delta)]
            case ReasoningDelta() if delta.text.strip():
                # A call counts only at the end of the answer, and here the model continues to think.
                return [*self._shown("", self._rescuer.release()), *self._native.feed(delta)]
            case Finish(reason="length"):
                return self._stop()
            case _:
                return self._native.feed(delta)

    def finish(self) -> list[Piece]:
        """Return the text that was held back, or the arguments of the calls found in it."""
        pieces = self._text(*self._thought.finish())
        text, calls = self._rescuer.finish(self._sent_texts)
        pieces += self._shown("", text)
        pieces += make_pieces(*self._labels.finish(is_rescued=bool(calls)))
        if calls:
            _log.warning("calls_in_another_format", chosen="auto", found=[self._rescuer.syntax], calls=len(calls))
        for call in calls:
            call_id = self._claim_id("")
            self._rescued.append(
                ToolCall(
                    call_id,
                    call.name,
                    call.arguments,
                    written=call,
                    # A family's parser reads few fences, so a call in a fence does not choose it for later answers.
                    syntax="" if self._rescuer.is_fenced else self._rescuer.syntax,
                    rescued=True,
                    asks_first=True,
                )
            )
            if call.arguments:
                pieces.append(ArgumentsPiece(call_id, resolve_tool_name(call.name, self._known), call.arguments))
        return [*pieces, *self._native.finish()]

    def calls(self) -> list[ToolCall]:
        """Return the native calls, or else the rescued calls."""
        return self._native.calls() or self._rescued

    def _text(self, reasoning: str, text: str) -> list[Piece]:
        return self._shown(reasoning, self._rescuer.feed(text) if text else "")

    def _stop(self) -> list[Piece]:
        """Return all text that was held back, and search for no more calls in the text."""
        pieces = self._text(*self._thought.finish())
        pieces += [*self._shown("", self._rescuer.release()), *make_pieces(*self._labels.finish())]
        self._rescuer.is_stopped = True
        return pieces

    def _shown(self, reasoning: str, text: str) -> list[Piece]:
        if not text:
            return make_pieces(reasoning, "")
        thought, shown = self._labels.feed(text)
        return [*make_pieces(reasoning, ""), *make_pieces(thought, shown)]
