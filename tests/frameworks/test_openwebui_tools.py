"""Open WebUI's tools as calls of every framework's agents: the test is the client that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike, RunContext
from callboard.errors import AgentError
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError, ToolRequest
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Body, OpenAIServer
from tests.frameworks.columns import FRAMEWORKS, Column
from tests.frameworks.scenario import calls, says
from tests.frameworks.stage import Framework
from tests.frameworks.toolbox import Toolbox
from tests.runs.promises import check
from tests.serving import numbered, request, serving

if TESTS_RUN:
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat
    from agno.team import Team
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeListChatModel

    from callboard.frameworks.agno import from_agno
    from callboard.frameworks.langgraph import from_langgraph, to_langchain_tools
    from tests.frameworks.agno_agents import Made
    from tests.frameworks.with_langgraph import chat_model

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": PARAMETERS}
ADD = {"name": "add", "description": "Open WebUI's own sum.", "parameters": PARAMETERS}
ARGUMENTS = '{"a": 2, "b": 3}'
FILE = {"type": "image", "url": "/api/v1/files/1/content"}
SOURCE = {"source": {"name": "almanac"}, "document": ["Sunny."], "metadata": [{"source": "almanac"}]}


class PerRunGraphs:
    """LangGraph: a function makes the graph with the tools of its run."""

    name = "LangGraph"

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with chat_model(base_url) as model:

            def make(context: RunContext) -> Any:
                own = [toolbox.plain(name) for name in tools]
                return create_agent(model, [*own, *to_langchain_tools(context, own)])

            yield from_langgraph(make, agent_id="agent", openwebui_tools="attached")


AGENTS: list[Any] = [PerRunGraphs() if one.name == "LangGraph" else one for one in FRAMEWORKS]
every_framework = pytest.mark.parametrize("framework", AGENTS, ids=lambda framework: framework.name)


@dataclass
class Seen:
    """The events of a run, and the requests to its model."""

    events: list[Event] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def result(self) -> str:
        """The last message that the model was sent."""
        return str(self.requests[-1]["messages"][-1]["content"])


async def play(
    framework: Framework,
    folder: Path,
    answer: Mapping[str, Any],
    *,
    name: str = "weather",
    agrees: bool | None = None,
    own: Sequence[str] = (),
    tools: Sequence[Mapping[str, Any]] = (WEATHER,),
    **settings: Any,
) -> Seen:
    """Run a turn with one call of `name`; `answer` is the body of the answer to a request for a tool."""
    seen = Seen()
    found: list[tuple[int, Event]] = []
    async with (
        OpenAIServer([calls((name, ARGUMENTS)), says("Done.")]) as model,
        framework.agent(model.base_url, own, Toolbox()) as agent,
        serving(folder, agent, **settings) as service,
    ):
        body = request(agent="agent", run_id="r", chat_id="c", openwebui_tools=tools)
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for seq, event in numbered(response):
                found.append((seq, event))
                if isinstance(event, ToolRequest) and answer:
                    sent = {"request_id": event.request_id, **answer}
                    posted = await service.client.post("/v1/runs/r/input", json=sent)
                    assert posted.status_code == 202
                if isinstance(event, InputRequest) and agrees is not None:
                    await service.client.post(
                        "/v1/runs/r/input", json={"request_id": event.request_id, "value": agrees}
                    )
        seen.requests = model.requests
    check(found)
    seen.events = [event for _, event in found]
    return seen


@every_framework
async def test_call_runs_at_the_client(framework: Framework, tmp_path: Path) -> None:
    value = {"text": "Sunny.", "files": [FILE], "sources": [SOURCE]}
    seen = await play(framework, tmp_path, {"value": value})
    [asked] = seen.of(ToolRequest)
    assert (asked.name, asked.arguments) == ("weather", {"a": 2, "b": 3})
    ends = seen.of(ToolCallComplete)
    assert ends[-1].tool_call_id == asked.tool_call_id
    assert ends[-1].result == "Sunny."
    assert [dict(file) for end in ends for file in end.files] == [FILE]
    assert [event.type for event in seen.events].count("source") == 1
    assert seen.result == "Sunny."
    assert seen.requests[0]["tools"][0]["function"]["parameters"]["properties"].keys() == {"a", "b"}


@every_framework
async def test_error_of_the_tool_is_the_error_of_the_call(framework: Framework, tmp_path: Path) -> None:
    seen = await play(framework, tmp_path, {"value": {"error": "no rain today"}})
    [end] = seen.of(ToolCallError)
    assert "no rain today" in end.error
    assert "no rain today" in seen.result


@every_framework
@pytest.mark.slow
async def test_call_without_an_answer_ends_in_time(framework: Column | PerRunGraphs, tmp_path: Path) -> None:
    seen = await play(framework, tmp_path, {}, tool_timeout_seconds=2)
    [end] = seen.of(ToolCallError)
    # Agno passes on the text of an error alone.
    assert end.code == ("tool_failed" if framework.name == "Agno" else "timeout")
    assert "not known whether" in seen.result


@every_framework
@pytest.mark.parametrize("agrees", [True, False])
async def test_approval_mode_of_open_webui_is_honoured(framework: Framework, tmp_path: Path, agrees: bool) -> None:
    tools = [{**WEATHER, "asks_first": True}]
    seen = await play(framework, tmp_path, {"value": {"text": "Sunny."}}, agrees=agrees, tools=tools)
    assert len(seen.of(InputRequest)) == 1
    assert len(seen.of(ToolRequest)) == agrees
    assert ("Sunny." in seen.result) == agrees


@every_framework
async def test_own_tool_wins_over_one_of_the_same_name(framework: Framework, tmp_path: Path) -> None:
    seen = await play(framework, tmp_path, {"value": {"text": "7"}}, name="add", own=["add"], tools=[ADD, WEATHER])
    assert seen.of(ToolRequest) == []
    assert [end.result for end in seen.of(ToolCallComplete)] == ["5"]
    offered = {tool["function"]["name"]: tool["function"]["description"] for tool in seen.requests[0]["tools"]}
    assert offered.keys() == {"add", "weather"}
    assert offered["add"] == "Adds two numbers."


async def test_leader_of_a_team_gets_them(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        adder = Agent(id="adder", name="Adder", role="Adds", model=model(), telemetry=False)
        return from_agno(Team(id="agent", name="Crew", members=[adder], model=model(), telemetry=False))

    seen = await play(Made(make), tmp_path, {"value": {"text": "Sunny."}})
    assert [end.result for end in seen.of(ToolCallComplete)] == ["Sunny."]
    assert seen.result == "Sunny."


def test_compiled_graph_cannot_get_them() -> None:
    graph = create_agent(FakeListChatModel(responses=[]), name="agent")
    with pytest.raises(AgentError, match="to_langchain_tools"):
        from_langgraph(graph, openwebui_tools="attached")
