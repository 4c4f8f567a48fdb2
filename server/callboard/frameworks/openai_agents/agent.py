"""Agents of the OpenAI Agents SDK: their runs as turns."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from agents import Agent, RunConfig, Runner, TResponseInputItem
from agents.memory import Session

from callboard._agents import OnOwnerLoss, RunContext
from callboard.errors import AgentError
from callboard.frameworks.adapter import Factory, FrameworkAgent, check_given, choose_on_owner_loss, id_from
from callboard.frameworks.description import Description
from callboard.frameworks.failures import model_error
from callboard.frameworks.openai_agents.description import describe
from callboard.frameworks.openai_agents.hooks import Hooks, TurnOver
from callboard.frameworks.openai_agents.mcp import KeptServers
from callboard.frameworks.openai_agents.messages import to_items
from callboard.frameworks.openai_agents.model import MODEL_FAILURES
from callboard.frameworks.openai_agents.tools import AgentTwins, check, walk_agents
from callboard.frameworks.turn import AnswerGuard, Turn

OpenAIAgent = Agent[Any]
ContextOf = Callable[[RunContext], Any | Awaitable[Any]]
SessionOf = Callable[[RunContext], Session | Awaitable[Session]]


def from_openai_agents(
    agent: OpenAIAgent | Factory[OpenAIAgent],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    context: ContextOf | None = None,
    session: SessionOf | None = None,
    run_config: RunConfig | None = None,
    on_owner_loss: OnOwnerLoss | None = None,
) -> FrameworkAgent[OpenAIAgent]:
    """Return an agent of the OpenAI Agents SDK, or a function that makes one for each run, as an agent of Callboard.

    `agent_id` and `name` are the agent's own name unless they are given; a function needs an
    `agent_id`. `context` makes what tools, hooks and guardrails get as `ctx.context`, for each
    run. `session`: the model is sent the last message and what that session has of the chat,
    instead of the chat as Callboard remembers it. `run_config` is for all runs; limits are the
    server's, so turns are not counted. `on_owner_loss`: whether another server goes on with a run whose own
    is gone (`continue`), by a new run of the agent that is told the calls that have ended, or ends it (`end`);
    by default the first, and the second with a `session`, which does not know them. Raises `AgentError`, also
    for a tool that cannot be held to the server's limits.
    """
    check_given(agent, _FromOpenAIAgents.kinds, _FromOpenAIAgents.wanted)
    if isinstance(agent, Agent):
        for one in walk_agents(agent):
            check(one)
        agent_id = agent_id or id_from(agent.name)
        name = name or agent.name
    return _FromOpenAIAgents(agent, agent_id, name, description, context, session, run_config, on_owner_loss)


class _FromOpenAIAgents(FrameworkAgent[OpenAIAgent]):
    kinds = (Agent,)
    wanted = "an Agent of the OpenAI Agents SDK"

    def __init__(
        self,
        agent: OpenAIAgent | Factory[OpenAIAgent],
        agent_id: str,
        name: str,
        description: str,
        context: ContextOf | None,
        session: SessionOf | None,
        run_config: RunConfig | None,
        on_owner_loss: OnOwnerLoss | None,
    ) -> None:
        on_owner_loss = choose_on_owner_loss(agent_id, on_owner_loss, has_own_history=session is not None)
        make = (lambda _: agent) if isinstance(agent, Agent) else agent
        known = agent if isinstance(agent, Agent) else None
        super().__init__(make, agent_id, name, description, on_owner_loss, known)
        # Then its MCP servers are the same for all runs too.
        self._is_one_agent = isinstance(agent, Agent)
        self._context = context
        self._session = session
        # One for all runs: its provider keeps the connections of models that are only named.
        self._run_config = run_config or RunConfig()
        self._servers = KeptServers()

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Close, when the server ends, the MCP servers that runs have connected."""
        try:
            yield
        finally:
            await self._servers.close()

    def describe_agent(self, agent: OpenAIAgent) -> Description:
        return describe(agent)

    async def play(self, agent: OpenAIAgent, turn: Turn) -> None:
        options = {
            "context": await _make(self._context, turn.context),
            "session": await _make(self._session, turn.context),
        }
        items, instructions = to_items(turn.context.messages)
        with AnswerGuard(turn):
            async with self._visit(agent):
                await self._run(agent, turn, items if self._session is None else items[-1:], instructions, **options)

    async def answer(self, agent: OpenAIAgent, turn: Turn) -> None:
        settings = replace(agent.model_settings, tool_choice=None, parallel_tool_calls=None)
        plain = Agent[Any](agent.name, model=agent.model, model_settings=settings)
        async with self._visit(agent):
            await self._run(plain, turn, *to_items(turn.context.messages))

    @asynccontextmanager
    async def _visit(self, agent: OpenAIAgent) -> AsyncGenerator[None, None]:
        """Run the agent within this context; what its function has connected for it alone is closed at the end."""
        met = self._servers.meet(server for one in walk_agents(agent) for server in one.mcp_servers)
        try:
            yield
        finally:
            if not self._is_one_agent:
                await self._servers.part(met)

    async def _run(
        self, agent: OpenAIAgent, turn: Turn, items: list[TResponseInputItem], instructions: str, **options: Any
    ) -> None:
        hooks = Hooks(turn, instructions)
        twins = AgentTwins(hooks, self._run_config, self._servers)
        options |= {"hooks": hooks, "run_config": twins.run_config}
        try:
            twin = twins.twin(agent)
            result = await Runner.run(twin, items, max_turns=None, **options)
            while result.interruptions:
                state = result.to_state()
                await asyncio.gather(*(hooks.decide(item, state) for item in result.interruptions))
                result = await Runner.run(twin, state, **options)
        except TurnOver:
            return
        except MODEL_FAILURES as error:
            failure = model_error(error, self.agent_id, always=error is hooks.failure)
            raise failure or AgentError(f"The Agents SDK ended the run of '{self.agent_id}': {error}") from error
        finally:
            await hooks.wait_for_tools()
        hooks.settle(result.to_input_list())
        if hooks.called and result.final_output is not None:
            # The answer is a tool's result (`tool_use_behavior`), which no model says.
            turn.say(str(result.final_output))


async def _make(make: Callable[[RunContext], Any] | None, context: RunContext) -> Any:
    made = make(context) if make else None
    return await made if isawaitable(made) else made
