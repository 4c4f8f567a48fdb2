"""An agent of Agno in Open WebUI: `CALLBOARD_AGENTS=server/examples/agno_agent.py callboard serve`."""

from os import environ as env

from agno.agent import Agent
from agno.models.openai import OpenAILike
from agno.tools import tool

from callboard import register, report_status
from callboard.frameworks.agno import from_agno


def find_flights(origin: str, destination: str) -> list[str]:
    """Finds the flights from one city to another."""
    report_status("processing", f"asking the airlines from {origin} to {destination}", progress=50)
    return ["CB 101 at 09:15, 120 €", "CB 205 at 17:40, 95 €"]


@tool(requires_confirmation=True)
def book_flight(flight: str) -> str:
    """Books a flight, once the user has agreed."""
    return f"{flight} is booked."


key = env.get("CALLBOARD_MODEL_API_KEY", "none")
model = OpenAILike(env["CALLBOARD_MODEL"], base_url=env["CALLBOARD_MODEL_BASE_URL"], api_key=key)
agent = Agent(name="travel", model=model, tools=[find_flights, book_flight], telemetry=False)
register(from_agno(agent, name="Travel agent", description="Finds and books flights."))
