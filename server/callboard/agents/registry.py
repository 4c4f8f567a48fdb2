"""The registry of a server's agents."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from callboard.agents.agent import Agent, AgentLike, BuiltInAgent
from callboard.agents.declarations import check_agent
from callboard.calls import Services
from callboard.errors import AgentError, UnknownAgent
from callboard.models import ChatModel, ScriptedModel
from callboard.skills import Skill


class Registry:
    """The agents by id, in the order of `add`. `unavailable`: the reason for each missing agent, by id or by file."""

    def __init__(self, agents: Sequence[AgentLike] = (), unavailable: Mapping[str, str] | None = None) -> None:
        self._agents: dict[str, AgentLike] = {}
        self.unavailable: dict[str, str] = dict(unavailable or {})
        for agent in agents:
            self.add(agent)

    def add(self, agent: AgentLike) -> None:
        """Add an agent. Raises `AgentError` if its id is taken or one of its attributes is invalid."""
        check_agent(agent)
        if agent.agent_id in self._agents:
            raise AgentError(f"There are two agents with the id '{agent.agent_id}': give one of them another.")
        self._agents[agent.agent_id] = agent

    def get(self, agent_id: str, admits: Callable[[str], bool] = lambda _: True) -> AgentLike:
        """Return the agent with this id. Raises `UnknownAgent`, which lists the agents that `admits` allows."""
        if agent_id not in self._agents:
            known = ", ".join(filter(admits, self._agents)) or "none"
            raise UnknownAgent(
                f"There is no agent '{agent_id}'. The agents are: {known}. Choose one of them. If your model list "
                "does not show them, reload the page."
            )
        return self._agents[agent_id]

    def list_usable(self, model: ChatModel) -> list[AgentLike]:
        """Return the agents for model lists. If the server has no model, built-in agents that need one are left out.

        Your own agents are always listed; without a model they answer with the steps to connect one.
        """
        if not (isinstance(model, ScriptedModel) and model.is_placeholder):
            return list(self)
        return [agent for agent in self if not isinstance(agent, BuiltInAgent)]

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills of all agents, each once."""
        return tuple(dict.fromkeys(skill for agent in self if isinstance(agent, Agent) for skill in agent.skills))

    @asynccontextmanager
    async def open(self, services: Services) -> AsyncIterator["Registry"]:
        """Open the skills, and the agents with a lifespan, for one application, and yield its registry.

        Each application opens the skills of the same agents separately.
        """
        async with AsyncExitStack() as stack:
            opened = {skill: await stack.enter_async_context(skill.open(services)) for skill in self.skills}
            for agent in self:
                if (lifespan := getattr(agent, "lifespan", None)) is not None:
                    await stack.enter_async_context(lifespan())
            bound = [agent.bind(opened) if isinstance(agent, Agent) else agent for agent in self]
            yield Registry(bound, self.unavailable)

    def __iter__(self) -> Iterator[AgentLike]:
        return iter(self._agents.values())
