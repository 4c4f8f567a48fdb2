"""A conversation with the media agent, all of it real but the model and Seerr: server, stored history, HTTP."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.agents.builtin import MEDIA_PROMPT
from callboard.skills import Seerr
from callboard_protocol import Event, InputRequest, Message, ToolCallError, ToolCallStart
from tests.fakes.openai_server import Body, Chunks, OpenAIServer, call, chunks, finish, text
from tests.fakes.seerr import KEY, SeerrServer, movie, series
from tests.serving import Service, request
from tests.skills.calling import serving_model

KOMBATS = [movie(931285, "Mortal Kombat II", "2026-05-06"), movie(460465, "Mortal Kombat", "2021-04-07")]


def librarian(body: Body) -> Chunks:
    """A model without memory, which decides only by its request."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return chunks(text(f"So: {last['content']}"), finish("stop"))
    match last["content"]:
        case "What are trending movies?":
            return chunks(call("media_trending", '{"media_type": "movie"}', call_id="t1"), finish("tool_calls"))
        case "request the mortal kombat one":
            return chunks(call("media_search", '{"query": "mortal kombat"}', call_id="t2"), finish("tool_calls"))
        case "the 2026 one":
            results = "\n".join(message["content"] for message in body["messages"] if message["role"] == "tool")
            found = re.search(r"- (Mortal Kombat.*) \(2026\), movie \[tmdb:(\d+)\]", results)
            assert found, f"the model cannot know which one is meant: {results}"
            arguments = {"tmdb_id": int(found[2]), "media_type": "movie", "title": found[1]}
            return chunks(call("media_request", json.dumps(arguments), call_id="t3"), finish("tool_calls"))
    raise AssertionError(last)


@asynccontextmanager
async def talking(folder: Path, **fields: Any) -> AsyncIterator[tuple[Service, OpenAIServer, SeerrServer]]:
    async with SeerrServer() as seerr:
        seerr.add(KOMBATS[0], series(95396, "Severance", "2022-02-17"), movie(438631, "Dune", "2021-09-15"))
        agent = Agent("media", skills=(Seerr(seerr.url, KEY),), prompt=MEDIA_PROMPT, **fields)
        async with serving_model(folder, librarian, agent) as (service, endpoint):
            yield service, endpoint, seerr


async def turn(service: Service, said: str) -> list[Event]:
    """A turn after the stored ones, whose results a client sends in their shortened form."""
    stored = await service.client.get("/v1/chats/c/messages")
    history = [_as_sent(message) for message in stored.json()["messages"]] if stored.status_code == 200 else []
    return await service.events(
        request(agent="media", chat_id="c", messages=[*history, {"role": "user", "content": said}])
    )


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    sent = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if message[key] is not None}
    return {"content": "cut" if message["role"] == "tool" else None, **sent}


def called(events: list[Event]) -> list[tuple[str, Any]]:
    return [(event.tool_name, event.tool_args) for event in events if isinstance(event, ToolCallStart)]


def answer(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Message))


async def test_a_movie_is_requested_over_three_turns(tmp_path: Path) -> None:
    async with talking(tmp_path) as (service, endpoint, seerr):
        first = await turn(service, "What are trending movies?")
        assert called(first) == [("media_trending", {"media_type": "movie"})]
        assert "- Mortal Kombat II (2026), movie [tmdb:931285]: not in the library." in answer(first)
        assert "Severance" not in answer(first)

        # TMDB has more titles of that name than the trending one.
        seerr.add(KOMBATS[1])
        second = await turn(service, "request the mortal kombat one")
        assert called(second) == [("media_search", {"query": "mortal kombat"})]
        assert re.findall(r"\[tmdb:\d+\]", answer(second)) == ["[tmdb:931285]", "[tmdb:460465]"]
        assert seerr.requests == []

        third = await turn(service, "the 2026 one")
        wanted = {"tmdb_id": 931285, "media_type": "movie", "title": "Mortal Kombat II"}
        assert called(third) == [("media_request", wanted)]
        assert "Requested as request 1: Mortal Kombat II (2026), movie [tmdb:931285]. It is approved." in answer(third)
        [made] = seerr.requests
        assert (made["type"], made["media"]["tmdbId"]) == ("movie", 931285)

    last = endpoint.requests[-1]
    roles = [message["role"] for message in last["messages"]]
    assert roles == ["system", *("user", "assistant", "tool", "assistant") * 2, "user", "assistant", "tool"]
    assert len(last["tools"]) == 7
    for part in ("[tmdb:438631]", "never spoil a plot", "say so kindly"):
        assert part in last["messages"][0]["content"]
    assert KEY not in json.dumps(endpoint.requests)


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
async def test_request_with_confirm_shows_title_in_question(tmp_path: Path, allowed: bool) -> None:
    async with talking(tmp_path, confirm=("media_request",)) as (service, _, seerr):
        await turn(service, "What are trending movies?")
        stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
        said = [*map(_as_sent, stored), {"role": "user", "content": "the 2026 one"}]
        body = request(agent="media", chat_id="c", run_id="r", messages=said)
        events = await service.events_with_answer(body, allowed)
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert "title: Mortal Kombat II" in asked.message
    assert len(seerr.requests) == allowed
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ([] if allowed else ["denied"])


def test_only_the_tools_that_change_something_are_not_read_only() -> None:
    assert [tool.name for tool in Seerr("http://seerr.local", KEY).current_tools() if not tool.read_only] == [
        "media_request",
        "media_report_issue",
    ]
