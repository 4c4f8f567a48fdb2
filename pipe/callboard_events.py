"""
title: Callboard events
author: Callboard
version: 0.1.0
license: MIT
description: For use with the pipe: restores answers after a restart of Open WebUI, and deletes chats on the server too.
required_open_webui_version: 0.11.4
"""

# A function of type Event, which Open WebUI calls for each of its own events. It reads and changes Open WebUI's chats.
# The pipe renders the answers; its id is the id of this function without `SUFFIX`.

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
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
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse

log = logging.getLogger("callboard.events")

Json = dict[str, Any]

SUFFIX = "_events"  # At the end of this function's id, after the id of the pipe.
UNTITLED = "New Chat"  # The title that Open WebUI gives a new chat.

# Older answers are not restored.
MAX_AGE_SECONDS = 86_400.0
# A message that was changed within this time may be in use by another replica, or by the one that has just stopped.
QUIET_SECONDS = 10.0
# Intervals between tries.
POLL_SECONDS = 2.0
FORGET_RETRY_SECONDS = 10.0
# How long to wait for a server that is unavailable, and for an answer that it does not know of yet, because the request
# for it may still be on its way.
UNAVAILABLE_SECONDS = 600.0
UNKNOWN_SECONDS = 30.0
# Stands for the session of a page in the metadata of a restored answer.
NO_PAGE = "restored"

# The event loop keeps only weak references to tasks.
background_tasks: set[asyncio.Task[None]] = set()
following: dict[str, asyncio.Task[None]] = {}  # By the pipe's id.


class MessageDeleted(Exception):
    """The user deleted the message while its answer was being restored."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a chat whose answer has not ended; `changed_at` is in Unix seconds."""

    chat_id: str
    message_id: str
    user_id: str
    model: str
    changed_at: int


class Event:
    """The class that Open WebUI loads."""

    class Valves(BaseModel):
        """Settings of an admin."""

        RESTORE_ANSWERS: bool = Field(
            default=True,
            description="When Open WebUI starts, complete the answers during which it was stopped.",
        )
        FORGET_CHATS: bool = Field(
            default=True,
            description="Delete chats on the server too when they are deleted in Open WebUI.",
        )

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def event(self, event: Json, __id__: str, __app__: Any) -> None:
        """Handle an event of Open WebUI."""
        pipe_id = __id__.removesuffix(SUFFIX)
        keep_following(__app__, pipe_id)
        match event["event"]:
            case "system.startup.completed" if self.valves.RESTORE_ANSWERS:
                run_in_background(restore_all(__app__, pipe_id))
            case "message.created" if event["data"].get("chat_id"):
                run_in_background(cancel_stopped(__app__, pipe_id, event["data"]["chat_id"], event["subject"]["id"]))
            case "chat.deleted" if self.valves.FORGET_CHATS:
                user_id = event["data"]["owner_id"]
                chat_id = event["subject"]["id"]
                run_in_background(forget(__app__, pipe_id, lambda pipe: pipe.forget_chat(user_id, chat_id)))
            case "chat.deleted_all" if self.valves.FORGET_CHATS:
                user_id = event["subject"]["id"]
                # Plus 1, because the event's time is rounded down to whole seconds.
                begun_before = event["created_at"] + 1
                run_in_background(forget(__app__, pipe_id, lambda pipe: pipe.forget_chats(user_id, begun_before)))
            case "chat.deleted" | "chat.deleted_all":
                log.info("Callboard: FORGET_CHATS is off: the server keeps %s", event["subject"]["id"])


def run_in_background(work: Coroutine[Any, Any, None]) -> None:
    """Start the work as a task, because Open WebUI waits until `event` returns."""
    task = asyncio.create_task(work)
    background_tasks.add(task)
    task.add_done_callback(finish_task)


def finish_task(task: asyncio.Task[None]) -> None:
    """Drop the reference to a task that has ended, and log its error."""
    background_tasks.discard(task)
    if not task.cancelled() and (error := task.exception()):
        log.error("Callboard: a background task failed", exc_info=error)


async def load_pipe(app: Any, pipe_id: str) -> Any:
    """Return the pipe with the current values of its valves."""
    from open_webui.functions import get_function_module_by_id

    return await get_function_module_by_id(SimpleNamespace(app=app), pipe_id)


async def forget(app: Any, pipe_id: str, forget_once: Callable[[Any], Awaitable[bool]]) -> None:
    """Delete chats on the server with `forget_once`; retry for `UNAVAILABLE_SECONDS` while it returns False."""
    until_seconds = time.monotonic() + UNAVAILABLE_SECONDS
    pipe = await load_pipe(app, pipe_id)
    while not await forget_once(pipe):
        if time.monotonic() > until_seconds:
            log.error("Callboard: deleted chats are still on the server; delete them with DELETE /v1/chats")
            return
        await asyncio.sleep(FORGET_RETRY_SECONDS)


async def cancel_stopped(app: Any, pipe_id: str, chat_id: str, message_id: str) -> None:
    """Cancel the run of a message whose pending card the user has stopped, when the chat goes on after it.

    Open WebUI publishes no event for a stop on a pending card.
    """
    async with get_async_db_context() as db:
        created = await db.get(ChatMessage, f"{chat_id}-{message_id}")
        if not created or not created.parent_id:
            return
        is_before = ChatMessage.id == f"{chat_id}-{created.parent_id}"
        is_beside = ChatMessage.parent_id == created.parent_id
        rows = await db.execute(select(ChatMessage).where(ChatMessage.chat_id == chat_id, or_(is_before, is_beside)))
        stopped = [read_message(row) for row in rows.scalars() if row.done and has_stopped_card(row)]
    for message in stopped:
        pipe = await load_pipe(app, pipe_id)
        await pipe.cancel_waiting(message.user_id, chat_id, message.message_id)


# --- Messages in Open WebUI's database. -----------------------------------------------------------------------------


def select_unfinished(pipe_id: str) -> Any:
    """Return the query for the messages of the pipe's models whose answers have not ended."""
    prefix = f"{pipe_id}."
    presets = select(Model.id).where(Model.base_model_id.startswith(prefix, autoescape=True))
    is_of_pipe = or_(ChatMessage.model_id.startswith(prefix, autoescape=True), ChatMessage.model_id.in_(presets))
    return select(ChatMessage).where(is_of_pipe, ChatMessage.role == "assistant", ChatMessage.done.is_(False))


async def find_unfinished_messages(pipe_id: str) -> list[Message]:
    """Return the recent messages of the pipe's models whose answers have not ended."""
    is_recent = ChatMessage.created_at > time.time() - MAX_AGE_SECONDS
    async with get_async_db_context() as db:
        rows = await db.execute(select_unfinished(pipe_id).where(is_recent))
        return [read_message(row) for row in rows.scalars() if not has_pending_card(row)]


async def find_shown_messages(pipe_id: str, chat_ids: Iterable[str]) -> dict[Message, list[Json]]:
    """Return the outputs of the messages in these chats whose answers have not ended."""
    async with get_async_db_context() as db:
        rows = await db.execute(select_unfinished(pipe_id).where(ChatMessage.chat_id.in_(chat_ids)))
        return {read_message(row): row.output or [] for row in rows.scalars()}


def has_pending_card(row: Any) -> bool:
    """Return whether the answer waits until the user approves a call, and therefore needs no restoring."""
    calls = [item for item in row.output or () if item.get("type") == "function_call"]
    is_at_work = any(call.get("status") == "in_progress" or call.get("approved") for call in calls)
    return not is_at_work and any(call.get("status") == "pending" for call in calls)


async def reload_message(message: Message) -> Message | None:
    """Return the message as it is in the database now; None if it was deleted, or its answer has ended or waits."""
    async with get_async_db_context() as db:
        row = await db.get(ChatMessage, f"{message.chat_id}-{message.message_id}")
        return read_message(row) if row and row.done is False and not has_pending_card(row) else None


def read_message(row: Any) -> Message:
    """Return the message in a row of Open WebUI's table `chat_message`."""
    message_id = row.id.removeprefix(f"{row.chat_id}-")
    return Message(row.chat_id, message_id, row.user_id, row.model_id, row.updated_at)


def has_stopped_card(row: Any) -> bool:
    """Return whether the user has stopped an answer that waited: its call is rejected and has no output."""
    items = row.output or ()
    with_output = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    stopped = [
        item["call_id"] for item in items if item.get("status") == "rejected" and item["call_id"] not in with_output
    ]
    # The pipe has named the items of its cards.
    return any(item.get("id") == f"fc_{call_id}" for item in items for call_id in stopped)


async def claim_message(message: Message) -> bool:
    """Claim the message for this process; return False if another process has changed it meanwhile.

    One statement compares and sets the time of its last change, so only one of several replicas succeeds.
    """
    row = ChatMessage.id == f"{message.chat_id}-{message.message_id}"
    is_unchanged = ChatMessage.done.is_(False), ChatMessage.updated_at == message.changed_at
    async with get_async_db_context() as db:
        changed = await db.execute(update(ChatMessage).where(row, *is_unchanged).values(updated_at=int(time.time())))
        await db.commit()
        return bool(changed.rowcount)


# --- Restoring answers. ---------------------------------------------------------------------------------------------


async def restore_all(app: Any, pipe_id: str) -> None:
    """Restore every answer during which Open WebUI was stopped, each in a task of its own."""
    from open_webui.utils.models import get_all_models

    unfinished = await find_unfinished_messages(pipe_id)
    if not unfinished:
        return
    models = {model["id"]: model for model in await get_all_models(make_request(app))}
    for message in unfinished:
        log.info("Callboard: Open WebUI was stopped in message %s", message.message_id)
        model = models.get(message.model, {"id": message.model})
        run_in_background(restore(app, pipe_id, model, message))


def make_request(app: Any) -> Request:
    """Return a request object for Open WebUI's functions, as Open WebUI makes one for its own background work."""
    return Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "app": app})


async def restore(app: Any, pipe_id: str, model: Json, unfinished: Message) -> None:
    """Stream the answer into its chat, up to its end; if it is lost, the chat gets a notice."""
    try:
        user = await Users.get_user_by_id(unfinished.user_id)
        began_at_seconds = time.monotonic()
        while user and (message := await reload_message(unfinished)):
            seconds = time.monotonic() - began_at_seconds
            pipe = await load_pipe(app, pipe_id)
            answer = await pipe.find_answer(message.user_id, message.chat_id, message.message_id)
            if answer is None:
                is_decided = seconds > UNAVAILABLE_SECONDS
            elif answer.rows:
                is_decided = not answer.is_awaited
            else:
                is_decided = seconds > UNKNOWN_SECONDS
            # After `claim_message` the first event must come within QUIET_SECONDS: then another replica may claim it.
            is_quiet = message.changed_at + QUIET_SECONDS < time.time()
            if is_decided and is_quiet and await claim_message(message):
                metadata = make_metadata(message)
                return await stream_into_chat(make_request(app), pipe, user, model, metadata, message, answer)
            await asyncio.sleep(POLL_SECONDS)
    except MessageDeleted:
        log.info("Callboard: message %s was deleted meanwhile", unfinished.message_id)


async def stream_into_chat(
    request: Request, pipe: Any, user: Any, model: Json, metadata: Json, message: Message, answer: Any
) -> None:
    """Pass the answer to Open WebUI as a model's response.

    Open WebUI then treats it like any other answer: open pages show it, the user can stop it, outlet filters run, and
    it is saved at its end.
    """
    from open_webui.constants import TASKS
    from open_webui.socket.main import get_event_call
    from open_webui.tasks import cleanup_task, create_task, list_task_ids_by_item_id
    from open_webui.utils.middleware import build_chat_response_context, process_chat_response

    redis = request.app.state.redis
    begun = await empty_message(message)
    known = metadata | {name: begun.get(name) for name in ("sources", "files", "embeds")}
    ask = await get_event_call(metadata)
    updates = pipe.restore(answer, user.model_dump(), known, message.model, request, ask)
    form = {"model": message.model, "messages": [], "stream": True, "metadata": metadata}
    # Up to 0.11 a chat gets its title after its first answer. Only the page knows whether the user wants one.
    is_untitled = await Chats.get_chat_title_by_id(message.chat_id) == UNTITLED
    tasks = {TASKS.TITLE_GENERATION: True} if is_untitled else None
    context = await build_chat_response_context(request, form, user, model, metadata, tasks, [])
    response = StreamingResponse(make_lines(updates, message, begun), media_type="text/event-stream")

    emit = context["event_emitter"]
    has_ended = {"type": "chat:active", "data": {"active": False}}

    async def work() -> None:
        try:
            await emit({"type": "chat:active", "data": {"active": True}})
            # Empties the answer in pages that have stayed open.
            await emit({"type": "chat:completion", "data": {"output": []}})
            await process_chat_response(response, context)
        finally:
            await cleanup_task(redis, metadata["task_id"], message.chat_id)
            await emit(has_ended)

    _, task = await create_task(redis, work(), id=message.chat_id, task_id=metadata["task_id"])
    await task
    # A page that has just connected requests the chat's tasks. If that list was made before the answer's end, the page
    # would show the stop button for ever, so repeat the event.
    await asyncio.sleep(POLL_SECONDS)
    if not await list_task_ids_by_item_id(redis, message.chat_id):
        await emit(has_ended)


def make_metadata(message: Message) -> Json:
    """Return the metadata of the request, as Open WebUI makes it for a request of a page.

    If a call waits for approval, Open WebUI stores the session. Without one it would handle the approval without a
    task, which the user could not stop.
    """
    return {
        "user_id": message.user_id,
        "chat_id": message.chat_id,
        "message_id": message.message_id,
        "model_id": message.model,
        "session_id": NO_PAGE,
        "task_id": str(uuid.uuid4()),
        # The pipe adds the tools of calls that wait for approval.
        "tools": {},
        "params": {},
    }


async def empty_message(message: Message) -> Json:
    """Empty the message, because Open WebUI appends the response to its content; return it as it was."""
    place = message.chat_id, message.message_id
    begun = await Chats.get_message_by_id_and_message_id(*place) or {}
    await Chats.upsert_message_to_chat_by_id_and_message_id(*place, {"content": "", "output": []})
    return begun


async def make_lines(updates: AsyncGenerator[Json, None], message: Message, begun: Json) -> AsyncIterator[str]:
    """Yield the pipe's updates as server-sent events, without the status lines that the message already has."""
    present = [{"type": "status", "data": status} for status in begun.get("statusHistory") or ()]
    async with aclosing(updates):
        async for change in updates:
            if (event := change.get("event")) in present:
                present.remove(event)
                continue
            yield f"data: {json.dumps(change)}\n\n"
    if not await reload_message(message):
        # Without this error, Open WebUI would save the answer and so bring the deleted message back.
        raise MessageDeleted
    yield "data: [DONE]\n\n"


# --- Calls that are answered elsewhere. -----------------------------------------------------------------------------


def keep_following(app: Any, pipe_id: str) -> None:
    """Start `follow_waiting` unless it runs; it replaces the task of an earlier version of this function."""
    if pipe_id in following:
        return
    name = f"callboard_following_{pipe_id}"
    if earlier := getattr(app.state, name, None):
        earlier.cancel()
    following[pipe_id] = asyncio.create_task(follow_waiting(app, pipe_id))
    setattr(app.state, name, following[pipe_id])


async def follow_waiting(app: Any, pipe_id: str) -> None:
    """Press the pending cards of the chats in view whose calls were answered in another place, for ever."""
    try:
        from open_webui.main import resolve_chat_message_tool_call  # noqa: F401 - only whether it is there
        from open_webui.utils.tool_approval import ResolveToolCallForm  # noqa: F401 - only whether it is there
    except ImportError:
        log.info("Callboard: this version of Open WebUI has no pending cards")
        return
    while True:
        await asyncio.sleep(POLL_SECONDS)
        try:
            chat_ids = await asyncio.to_thread(list_shown_chats)
            messages = await find_shown_messages(pipe_id, chat_ids) if chat_ids else {}
            pressing = [press_answered(app, pipe_id, *each) for each in messages.items()]
            # One message must not keep the others waiting: a user may store any output in it.
            for problem in filter(None, await asyncio.gather(*pressing, return_exceptions=True)):
                log.error("Callboard: a waiting call could not be compared with the server", exc_info=problem)
        except Exception:
            log.exception("Callboard: waiting calls could not be compared with the server")


async def press_answered(app: Any, pipe_id: str, message: Message, output: list[Json]) -> None:
    """Press the pending cards of a message whose calls were answered in another place."""
    if any(item.get("status") == "pending" for item in output):
        pipe = await load_pipe(app, pipe_id)
        actions = await pipe.find_actions(message.user_id, message.chat_id, message.message_id, output)
        for call_id, action in actions.items():
            # In the background, because Open WebUI may run the call before this returns.
            run_in_background(press(app, message, call_id, action))


def list_shown_chats() -> set[str]:
    """Return the ids of the chats that pages show."""
    from open_webui.socket.main import SESSION_POOL

    return {chat_id for _, session in [*SESSION_POOL.items()] for chat_id in session.get("chat_ids", ())}


async def press(app: Any, message: Message, call_id: str, action: str) -> None:
    """Press a button of a pending card in the user's name; if the user is faster, their answer is kept."""
    from open_webui.main import resolve_chat_message_tool_call
    from open_webui.utils.tool_approval import ResolveToolCallForm

    user = await Users.get_user_by_id(message.user_id)
    # As the route's own `get_verified_user`: the user may have lost the access meanwhile.
    if user is None or user.role not in ("user", "admin"):
        return
    form = ResolveToolCallForm(call_id=call_id, action=action)
    try:
        await resolve_chat_message_tool_call(make_request(app), message.chat_id, message.message_id, form, user, None)
    except HTTPException as error:
        log.info("Callboard: the card of call %s was not pressed: %s", call_id, error.detail)
