"""Questions of an MCP server to the user in the middle of a call (elicitation).

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import structlog
from mcp import MCPError
from mcp_types import (
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    ElicitationRequiredErrorData,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
)

from callboard.calls import ToolContext
from callboard.calls.forms import read_form
from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.schema import clean_text
from callboard.skills.mcp.signals import Signals

MAX_QUESTIONS = 5
"""The questions that a server may ask in one call, and the addresses that it may demand before it takes a call."""

_TEXTS = frozenset({"title", "description", "format"})

_log = structlog.get_logger(__name__)


async def elicit(
    params: ElicitRequestParams, declaration: ServerDeclaration, signals: Signals
) -> ElicitResult | ErrorData:
    """Ask the user of the call that the question belongs to; `cancel` if there is no such user or no answer.

    A question over the limit is declined with an error, because `decline` would have no reason.
    """
    context = signals.find_asking_call()
    if context is None:
        # The protocol names no call. With several calls at once the question could reach another user.
        _log.warning("mcp_question_of_no_call", server=declaration.name, calls=len(signals.open_calls))
        return ElicitResult(action="cancel")
    if not context.quotas.take(f"questions of {context.tool_call_id}", 1, MAX_QUESTIONS):
        return ErrorData(
            code=INVALID_REQUEST, message=f"Callboard declined a question: a call may ask at most {MAX_QUESTIONS}."
        )
    try:
        answer = await _ask(params, declaration, context)
    except (ValueError, ToolError) as error:
        _log.warning("mcp_question_invalid", server=declaration.name, reason=declaration.hide(str(error))[:500])
        return ElicitResult(action="cancel")
    if answer is None:
        return ElicitResult(action="cancel")
    if answer is False:
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content=answer if isinstance(answer, dict) else None)


async def ask_for_urls(error: MCPError, declaration: ServerDeclaration, context: ToolContext) -> ToolError | None:
    """Ask the user to open the addresses that a server demands before a call, and return the error for the model.

    Returns None if the error demands no address.
    """
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    name = declaration.name
    try:
        demanded = ElicitationRequiredErrorData.model_validate(error.data).elicitations[:MAX_QUESTIONS]
        answers = [await _ask(params, declaration, context) for params in demanded]
    except ValueError:
        return ToolError(f"Not run: the MCP server '{name}' demands that the user opens an invalid address first.")
    if demanded and all(answer is True for answer in answers):
        return ToolError(
            f"Not run yet: the MCP server '{name}' needs the user to finish something at an address, which they have "
            "opened. Ask them to say when they are done, and then call the tool again."
        )
    return ToolError(f"Not run: the MCP server '{name}' needs the user to open an address first, which they did not.")


async def _ask(params: ElicitRequestParams, declaration: ServerDeclaration, context: ToolContext) -> Any:
    """Return the user's answer. Raises `ValueError` if the form is not flat, or the address is no web address."""

    def clean(text: str) -> str:
        return clean_text(declaration.hide(text))

    message = clean(params.message)
    title = f"The MCP server '{declaration.name}' asks"
    if isinstance(params, ElicitRequestURLParams):
        host = check_web_address(params.url)
        return await context.ask(f"{message}\n\n{host}", title=title, url=params.url)
    form = read_form(params.requested_schema)
    # A field without a title is shown with its name.
    fields = {name: {"title": name, **field} for name, field in form["properties"].items()}
    return await context.ask(message, title=title, schema={**form, "properties": _clean_texts(fields, clean)})


def check_web_address(url: str) -> str:
    """Return the host of an address that the user is asked to open. Raises `ValueError` if it is no web address."""
    address = urlsplit(url)
    # A name in front of the host (https://bank.example@evil.example) is there to deceive.
    # Browsers read a backslash as a slash, which ends the host.
    is_deceptive = "\\" in url or address.username or address.password
    if is_deceptive or address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("the address is no web address")
    return address.hostname


def _clean_texts(part: Any, clean: Callable[[str], str]) -> Any:
    """Return a part of a form with clean texts for people. Names and values go back to the server unchanged."""
    match part:
        case list():
            return [_clean_texts(one, clean) for one in part]
        case dict():
            return {
                name: clean(value) if name in _TEXTS and isinstance(value, str) else _clean_texts(value, clean)
                for name, value in part.items()
            }
    return part
