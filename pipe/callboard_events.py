"""
title: Callboard events
author: Callboard
version: 0.1.0
license: MIT
description: Beside the pipe: answers outlive a restart of Open WebUI, and chats that are deleted are forgotten.
required_open_webui_version: 0.10.0
"""

# A function of type Event, which Open WebUI calls when something happens in it. It knows Open WebUI's chats; what an
# answer looks like knows the pipe, whose id is this function's without its ending.

import asyncio
import inspect
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from open_webui.internal.db import get_async_db_context
from open_webui.models.chat_messages import ChatMessage
from open_webui.models.chats import Chats
from open_webui.models.models import Model
from open_webui.models.users import Users
from pydantic import BaseModel, Field
from sqlalchemy import or_, select, update
from starlette.requests import Request
from starlette.responses import StreamingResponse

log = logging.getLogger("callboard.events")

Json = dict[str, Any]

ENDING = "_events"  # What this function's id has after the pipe's.
UNTITLED = "New Chat"  # What Open WebUI calls a chat until it has a title.

# Answers that began longer ago stay as they are.
RESTORED_SECONDS = 86_400.0
# Somebody is at work on a message that was changed so lately: another replica, or the one that has just stopped.
QUIET_SECONDS = 10.0
# How often what cannot be decided or done yet is tried again, and for how long the server may be away, or not know of
# an answer whose request may be on its way.
LOOK_SECONDS = 2.0
FORGET_SECONDS = 10.0
AWAY_SECONDS = 600.0
UNKNOWN_SECONDS = 30.0
# How long the page of the user may take to find Open WebUI again before the answer is shown to whoever is there.
PAGE_SECONDS = 10.0
LOOK_FOR_PAGE_SECONDS = 0.2
# A page runs it for a message of the chat that it shows, and for no other.
IS_CHAT_SHOWN: Json = {"type": "execute", "data": {"code": "return true"}}

# The event loop itself keeps no hold of its tasks.
background_tasks: set[asyncio.Task[None]] = set()


class MessageGone(Exception):
    """The message was deleted while its answer was being put into it."""


@dataclass(frozen=True, slots=True)
class Message:
    """An answer in a chat that has not ended."""

    chat_id: str
    message_id: str
    user_id: str
    model: str
    changed_at: int


class Event:
    """The object that Open WebUI loads."""

    class Valves(BaseModel):
        """Settings of an admin."""

        RESTORE_ANSWERS: bool = Field(
            default=True,
            description="Answers that Open WebUI was stopped in are put into their chats when it starts.",
        )
        FORGET_CHATS: bool = Field(
            default=True,
            description="Chats that are deleted in Open WebUI are deleted on the server too.",
        )

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def event(self, event: Json, __id__: str, __app__: Any) -> None:
        """Hear of something that happened in Open WebUI."""
        pipe_id = __id__.removesuffix(ENDING)
        match event["event"]:
            case "system.startup.completed" if self.valves.RESTORE_ANSWERS:
                run_in_background(restore_all(__app__, pipe_id))
            case "chat.deleted" if self.valves.FORGET_CHATS:
                user_id = event["data"]["owner_id"]
                chat_id = event["subject"]["id"]
                run_in_background(forget(__app__, pipe_id, lambda pipe: pipe.forget_chat(user_id, chat_id)))
            case "chat.deleted_all" if self.valves.FORGET_CHATS:
                user_id = event["subject"]["id"]
                # The event's time is in whole seconds.
                begun_before = event["created_at"] + 1
                run_in_background(forget(__app__, pipe_id, lambda pipe: pipe.forget_chats(user_id, begun_before)))
            case "chat.deleted" | "chat.deleted_all":
                log.info("Callboard: FORGET_CHATS is off: the server keeps %s", event["subject"]["id"])


def run_in_background(work: Coroutine[Any, Any, None]) -> None:
    """Do the work beside what else there is: Open WebUI waits for the functions that it tells of an event."""
    task = asyncio.create_task(work)
    background_tasks.add(task)
    task.add_done_callback(end_in_background)


def end_in_background(task: asyncio.Task[None]) -> None:
    """Let go of what has ended; what has failed is in the log."""
    background_tasks.discard(task)
    if not task.cancelled() and (error := task.exception()):
        log.error("Callboard: what was begun in the background has failed", exc_info=error)


async def load_pipe(app: Any, pipe_id: str) -> Any:
    """Return the pipe with its valves as they are now."""
    from open_webui.functions import get_function_module_by_id

    return await get_function_module_by_id(SimpleNamespace(app=app), pipe_id)


async def forget(app: Any, pipe_id: str, forget_once: Callable[[Any], Awaitable[bool]]) -> None:
    """Let the server forget what was deleted; tried again for some time while it is away."""
    until_seconds = time.monotonic() + AWAY_SECONDS
    pipe = await load_pipe(app, pipe_id)
    while not await forget_once(pipe):
        if time.monotonic() > until_seconds:
            log.error("Callboard: what was deleted is still on the server; DELETE /v1/chats forgets it")
            return
        await asyncio.sleep(FORGET_SECONDS)


# --- What of an answer is in Open WebUI's database. -----------------------------------------------------------------


async def find_left_messages(pipe_id: str) -> list[Message]:
    """Return the answers of the pipe's models that have not ended."""
    models = f"{pipe_id}."
    presets = select(Model.id).where(Model.base_model_id.startswith(models, autoescape=True))
    is_ours = or_(ChatMessage.model_id.startswith(models, autoescape=True), ChatMessage.model_id.in_(presets))
    is_left = ChatMessage.role == "assistant", ChatMessage.done.is_(False)
    is_recent = ChatMessage.created_at > time.time() - RESTORED_SECONDS
    async with get_async_db_context() as db:
        rows = await db.execute(select(ChatMessage).where(is_ours, *is_left, is_recent))
        return [read_message(row) for row in rows.scalars()]


async def find_left_message(message: Message) -> Message | None:
    """Return the message as it is now; None where it has ended, or is gone."""
    async with get_async_db_context() as db:
        row = await db.get(ChatMessage, f"{message.chat_id}-{message.message_id}")
        return read_message(row) if row and row.done is False else None


def read_message(row: Any) -> Message:
    """Return a row of Open WebUI's table."""
    message_id = row.id.removeprefix(f"{row.chat_id}-")
    return Message(row.chat_id, message_id, row.user_id, row.model_id, row.updated_at)


async def take(message: Message) -> bool:
    """Take the message for this process; false where another has touched it meanwhile.

    The time of its last change is compared and set in one statement: of all replicas one succeeds.
    """
    row = ChatMessage.id == f"{message.chat_id}-{message.message_id}"
    is_untouched = ChatMessage.done.is_(False), ChatMessage.updated_at == message.changed_at
    async with get_async_db_context() as db:
        taken = await db.execute(update(ChatMessage).where(row, *is_untouched).values(updated_at=int(time.time())))
        await db.commit()
        return bool(taken.rowcount)


# --- From the server into the chat. ---------------------------------------------------------------------------------


async def restore_all(app: Any, pipe_id: str) -> None:
    """Put every answer into its chat that Open WebUI was stopped in."""
    from open_webui.utils.models import get_all_models

    left = await find_left_messages(pipe_id)
    if not left:
        return
    models = {model["id"]: model for model in await get_all_models(make_request(app))}
    for message in left:
        log.info("Callboard: Open WebUI was stopped in message %s", message.message_id)
        model = models.get(message.model, {"id": message.model})
        run_in_background(restore(app, pipe_id, model, message))


def make_request(app: Any) -> Request:
    """Return a request such as Open WebUI makes for what nobody has asked for."""
    return Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "app": app})


async def restore(app: Any, pipe_id: str, model: Json, left: Message) -> None:
    """Put the answer into its chat, up to its end; where it is lost, say so there."""
    try:
        user = await Users.get_user_by_id(left.user_id)
        with suppress(TimeoutError):
            await asyncio.wait_for(find_page(left.user_id), PAGE_SECONDS)
        began_at_seconds = time.monotonic()
        while user and (message := await find_left_message(left)):
            seconds = time.monotonic() - began_at_seconds
            pipe = await load_pipe(app, pipe_id)
            answer = await pipe.find_answer(message.user_id, message.chat_id, message.message_id)
            if answer is None:
                is_decided = seconds > AWAY_SECONDS
            elif answer.rows:
                is_decided = not answer.is_awaited
            else:
                is_decided = seconds > UNKNOWN_SECONDS
            # From here to the first event nothing may take long: another replica waits as long as this, and no longer.
            is_quiet = message.changed_at + QUIET_SECONDS < time.time()
            if is_decided and is_quiet and await take(message):
                return await show(make_request(app), pipe, user, model, message, answer)
            await asyncio.sleep(LOOK_SECONDS)
    except MessageGone:
        log.info("Callboard: message %s was deleted meanwhile", left.message_id)


async def show(request: Request, pipe: Any, user: Any, model: Json, message: Message, answer: Any) -> None:
    """Let Open WebUI take the answer as it takes any other: shown to open pages, saved at its end, stopped by its user.

    Only then is it what it would have been.
    """
    from open_webui.constants import TASKS
    from open_webui.tasks import cleanup_task, create_task, list_task_ids_by_item_id
    from open_webui.utils.middleware import build_chat_response_context, process_chat_response

    redis = request.app.state.redis
    metadata = {
        "user_id": message.user_id,
        "chat_id": message.chat_id,
        "message_id": message.message_id,
        "model_id": message.model,
        "task_id": str(uuid.uuid4()),
    }
    # What Open WebUI finds in the message it takes for the beginning of what comes.
    begun = await Chats.get_message_by_id_and_message_id(message.chat_id, message.message_id) or {}
    await Chats.upsert_message_to_chat_by_id_and_message_id(
        message.chat_id, message.message_id, {"content": "", "output": []}
    )
    updates = pipe.restore(
        answer,
        user.model_dump(),
        metadata | {"sources": begun.get("sources")},
        message.model,
        request,
        make_asker(metadata),
    )
    form = {"model": message.model, "messages": [], "stream": True, "metadata": metadata}
    # Up to 0.11 a chat gets its title after its first answer. Whether the user wants one is known to the page alone.
    is_untitled = await Chats.get_chat_title_by_id(message.chat_id) == UNTITLED
    tasks = {TASKS.TITLE_GENERATION: True} if is_untitled else None
    context = await build_chat_response_context(request, form, user, model, metadata, tasks, [])
    response = StreamingResponse(make_lines(updates, message, begun), media_type="text/event-stream")

    emit = context["event_emitter"]
    has_ended = {"type": "chat:active", "data": {"active": False}}

    async def work() -> None:
        try:
            await emit({"type": "chat:active", "data": {"active": True}})
            # A page that stayed open has the beginning.
            await emit({"type": "chat:completion", "data": {"output": []}})
            await process_chat_response(response, context)
        finally:
            await cleanup_task(redis, metadata["task_id"], message.chat_id)
            await emit(has_ended)

    # 0.10 names its tasks itself.
    named = {"task_id": metadata["task_id"]} if "task_id" in inspect.signature(create_task).parameters else {}
    metadata["task_id"], task = await create_task(redis, work(), id=message.chat_id, **named)
    await task
    # A page that has just connected asks for the chat and its tasks. If what it hears is older than the end of the
    # answer, it would offer to stop the answer for ever.
    await asyncio.sleep(LOOK_SECONDS)
    if not await list_task_ids_by_item_id(redis, message.chat_id):
        await emit(has_ended)


async def make_lines(updates: AsyncGenerator[Json, None], message: Message, begun: Json) -> AsyncIterator[str]:
    """Yield what the pipe yields as lines of a stream, without the events that the message has already."""
    had = [{"type": "source", "data": source} for source in begun.get("sources") or ()]
    had += [{"type": "status", "data": status} for status in begun.get("statusHistory") or ()]
    async with aclosing(updates):
        async for change in updates:
            if (event := change.get("event")) in had:
                had.remove(event)
                continue
            yield f"data: {json.dumps(change)}\n\n"
    if not await find_left_message(message):
        # Saved, it would be there again.
        raise MessageGone
    yield "data: [DONE]\n\n"


# --- The user's page. -----------------------------------------------------------------------------------------------


async def find_page(user_id: str) -> str:
    """Return the session of a page of the user's, as soon as one is connected."""
    from open_webui.socket.main import SESSION_POOL

    while True:
        for session, user in SESSION_POOL.items():
            if user.get("id") == user_id:
                return str(session)
        await asyncio.sleep(LOOK_FOR_PAGE_SECONDS)


async def find_page_of_chat(metadata: Json) -> str:
    """Return the session of a page of the user's that shows the chat, as soon as there is one.

    A page that shows something else, or nothing yet, takes no notice of a dialog and never answers it.
    """
    from open_webui.socket.main import SESSION_POOL, get_event_call

    while True:
        for session, user in list(SESSION_POOL.items()):
            if user.get("id") != metadata["user_id"]:
                continue
            call = await get_event_call(metadata | {"session_id": session})
            with suppress(TimeoutError):
                if await asyncio.wait_for(call(IS_CHAT_SHOWN), LOOK_SECONDS) is True:
                    return str(session)
        await asyncio.sleep(LOOK_FOR_PAGE_SECONDS)


def make_asker(metadata: Json) -> Any:
    """Return what asks the user in a page that shows the chat, as soon as there is one."""
    from open_webui.socket.main import SESSION_POOL, get_event_call

    async def ask(dialog: Json) -> object:
        while True:
            session_id = await find_page_of_chat(metadata)
            call = await get_event_call(metadata | {"session_id": session_id})
            asking = asyncio.create_task(call(dialog))
            try:
                # A page that is closed is no refusal, and not every version tells of it.
                while session_id in SESSION_POOL and not asking.done():
                    await asyncio.wait({asking}, timeout=LOOK_SECONDS)
                if asking.done() and not (isinstance(answer := asking.result(), dict) and "error" in answer):
                    return answer
            finally:
                asking.cancel()
            await asyncio.sleep(LOOK_FOR_PAGE_SECONDS)

    return ask
