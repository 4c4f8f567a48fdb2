"""Sends answers, as a stream or whole. A client cannot resume an answer, so the run ends with the connection."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from callboard._openai.answer import CANCELLED, OpenAIAnswer, build_error_body, find_status, forbid_repetition
from callboard._openai.client_functions import Json
from callboard._openai.stored_responses import keep_response
from callboard.errors import LogExpired, StorageError, UnknownInput
from callboard.http import get_server_state
from callboard.http.shutdown import Shutdown
from callboard.http.sse import RunStream
from callboard.redaction import Redaction
from callboard.runs import Run
from callboard.storage.sql.responses import Responses
from callboard.storage.values import GivenAnswer
from callboard_protocol import Done, Error, Event, InputRequest, RunStart, ToolCallComplete

BEGINNING_SECONDS = 0.5
"""A failure within this time is an HTTP status; then the stream begins, because clients wait for its headers."""


class RunAnswer:
    """The answer of one run as frames. A response is stored once, for later requests that refer to it or its items.

    `responses` is None if nothing must be stored. `redaction` removes secrets from the client's own texts.
    """

    def __init__(self, run: Run, builder: OpenAIAnswer, redaction: Redaction, responses: Responses | None) -> None:
        self.run = run
        self.builder = builder
        self._redaction = redaction
        self._responses = responses

    async def feed(self, event: Event) -> bytes:
        """Return the frames for an event. The response is stored before its end is sent: requests may refer to it."""
        parts = self.builder.fail(event) if isinstance(event, Error) else self.builder.feed(event)
        if isinstance(event, Done | Error):
            await self.keep()
        frames = b"".join(map(_encode, parts))
        return frames + self.builder.last_frame if isinstance(event, Done) else frames

    async def keep(self) -> None:
        """Store the answer so far, once."""
        responses = self._responses
        self._responses = None
        if responses is not None:
            await keep_response(self.builder.whole(), self.run, self._redaction, responses)

    async def keep_partial(self) -> None:
        """Store an answer whose client has left, because the client may refer to its items."""
        if self._responses is not None:
            await self.feed(Error(message="The client left.", code=CANCELLED))


class AnswerStream(RunStream):
    """A streamed answer. The run ends if the client leaves."""

    def __init__(self, answer: RunAnswer, shutdown: Shutdown, frames: AsyncIterator[bytes]) -> None:
        super().__init__(answer.run, shutdown, frames=frames)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.run.cancel()
            await self._answer.keep_partial()


async def stream_answer(request: Request, answer: RunAnswer) -> Response:
    """Return the answer as a stream. The run ends if the client leaves.

    A run that fails before its first text gets an HTTP status instead of a stream.
    """
    run = answer.run
    events = _read_events(run)
    beginning = asyncio.create_task(_begin(events, answer))
    leaving = asyncio.create_task(_cancel_when_left(request, run))
    try:
        await asyncio.wait({beginning, leaving}, timeout=BEGINNING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        run.cancel()
        beginning.cancel()
        raise
    finally:
        # The stream reads `receive` itself, and two readers would take messages from each other.
        leaving.cancel()
        await asyncio.wait({leaving})
    if beginning.done():
        _, failure = beginning.result()
        if failure:
            run.cancel()
            return _refuse(failure, answer)
    return AnswerStream(answer, get_server_state(request).shutdown, _stream_frames(beginning, events, answer))


async def collect_answer(request: Request, answer: RunAnswer) -> Response:
    """Return the whole answer when the run has ended. The run ends if the client leaves."""
    run = answer.run
    failure: Error | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, request, run)
            async for event in _read_events(run):
                if isinstance(event, Error):
                    failure = event
                answer.builder.feed(event)
            group.cancel_scope.cancel()
    finally:
        run.cancel()
    if failure:
        return _refuse(failure, answer)
    await answer.keep()
    return JSONResponse(answer.builder.whole(), headers={"X-Callboard-Run": run.run_id})


def _refuse(failure: Error, answer: RunAnswer) -> JSONResponse:
    if answer.builder.has_started_calls:
        failure = forbid_repetition(failure, failure.upstream_code or failure.code)
    # OpenAI's clients repeat failed requests unless this header forbids it; then the tools would run twice.
    return JSONResponse(build_error_body(failure), find_status(failure), {"X-Should-Retry": "false"})


async def _begin(events: AsyncIterator[Event], answer: RunAnswer) -> tuple[bytes, Error | None]:
    """Return the frames up to the first one with content, and the failure if the run failed before it."""
    frames = b""
    async for event in events:
        if isinstance(event, Error):
            return frames, event
        added = await answer.feed(event)
        frames += added
        if added and not isinstance(event, RunStart):
            break
    return frames, None


async def _stream_frames(
    beginning: asyncio.Task[tuple[bytes, Error | None]], events: AsyncGenerator[Event, None], answer: RunAnswer
) -> AsyncIterator[bytes]:
    begun, failure = await beginning
    if begun:
        yield begun
    if failure:
        yield await answer.feed(failure)
    async with aclosing(events):
        async for event in events:
            if frames := await answer.feed(event):
                yield frames


async def _read_events(run: Run) -> AsyncGenerator[Event, None]:
    """Yield the events of the run with whole files: a client of this API cannot fetch files or answer questions.

    The last event is `Done` or, if the run has failed, `Error`.
    """
    try:
        async for event in run.events():
            match event:
                case InputRequest():
                    # Answered at once: no user can be asked here, and the run would wait.
                    with suppress(UnknownInput):
                        await run.answer(event.request_id, GivenAnswer(None, asked=False))
                case ToolCallComplete(files=files) if files:
                    whole = tuple([await run.inline(file) for file in files])
                    yield event.model_copy(update={"files": whole})
                case Done(finish_reason="cancelled"):
                    yield Error(message="The run was cancelled; ask again.", code=CANCELLED)
                case _:
                    yield event
        if run.log.is_left:
            yield Error(message="Another server has taken over this run: ask again.", code="interrupted")
    except StorageError as error:
        yield Error(message=str(error), code=error.code)
    except LogExpired:
        # Such a reader cannot resume the answer elsewhere.
        message = "The client read the answer too slowly, so a part of it is lost: ask again."
        yield Error(message=message, code=LogExpired.code)


async def _cancel_when_left(request: Request, run: Run) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def _encode(part: Json) -> bytes:
    # Events of responses have a name, chunks of chat completions have none.
    name = f"event: {part['type']}\n" if "type" in part else ""
    return f"{name}data: {json.dumps(part, ensure_ascii=True, separators=(',', ':'))}\n\n".encode("ascii")
