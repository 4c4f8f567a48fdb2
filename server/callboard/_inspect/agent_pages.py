"""The pages of agents: prompt, tools, and missing settings."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import read_state, show
from callboard.agents import Agent, AgentLike
from callboard.models import ChatModel, OpenAICompatible


async def agents(request: Request) -> Response:
    """Show all agents, and the reasons why other agents are missing."""
    _, state, _ = read_state(request)
    model = state.services.model
    listed = [
        (agent, len(agent.tools) if isinstance(agent, Agent) else None, _list_missing(agent, model))
        for agent in state.registry
    ]
    unavailable = state.registry.unavailable
    redact = state.services.redaction
    return show(request, "agents.html", title="Agents", agents=listed, unavailable=unavailable, redact=redact)


async def agent(request: Request) -> Response:
    """Show an agent, and of an `Agent` also its current prompt, its tools, its skills and their settings."""
    _, state, _ = read_state(request)
    found = state.registry.get(request.query_params.get("id", ""))
    return show(
        request,
        "agent.html",
        title=found.name,
        agent=found,
        is_own=isinstance(found, Agent),
        missing=_list_missing(found, state.services.model),
        server_model=state.services.model.name,
        redact=state.services.redaction.value,
    )


def _list_missing(agent: AgentLike, server_model: ChatModel) -> list[str]:
    """Return a line for each thing that an `Agent` lacks, also for the tools that its model's endpoint refuses."""
    if not isinstance(agent, Agent):
        return []
    model = agent.model or server_model
    refused = model.refused_tools if isinstance(model, OpenAICompatible) else {}
    tools = [tool.name for tool in agent.tools if tool.name in refused]
    return [
        *agent.missing,
        *(f"{name}: not offered, because the model's endpoint says: {refused[name]}" for name in tools),
    ]


ROUTES = [Route("/agents", agents), Route("/agent", agent)]
