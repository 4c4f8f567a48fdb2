"""Converts exceptions of a framework's model and tools to Callboard's error classes."""

import asyncio
import sys
from collections.abc import Iterator

from callboard.calls.executor import error_text
from callboard.errors import (
    ModelCutOff,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
    ToolError,
)
from callboard.models.endpoint_stream import REFUSAL_STATUSES, upstream_code

DETAIL_CHARS = 500


def model_error(
    error: BaseException, agent_id: str = "", *, always: bool = False, subject: str = ""
) -> ModelError | None:
    """Return `error` as a `ModelError` if it is, or was caused by, a failure of the model's endpoint; otherwise None.

    Frameworks wrap the exceptions of their clients, so the chain of causes is searched for the first one with a
    specific class or status code. With `always`, the caller knows that the model failed: the result is never None.
    `subject` is what failed, if it is not the agent's model.
    """
    reason = " ".join(error_text(error).split())[:DETAIL_CHARS].rstrip(" .") or type(error).__name__
    subject = subject or f"The model of the agent '{agent_id}'"
    found = always
    for cause in _causes(error):
        if isinstance(cause, ModelError):
            return cause
        if _is_instance(cause, "openai.APITimeoutError", "httpx.TimeoutException"):
            return ModelTimeout(f"{subject} did not answer in time: {reason}. Try again, or give it a longer timeout.")
        if _is_instance(cause, "openai.APIConnectionError", "httpx.TransportError"):
            if any(map(_is_cut_off, _causes(error))):
                return ModelCutOff(
                    f"{subject} ended its answer in the middle: {reason}. "
                    "Ask again, and look at its endpoint's log if it happens often."
                )
            return ModelUnreachable(
                f"{subject} cannot be reached or cut the connection: {reason}. Check that its endpoint runs."
            )
        found = found or _is_instance(cause, "openai.APIError")
        match getattr(cause, "status_code", None) or getattr(cause, "status", None):
            case 401 | 403 as status:
                # The endpoint's message is left out because some endpoints quote the key that they refuse.
                return ModelUnauthorized(f"{subject} refused its key ({status}): give it a key that it accepts.")
            case status if status in REFUSAL_STATUSES:
                code = upstream_code(getattr(cause, "body", None), reason)
                return ModelRefused(f"{subject} refused the request ({status}): {reason}. Change the request.", code)
            case 429:
                return ModelRateLimited(f"{subject} is over its limit (429): {reason}. Wait, or use another model.")
    return ModelError(f"{subject} failed: {reason}. Look at its endpoint's log.") if found else None


def _is_instance(error: BaseException, *classes: str) -> bool:
    """Return whether an error has one of these classes, given as "library.Class".

    Libraries are looked up in `sys.modules`, not imported: a library that was never imported has raised nothing.
    """
    named = [name.partition(".") for name in classes]
    return isinstance(error, tuple(getattr(sys.modules.get(library), name, ()) for library, _, name in named))


def _is_cut_off(cause: BaseException) -> bool:
    return _is_instance(
        cause, "httpx.RemoteProtocolError", "httpx2.RemoteProtocolError"
    ) and "without sending a response" not in str(cause)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and not isinstance(cause, asyncio.CancelledError):
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def tool_error(raised: BaseException) -> ToolError:
    """Return an exception of a tool as a `ToolError`: itself if it is one, otherwise its class name and message."""
    if isinstance(raised, ToolError):
        return raised
    words = error_text(raised)
    return ToolError(f"{type(raised).__name__}: {words}" if words else type(raised).__name__)
