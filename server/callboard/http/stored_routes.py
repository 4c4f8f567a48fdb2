"""The routes of stored chats (messages, timeline, tool calls, grants, deletion) and of all stored data of a user.

`user_id` in the query names the user of the request. Only the user who started a chat can read it: for other users, and
without `user_id`, the response is 404.
"""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from callboard.errors import RequestError, Unauthorized
from callboard.http.auth import JSON, get_caller_name, has_valid_signature
from callboard.http.query import PageQuery, Query, read_query, read_user_id
from callboard.http.state import get_server_state
from callboard.runs.grants import Grants
from callboard.storage.sql.chats import Chats
from callboard.storage.values import ANY_USER, CallState, Line, ToolCallFilter
from callboard.text import write_json_line
from callboard.threads import Threads

JSON_LINES = "application/x-ndjson"
READING = Threads("reading", 2)

UNCACHED = {"Cache-Control": "private, no-store"}
"""Headers of responses with a user's data, which no proxy or browser cache may store."""


class ToolCallQuery(PageQuery):
    """The query of `GET /v1/tool-calls`; times in seconds since the epoch."""

    chat_id: str | None = None
    tool_name: str | None = None
    status: CallState | None = None
    since: float | None = None
    until: float | None = None


class UserQuery(Query):
    """A query that must name a user."""

    user_id: Annotated[str, Field(min_length=1)]


class GrantQuery(UserQuery):
    """The query of `DELETE /v1/chats/{chat_id}/grants`."""

    agent_id: str
    tool_name: str


class DeletionQuery(UserQuery):
    """The query of `DELETE /v1/chats`; the time in seconds since the epoch."""

    begun_before: float = math.inf


async def chat_messages(request: Request) -> Response:
    """Return the chat's messages; tool calls and their results are messages of their own."""
    chat_id = request.path_params["chat_id"]
    return await _answer_in_pages(chat_id, "messages", _open_chats(request).message_pages(chat_id))


async def chat_timeline(request: Request) -> Response:
    """Return every tool call with its status events, in order of time."""
    chat_id = request.path_params["chat_id"]
    return await _answer_in_pages(chat_id, "tool_calls", _open_chats(request).timeline_pages(chat_id))


async def delete_chat(request: Request) -> Response:
    """Delete a chat; 204."""
    await _open_chats(request).delete(request.path_params["chat_id"])
    return Response(status_code=204)


async def delete_chats(request: Request) -> Response:
    """Delete the chats of the user in `?user_id=` that have an id given by a client; 204.

    With `begun_before` in the query, in seconds since the epoch, chats that began later are kept.
    """
    query = read_query(request, DeletionQuery)
    await get_server_state(request).store.chats(query.user_id).delete_all(query.begun_before)
    return Response(status_code=204)


async def tool_call(request: Request) -> Response:
    """Return one tool call with its full arguments, full result and events.

    `?chat_id=` is required because ids are unique within a chat only. A signed link returns the result alone, as text.
    """
    chat_id = request.query_params.get("chat_id")
    tool_call_id = request.path_params["tool_call_id"]
    if not chat_id:
        raise RequestError("chat_id is missing: tool call ids are unique within a chat, so name it in the query")
    if has_valid_signature(request, get_server_state(request).links):
        found = await get_server_state(request).store.chats(ANY_USER).tool_call(chat_id, tool_call_id)
        # As plain text, because a result may contain HTML with scripts, which must not run in the user's browser.
        return PlainTextResponse(found.result or "", headers=UNCACHED)
    if "signature" in request.query_params:
        raise Unauthorized("this link has expired or was changed: send the key, or ask the agent again")
    return await _answer(await _open_chats(request).tool_call(chat_id, tool_call_id))


async def tool_calls(request: Request) -> Response:
    """Return a page of tool calls, newest first.

    The query takes `chat_id`, `tool_name`, `status`, `since` and `until` in seconds since the epoch, `limit`
    up to 200, and `cursor`, the `next_cursor` of the previous page. `status` is `running`, `waiting` (the user
    is asked), `complete`, `error` (all failures), `timed_out`, `declined`, `not_asked`, `not_answered` or `stopped`.
    """
    query = read_query(request, ToolCallQuery)
    wanted = ToolCallFilter(query.chat_id, query.tool_name, query.status, query.since, query.until)
    chats = get_server_state(request).store.chats(query.user_id)
    page = await chats.tool_calls(wanted, query.limit, query.cursor)
    return await _answer({"tool_calls": page.items, "next_cursor": page.next_cursor})


async def user_data(request: Request) -> Response:
    """Return all stored data of a user as JSON Lines, each with its `kind`, a chat before its messages."""
    pages = get_server_state(request).store.read_user(read_query(request, UserQuery).user_id)
    # The first page is read before the response starts, so that an error can still set the status.
    first: Sequence[Line] = await anext(pages, [])
    return StreamingResponse(_encode_lines(first, pages), media_type=JSON_LINES, headers=UNCACHED)


async def forget_user(request: Request) -> Response:
    """Cancel the runs of a user and delete all stored data of the user; return the number of deleted rows by kind."""
    user_id = read_query(request, UserQuery).user_id
    forgotten = await get_server_state(request).runs.forget_user(user_id, get_caller_name(request))
    return JSONResponse({"user_id": user_id, "forgotten": dict(forgotten)}, headers=UNCACHED)


async def grants(request: Request) -> Response:
    """Return the tools that the user in `?user_id=` has allowed always in the chat: `{"grants": […]}`."""
    found = await _open_grants(request, read_query(request, UserQuery).user_id).list()
    return JSONResponse({"grants": [asdict(grant) for grant in found]}, headers=UNCACHED)


async def revoke_grant(request: Request) -> Response:
    """Ask again before the tool in `?tool_name=` of the agent in `?agent_id=` runs; 204, also if it was not allowed."""
    query = read_query(request, GrantQuery)
    await _open_grants(request, query.user_id).revoke(query.agent_id, query.tool_name)
    return Response(status_code=204)


def _open_grants(request: Request, user_id: str) -> Grants:
    return get_server_state(request).runs.grants(user_id, request.path_params["chat_id"])


async def _answer(value: object) -> Response:
    content = await READING.run(partial(to_json, value))
    return Response(content, media_type=JSON, headers=UNCACHED)


async def _answer_in_pages(chat_id: str, name: str, pages: AsyncIterator[Sequence[object]]) -> Response:
    """Return a chat as JSON, encoded page by page so that a large chat does not delay other requests."""
    encoded: list[bytes] = []
    async for page in pages:
        encoded += await READING.run(partial(_encode, page))
    head = b'{"chat_id":%b,"%b":[' % (to_json(chat_id), name.encode())
    return Response(b"".join([head, b",".join(encoded), b"]}"]), media_type=JSON, headers=UNCACHED)


def _encode(page: Sequence[object]) -> list[bytes]:
    # One at a time, because other threads can run only between two calls of `to_json`.
    return [to_json(entry) for entry in page]


async def _encode_lines(first: Sequence[Line], rest: AsyncIterator[Sequence[Line]]) -> AsyncIterator[bytes]:
    def encode(page: Sequence[Line]) -> bytes:
        return "".join(map(write_json_line, page)).encode()

    yield await READING.run(partial(encode, first))
    async for page in rest:
        yield await READING.run(partial(encode, page))


def _open_chats(request: Request) -> Chats:
    return get_server_state(request).store.chats(read_user_id(request))


ROUTES = [
    Route("/v1/chats", delete_chats, methods=["DELETE"]),
    Route("/v1/chats/{chat_id}", delete_chat, methods=["DELETE"]),
    Route("/v1/chats/{chat_id}/messages", chat_messages),
    Route("/v1/chats/{chat_id}/timeline", chat_timeline),
    Route("/v1/chats/{chat_id}/grants", grants),
    Route("/v1/chats/{chat_id}/grants", revoke_grant, methods=["DELETE"]),
    Route("/v1/tool-calls", tool_calls),
    Route("/v1/tool-calls/{tool_call_id:path}", tool_call),
    Route("/v1/user-data", user_data),
    Route("/v1/user-data", forget_user, methods=["DELETE"]),
]
