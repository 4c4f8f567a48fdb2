"""Reads answers to requests for native calls. Text passes on unchanged, except calls at its end.

The same deltas always give the same pieces.
"""

import re
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

MAX_HELD_SPACE = 80
THINK = "<think>"
_THINK_END = "</think>"
_ENDS_THOUGHT = re.compile(_THINK_END, re.IGNORECASE | re.ASCII)

_log = structlog.get_logger(__name__)


class LeadingThought:
    """Reads one answer. White space beside the tags is dropped. `feed` and `finish` return reasoning and text."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking: bool | None = None
        """True inside the reasoning; None while that is open; False once the text has begun."""
        self._drops_space = False
        """The last thing read was a tag, so white space that follows is dropped."""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        if self._is_thinking is None:
            text = self._held + text
            self._held = ""
            words = text.lstrip()
            is_far = len(text) - len(words) > MAX_HELD_SPACE
            if not is_far and len(words) < len(THINK) and THINK.startswith(words.lower()):
                self._held = text
                return "", ""
            self._is_thinking = not is_far and words[: len(THINK)].lower() == THINK
            if not self._is_thinking:
                return "", text
            text = words[len(THINK) :]
            self._drops_space = True
        if self._is_thinking:
            return self._read_thought(self._held + text)
        return "", self._drop_space(text)

    def finish(self) -> tuple[str, str]:
        """Return the reasoning and the text that were held back."""
        held = self._held
        self._held = ""
        was_thinking = self._is_thinking
        self._is_thinking = False
        return (held, "") if was_thinking else ("", held)

    def _read_thought(self, text: str) -> tuple[str, str]:
        ended = _ENDS_THOUGHT.search(text)
        if ended is None:
            text = self._drop_space(text)
            start = text.rfind("<", max(0, len(text) - len(_THINK_END) + 1))
            is_tag = start >= 0 and _THINK_END.startswith(text[start:].lower())
            end = _without_space(text, start if is_tag else len(text))
            self._held = text[end:]
            return text[:end], ""
        reasoning = self._drop_space(text[: ended.start()])
        reasoning = reasoning[: _without_space(reasoning, len(reasoning))]
        self._held = ""
        self._is_thinking = False
        self._drops_space = True
        return reasoning, self._drop_space(text[ended.end() :])

    def _drop_space(self, text: str) -> str:
        if self._drops_space:
            text = text.lstrip()
            self._drops_space = not text
        return text


def _without_space(text: str, end: int) -> int:
    return max(len(text[:end].rstrip()), end - MAX_HELD_SPACE)


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
