"""Resolves the calls of an answer: finds the tool of each and checks its arguments, or rejects it with a reason."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from callboard._formats import tool_meant, understand
from callboard.calls import (
    Budget,
    ClientTool,
    RejectedCall,
    ResolvedCall,
    Tool,
    ToolCall,
    check_arguments,
    new_external_id,
    write_arguments,
)
from callboard.errors import InvalidArguments, ToolDenied, ToolError
from callboard.settings import TextCalls

NOT_REPEATED = (
    "The arguments do not fit the tool's schema. They are not repeated here, because some of them are secret. "
    "Write one JSON object that fits, and call again."
)


def resolve_calls(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    budget: Budget,
    *,
    text_calls: TextCalls = "ask",
    cut_short: bool = False,
) -> list[ResolvedCall | RejectedCall]:
    """Resolve or reject each call, in order, and take it from the budget.

    `text_calls`: calls of the client's functions that were read from the model's text are resolved only with "run".
    `cut_short`: the model reached its token limit, so a last call without arguments may have lost them.
    """
    resolved: list[ResolvedCall | RejectedCall] = []
    for call in calls:
        try:
            if cut_short and call is calls[-1] and not call.arguments_text.strip():
                raise InvalidArguments("The call was cut off before its arguments: the answer was too long. Try again.")
            one = _resolve(call, tools, text_calls)
            if not one.is_external:
                budget.spend_execution(one.name, one.arguments)
            resolved.append(one)
        except ToolError as error:
            tool = tools.get(tool_meant(call.name, tools))
            if isinstance(error, InvalidArguments) and tool and tool.secret_arguments:
                error = InvalidArguments(NOT_REPEATED)
            resolved.append(RejectedCall(call, budget.refuse(error), tool))
    return resolved


def _resolve(call: ToolCall, tools: Mapping[str, Tool], text_calls: TextCalls) -> ResolvedCall:
    """Return the call with its tool and its checked arguments. Raises `ToolError` if it cannot run."""
    meant = understand(call, {name: tool.parameters for name, tool in tools.items()})
    tool = tools[meant.name]
    arguments = check_arguments(tool, meant.arguments)
    if isinstance(tool, ClientTool):
        if call.asks_first and text_calls != "run":
            raise ToolDenied("Not run: it was read from the text of the answer. Call the function natively.")
        text = _write_for_client(call.arguments_text, arguments)
        return ResolvedCall(replace(call, id=new_external_id()), tool, arguments, text, meant.repairs)
    # Repaired arguments are shown, stored and repeated to the model as they run, not as they were written.
    text = write_arguments(arguments) if meant.repairs else call.arguments_text
    return ResolvedCall(call, tool, arguments, text, meant.repairs)


def _write_for_client(written: str, arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON text: the model's own text, unless it says something else."""
    try:
        if json.loads(written) == arguments:
            return written
    except (ValueError, RecursionError):
        pass
    return json.dumps(dict(arguments), ensure_ascii=False)
