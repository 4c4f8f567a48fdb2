"""The registry of a server's agents, and which users may use them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from callboard.agents.agent import Agent, AgentLike, BuiltInAgent
from callboard.agents.declarations import check_agent
from callboard.calls import Services
from callboard.errors import AgentError, AgentRefused, UnknownAgent
from callboard.models import ChatModel, ScriptedModel
from callboard.skills import Skill
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class _Entry:
    agents: str
    kind: str
    name: str

    def admits(self, user: User | None) -> bool:
        if user is None:
            return False
        return self.name in user.groups if self.kind == "group" else self.name == user.role


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The entries of `AGENT_ACCESS`. If several entries name an agent, one that admits the user is enough."""

    entries: Sequence[_Entry] = ()

    @classmethod
    def of(cls, entries: Sequence[str]) -> Self:
        """Return the access for entries of the form `coder=group:Developers` or `home*=role:admin`."""
        return cls(tuple(_read_entry(entry) for entry in entries))

    def admits(self, agent_id: str, user: User | None) -> bool:
        """Return whether the user may use the agent."""
        naming = [entry for entry in self.entries if fnmatchcase(agent_id, entry.agents)]
        return not naming or any(entry.admits(user) for entry in naming)

    def check(self, agent_id: str, user: User | None) -> None:
        """Raise `AgentRefused` unless the user may use the agent."""
        if not self.admits(agent_id, user):
            raise AgentRefused(
                f"You may not use the agent {agent_id!r}: ask an admin for a role or group that may use it."
            )

    def unknown(self, agent_ids: Sequence[str]) -> list[str]:
        """Return the agent patterns that match none of these agents; they are probably misspelt."""
        return [entry.agents for entry in self.entries if not any(fnmatchcase(one, entry.agents) for one in agent_ids)]


def _read_entry(entry: str) -> _Entry:
    agents, _, who = entry.partition("=")
    kind, _, name = who.partition(":")
    return _Entry(agents.strip(), kind, name)


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
