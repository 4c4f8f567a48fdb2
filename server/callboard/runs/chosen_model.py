"""Runs an agent with the model that the user chose for the chat, instead of the server's model.

The endpoint is asked for the model only after the run has started: it may be slow, and the client must get the first
event immediately.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from callboard._streams import closing_stream
from callboard.agents import Agent, AgentLike, RunContext
from callboard.errors import ModelError
from callboard.models import ChatModel, ModelEndpoint
from callboard_protocol import Event, Status


def with_chosen_model(agent: AgentLike, name: str | None) -> AgentLike:
    """Return the agent with the model of that name; unchanged if no model is chosen or the agent has its own model."""
    if name is None or (isinstance(agent, Agent) and agent.model is not None):
        return agent
    return _OnChosenModel(agent, name)


@dataclass(frozen=True, slots=True)
class _OnChosenModel:
    agent: AgentLike
    model_name: str

    @property
    def agent_id(self) -> str:
        return self.agent.agent_id

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def description(self) -> str:
        return self.agent.description

    async def run(self, context: RunContext) -> AsyncGenerator[Event, None]:
        """Run the agent. If the endpoint no longer has the model, send a status and use the server's model."""
        chosen = await _find_served(context.model, self.model_name)
        if chosen is None:
            content = (
                f"The model {self.model_name}, chosen for this chat, is no longer available: the server's default "
                "model answers. Ask the agent to switch to another model."
            )
            yield Status(content=content, done=True)
        context = context if chosen is None else replace(context, model=chosen)
        async with closing_stream(self.agent.run(context)) as events:
            async for event in events:
                yield event


async def _find_served(server_model: ChatModel, name: str) -> ChatModel | None:
    """Return the model of that name; None if the endpoint lists models, but not this one."""
    if not isinstance(server_model, ModelEndpoint):
        return None
    try:
        names = await server_model.list_names()
    except ModelError:
        names = []
    # If the endpoint lists no models at the moment, it may still serve this one; otherwise the run ends with its error.
    return server_model.named(name) if name in names or not names else None
