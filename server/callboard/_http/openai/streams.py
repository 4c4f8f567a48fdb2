"""Answers over their one connection: streamed or whole. Nobody can resume them, so their runs end with them."""

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

from callboard._http.lifetime import Stopping
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
"""The time in which a failure is still a status; then the stream begins, since clients wait for its headers."""

ITEM_IDS = "item_ids"
"""The field that stands for `output` in a response as it is kept."""

_NOT_KEPT = frozenset({"files", "embeds"})
"""Fields that are shown of a call and never told to a model; a picture may be megabytes."""

_log = structlog.get_logger(__name__)


class RunAnswer:
    """The answer of one run, as frames; a response is kept, once, for later requests that name it or an item of it.

    `responses` is None where nothing is to be kept. `redaction` takes secrets out of what the client wrote.
    """

    def __init__(self, run: Run, answer: Answer, redaction: Redaction, responses: Responses | None = None) -> None:
        self.run = run
        self.answer = answer
        self._redaction = redaction
        self._responses = responses

    async def feed(self, event: Event) -> bytes:
        """Return what to stream for the event; the end is kept before the client knows that it may go on from there."""
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
        """Write the answer down as it stands; where the database fails it goes on all the same."""
        responses = self._responses
        self._responses = None
        if responses is None:
            return
        whole = self.answer.whole()
        output = [
            {name: value for name, value in item.items() if name not in _NOT_KEPT} for item in whole.pop("output")
        ]
        head = await self._redaction.large({**whole, ITEM_IDS: [item["id"] for item in output]})
        try:
            # The client may leave just now; it has heard of these items all the same.
            with anyio.CancelScope(shield=True):
                await responses.keep([*output, head], self.run.owner.chat_id)
            _log.info("response_kept", run_id=self.run.run_id, items=len(output))
        except StorageError as error:
            _log.warning("response_not_kept", run_id=self.run.run_id, error=str(error))

    async def keep_what_came(self) -> None:
        """Write down how far an answer came whose reader has left: its client names these items too."""
        if self._responses is not None:
            await self.fail(Failure(CANCELLED, "The client left."))


class AnswerStream(RunStream):
    """An answer as it comes; a client that leaves ends the run."""

    def __init__(self, answer: RunAnswer, stopping: Stopping, frames: AsyncIterator[bytes]) -> None:
        super().__init__(answer.run, stopping, frames=frames)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.run.cancel()
            await self._answer.keep_what_came()


async def stream_answer(request: Request, answer: RunAnswer) -> Response:
    """Return the answer as it comes.

    What fails before it says anything is a status and no stream; a client that leaves ends the run.
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
        # The stream listens for the client itself: two listeners would take each other's news.
        leaving.cancel()
        await asyncio.wait({leaving})
    if beginning.done():
        _, failure = beginning.result()
        if failure:
            run.cancel()
            return _refuse(failure)
    return AnswerStream(answer, server_state(request).stopping, _stream_frames(beginning, events, answer))


async def load_response(response_id: str, responses: Responses) -> Json | None:
    """Return a response that was kept, None where there is none of this user's. Raises `StorageError`."""
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
    """Return the answer once the run has ended; a client that leaves before ends it."""
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
    # OpenAI's clients send a request again unless they are told not to; its tools would run twice.
    return JSONResponse(failure.body, failure.status, {"X-Should-Retry": "false"})


async def _begin(events: AsyncIterator[Event], answer: RunAnswer) -> tuple[bytes, Failure | None]:
    """Return the frames up to the first that says something, and the failure where there is none such."""
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
    """Yield the run's events, each with all that belongs to it: a client of this API fetches and answers nothing."""
    try:
        async for event in run.events():
            match event:
                case InputRequest():
                    # There is nobody to be asked. Without this the run would wait for somebody.
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
        # There is no other place from which such a reader could go on.
        yield Error(message="The answer came faster than it was read, and is lost: ask again.", code=LogExpired.code)


async def _cancel_when_left(request: Request, run: Run) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def _encode(parts: list[Json]) -> bytes:
    return b"".join(map(_encode_part, parts))


def _encode_part(part: Json) -> bytes:
    # Responses' events are named, chunks of chat completions are not.
    name = f"event: {part['type']}\n" if "type" in part else ""
    return f"{name}data: {json.dumps(part, ensure_ascii=True, separators=(',', ':'))}\n\n".encode("ascii")
