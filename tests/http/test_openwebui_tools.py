"""Open WebUI's tools as calls of an agent, over a real connection: the test is the client that runs them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent, RunContext
from callboard.calls import tool
from callboard.calls.limits import Limits
from callboard.errors import ToolError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.openwebui.requests import OpenWebUITools
from callboard_protocol import (
    Done,
    Event,
    Message,
    Parked,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolRequest,
)
from tests.loop.conftest import wants
from tests.runs.promises import check
from tests.serving import ScriptedAgent, Service, numbered, request, serving

WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
KNOWLEDGE = {"name": "query_knowledge_files", "description": "Searches files.", "is_builtin": True}
CALENDAR = {"name": "search_calendar_events", "description": "Searches events.", "is_builtin": True}
ATTACHED = {
    "role": "system",
    "content": 'Be kind.\n<attached_knowledge>\n<knowledge type="file" id="1"/>\n</attached_knowledge>',
}
QUESTION = {"role": "user", "content": "How is the weather?"}


class Reporter:
    """An agent that makes the calls of the test, and what its model was sent."""

    def __init__(self, *calls: ModelDelta, **fields: Any) -> None:
        self.requests: list[ModelRequest] = []
        made = calls or (wants("weather", {"city": "Rome"}, call_id="c1"),)

        def script(asked: ModelRequest) -> list[ModelDelta]:
            self.requests.append(asked)
            if self.results:
                return [TextDelta("It is known.")]
            return [*made]

        self.agent = Agent("reporter", model=ScriptedModel(script), **fields)

    @property
    def results(self) -> list[str]:
        """The results that the model has read."""
        return [message["content"] for message in self.requests[-1].messages if message["role"] == "tool"]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model was offered."""
        return [one["function"]["name"] for one in self.requests[0].tools]

    @property
    def prompt(self) -> str:
        first = self.requests[0].messages[0]
        return first["content"] if first["role"] == "system" else ""


async def played(service: Service, *answers: Any, **fields: Any) -> list[Event]:
    """Return the events of a run; each request for a tool gets the next answer: its value, or a whole body."""
    left = list(answers)
    found: list[tuple[int, Event]] = []
    body = request(agent="reporter", run_id="r", chat_id="c", openwebui_tools=[WEATHER])
    async with service.client.stream("POST", "/v1/runs", json=body | fields) as response:
        assert response.status_code == 200, await response.aread()
        async for seq, event in numbered(response):
            found.append((seq, event))
            if isinstance(event, ToolRequest) and left:
                given = left.pop(0)
                sent = given if "value" in given else {"value": given}
                posted = await service.client.post("/v1/runs/r/input", json={"request_id": event.request_id, **sent})
                assert posted.status_code == 202
    check(found)
    return [event for _, event in found]


async def test_tool_runs_at_the_client_and_its_result_is_a_result_like_any_other(tmp_path: Path) -> None:
    reporter = Reporter()
    chip = {"source": {"name": "almanac"}, "document": ["Sunny."], "metadata": [{"source": "almanac"}]}
    picture = {"type": "image", "url": "/api/v1/files/1/content"}
    async with serving(tmp_path, reporter.agent) as service:
        events = await played(service, {"text": "Sunny.", "files": [picture], "sources": [chip]})
        stored = (await service.client.get("/v1/tool-calls/c1?chat_id=c")).json()
    [asked] = [event for event in events if isinstance(event, ToolRequest)]
    assert (asked.name, asked.arguments, asked.tool_call_id) == ("weather", {"city": "Rome"}, "c1")
    assert asked.timeout_seconds == 118
    [end] = [event for event in events if isinstance(event, ToolCallComplete)]
    assert (end.result, end.files) == ("Sunny.", (picture,))
    assert reporter.results == ["Sunny."]
    assert (stored["result"], stored["status"]) == ("Sunny.", "complete")
    assert any(event.type == "source" for event in events)
    kinds = [event.type for event in events]
    assert kinds.index("tool_call_start") < kinds.index("tool_request") < kinds.index("tool_call_complete")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"error": "no such city"}, "tool_failed", "no such city"),
        ({"value": None, "asked": False}, "tool_failed", "not known whether"),
        ({"value": None}, "timeout", "not known whether"),
        ({"value": ["text"]}, "tool_failed", "cannot be read"),
        ({"text": "x", "sources": [{"document": 7}]}, "tool_failed", "source"),
    ],
)
async def test_every_other_answer_ends_the_call_with_an_error(
    tmp_path: Path, answer: Any, code: str, words: str
) -> None:
    reporter = Reporter()
    async with serving(tmp_path, reporter.agent) as service:
        events = await played(service, answer)
    [end] = [event for event in events if isinstance(event, ToolCallError)]
    assert (end.code, words in end.error) == (code, True), end
    assert words in reporter.results[0]
    assert events[-1] == Done()


async def test_without_an_answer_in_time_the_call_ends_and_a_late_answer_is_refused(tmp_path: Path) -> None:
    reporter = Reporter(limits=Limits(tool_timeout_seconds=0.2))
    async with serving(tmp_path, reporter.agent) as service:
        events = await played(service)
        sent = {"request_id": "tool:c1", "value": {"text": "Sunny."}}
        late = await service.client.post("/v1/runs/r/input", json=sent)
    [end] = [event for event in events if isinstance(event, ToolCallError)]
    assert end.code == "timeout"
    assert "not known whether" in reporter.results[0]
    assert late.status_code == 404


async def test_call_of_an_open_webui_tool_waits_and_is_run_by_the_client_that_follows_its_answer(
    tmp_path: Path,
) -> None:
    reporter = Reporter()
    async with serving(tmp_path, reporter.agent, input_timeout_seconds=0.1) as service:
        tools = [{**WEATHER, "asks_first": True}]
        body = request(agent="reporter", run_id="r", chat_id="chat", openwebui_tools=tools, approvals_wait=True)
        assert isinstance((await service.events(body))[-1], Parked)
    async with serving(tmp_path, reporter.agent) as service:
        assert (
            await service.client.post("/v1/runs/r/input", json={"request_id": "approve:c1", "value": True})
        ).is_success
        async with service.client.stream("GET", "/v1/runs/r/events") as response:
            async for _, event in numbered(response):
                if isinstance(event, ToolRequest):
                    sent = {"request_id": event.request_id, "value": {"text": "Sunny."}}
                    assert (await service.client.post("/v1/runs/r/input", json=sent)).is_success
    assert isinstance(event, Done)
    assert reporter.results == ["Sunny."]


@tool(name="weather")
async def own_weather(city: str) -> str:
    """Tells the weather."""
    return f"The agent's own: {city} is cold."


@pytest.mark.parametrize(
    ("fields", "features", "offered", "status"),
    [
        ({}, [], ["weather", "query_knowledge_files"], None),
        ({"openwebui_tools": "all"}, [], ["weather", "query_knowledge_files", "search_calendar_events"], None),
        ({"openwebui_tools": "none"}, [], [], "knowledge, weather"),
        ({"openwebui_tools": ["search_*"]}, [], ["search_calendar_events"], "knowledge, weather"),
        ({}, ["web_search"], ["weather", "query_knowledge_files"], "web search"),
        ({}, ["a feature of a later version"], ["weather", "query_knowledge_files"], None),
        ({"tools": [own_weather]}, [], ["weather", "query_knowledge_files"], None),
        ({"tools": [own_weather], "openwebui_tools": "none"}, [], ["weather"], "knowledge"),
    ],
)
async def test_agent_chooses_among_the_tools_and_a_status_names_the_rest(
    tmp_path: Path, fields: dict[str, Any], features: list[str], offered: list[str], status: str | None
) -> None:
    reporter = Reporter(TextDelta("Hello."), **fields)
    async with serving(tmp_path, reporter.agent) as service:
        given = [WEATHER, KNOWLEDGE, CALENDAR]
        events = await played(
            service, openwebui_tools=given, openwebui_features=features, messages=[ATTACHED, QUESTION]
        )
    assert reporter.tools == offered
    said = [event.content for event in events if isinstance(event, Status)]
    assert said == ([f"Not available to this agent: {status}"] if status else [])
    assert reporter.prompt.startswith("Be kind.")
    assert ("<attached_knowledge>" in reporter.prompt) == ("query_knowledge_files" in offered)


async def test_own_tool_wins_over_open_webui_tool_of_the_same_name(tmp_path: Path) -> None:
    reporter = Reporter(tools=[own_weather])
    async with serving(tmp_path, reporter.agent) as service:
        events = await played(service)
    assert not any(isinstance(event, ToolRequest) for event in events)
    assert reporter.results == ["The agent's own: Rome is cold."]


async def test_background_task_gets_no_tools(tmp_path: Path) -> None:
    reporter = Reporter(TextDelta("A title"))
    async with serving(tmp_path, reporter.agent) as service:
        await played(service, task="title_generation", openwebui_features=["web_search"])
    assert reporter.tools == []


async def test_arguments_too_large_for_an_event_are_not_sent_in_part(tmp_path: Path) -> None:
    reporter = Reporter(wants("weather", {"city": "x" * 200_000}, call_id="c1"))
    async with serving(tmp_path, reporter.agent) as service:
        events = await played(service)
    assert not any(isinstance(event, ToolRequest) for event in events)
    assert "Send less" in reporter.results[0]


@pytest.mark.parametrize("choice", ["search_*", [7]])
def test_wrong_choice_is_refused_when_the_agent_is_made(choice: OpenWebUITools) -> None:
    from callboard.errors import AgentError

    with pytest.raises(AgentError, match="openwebui_tools"):
        Agent("a", openwebui_tools=choice)


async def test_agent_that_cannot_call_functions_loses_the_prompt_that_needs_them(tmp_path: Path) -> None:
    prompts = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        prompts.append(context.messages[0]["content"])
        yield Message(content="Hello.")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        fields = {"functions": [{"name": KNOWLEDGE["name"]}], "openwebui_tools": [KNOWLEDGE]}
        events = await service.events(request(messages=[ATTACHED, QUESTION], **fields))
    assert prompts == ["Be kind."]
    assert Status(content="Not available to this agent: knowledge", done=True) in events


async def test_tool_called_outside_of_a_call_is_an_error_at_once(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Careless(ScriptedAgent):
        agent_id: str = "reporter"
        openwebui_tools: OpenWebUITools = "attached"

    async def script(context: RunContext) -> AsyncIterator[Event]:
        with pytest.raises(ToolError, match=r"context\.call"):
            await context.openwebui_tools[0](city="Rome")
        yield Message(content="Refused.")

    async with serving(tmp_path, Careless(script)) as service:
        events = await played(service)
    assert Message(content="Refused.") in events
