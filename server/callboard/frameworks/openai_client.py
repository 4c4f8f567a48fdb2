"""Patches OpenAI's client, which most frameworks use, for the duration of a turn.

Within a turn, an answer that is cut off raises an `APIConnectionError`. The client takes the end of a stream for the
end of the answer, but an endpoint that dies behind a proxy leaves a stream that ends without a finish reason and
without `[DONE]`.

Outside of turns the client behaves as published. Callboard itself does not need the library, so this module
imports it only when an agent of a framework is made.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    import openai

CUT_OFF = "the stream ended without a finish reason and without [DONE]"
FLUSH_SECONDS = 0.1
"""The time between the last piece of a cut-off answer and the error that reports it."""

_CHOICES = re.compile(r'"choices"\s*:\s*\[\s*\{')
_FINISH_REASON = re.compile(r'"finish_reason"\s*:\s*"')

_in_turn: ContextVar[bool] = ContextVar("callboard_in_turn", default=False)


@cache
def watch_openai_client() -> None:
    """Patch OpenAI's client in this process, if it is installed.

    Some frameworks import the client in the middle of a turn, so it is imported here.
    """
    try:
        import openai
    except ImportError:
        return
    iterate_async = openai.AsyncStream._iter_events
    iterate = openai.Stream._iter_events

    @wraps(iterate_async)
    async def read_async(stream: openai.AsyncStream[Any]) -> AsyncIterator[Any]:
        answer = _StreamCheck()
        async for event in iterate_async(stream):
            answer.read(event.data)
            yield event
        if answer.is_cut_off:
            # LangGraph discards the pieces that a failing graph has not yet passed on.
            await asyncio.sleep(FLUSH_SECONDS)
            raise _cut_off_error(stream)

    @wraps(iterate)
    def read(stream: openai.Stream[Any]) -> Iterator[Any]:
        answer = _StreamCheck()
        for event in iterate(stream):
            answer.read(event.data)
            yield event
        if answer.is_cut_off:
            raise _cut_off_error(stream)

    openai.AsyncStream._iter_events = read_async  # type: ignore[method-assign, assignment] # in front of it
    openai.Stream._iter_events = read  # type: ignore[method-assign, assignment] # in front of it


@contextmanager
def rejecting_cut_off_answers() -> Iterator[None]:
    """Return a context in which an answer that is cut off raises the client's error for a lost connection."""
    token = _in_turn.set(True)
    try:
        yield
    finally:
        _in_turn.reset(token)


class _StreamCheck:
    """Detects whether one stream is a chat completion, and whether that has a finish reason or `[DONE]`."""

    def __init__(self) -> None:
        self._has_begun = False
        self._has_ended = False

    def read(self, data: str) -> None:
        self._has_begun = self._has_begun or _CHOICES.search(data) is not None
        self._has_ended = self._has_ended or data.startswith("[DONE]") or _FINISH_REASON.search(data) is not None

    @property
    def is_cut_off(self) -> bool:
        """Return whether the stream of a turn's answer, which has ended, had no finish reason and no `[DONE]`."""
        return _in_turn.get() and self._has_begun and not self._has_ended


def _cut_off_error(stream: "openai.Stream[Any] | openai.AsyncStream[Any]") -> "openai.APIConnectionError":
    """Return the error that the client raises for a lost connection, which every framework handles."""
    import openai

    # Typed as Any because the request's class depends on the client's version.
    request: Any = stream.response.request
    error = openai.APIConnectionError(message=CUT_OFF, request=request)
    error.__cause__ = httpx.RemoteProtocolError(CUT_OFF)
    return error
