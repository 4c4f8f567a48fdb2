"""Agents of pydantic-ai: their runs as turns."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, ModelAPIError, UserError
from pydantic_ai.usage import UsageLimits

from callboard._agents import OnOwnerLoss, RunContext
from callboard.errors import AgentError
from callboard.frameworks.adapter import Factory, FrameworkAgent, check_given, id_from
from callboard.frameworks.description import Description
from callboard.frameworks.failures import model_error
from callboard.frameworks.pydantic_ai.description import describe
from callboard.frameworks.pydantic_ai.hooks import Client, Hooks, TurnOver
from callboard.frameworks.pydantic_ai.messages import to_conversation
from callboard.frameworks.pydantic_ai.stream import EventTranslator
from callboard.frameworks.pydantic_ai.tools import hook_agents_in_tools
from callboard.frameworks.turn import AnswerGuard, Turn

PydanticAgent = AbstractAgent[Any, Any]
Dependencies = Callable[[RunContext], Any | Awaitable[Any]]


def from_pydantic_ai(
    agent: PydanticAgent | Factory[PydanticAgent],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    deps: Dependencies | None = None,
    on_owner_loss: OnOwnerLoss = "continue",
) -> FrameworkAgent[PydanticAgent]:
    """Return an agent of pydantic-ai, or a function that makes one for each run, as an agent of Callboard.

    `agent_id` and `name` are the agent's own name unless they are given; a function needs an
    `agent_id`. `deps` makes what the agent's tools get as `ctx.deps`, for each run. Tools that
    need approval ask the user; `output_type` needs no `DeferredToolRequests` for it. Limits are
    the server's: retries and requests are not counted. `on_owner_loss`: whether another server
    goes on with a run whose own is gone, by a new run of the agent that is told the calls that have
    ended, or ends it. Raises `AgentError`.
    """
    check_given(agent, _FromPydanticAI.kinds, _FromPydanticAI.wanted)
    hook_agents_in_tools()
    if isinstance(agent, AbstractAgent):
        agent_id = agent_id or id_from(agent.name or "")
        name = name or agent.name or ""
        return _FromPydanticAI(lambda _: agent, agent_id, name, description, on_owner_loss, deps, known=agent)
    return _FromPydanticAI(agent, agent_id, name, description, on_owner_loss, deps)


class _FromPydanticAI(FrameworkAgent[PydanticAgent]):
    kinds = (AbstractAgent,)
    wanted = "an agent of pydantic-ai"

    def __init__(
        self,
        make: Factory[PydanticAgent],
        agent_id: str,
        name: str,
        description: str,
        on_owner_loss: OnOwnerLoss,
        deps: Dependencies | None,
        known: PydanticAgent | None = None,
    ) -> None:
        super().__init__(make, agent_id, name, description, on_owner_loss, known)
        self._deps = deps

    def describe_agent(self, agent: PydanticAgent) -> Description:
        return describe(agent)

    async def play(self, agent: PydanticAgent, turn: Turn) -> None:
        made = self._deps(turn.context) if self._deps else None
        with AnswerGuard(turn):
            await self._run(agent, turn, deps=await made if isawaitable(made) else made)

    async def answer(self, agent: PydanticAgent, turn: Turn) -> None:
        await self._run(Agent(agent.model), turn)

    async def _run(self, agent: PydanticAgent, turn: Turn, **options: Any) -> None:
        hooks = Hooks(turn)
        told = to_conversation(turn.context.messages)
        run = agent.run_stream_events(
            told.prompt,
            message_history=told.history,
            conversation_id=turn.context.chat_id,
            usage_limits=UsageLimits(request_limit=None),
            infer_name=False,
            # The agent's system prompt too: pydantic-ai leaves it out where there is a history.
            capabilities=[hooks, Client(hooks, told.instructions), ReinjectSystemPrompt()],
            **options,
        )
        try:
            async with run as events:
                await EventTranslator(hooks).follow(events)
        except TurnOver:
            pass
        except (AgentRunError, UserError, FallbackExceptionGroup) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, FallbackExceptionGroup):
            error = error.exceptions[-1]
        if (failure := model_error(error, self.agent_id, always=isinstance(error, ModelAPIError))) is not None:
            return failure
        return AgentError(f"pydantic-ai ended the run of '{self.agent_id}': {error}")
