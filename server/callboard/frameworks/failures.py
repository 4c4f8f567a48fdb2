"""Failures of a framework's model and of its tools, as Callboard's own errors."""

import asyncio
import sys
from collections.abc import Iterator

from callboard.calls import error_text
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
from callboard.models.refusals import REFUSED, upstream_code

DETAIL_CHARS = 500


def model_error(error: BaseException, agent_id: str, *, always: bool = False) -> ModelError | None:
    """Return the failure of the model's endpoint that `error` is, or was caused by; None where it is none.

    Frameworks wrap what their clients raise: the first cause that says more than "failed" decides.
    `always`: it is known to be one, whatever its causes say.
    """
    said = " ".join(error_text(error).split())[:DETAIL_CHARS].rstrip(" .") or type(error).__name__
    where = f"The model of the agent '{agent_id}'"
    found = always
    for cause in _causes(error):
        if isinstance(cause, ModelError):
            return cause
        if _is(cause, "openai.APITimeoutError", "httpx.TimeoutException"):
            return ModelTimeout(f"{where} did not answer in time: {said}. Try again, or give it a longer timeout.")
        if _is(cause, "openai.APIConnectionError", "httpx.TransportError"):
            if any(map(_is_cut_off, _causes(error))):
                return ModelCutOff(
                    f"{where} ended its answer in the middle: {said}. "
                    "Ask again, and look at its endpoint's log if it happens often."
                )
            return ModelUnreachable(
                f"{where} cannot be reached or cut the connection: {said}. Check that its endpoint runs."
            )
        found = found or _is(cause, "openai.APIError")
        match getattr(cause, "status_code", None):
            case 401 | 403 as status:
                # In words of our own: some endpoints quote the key that they refuse.
                return ModelUnauthorized(f"{where} refused its key ({status}): give it one that it accepts.")
            case status if status in REFUSED:
                code = upstream_code(getattr(cause, "body", None), said)
                return ModelRefused(f"{where} refused the request ({status}): {said}. Change what is sent.", code)
            case 429:
                return ModelRateLimited(f"{where} is over its limit (429): {said}. Wait a little, or use another.")
    return ModelError(f"{where} failed: {said}. Look at its endpoint's log.") if found else None


def _is(error: BaseException, *classes: str) -> bool:
    """Return whether an error is of one of these classes, each named by its library.

    A library that nothing has imported has raised nothing, so none is imported for this.
    """
    named = [name.partition(".") for name in classes]
    return isinstance(error, tuple(getattr(sys.modules.get(library), name, ()) for library, _, name in named))


def _is_cut_off(cause: BaseException) -> bool:
    return _is(
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
    """Return what a tool has raised as Callboard's own error: the same, or one that names it."""
    if isinstance(raised, ToolError):
        return raised
    words = error_text(raised)
    return ToolError(f"{type(raised).__name__}: {words}" if words else type(raised).__name__)
