"""Runs agents of pydantic-ai as Callboard agents."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, ModelAPIError, UserError
from pydantic_ai.usage import UsageLimits

from callboard.agents import RunContext
from callboard.agents.context import OnOwnerLoss
from callboard.errors import AgentError
from callboard.frameworks.adapter import Factory, FrameworkAgent, make_for_run, to_agent_id, to_factory
from callboard.frameworks.failures import model_error
from callboard.frameworks.pydantic_ai.hooks import ClientCapability, PydanticAIHooks, hook_agents_in_tools
from callboard.frameworks.pydantic_ai.messages import to_conversation
from callboard.frameworks.pydantic_ai.stream import EventTranslator
from callboard.frameworks.turn import AdapterTurn, CallLimitIgnored, discarding_unchecked_answer
from callboard.openwebui.requests import OpenWebUITools

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
    openwebui_tools: OpenWebUITools = "attached",
) -> FrameworkAgent[PydanticAgent]:
    """Return an agent of Callboard that runs an agent of pydantic-ai, or one that a function makes for each run.

    Args:
        agent: The agent, or a function of the `RunContext` that returns one.
        agent_id: The id of the Callboard agent; by default the agent's name. Required with a function.
        name: The name of the Callboard agent; by default the agent's name.
        description: A description for people.
        deps: Makes the object that the agent's tools get as `ctx.deps`, for each run.
        on_owner_loss: The rule for a run whose server stops. `continue`: another server starts a new run of the
            agent, with the calls that have ended among its messages. `end`: the run ends.
        openwebui_tools: Which of Open WebUI's own tools it gets beside its own: `attached` (by the user or a preset),
            `all`, `none`, or name patterns.

    Tools that need approval ask the user; `output_type` does not need `DeferredToolRequests` for this. The server's
    limits apply: pydantic-ai's limits on retries and requests do not.

    Raises:
        AgentError: The agent cannot be served as declared.
    """
    make = to_factory(agent, _PydanticAIAdapter.agent_classes, _PydanticAIAdapter.agent_noun)
    hook_agents_in_tools()
    if isinstance(agent, AbstractAgent):
        agent_id = agent_id or to_agent_id(agent.name or "")
        name = name or agent.name or ""
    return _PydanticAIAdapter(make, agent_id, name, description, on_owner_loss, openwebui_tools, deps=deps)


class _PydanticAIAdapter(FrameworkAgent[PydanticAgent]):
    agent_classes = (AbstractAgent,)
    agent_noun = "an agent of pydantic-ai"
    calls_can_wait = True

    def __init__(self, *declared: Any, deps: Dependencies | None) -> None:
        super().__init__(*declared)
        self._deps = deps

    async def run_turn(self, agent: PydanticAgent, turn: AdapterTurn) -> None:
        with discarding_unchecked_answer(turn):
            await self._run(agent, turn, deps=await make_for_run(self._deps, turn.context))

    async def run_task(self, agent: PydanticAgent, turn: AdapterTurn) -> None:
        await self._run(Agent(agent.model), turn)

    async def _run(self, agent: PydanticAgent, turn: AdapterTurn, **options: Any) -> None:
        hooks = PydanticAIHooks(turn)
        prompt, history, instructions = to_conversation(turn.context.messages)
        run = agent.run_stream_events(
            prompt,
            message_history=history,
            conversation_id=turn.context.chat_id,
            usage_limits=UsageLimits(request_limit=None),
            infer_name=False,
            # pydantic-ai leaves the agent's system prompt out if there is a history.
            capabilities=[hooks, ClientCapability(hooks, instructions), ReinjectSystemPrompt()],
            **options,
        )
        try:
            async with run as events:
                await EventTranslator(hooks).follow(events)
        except CallLimitIgnored:
            pass
        except (AgentRunError, UserError, FallbackExceptionGroup) as error:
            raise self._to_error(error) from error

    def _to_error(self, error: Exception) -> Exception:
        if isinstance(error, FallbackExceptionGroup):
            error = error.exceptions[-1]
        if (failure := model_error(error, self.agent_id, always=isinstance(error, ModelAPIError))) is not None:
            return failure
        return AgentError(f"pydantic-ai ended the run of '{self.agent_id}': {error}")
