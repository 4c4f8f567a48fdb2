"""Agents and graphs of LangGraph behind AG-UI."""
# mypy: ignore-errors
# The framework is in an environment of its own.

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from listening import MODEL_URL, fail, listen, weather, wipe


async def book(city: str) -> str:
    """Book a table."""
    seats = interrupt({"question": "How many seats?", "options": ["2", {"label": "four", "value": 4}]})
    return f"{seats!r} seats in {city}"


app = FastAPI()
model = ChatOpenAI(model="m", base_url=MODEL_URL, api_key="key", max_retries=0)
options = {"outcome": {"emit_interrupt_outcome": True, "emit_raw_events": False}}
for name, mode in [("agent", "batched"), ("outcome", "batched"), ("per_call", "per_call")]:
    asks = HumanInTheLoopMiddleware({"wipe": True}, interrupt_mode=mode)
    graph = create_agent(model, [weather, fail, wipe, book], middleware=[asks], checkpointer=InMemorySaver())
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name=name, graph=graph, **options.get(name, {})), f"/{name}")
listen(app)
