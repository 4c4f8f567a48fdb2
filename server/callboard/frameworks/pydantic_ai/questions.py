"""Asks the user for the results of calls that a tool deferred as questions: `raise CallDeferred(kind="question")`."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from callboard.calls.forms import read_form
from callboard.errors import ToolError
from callboard.frameworks.questions import ask_user
from callboard.frameworks.turn import AdapterTurn


async def ask_for_result(call: ToolCallPart, tool: ToolDefinition | None, turn: AdapterTurn) -> Any:
    """Return the user's answer as the result of the call. The question is the call's arguments.

    The type that the tool returns is the form: the fields of an object, the choices of a `Literal`, otherwise a text.
    Raises `ToolError` if the user cannot be asked or does not answer, or if the object is not flat.
    """
    message = _write_arguments(call.args_as_dict()) or (tool and tool.description) or call.tool_name
    schema = (tool and tool.return_schema) or {}
    if not schema.get("properties"):
        return await ask_user(turn, "input", message, call.tool_call_id, choices=list(map(str, schema.get("enum", ()))))
    try:
        form = read_form(schema)
    except ValueError as error:
        raise ToolError(f"Not run: {call.tool_name} cannot ask the user, because {error}.") from error
    return await ask_user(turn, "form", message, call.tool_call_id, schema=form)


def _write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the only argument, or a line for each."""
    if len(arguments) == 1:
        return str(*arguments.values())
    return "\n".join(f"{name}: {value}" for name, value in arguments.items())
