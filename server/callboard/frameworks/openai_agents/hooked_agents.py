"""Hooks the agents of a run of the SDK, and rejects agents and tools to which the server's limits cannot be applied.

The hooked agents are copies of the user's own.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, Final, cast

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    ImageGenerationTool,
    Model,
    RunConfig,
    RunContextWrapper,
    Tool,
    WebSearchTool,
    default_tool_error_function,
)
from agents.exceptions import ModelBehaviorError, ToolTimeoutError
from agents.mcp import MCPServer
from agents.run_config import ToolErrorFormatterArgs
from agents.sandbox import SandboxAgent
from agents.tool import (
    ToolErrorFunction,
    invoke_function_tool,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from agents.tool_context import ToolContext

from callboard.calls import Tool as OpenWebUITool
from callboard.errors import AgentError, InvalidArguments, ToolError, ToolTimeout
from callboard.frameworks.failures import tool_error
from callboard.frameworks.openai_agents.hooks import AgentsHooks
from callboard.frameworks.openai_agents.mcp import HookedServer, ServerConnections, recording_mcp_failures
from callboard.frameworks.openai_agents.messages import to_tool_result
from callboard.frameworks.openai_agents.model import HookedModel
from callboard.frameworks.turn import run_openwebui_tool
from callboard_formats.arguments import parse_arguments

SUPPORTED: Final = (FunctionTool, CodeInterpreterTool, FileSearchTool, ImageGenerationTool, WebSearchTool)
"""The supported classes of tools.

Functions run in this process: each call is counted, approved, timed and stored before it runs. The others run at OpenAI
while it answers: their calls are shown and counted.
"""


def check_supported(agent: Agent[Any]) -> None:
    """Raise `AgentError` if this agent or one of its tools is not supported.

    Agents that it hands off to are not checked.
    """
    if isinstance(agent, SandboxAgent):
        raise AgentError(
            f"The agent '{agent.name}' (SandboxAgent) cannot be served: its tools are made during the run, where "
            "Callboard does not see them. Make it a plain Agent with function tools for the actions it may do."
        )
    for tool in agent.tools:
        if not isinstance(tool, SUPPORTED):
            tool_name = f"'{getattr(tool, 'name', '')}' ({type(tool).__name__})"
            raise AgentError(
                f"The tool {tool_name} of the agent '{agent.name}' cannot be served: limits and approvals are applied "
                "to calls of functions only. Give the agent a function tool for each action it may do, or an MCP "
                "server as mcp_servers=[…]."
            )


def walk_agents(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield the agent and all known agents that can take part in its runs."""
    seen: list[Agent[Any]] = []
    waiting: list[object] = [agent]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Handoff):
            found = found._agent_ref and found._agent_ref()
        if not isinstance(found, Agent) or any(found is known for known in seen):
            continue
        seen.append(found)
        yield found
        waiting += [*found.handoffs, *(getattr(tool, "_agent_instance", None) for tool in found.tools)]


INVALID_ARGUMENTS_PREFIX = "Invalid JSON input for tool"
"""The beginning of the SDK's message for arguments that do not fit, for which it has no class."""


class HookedAgents:
    """The hooked copies of the agents of one run, made once each because agents may hand back.

    `run_config` is the user's, except that it has no model, which the hooked agents have, and that unknown tools do not
    end the run.
    """

    def __init__(self, hooks: AgentsHooks, run_config: RunConfig, servers: ServerConnections) -> None:
        hooks.hook_inner_run = self._hook_inner_agent
        self._hooks = hooks
        self._servers = servers
        self._given = run_config
        # Kept with the configuration, whose id another object could get otherwise.
        self._inner: dict[tuple[str, int], tuple[RunConfig | None, HookedAgents]] = {}
        self._served: set[str] = set()
        """The names of the tools of MCP servers, which are known once the SDK has listed them."""
        # Kept with the original, whose id another object could get otherwise.
        self._hooked: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        self.run_config = replace(
            run_config,
            model=None,
            tool_not_found_behavior="return_error_to_model",
            tool_error_formatter=run_config.tool_error_formatter or self._explain_refusal,
        )

    def hook(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the hooked copy of the agent."""
        if (known := self._hooked.get(id(agent))) is not None:
            return known[1]
        hooked = copy(agent)
        self._hooked[id(agent)] = (agent, hooked)
        self._hooked[id(hooked)] = (hooked, hooked)
        self._hooks.agents.append(hooked)
        check_supported(agent)
        model = self._given.model or agent.model
        if not isinstance(model, Model):
            model = self._given.model_provider.get_model(model)
        hooked.model = HookedModel(model, self._hooks, may_answer=self._has_used_tools(agent))
        hooked.tools = self._hook_tools([*agent.tools, *self._make_openwebui_tools(agent)])
        hooked.handoffs = [
            self._hook_handoff(target) if isinstance(target, Handoff) else self.hook(target)
            for target in agent.handoffs
        ]
        if agent.mcp_servers:
            hooked.mcp_servers = [cast(MCPServer, HookedServer(server, self._servers)) for server in agent.mcp_servers]
            hooked.get_mcp_tools = partial(self._hook_mcp_tools, hooked)  # type: ignore[method-assign]  # of this one alone
        return hooked

    def _make_openwebui_tools(self, agent: Agent[Any]) -> Sequence[Tool]:
        """Return Open WebUI's tools for the agent that begins the turn, without those whose names it has itself."""
        if self._hooks.outer_call_id is not None or len(self._hooks.agents) > 1:
            return ()
        own = {tool.name for tool in agent.tools}
        offered = self._hooks.turn.context.openwebui_tools
        return [self._make_openwebui_tool(tool) for tool in offered if tool.name not in own]

    def _make_openwebui_tool(self, tool: OpenWebUITool) -> FunctionTool:
        async def invoke(_: ToolContext[Any], arguments: str) -> str:
            # A call whose arguments are not an object has been refused when the model wrote it.
            return await run_openwebui_tool(self._hooks.turn, tool, **parse_arguments(arguments))

        return FunctionTool(
            tool.name,
            tool.description,
            dict(tool.parameters),
            invoke,
            strict_json_schema=False,
            is_enabled=lambda *_: tool.name not in self._served,
        )

    def _has_used_tools(self, agent: Agent[Any]) -> bool:
        """Return whether an agent that must call a tool has already done so, in a turn that another server started.

        From then on the SDK lets it answer (`reset_tool_choice`). Without this check the agent would call the same tool
        again.
        """
        if self._hooks.outer_call_id is not None or not agent.reset_tool_choice:
            return False
        called = self._hooks.turn.tools_called_before
        return bool(called) and (bool(agent.mcp_servers) or not called.isdisjoint(tool.name for tool in agent.tools))

    def _hook_inner_agent(
        self, call_id: str, agent: Agent[Any], run_config: RunConfig | None
    ) -> tuple[Agent[Any], RunConfig, AgentsHooks]:
        """Return the agent, configuration and hooks for a run inside a call's tool.

        A run that continues gets the same ones.
        """
        key = call_id, id(run_config)
        if key not in self._inner:
            # The SDK passes the outer run's configuration to the run of an agent that is a tool.
            given = self._given if run_config is self.run_config else run_config or RunConfig()
            self._inner[key] = (run_config, HookedAgents(self._hooks.for_inner_run(call_id), given, self._servers))
        inner = self._inner[key][1]
        return inner.hook(agent), inner.run_config, inner._hooks

    async def _hook_mcp_tools(self, hooked: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Tool]:
        tools = await type(hooked).get_mcp_tools(hooked, run_context)
        # Before the SDK asks the tools of Open WebUI whether they are enabled.
        self._served.update(tool.name for tool in tools)
        return self._hook_tools(tools)

    def _hook_handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            return self.hook(await handoff.on_invoke_handoff(context, arguments))

        hooked = copy(handoff)
        hooked.on_invoke_handoff = hand_over
        return hooked

    def _hook_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return the hooked tools, without the tools that cannot be offered."""
        hooked: list[Tool] = []
        for tool in tools:
            if isinstance(tool, FunctionTool):
                hooked.append(self._hook_function(tool))
            elif self._hooks.turn.calls.approval.names(tool.name):
                self._hooks.turn.show_status(f"{tool.name} is left out: OpenAI runs it, so you cannot be asked first")
            else:
                hooked.append(tool)
        return hooked

    def _hook_function(self, tool: FunctionTool) -> FunctionTool:
        """Return the tool with another error function: the SDK distinguishes failures from results in no other way."""
        raising = set_function_tool_failure_error_function(copy(tool), None)
        raising.timeout_behavior = "raise_exception"

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            perform = partial(invoke_function_tool, function_tool=raising, context=context, arguments=arguments)
            with recording_mcp_failures() as failures:
                output = await self._hooks.run(context.tool_call_id, perform)
            if failures:
                raise ToolError(to_tool_result(context, output).text)
            return output

        prepare = getattr(raising.on_invoke_tool, "prepare_arguments", None)
        # With this attribute, approval policies read the arguments that the tool gets, instead of the text that the
        # model wrote.
        vars(invoke)["__agents_prepare_arguments__"] = prepare
        hooked = copy(tool)
        if self._hooks.outer_call_id is None and self._hooks.turn.calls.approval.names(tool.name):
            # So that calls that wait for different reasons are asked about together, when the others have ended.
            hooked.needs_approval = True
        hooked.timeout_seconds = None
        hooked.on_invoke_tool = with_function_tool_failure_error_handler(invoke, lambda *_: None)
        # Copied again, because the SDK binds a tool to its `on_invoke_tool` when it is copied.
        return set_function_tool_failure_error_function(copy(hooked), partial(self._describe_failure, tool))

    async def _describe_failure(self, tool: FunctionTool, context: RunContextWrapper[Any], raised: Exception) -> str:
        """End a failed call, and return its error for the model.

        The tool author's error function words it if there is one.
        """
        assert isinstance(context, ToolContext), "a tool's context"
        error, describe = _to_tool_error(tool, context, raised)
        if describe is not None:
            text = describe(context, raised)
            error = type(error)(await text if isawaitable(text) else text)
        self._hooks.turn.calls.fail(context.tool_call_id, error)
        return self._hooks.turn.mask(str(error) if describe is not None else f"Error: {error}")

    def _explain_refusal(self, arguments: ToolErrorFormatterArgs[Any]) -> str | None:
        if (ended := self._hooks.turn.calls.earlier_results.get(arguments.call_id)) is not None:
            return ended
        error = self._hooks.refused.get(arguments.call_id)
        return None if error is None else f"Error: {error}"


def _to_tool_error(
    tool: FunctionTool, context: ToolContext[Any], raised: Exception
) -> tuple[ToolError, ToolErrorFunction | None]:
    """Return the exception as a `ToolError`, and the author's function that describes it, if any."""
    match raised:
        case ToolError():
            return raised, None
        case ToolTimeoutError():
            limit = f"{raised.timeout_seconds:g} s"
            return ToolTimeout(f"{tool.name} did not end within {limit} and was stopped."), tool.timeout_error_function
        case ModelBehaviorError() if str(raised).startswith(INVALID_ARGUMENTS_PREFIX):
            error: ToolError = InvalidArguments(f"{raised}. Give each argument as the tool's schema says.")
        case _:
            error = tool_error(raised)
    describe = resolve_function_tool_failure_error_function(tool, context)
    return error, None if describe is default_tool_error_function else describe
