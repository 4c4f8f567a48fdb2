"""Sends answers, as a stream or whole. A client cannot resume an answer, so the run ends with the connection."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import anyio
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from callboard._http.lifetime import Shutdown
from callboard._http.openai.answer import CANCELLED, Answer, Failure, read_failure
from callboard._http.sse import RunStream
from callboard._http.state import server_state
from callboard._redaction import Redaction
from callboard._runs import Run
from callboard.errors import LogExpired, StorageError, UnknownInput
from callboard.storage import RESPONSE_PREFIX, GivenAnswer, Responses
from callboard_protocol import Done, Error, Event, InputRequest, RunStart, ToolCallComplete

Json = dict[str, Any]

BEGINNING_SECONDS = 0.5
"""A failure within this time is an HTTP status; then the stream begins, because clients wait for its headers."""

ITEM_IDS = "item_ids"
"""The field of a stored response that replaces `output`."""

_NOT_STORED = frozenset({"files", "embeds"})
"""Fields of a call that no model gets, so they are not stored; a picture may have megabytes."""

_log = structlog.get_logger(__name__)


class RunAnswer:
    """The answer of one run as frames. A response is stored once, for later requests that refer to it or its items.

    `responses` is None if nothing must be stored. `redaction` removes secrets from the client's own texts.
    """

    def __init__(self, run: Run, answer: Answer, redaction: Redaction, responses: Responses | None = None) -> None:
        self.run = run
        self.answer = answer
        self._redaction = redaction
        self._responses = responses

    async def feed(self, event: Event) -> bytes:
        """Return the frames for an event. The response is stored before its end is sent: requests may refer to it."""
        parts = self.answer.feed(event)
        if isinstance(event, Done):
            await self.keep()
        return _encode(parts)

    async def fail(self, failure: Failure) -> bytes:
        """Return what ends the stream of a run that failed."""
        parts = self.answer.fail(failure)
        await self.keep()
        return _encode(parts)

    async def keep(self) -> None:
        """Store the answer so far. An error of the database is only logged."""
        responses = self._responses
        self._responses = None
        if responses is None:
            return
        whole = self.answer.whole()
        output = [
            {name: value for name, value in item.items() if name not in _NOT_STORED} for item in whole.pop("output")
        ]
        head = await self._redaction.large({**whole, ITEM_IDS: [item["id"] for item in output]})
        try:
            # Shielded: the client may leave now, and it knows these items already.
            with anyio.CancelScope(shield=True):
                await responses.keep([*output, head], self.run.owner.chat_id)
            _log.info("response_kept", run_id=self.run.run_id, items=len(output))
        except StorageError as error:
            _log.warning("response_not_kept", run_id=self.run.run_id, error=str(error))

    async def keep_partial(self) -> None:
        """Store an answer whose client has left, because the client may refer to its items."""
        if self._responses is not None:
            await self.fail(Failure(CANCELLED, "The client left."))


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
            return _refuse(failure)
    return AnswerStream(answer, server_state(request).shutdown, _stream_frames(beginning, events, answer))


async def load_response(response_id: str, responses: Responses) -> Json | None:
    """Return a stored response, None if this user has none with that id. Raises `StorageError`."""
    if not response_id.startswith(RESPONSE_PREFIX) or "\0" in response_id:
        return None
    head = (await responses.find([response_id])).get(response_id)
    if head is None:
        return None
    whole = dict(head)
    ids: list[str] = whole.pop(ITEM_IDS)
    items = await responses.find(ids)
    return {**whole, "output": [items[item_id] for item_id in ids if item_id in items]}


async def collect_answer(request: Request, answer: RunAnswer) -> Response:
    """Return the whole answer when the run has ended. The run ends if the client leaves."""
    run = answer.run
    failure: Failure | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, request, run)
            async for event in _read_events(run):
                failure = failure or read_failure(event)
                answer.answer.feed(event)
            group.cancel_scope.cancel()
    finally:
        run.cancel()
    if failure:
        return _refuse(failure)
    await answer.keep()
    return JSONResponse(answer.answer.whole(), headers={"X-Callboard-Run": run.run_id})


def _refuse(failure: Failure) -> JSONResponse:
    # OpenAI's clients repeat failed requests unless this header forbids it; then the tools would run twice.
    return JSONResponse(failure.body, failure.status, {"X-Should-Retry": "false"})


async def _begin(events: AsyncIterator[Event], answer: RunAnswer) -> tuple[bytes, Failure | None]:
    """Return the frames up to the first one with content, and the failure if the run failed before it."""
    frames = b""
    async for event in events:
        if failure := read_failure(event):
            return frames, failure
        added = await answer.feed(event)
        frames += added
        if added and not isinstance(event, RunStart):
            break
    return frames, None


async def _stream_frames(
    beginning: asyncio.Task[tuple[bytes, Failure | None]], events: AsyncGenerator[Event, None], answer: RunAnswer
) -> AsyncIterator[bytes]:
    begun, failure = await beginning
    if begun:
        yield begun
    if failure:
        yield await answer.fail(failure)
        return
    async with aclosing(events):
        async for event in events:
            if failure := read_failure(event):
                yield await answer.fail(failure)
                return
            if frames := await answer.feed(event):
                yield frames
    if answer.answer.last_frame:
        yield answer.answer.last_frame


async def _read_events(run: Run) -> AsyncGenerator[Event, None]:
    """Yield the events of the run with whole files: a client of this API cannot fetch files or answer questions."""
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
                case _:
                    yield event
        if run.log.is_abandoned:
            yield Error(message="Another server has taken over: ask again.", code="interrupted")
    except LogExpired:
        # Such a reader cannot resume the answer elsewhere.
        yield Error(message="The answer came faster than it was read, and is lost: ask again.", code=LogExpired.code)


async def _cancel_when_left(request: Request, run: Run) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def _encode(parts: list[Json]) -> bytes:
    return b"".join(map(_encode_part, parts))


def _encode_part(part: Json) -> bytes:
    # Events of responses have a name, chunks of chat completions have none.
    name = f"event: {part['type']}\n" if "type" in part else ""
    return f"{name}data: {json.dumps(part, ensure_ascii=True, separators=(',', ':'))}\n\n".encode("ascii")
