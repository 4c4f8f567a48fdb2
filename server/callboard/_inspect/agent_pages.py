"""The pages of agents: prompt, tools, and missing settings."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import read_state, show
from callboard.agents import Agent


async def agents(request: Request) -> Response:
    """Show all agents, and the reasons why other agents are missing."""
    _, state, _ = read_state(request)
    listed = [(agent, len(agent.tools) if isinstance(agent, Agent) else None) for agent in state.registry]
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
        server_model=state.services.model.name,
        redact=state.services.redaction.value,
    )


ROUTES = [Route("/agents", agents), Route("/agent", agent)]
