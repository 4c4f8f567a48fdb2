"""Corrects messages for endpoints."""

from collections.abc import Sequence
from typing import Any

from callboard.models.model import ChatDict


def with_valid_arguments(messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages with {} for arguments of calls that are not a JSON object.

    Chat templates parse the arguments of earlier calls, and vLLM and llama.cpp answer 400 or 500 if that fails. The
    call's result tells the model about the mistake.
    """
    return [
        {**message, "tool_calls": [_with_valid_call(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _with_valid_call(call: dict[str, Any]) -> dict[str, Any]:
    # Imported here, because a model can be declared without a parser of its answers.
    from callboard_formats import InvalidArguments, parse_arguments

    function = call["function"]
    try:
        if function["arguments"].strip():
            parse_arguments(function["arguments"])
            return call
    except InvalidArguments:
        pass
    return {**call, "function": {**function, "arguments": "{}"}}
