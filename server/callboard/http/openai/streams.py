"""Answers over their one connection: streamed or whole. Nobody can resume them, so their runs end with them."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Protocol

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from callboard.errors import LogExpired, UnknownInput
from callboard.http.openai.failures import Failure, failure_of
from callboard.http.sse import RunStream
from callboard.runs import Run
from callboard_protocol import Done, Error, Event, InputRequest, ToolCallComplete

Json = dict[str, Any]


class Answer(Protocol):
    """What a run's events amount to in one of OpenAI's shapes."""

    @property
    def last_frame(self) -> bytes:
        """What ends a stream that went well."""
        ...

    def feed(self, event: Event) -> list[Json]:
        """What to stream for the event."""
        ...

    def failed(self, failure: Failure) -> list[Json]:
        """What to stream where the run fails."""
        ...

    def whole(self) -> Json:
        """The answer to a client that does not stream, once all events were fed."""
        ...


class Keeping(Protocol):
    """Where an answer is written down, for later requests that name what is in it."""

    async def keep(self) -> None:
        """Write it down: it is whole."""
        ...

    async def keep_what_came(self) -> None:
        """Write it down as far as it came, where that was not done."""
        ...


class AnswerStream(RunStream):
    """An answer as it comes; a client that leaves ends the run."""

    def __init__(self, run: Run, answer: Answer, keeping: Keeping | None = None) -> None:
        super().__init__(run, frames=_frames(run, answer, keeping))
        self._keeping = keeping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._run.cancel()
            if self._keeping:
                await self._keeping.keep_what_came()


async def whole_answer(request: Request, run: Run, answer: Answer, keeping: Keeping | None = None) -> Response:
    """The answer once the run has ended; a client that leaves before ends it."""
    failure: Failure | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, request, run)
            async for event in _events(run):
                failure = failure or failure_of(event)
                answer.feed(event)
            group.cancel_scope.cancel()
    finally:
        run.cancel()
    if keeping and not failure:
        await keeping.keep()
    return failure.response() if failure else JSONResponse(answer.whole(), headers={"X-Callboard-Run": run.run_id})


async def _frames(run: Run, answer: Answer, keeping: Keeping | None) -> AsyncIterator[bytes]:
    async for event in _events(run):
        failure = failure_of(event)
        parts = answer.failed(failure) if failure else answer.feed(event)
        if keeping and (failure or isinstance(event, Done)):
            # Before the client knows that it may go on from there.
            await keeping.keep()
        if parts:
            yield _framed(parts)
        if failure:
            return
    if answer.last_frame:
        yield answer.last_frame


async def _events(run: Run) -> AsyncIterator[Event]:
    """The run's events, each with all that belongs to it: a client of this API fetches nothing and answers nothing."""
    try:
        async for event in run.events():
            match event:
                case InputRequest():
                    # There is nobody to be asked. Without this the run would wait for somebody.
                    with suppress(UnknownInput):
                        run.inputs.answer(event.request_id, None)
                case ToolCallComplete(files=files) if files:
                    yield event.model_copy(update={"files": tuple(map(run.files.inlined, files))})
                case _:
                    yield event
    except LogExpired:
        # There is no other place from which such a reader could go on.
        yield Error(message="The answer came faster than it was read, and is lost: ask again.", code=LogExpired.code)


async def _cancel_when_left(request: Request, run: Run) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def _framed(parts: list[Json]) -> bytes:
    return b"".join(map(_frame, parts))


def _frame(part: Json) -> bytes:
    # Responses' events are named, chunks of chat completions are not.
    name = f"event: {part['type']}\n" if "type" in part else ""
    return f"{name}data: {json.dumps(part, ensure_ascii=True, separators=(',', ':'))}\n\n".encode("ascii")
