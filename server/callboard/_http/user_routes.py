"""The routes that export and delete all stored data of a user (`?user_id=`)."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callboard._http.body import refuse_invalid
from callboard._http.chat_routes import READING, UNCACHED
from callboard._http.principal import get_caller_name
from callboard._http.state import server_state
from callboard._text import write_json_line
from callboard.storage import Line

JSON_LINES = "application/x-ndjson"


class UserQuery(BaseModel):
    """The query of both routes."""

    model_config = ConfigDict(extra="forbid")

    user_id: Annotated[str, Field(min_length=1)]


async def user_data(request: Request) -> Response:
    """Return all stored data of a user as JSON Lines, each with its `kind`, a chat before its messages."""
    pages = server_state(request).store.read_user(_read_user(request))
    # The first page is read before the response starts, so that an error can still set the status.
    first: Sequence[Line] = await anext(pages, [])
    return StreamingResponse(_encode_pages(first, pages), media_type=JSON_LINES, headers=UNCACHED)


async def forget_user(request: Request) -> Response:
    """Cancel the runs of a user and delete all stored data of the user; return the number of deleted rows by kind."""
    user_id = _read_user(request)
    forgotten = await server_state(request).runs.forget_user(user_id, get_caller_name(request))
    return JSONResponse({"user_id": user_id, "forgotten": dict(forgotten)}, headers=UNCACHED)


def _read_user(request: Request) -> str:
    with refuse_invalid():
        user_id = UserQuery.model_validate(dict(request.query_params)).user_id
    server_state(request).user_verifier.verify(user_id, request)
    return user_id


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
