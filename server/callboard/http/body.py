"""Request bodies: read up to a limit, then into their wire type."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from callboard.errors import RequestError, RequestTooLarge

Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, kind: type[Body], max_bytes: int) -> Body:
    """The body as `kind`; raises `RequestTooLarge`, or `RequestError` that names the wrong fields."""
    chunks, total = [], 0
    try:
        async for chunk in request.stream():
            total += len(chunk)
            if total > max_bytes:
                raise RequestTooLarge(
                    f"the request is larger than {max_bytes} bytes: send less, or raise CALLBOARD_MAX_REQUEST_MIB"
                )
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise RequestError("the client went away before the request was complete") from error
    with refusing():
        return kind.model_validate_json(b"".join(chunks))


@contextmanager
def refusing() -> Iterator[None]:
    """Turns what a wire type does not take into a `RequestError` that names the wrong fields."""
    try:
        yield
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, detail['loc'])) or 'body'}: {detail['msg']}" for detail in error.errors()[:10]]
        raise RequestError("; ".join(lines)) from None
