"""Tokens for MCP servers over HTTP: those of users, who sign in, and Callboard's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callboard.agents import Agent
from callboard.calls.sign_ins import TOKENS
from callboard.skills.mcp import connection
from callboard.skills.mcp.skills import McpServer
from callboard.storage.values import digest
from callboard_protocol import InputRequest, ToolCallComplete, ToolCallError
from tests.fakes.mcp_oauth import Notes, browse, come_back
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.serving import Service, numbered, request, serving

# The SDK takes seconds to import on a busy machine.
assert connection
PUBLIC = "https://callboard.test"


def calling(*tools: str) -> list[Answer]:
    rounds = [chunks(call(name, "{}", call_id=name), finish("tool_calls")) for name in tools]
    return [*rounds, chunks(text("There."), finish("stop"))]


@asynccontextmanager
async def serving_notes(
    folder: Path, notes: Notes, *turns: list[Answer], **oauth: Any
) -> AsyncIterator[tuple[Service, OpenAIServer]]:
    """A server whose agent has the MCP server `far`, and the endpoint of its model, which takes these turns."""
    far = Agent("scripted", skills=(McpServer("far", url=notes.url, oauth=oauth),))
    async with OpenAIServer([answer for turn in turns for answer in turn]) as model:
        settings = {"model_base_url": model.base_url, "model": "m", "public_url": PUBLIC}
        async with serving(folder, far, **settings) as service:
            yield service, model


async def ask(service: Service, user: str, account: str | None, **options: Any) -> list[Any]:
    """Return the events of a run of the user. Each address of a question is opened by a browser with the account."""
    events = []
    pages = []
    body = request(user={"id": user}, chat_id=f"chat of {user}")
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for _, event in numbered(response):
            events.append(event)
            if isinstance(event, InputRequest):
                pages.append(await browse(event.url, account, service.client, **options))
    return events


def results(events: list[Any]) -> list[str]:
    ended = [event for event in events if isinstance(event, ToolCallComplete | ToolCallError)]
    return [event.result if isinstance(event, ToolCallComplete) else event.error for event in ended]


def questions(events: list[Any]) -> list[InputRequest]:
    return [event for event in events if isinstance(event, InputRequest)]


async def test_each_user_signs_in_once_and_calls_run_with_their_own_token(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        turns = [calling("far_sign_in", "far_whoami"), calling("far_whoami"), calling("far_whoami")]
        async with serving_notes(tmp_path, notes, *turns) as (service, model):
            first = await ask(service, "ada", "ada@notes")
            assert results(first)[-1] == "ada@notes"
            [question] = questions(first)
            assert question.title == "Sign in to far"
            offered = [[one["function"]["name"] for one in sent.get("tools", ())] for sent in model.requests]
            assert offered[:2] == [["far_sign_in"], ["far_whoami", "far_leak"]]
            other = await ask(service, "bob", "bob@notes")
            assert (results(other), len(questions(other))) == (["bob@notes"], 1)
            again = await ask(service, "ada", None)
            assert (results(again), questions(again)) == (["ada@notes"], [])
