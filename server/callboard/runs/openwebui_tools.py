"""Open WebUI's tools as tools of an agent: the client runs them inside Open WebUI, as the user who asked."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from callboard.agents import Agent, AgentLike
from callboard.agents.agent import ignored_options
from callboard.calls import Tool, ToolContext, ToolResult
from callboard.calls.running_tool import current_tool
from callboard.errors import ToolError, ToolTimeout
from callboard.models import ChatDict
from callboard.openwebui.requests import Offer, choose_tools, has_attached_knowledge
from callboard.runs.inputs import Inputs
from callboard.runs.recorder import Recorder
from callboard_protocol import OpenWebUITool, RunRequest, ToolAnswer, ToolRequest
from callboard_protocol.wire import MAX_TOOL_REQUEST_BYTES

REQUEST_PREFIX = "tool:"

MARGIN_SECONDS = 2.0
"""How much sooner than the call's time limit the client's time ends, so that its answer still counts."""
CLOSING_SECONDS = 30.0
"""The time to close a request after its timeout, so that an answer after the timeout is refused."""

NOT_REACHED = (
    "Open WebUI was restarted during this answer, so its tools cannot be reached: it is not known whether the call "
    "took effect. Tell the user."
)


def offer_tools(agent: AgentLike, request: RunRequest, messages: Sequence[ChatDict]) -> Offer:
    """Return Open WebUI's tools that the agent gets. Agents without `openwebui_tools` get none.

    On OpenAI's routes Open WebUI offers its tools as functions, which it runs itself.
    """
    if request.task is not None:
        return Offer()
    offered = {function.name for function in request.functions}
    functions = offered - set(ignored_options(agent, list(offered), {}))
    features = {*request.openwebui_features, *(["knowledge"] if has_attached_knowledge(messages) else [])}
    choice = getattr(agent, "openwebui_tools", "none")
    if not isinstance(agent, Agent):
        return choose_tools(request.openwebui_tools, features, choice, functions)
    own_skills = [skill.name for skill in agent.skills if skill.current_tools()]
    own_tools = {tool.name for tool in agent.tools} | functions
    return choose_tools(request.openwebui_tools, features, choice, own_tools, own_skills)


def make_openwebui_tools(
    given: Sequence[OpenWebUITool], inputs: Inputs, recorder: Recorder, limit_seconds: float
) -> list[Tool]:
    """Return tools whose functions send a request to the run's client and wait for its answer.

    `limit_seconds` is the time limit of their calls.
    """
    client_seconds = limit_seconds - min(MARGIN_SECONDS, limit_seconds / 4)
    return [_make_tool(tool, inputs, recorder, client_seconds) for tool in given]


def _make_tool(given: OpenWebUITool, inputs: Inputs, recorder: Recorder, client_seconds: float) -> Tool:
    async def run(*, callboard_context: ToolContext | None = None, **arguments: Any) -> ToolResult:
        # The built-in agents' calls have a context, those of frameworks a running tool.
        running = current_tool.get()
        call_id = callboard_context.tool_call_id if callboard_context else running.call_id if running else ""
        request = _make_request(call_id, given.name, arguments, client_seconds)
        await recorder.record_whole(request)
        value = await inputs.wait(request)
        if value is None and not inputs.was_asked(request):
            raise ToolError(NOT_REACHED)
        if value is None:
            raise ToolTimeout(
                f"{given.name} did not end within {client_seconds:g} s: it is not known whether it took effect."
            )
        return _read_answer(given.name, value)

    return Tool(
        given.name,
        given.description.strip() or given.name,
        {"type": "object", "properties": {}, **given.parameters},
        run,
        timeout_seconds=client_seconds + CLOSING_SECONDS,
        # Open WebUI checks the arguments: patterns in a foreign schema could take forever to match here.
        read_arguments=dict,
        context_parameter="callboard_context",
        # The client runs a request once, also if another server sends it again.
        repeatable=True,
        # Other tools of Open WebUI may have the same name.
        origin=f"openwebui/{given.id}",
    )


def _make_request(call_id: str, name: str, arguments: dict[str, Any], client_seconds: float) -> ToolRequest:
    """Return the request for a call. Raises `ToolError` without a call, and if the arguments are too large."""
    if not call_id:
        raise ToolError(f"{name} runs only as a call of an agent: use `await context.call(tool, arguments)`.")
    if len(json.dumps(arguments)) > MAX_TOOL_REQUEST_BYTES:
        raise ToolError(f"Not run: the arguments are over {MAX_TOOL_REQUEST_BYTES} bytes of JSON. Send less.")
    return ToolRequest(
        tool_call_id=call_id,
        # Not random: if another server sends the request again, an answer to the first one still counts.
        request_id=f"{REQUEST_PREFIX}{call_id}",
        name=name,
        arguments=arguments,
        timeout_seconds=client_seconds,
    )


def _read_answer(name: str, value: object) -> ToolResult:
    try:
        answer = ToolAnswer.model_validate(value)
        return ToolResult(answer.text, answer.files, answer.embeds, answer.sources, error=answer.error)
    except ValidationError as error:
        raise ToolError(f"Open WebUI's answer for {name} cannot be read.") from error
