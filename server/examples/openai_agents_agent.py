"""An agent of the OpenAI Agents SDK: `CALLBOARD_AGENTS=server/examples/openai_agents_agent.py callboard serve`."""

from os import environ as env

from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from callboard import register, report_status
from callboard.frameworks.openai_agents import from_openai_agents


@function_tool
def find_flights(origin: str, destination: str) -> list[str]:
    """Finds the flights from one city to another."""
    report_status("processing", f"asking the airlines from {origin} to {destination}", progress=50)
    return ["CB 101 at 09:15, 120 €", "CB 205 at 17:40, 95 €"]


@function_tool(needs_approval=True)
def book_flight(flight: str) -> str:
    """Books a flight, once the user has agreed."""
    return f"{flight} is booked."


set_tracing_disabled(True)  # Otherwise the SDK sends every run to OpenAI.
client = AsyncOpenAI(base_url=env["CALLBOARD_MODEL_BASE_URL"], api_key=env.get("CALLBOARD_MODEL_API_KEY", "none"))
model = OpenAIChatCompletionsModel(env["CALLBOARD_MODEL"], client)
agent = Agent("travel", model=model, tools=[find_flights, book_flight])
register(from_openai_agents(agent, name="Travel agent", description="Finds and books flights."))
