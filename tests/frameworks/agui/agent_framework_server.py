"""An agent of Microsoft's Agent Framework behind AG-UI."""
# mypy: ignore-errors
# The framework is in an environment of its own.

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework_ag_ui import add_agent_framework_fastapi_endpoint
from fastapi import FastAPI
from listening import MODEL_URL, fail, listen, weather, wipe

app = FastAPI()
client = OpenAIChatCompletionClient("m", base_url=MODEL_URL, api_key="key")
tools = [tool(weather), tool(fail), tool(wipe, approval_mode="always_require")]
add_agent_framework_fastapi_endpoint(
    app, Agent(client, "You help.", name="agent", tools=tools), "/agent", single_user=True
)
listen(app)
