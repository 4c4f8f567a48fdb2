"""Runs agents of the OpenAI Agents SDK as Callboard agents."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from agents import Agent, RunConfig, Runner

from callboard.agents import RunContext
from callboard.agents.context import OnOwnerLoss
from callboard.errors import AgentError
from callboard.frameworks.adapter import (
    Factory,
    FrameworkAgent,
    make_for_run,
    to_agent_id,
    to_factory,
)
from callboard.frameworks.failures import model_error
from callboard.frameworks.openai_agents.hooked_agents import HookedAgents, check_supported, walk_agents
from callboard.frameworks.openai_agents.hooks import AgentsHooks
from callboard.frameworks.openai_agents.mcp import ServerConnections
from callboard.frameworks.openai_agents.messages import to_items
from callboard.frameworks.openai_agents.model import MODEL_FAILURES
from callboard.frameworks.turn import AdapterTurn, CallLimitIgnored, discarding_unchecked_answer
from callboard.openwebui.requests import OpenWebUITools

OpenAIAgent = Agent[Any]
ContextOf = Callable[[RunContext], Any | Awaitable[Any]]


def from_openai_agents(
    agent: OpenAIAgent | Factory[OpenAIAgent],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    context: ContextOf | None = None,
    run_config: RunConfig | None = None,
    on_owner_loss: OnOwnerLoss = "continue",
    openwebui_tools: OpenWebUITools = "attached",
) -> FrameworkAgent[OpenAIAgent]:
    """Return an agent of Callboard that runs an agent of the OpenAI Agents SDK, or one made for each run by a function.

    Args:
        agent: The agent, or a function of the `RunContext` that returns one.
        agent_id: The id of the Callboard agent; by default the agent's name. Required with a function.
        name: The name of the Callboard agent; by default the agent's name.
        description: A description for people.
        context: Makes the object that tools, hooks and guardrails get as `ctx.context`, for each run.
        run_config: The configuration of all runs. The server's limits apply: the SDK's limit of turns does not.
        on_owner_loss: The rule for a run whose server stops. `continue`: another server starts a new run of the
            agent, with the calls that have ended among its messages. `end`: the run ends. The default is `continue`.
        openwebui_tools: Which of Open WebUI's own tools the agent gets, but no agent that it hands off to: `attached`
            (by the user or a preset), `all`, `none`, or name patterns.

    Raises:
        AgentError: The agent cannot be served as declared, or has a tool to which the limits cannot be applied.
    """
    make = to_factory(agent, _OpenAIAgentsAdapter.agent_classes, _OpenAIAgentsAdapter.agent_noun)
    if isinstance(agent, Agent):
        for member in walk_agents(agent):
            check_supported(member)
        agent_id = agent_id or to_agent_id(agent.name)
        name = name or agent.name
    declared = (make, agent_id, name, description, on_owner_loss, openwebui_tools)
    return _OpenAIAgentsAdapter(*declared, context=context, run_config=run_config)


class _OpenAIAgentsAdapter(FrameworkAgent[OpenAIAgent]):
    agent_classes = (Agent,)
    agent_noun = "an Agent of the OpenAI Agents SDK"
    calls_can_wait = True

    def __init__(self, *declared: Any, context: ContextOf | None, run_config: RunConfig | None) -> None:
        super().__init__(*declared)
        self._context = context
        # Shared by all runs, because its provider keeps the connections of models that are given by name.
        self._run_config = run_config or RunConfig()
        self._servers = ServerConnections()

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Close the MCP servers that runs have connected, when the server stops."""
        try:
            yield
        finally:
            await self._servers.close()

    async def run_turn(self, agent: OpenAIAgent, turn: AdapterTurn) -> None:
        context = await make_for_run(self._context, turn.context)
        with discarding_unchecked_answer(turn):
            await self._run(agent, turn, context=context)

    async def run_task(self, agent: OpenAIAgent, turn: AdapterTurn) -> None:
        settings = replace(agent.model_settings, tool_choice=None, parallel_tool_calls=None)
        plain = Agent[Any](agent.name, model=agent.model, model_settings=settings)
        await self._run(plain, turn)

    async def _run(self, agent: OpenAIAgent, turn: AdapterTurn, **options: Any) -> None:
        items, instructions = to_items(turn.context.messages)
        hooks = AgentsHooks(turn, instructions)
        hooks.reads_messages = not (agent.input_guardrails or self._run_config.input_guardrails)
        hooked_agents = HookedAgents(hooks, self._run_config, self._servers)
        options |= {"hooks": hooks, "run_config": hooked_agents.run_config}
        try:
            hooked = hooked_agents.hook(agent)
            result = await Runner.run(hooked, items, max_turns=None, **options)
            while result.interruptions:
                result = await Runner.run(hooked, await hooks.decide_all(result), **options)
        except CallLimitIgnored:
            return
        except MODEL_FAILURES as error:
            failure = model_error(error, self.agent_id, always=error is hooks.failure)
            raise failure or AgentError(f"The Agents SDK ended the run of '{self.agent_id}': {error}") from error
        finally:
            await hooks.wait_for_tools()
        hooks.end_unreported_calls(result.to_input_list())
        if hooks.has_calls and result.final_output is not None:
            # With `tool_use_behavior` the answer may be a tool's result, which no model writes.
            turn.add_text(str(result.final_output))
