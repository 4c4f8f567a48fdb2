"""A server for attacks: it has a stored chat, a run that waits for its user, and agents that count their runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callboard import _metrics, _openai
from callboard.agents import RunContext
from callboard.http import app
from callboard_protocol import Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, Service, numbered, request, serving

ROUTES = [*app.ROUTES, *_openai.ROUTES, *_metrics.ROUTES]
"""Every route of a server, except the inspector's."""

SECRET = "what-nobody-else-may-read"
KEY = "a-long-secret-key"
PICTURE = f"data:image/png;base64,{'A' * 400_000}"
QUESTION = [{"role": "user", "content": "hi"}]

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Wanted:
    """A valid request for one route."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


def wanted(file_id: str) -> dict[tuple[str, str], Wanted]:
    """Return a valid request for each route, by method and path; requests that change data come last."""
    started = {"agent": "scripted", "messages": QUESTION}
    asked = {"model": "scripted", "messages": QUESTION}
    responding = {"model": "scripted", "input": "hi"}
    requests = {
        ("GET", "/health"): Wanted("GET", "/health"),
        ("GET", "/ready"): Wanted("GET", "/ready"),
        ("GET", "/metrics"): Wanted("GET", "/metrics"),
        ("GET", "/oauth/callback"): Wanted("GET", "/oauth/callback?state=s&code=c"),
        ("GET", "/v1/models"): Wanted("GET", "/v1/models"),
        ("GET", "/v1/models/{agent_id:path}"): Wanted("GET", "/v1/models/scripted"),
        ("GET", "/v1/responses/{response_id}"): Wanted("GET", "/v1/responses/resp_kept"),
        ("GET", "/v1/runs/{run_id}"): Wanted("GET", "/v1/runs/waiting"),
        ("GET", "/v1/runs/{run_id}/events"): Wanted("GET", "/v1/runs/waiting/events"),
        ("GET", "/v1/runs/{run_id}/files/{file_id}"): Wanted("GET", f"/v1/runs/waiting/files/{file_id}"),
        ("GET", "/v1/chats/{chat_id}/messages"): Wanted("GET", "/v1/chats/c/messages"),
        ("GET", "/v1/chats/{chat_id}/timeline"): Wanted("GET", "/v1/chats/c/timeline"),
        ("GET", "/v1/chats/{chat_id}/grants"): Wanted("GET", "/v1/chats/c/grants?user_id=u"),
        ("GET", "/v1/approvals"): Wanted("GET", "/v1/approvals"),
        ("GET", "/v1/user-data"): Wanted("GET", "/v1/user-data?user_id=u"),
        ("GET", "/v1/tool-calls"): Wanted("GET", "/v1/tool-calls"),
        ("GET", "/v1/tool-calls/{tool_call_id:path}"): Wanted("GET", "/v1/tool-calls/t?chat_id=c"),
        ("POST", "/v1/runs"): Wanted("POST", "/v1/runs", started),
        ("POST", "/v1/chat/completions"): Wanted("POST", "/v1/chat/completions", asked),
        ("POST", "/v1/responses"): Wanted("POST", "/v1/responses", responding),
        ("POST", "/v1/runs/{run_id}/messages"): Wanted("POST", "/v1/runs/waiting/messages", {"content": "hi"}),
        ("POST", "/v1/runs/{run_id}/input"): Wanted(
            "POST", "/v1/runs/waiting/input", {"request_id": "q", "value": True}
        ),
        ("POST", "/v1/runs/{run_id}/cancel"): Wanted("POST", "/v1/runs/waiting/cancel"),
        ("DELETE", "/v1/user-data"): Wanted("DELETE", "/v1/user-data?user_id=u"),
        ("DELETE", "/v1/chats"): Wanted("DELETE", "/v1/chats?user_id=u"),
        ("DELETE", "/v1/chats/{chat_id}"): Wanted("DELETE", "/v1/chats/c"),
        ("DELETE", "/v1/chats/{chat_id}/grants"): Wanted(
            "DELETE", "/v1/chats/c/grants?user_id=u&agent_id=scripted&tool_name=t"
        ),
    }
    routes = {(method, route.path) for route in ROUTES for method in (route.methods or set()) - {"HEAD"}}
    assert routes == set(requests), "a route that nobody attacks"
    return requests


@dataclass
class Target:
    """The server; `port` is where it listens, `started` counts the runs of its agent, the waiting one included."""

    service: Service
    key: str | None
    started: list[str] = field(default_factory=list)
    requests: dict[tuple[str, str], Wanted] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.service.client.base_url.port or 0)

    @property
    def own_headers(self) -> dict[str, str]:
        """The headers of a client with the key, if the server has one."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    async def check_unharmed(self) -> None:
        """Assert that no run was started, answered or cancelled, and no data was deleted."""
        assert self.started == ["waiting"]
        assert not (await self.service.state.runs.find("waiting")).ended
        kept = await self.service.client.get("/v1/chats/c/messages", headers=self.own_headers)
        assert SECRET in kept.text


@asynccontextmanager
async def target(folder: Path, key: str | None = None, **settings: Any) -> AsyncIterator[Target]:
    """Start the server, with or without a key."""
    started: list[str] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        waits = not started
        started.append("waiting" if waits else "again")
        if waits:
            yield ToolCallStart(tool_call_id="t", tool_name="read_diary", tool_args="{}")
            yield ToolCallComplete(tool_call_id="t", result=SECRET, files=({"type": "image", "url": PICTURE},))
            question = InputRequest(request_id="q", kind="confirmation", title="Spend it all?", timeout_seconds=600)
            await context.ask(question)
        yield Message(content=SECRET)

    agent = ScriptedAgent(script, description=SECRET)
    async with serving(folder, agent, api_key=key, detach_grace_seconds=600, **settings) as service:
        found = Target(service, key, started)
        kept = {"id": "resp_kept", "metadata": {"a": SECRET}, "item_ids": []}
        await service.state.store.responses(None).keep([kept], None)
        body = request(run_id="waiting", chat_id="c")
        async with service.client.stream("POST", "/v1/runs", json=body, headers=found.own_headers) as response:
            async for _, event in numbered(response):
                if isinstance(event, ToolCallComplete):
                    [file] = event.files
                    found.requests = wanted(str(file["url"]).rpartition("/")[2])
                if isinstance(event, InputRequest):
                    break
        yield found


async def exchange(port: int, method: str, uri: str, headers: Headers, body: bytes, version: str = "1.1") -> bytes:
    """Send exactly these bytes, and return the whole response, head and body."""
    lines = [f"{method} {uri} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("" if ("Upgrade", "websocket") in headers else "Connection: close\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n" + body)
        await writer.drain()
        async with asyncio.timeout(30):
            return await (reader.readuntil(b"\r\n\r\n") if "Connection: close\r\n" not in lines else reader.read())
    finally:
        writer.close()


def as_json(wanted: Wanted) -> bytes:
    """The body as a client sends it."""
    return json.dumps(wanted.body).encode() if wanted.body is not None else b""
