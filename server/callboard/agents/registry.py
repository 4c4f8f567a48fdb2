"""Which agents there are."""

from collections.abc import Iterator, Sequence

from callboard.agents.agent import AgentLike
from callboard.errors import AgentError, UnknownAgent


class Registry:
    """Agents by id, in the order they came."""

    def __init__(self, agents: Sequence[AgentLike] = ()) -> None:
        self._agents: dict[str, AgentLike] = {}
        for agent in agents:
            self.add(agent)

    def add(self, agent: AgentLike) -> None:
        """Adds an agent; raises `AgentError` where its id is taken."""
        if agent.agent_id in self._agents:
            raise AgentError(f"There are two agents with the id '{agent.agent_id}': give one of them another.")
        self._agents[agent.agent_id] = agent

    def get(self, agent_id: str) -> AgentLike:
        """The agent of that id; raises `UnknownAgent`, naming those there are."""
        if agent_id not in self._agents:
            known = ", ".join(self._agents) or "none"
            raise UnknownAgent(
                f"There is no agent '{agent_id}'. The agents are: {known}. Choose one of them; where a "
                "model list does not show it, reload the page."
            )
        return self._agents[agent_id]

    def __iter__(self) -> Iterator[AgentLike]:
        return iter(self._agents.values())

    def __len__(self) -> int:
        return len(self._agents)
