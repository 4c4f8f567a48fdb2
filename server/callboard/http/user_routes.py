"""The routes that export and delete all stored data of a user (`?user_id=`)."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callboard.http.chat_routes import READING, UNCACHED
from callboard.http.principal import get_caller_name
from callboard.http.query import Query, read_query
from callboard.http.state import get_server_state
from callboard.storage import Line
from callboard.text import write_json_line

JSON_LINES = "application/x-ndjson"


class UserQuery(Query):
    """The query of both routes."""

    user_id: Annotated[str, Field(min_length=1)]


async def user_data(request: Request) -> Response:
    """Return all stored data of a user as JSON Lines, each with its `kind`, a chat before its messages."""
    pages = get_server_state(request).store.read_user(read_query(request, UserQuery).user_id)
    # The first page is read before the response starts, so that an error can still set the status.
    first: Sequence[Line] = await anext(pages, [])
    return StreamingResponse(_encode_pages(first, pages), media_type=JSON_LINES, headers=UNCACHED)


async def forget_user(request: Request) -> Response:
    """Cancel the runs of a user and delete all stored data of the user; return the number of deleted rows by kind."""
    user_id = read_query(request, UserQuery).user_id
    forgotten = await get_server_state(request).runs.forget_user(user_id, get_caller_name(request))
    return JSONResponse({"user_id": user_id, "forgotten": dict(forgotten)}, headers=UNCACHED)


async def _encode_pages(first: Sequence[Line], rest: AsyncIterator[Sequence[Line]]) -> AsyncIterator[bytes]:
    yield await READING.run(partial(_encode, first))
    async for lines in rest:
        yield await READING.run(partial(_encode, lines))


def _encode(lines: Sequence[Line]) -> bytes:
    return "".join(map(write_json_line, lines)).encode()


ROUTES = [
    Route("/v1/user-data", user_data),
    Route("/v1/user-data", forget_user, methods=["DELETE"]),
]
