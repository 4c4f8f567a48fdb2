"""Turns errors into responses: `{"error": {"code", "message", "type", "param"}}` as in OpenAI's API, and a status."""

import math
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

import callboard.errors as errors

RETRY_SECONDS = 5
"""The `Retry-After` of responses from a server that is busy or shutting down."""

_log = structlog.get_logger(__name__)

STATUS: Mapping[type[errors.CallboardError], HTTPStatus] = {
    errors.UnknownAgent: HTTPStatus.NOT_FOUND,
    errors.AgentRefused: HTTPStatus.FORBIDDEN,
    errors.UnknownRun: HTTPStatus.NOT_FOUND,
    errors.UnknownInput: HTTPStatus.NOT_FOUND,
    errors.UnknownFile: HTTPStatus.NOT_FOUND,
    errors.UnknownChat: HTTPStatus.NOT_FOUND,
    errors.UnknownResponse: HTTPStatus.NOT_FOUND,
    errors.UnknownToolCall: HTTPStatus.NOT_FOUND,
    errors.RunConflict: HTTPStatus.CONFLICT,
    errors.RunEnding: HTTPStatus.CONFLICT,
    errors.LogExpired: HTTPStatus.GONE,
    errors.RunTimeout: HTTPStatus.GATEWAY_TIMEOUT,
    errors.TooManyRuns: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.ShuttingDown: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.HostRefused: HTTPStatus.MISDIRECTED_REQUEST,
    errors.OriginRefused: HTTPStatus.FORBIDDEN,
    errors.BodyRefused: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.UserRefused: HTTPStatus.FORBIDDEN,
    errors.Unauthorized: HTTPStatus.UNAUTHORIZED,
    # Its name differs between Python's versions.
    errors.RequestTooLarge: HTTPStatus(413),
    errors.RequestTimeout: HTTPStatus.REQUEST_TIMEOUT,
    errors.ServerBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.RequestError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.StorageError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CallboardError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of each error class; other classes have the status of their nearest base class."""


def find_status(error: errors.CallboardError) -> HTTPStatus:
    """Return the HTTP status for an error."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def error_response(error: errors.CallboardError, status: HTTPStatus | None = None) -> JSONResponse:
    """Return the response for an error; `status` defaults to the status of the error's class."""
    status = status or find_status(error)
    headers: dict[str, str] = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.ServerBusy | errors.ShuttingDown):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, errors.QuotaExceeded):
        headers["Retry-After"] = str(math.ceil(error.ends_in_seconds))
        # Without this header, OpenAI's clients retry at once.
        headers["X-Should-Retry"] = "false"
    return JSONResponse(build_error_object(status, error.code, str(error)), status, headers)


def build_error_object(status: int, code: str, message: str) -> dict[str, dict[str, str | None]]:
    """Return an error in the form of OpenAI's API, for a response body or an event in a stream."""
    kinds = {HTTPStatus.UNAUTHORIZED: "authentication_error", HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error"}
    kind = kinds.get(HTTPStatus(status), "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"code": code, "message": message, "type": kind, "param": None}}


async def _answer_error(request: Request, error: Exception) -> Response:
    match error:
        case errors.CallboardError():
            return error_response(error)
        case HTTPException(status_code=status, detail=detail):
            code = HTTPStatus(status).phrase.lower().replace(" ", "_")
            # Not `request.url`, which also depends on the Host header.
            message = (
                f"{request.method} {request.scope['path']}: {detail}; docs/reference/routes.md lists the routes. "
                "Callboard has no models for embeddings, pictures or speech: give the client another address for these"
            )
            return JSONResponse(build_error_object(status, code, message), status, error.headers)
        case _:
            _log.error("request_failed", path=request.scope["path"], exc_info=error)
            reason = "the server failed; its log says why"
            return JSONResponse(build_error_object(500, "internal_error", reason), 500)


EXCEPTION_HANDLERS: Mapping[type[Exception], ExceptionHandler] = dict.fromkeys(
    (errors.CallboardError, HTTPException, Exception), _answer_error
)
