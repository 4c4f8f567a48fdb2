"""OpenAI's Responses API, scripted, and agents of the OpenAI Agents SDK on it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from callboard.agents import AgentLike
from tests.fakes.openai_server import Answer, ASGIMessage, Body, OpenAIServer, Receive, Script, Send, chunks
from tests.frameworks.scenario import scenario
from tests.frameworks.stage import Performance, openai_client, perform
from tests.frameworks.toolbox import Toolbox


class ResponsesServer(OpenAIServer):
    """The scripted server at `/v1/responses`: the stream has the same form but other events."""

    async def _app(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/v1/responses"
        await super()._app({**scope, "path": "/v1/chat/completions"}, receive, send)


class OnResponses:
    """An agent whose model is only named, so that the SDK creates it for the Responses API."""

    def __init__(self, script: Script, *tools: Any) -> None:
        self.server = ResponsesServer(script)
        self._tools = tools

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        from agents import Agent, OpenAIProvider, RunConfig

        from callboard.frameworks.openai_agents import from_openai_agents

        async with self.server as server, openai_client(server.base_url) as client:
            provider = OpenAIProvider(openai_client=client, use_responses=True)
            agent = Agent("agent", model="m", tools=[*self._tools])
            yield from_openai_agents(agent, run_config=RunConfig(tracing_disabled=True, model_provider=provider))


async def play(
    script: Script, folder: Path, *tools: Any, confirm_tools: Sequence[str] = (), **fields: Any
) -> tuple[Performance, list[Body]]:
    """Return the observed events and the requests to the Responses API."""
    framework = OnResponses(script, *tools)
    seen, _ = await perform(framework, scenario([], **fields), folder, confirm_tools=confirm_tools)
    return seen, framework.server.requests


def answer(*items: Body, deltas: Sequence[Body] = (), end: str = "response.completed", **fields: Any) -> Answer:
    """A response with these items, each with its start, pieces and end."""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    whole = {"id": "resp_1", "object": "response", "output": [*items], "usage": usage, **fields}
    events: list[Body] = [{"type": "response.created", "response": {**whole, "output": []}}]
    for index, item in enumerate(items):
        empty = {**item, **({"arguments": ""} if item["type"] == "function_call" else {})}
        events.append({"type": "response.output_item.added", "item": empty, "output_index": index})
        events += [{**delta, "output_index": index} for delta in deltas if delta["item_id"] == item["id"]]
        events.append({"type": "response.output_item.done", "item": item, "output_index": index})
    events.append({"type": end, "response": whole})
    return chunks(*({**event, "sequence_number": number} for number, event in enumerate(events)))


def speech(content: str, *before: Body, **part: Any) -> Answer:
    """A text in two pieces, after the items `before` it."""
    parts = [{"type": "output_text", "text": content, "annotations": [], **part}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    pieces = [
        {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": delta, "logprobs": []}
        for delta in (content[:3], content[3:])
    ]
    return answer(*before, item, deltas=pieces)


def addition(call_id: str) -> Answer:
    """A thought, and a call of `add`."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Sums."}]}
    summary = {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": "Sums."}
    arguments = '{"a": 2, "b": 3}'
    call = {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "add", "arguments": arguments}
    piece = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": arguments}
    return answer(thought, call, deltas=[summary, piece])
