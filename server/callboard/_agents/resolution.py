"""The resolution of each call of an answer: to a tool that there is, or rejected for a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from callboard._formats import RequestedCall, tool_meant, understand
from callboard._redaction import MASK
from callboard._settings import TextCalls
from callboard.calls import (
    Budget,
    ClientTool,
    RejectedCall,
    ResolvedCall,
    Tool,
    ToolCall,
    check_arguments,
    new_external_id,
    written_arguments,
)
from callboard.calls.call import write_arguments
from callboard.errors import InvalidArguments, ToolDenied, ToolError

NOT_REPEATED = (
    "The arguments do not fit the tool's schema. They are not repeated here, because some of them are secret. "
    "Write one JSON object that fits, and call again."
)


def resolve_calls(
    requested: Sequence[RequestedCall],
    tools: Mapping[str, Tool],
    budget: Budget,
    *,
    text_calls: TextCalls = "ask",
    cut_short: bool = False,
) -> list[ResolvedCall | RejectedCall]:
    """Return what becomes of each call; the budget is spent in their order.

    `text_calls`: a client's functions are given calls out of the model's text only with "run".
    `cut_short`: the model ran out of tokens, so a last call without arguments may have lost them.
    """
    calls: list[ResolvedCall | RejectedCall] = []
    for call in requested:
        name = tool_meant(call.name, tools)
        try:
            if cut_short and call is requested[-1] and not call.arguments_text.strip():
                raise InvalidArguments("The call was cut off before its arguments: the answer was too long. Try again.")
            resolved = _resolve(call, tools, text_calls)
            if not resolved.is_external:
                budget.spend_execution(resolved.tool.name, resolved.arguments)
            calls.append(resolved)
        except ToolError as error:
            tool = tools.get(name)
            if isinstance(error, InvalidArguments) and tool and tool.secret_arguments:
                error = InvalidArguments(NOT_REPEATED)
            calls.append(RejectedCall(_make_call(call, name), budget.refuse(error), tool))
    return calls


def _resolve(call: RequestedCall, tools: Mapping[str, Tool], text_calls: TextCalls) -> ResolvedCall:
    """Return the call that `call` means. Raises `ToolError` and its kin."""
    schemas = {name: tool.parameters for name, tool in tools.items()}
    meant = understand(call, schemas)
    tool = tools[meant.name]
    arguments = check_arguments(tool, meant.arguments)
    written = _make_call(call, meant.name)
    if isinstance(tool, ClientTool):
        if call.asks_first and text_calls != "run":
            raise ToolDenied("Not run: it was read from the text of the answer. Call the function natively.")
        return ResolvedCall(_make_client_call(call, written, arguments), tool, arguments, meant.repairs)
    if not meant.repairs:
        return ResolvedCall(written, tool, arguments)
    # What is shown, stored, and told to the model again, is what runs.
    repaired = replace(written, arguments=write_arguments(arguments))
    letter = f"{call.name}({MASK if tool.secret_arguments else call.arguments_text})"
    return ResolvedCall(repaired, tool, arguments, meant.repairs, letter)


def _make_call(call: RequestedCall, name: str) -> ToolCall:
    return ToolCall(call.id, name, call.arguments_text, call.rescued, call.asks_first)


def _make_client_call(call: RequestedCall, written: ToolCall, arguments: Mapping[str, Any]) -> ToolCall:
    """Return the call as the client is given it."""
    return replace(written, id=new_external_id(), arguments=written_arguments(call.arguments_text, arguments))
