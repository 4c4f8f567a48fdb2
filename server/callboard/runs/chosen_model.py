"""Finds the model that the user chose for the chat, which answers instead of the server's model."""

from callboard.agents import Agent, AgentLike
from callboard.errors import ModelError
from callboard.models import ChatModel, ModelEndpoint


async def find_model(agent: AgentLike, server_model: ChatModel, name: str | None) -> tuple[ChatModel, str]:
    """Return the model for a run, and a status for the user, which is empty unless the chosen model is missing.

    `name` is the name of the chosen model, None without a choice. An agent with its own model ignores the choice.
    """
    if name is None or (isinstance(agent, Agent) and agent.model is not None):
        return server_model, ""
    if isinstance(server_model, ModelEndpoint):
        try:
            names = await server_model.list_names()
        except ModelError:
            names = []
        # If the endpoint lists no models now, it may still serve this one; otherwise the run ends with its error.
        if name in names or not names:
            return server_model.named(name), ""
    return server_model, (
        f"The model {name}, chosen for this chat, is no longer available: the server's default model answers. "
        "Ask the agent to switch to another model."
    )
