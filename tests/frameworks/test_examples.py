"""Each framework's example: a file that a real server loads, whose agent calls each of its tools before it answers."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard.agents.loading import load_all_agents
from callboard.settings import Settings
from callboard_protocol import Done, Event, InputRequest, ToolCallComplete
from tests.fakes.openai_server import Answer, Body, OpenAIServer
from tests.frameworks.scenarios import calls, says
from tests.processes import serving
from tests.serving import numbered, request

FILES = sorted((Path(__file__).parents[2] / "server" / "examples").glob("*_agent.py"))
ANSWER = "That is all I can do."
SAMPLES: dict[str, Any] = {"string": "Rome", "integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}


def calls_each_tool_once(body: Body) -> Answer:
    """A model that calls the tools in their order, with arguments that fit, then answers."""
    ended = sum(message["role"] == "tool" for message in body["messages"])
    tools = [tool["function"] for tool in body.get("tools") or ()]
    if ended >= len(tools):
        return says(ANSWER)
    parameters = tools[ended]["parameters"].get("properties", {})
    arguments = {name: SAMPLES[schema.get("type", "string")] for name, schema in parameters.items()}
    return calls((tools[ended]["name"], json.dumps(arguments)), first=ended)


async def events(client: httpx.AsyncClient, agent: str) -> list[Event]:
    """A turn's events; every question is answered with yes."""
    seen: list[Event] = []
    async with client.stream("POST", "/v1/runs", json=request(agent=agent, chat_id="c", run_id="r")) as response:
        async for _, event in numbered(response):
            seen.append(event)
            if isinstance(event, InputRequest):
                answer = {"request_id": event.request_id, "value": True}
                (await client.post("/v1/runs/r/input", json=answer)).raise_for_status()
    return seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_a_server_loads_the_example_and_all_its_tools_are_called_and_shown(path: Path, tmp_path: Path) -> None:
    async with OpenAIServer(calls_each_tool_once) as model:
        settings = {"MODEL": "m", "MODEL_BASE_URL": model.base_url, "MODEL_API_KEY": "key"}
        with serving(tmp_path, AGENTS=str(path), **settings) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                listed = (await client.get("/v1/models")).json()["data"]
                built_in = {agent.agent_id for agent in load_all_agents(Settings(agents=())).registry}
                [agent] = [one["id"] for one in listed if one["id"] not in built_in]
                seen = await events(client, agent)
    offered = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert [event.tool_name for event in seen if isinstance(event, ToolCallComplete)] == offered
    assert isinstance(seen[-1], Done)
    assert seen[-1].finish_reason == "stop"
