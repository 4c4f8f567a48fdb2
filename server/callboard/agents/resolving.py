"""Resolves the calls of a model's answer: each gets its tool and its checked arguments, or is rejected."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from callboard._formats import resolve_tool_name, understand
from callboard.calls import Tool, ToolCall
from callboard.calls.call import RejectedCall, ResolvedCall, parse_arguments, read_object, write_arguments
from callboard.calls.executor import check_arguments
from callboard.calls.limits import Budget
from callboard.calls.masking import find_secrets
from callboard.calls.tool import ClientTool, new_external_id
from callboard.errors import InvalidArguments, ToolDenied, ToolError
from callboard.redaction import MASK, Redaction
from callboard.settings import TextCalls

NOT_REPEATED = (
    "The arguments do not fit the tool's schema. They are not repeated here, because some of them are secret. "
    "Write one JSON object that fits, and call again."
)


def resolve_calls(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    budget: Budget,
    redaction: Redaction,
    *,
    text_calls: TextCalls = "ask",
    is_cut_short: bool = False,
) -> list[ResolvedCall | RejectedCall]:
    """Resolve or reject each call, in order, and take it from the budget.

    `text_calls`: calls of the client's functions that were read from the model's text are resolved only with "run".
    `is_cut_short`: the model reached its token limit, so a last call without arguments may have lost them.

    The values of secret arguments are added to `redaction`. If a tool has secret arguments, the arguments of a rejected
    call are masked unless they are an object and its tool exists, because the secrets in them cannot be found.
    """
    has_secrets = any(tool.secret_arguments for tool in tools.values())
    resolved: list[ResolvedCall | RejectedCall] = []
    for call in calls:
        tool = tools.get(resolve_tool_name(call.name, tools))
        written = parse_arguments(call.arguments_text) if has_secrets else None
        redaction.add(*find_secrets(written, tool, tools.values()))
        try:
            if is_cut_short and call is calls[-1] and not call.arguments_text.strip():
                raise InvalidArguments("The call was cut off before its arguments: the answer was too long. Try again.")
            one = _resolve(call, tools, text_calls)
            redaction.add(*find_secrets(one.arguments, one.tool, tools.values()))
            if not one.is_external:
                # As JSON: the values for the function may hide a secret, or have keys that JSON cannot write.
                budget.spend_execution(one.name, read_object(one.arguments_text))
            resolved.append(one)
        except ToolError as error:
            if isinstance(error, InvalidArguments) and tool and tool.secret_arguments:
                error = InvalidArguments(NOT_REPEATED)
            if has_secrets:
                call = replace(call, arguments=written if tool and isinstance(written, Mapping) else MASK)
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
    # The page, the store and the model get the repaired arguments, as JSON: types such as SecretStr hide their values.
    is_rewritten = meant.repairs or tool.secret_arguments
    text = write_arguments(meant.arguments) if is_rewritten else call.arguments_text
    return ResolvedCall(call, tool, arguments, text, meant.repairs)


def _write_for_client(written: str, arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON text: the model's own text, unless the checked arguments differ from it."""
    try:
        if json.loads(written) == arguments:
            return written
    except (ValueError, RecursionError):
        pass
    return json.dumps(dict(arguments), ensure_ascii=False)
