"""Reads the query of a request, whose `user_id` names the user of the request."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from callboard.http.body import refuse_invalid
from callboard.http.state import get_server_state

MAX_PAGE = 200


class Query(BaseModel):
    """A query without other parameters than these; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None


class PageQuery(Query):
    """The query of a list that comes in pages."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    cursor: str | None = None


AnyQuery = TypeVar("AnyQuery", bound=Query)


def read_query(request: Request, kind: type[AnyQuery]) -> AnyQuery:
    """Return the query. Raises `RequestError` for an invalid one, and like `read_user_id`."""
    with refuse_invalid():
        query = kind.model_validate(dict(request.query_params))
    read_user_id(request)
    return query


def read_user_id(request: Request) -> str | None:
    """Return the `user_id` in the query; raises `Unauthorized` or `UserRefused` if `UserVerifier` refuses it."""
    user_id = request.query_params.get("user_id")
    get_server_state(request).user_verifier.verify(user_id, request)
    return user_id
