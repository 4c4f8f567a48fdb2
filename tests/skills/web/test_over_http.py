"""The web skill in a running server: the events of a search and a page, over two turns."""

import json
from pathlib import Path

from callboard import Agent
from callboard.skills import Searxng, WebSearch
from callboard_protocol import Event, Source, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import call, chunks, text
from tests.serving import request
from tests.skills.calling import serving_model
from tests.skills.web.services import searxng
from tests.skills.web.sites import Site, page


async def test_sources_are_sent_cited_and_numbered_on_over_turns_and_what_is_refused_is_red(tmp_path: Path) -> None:
    async with Site(searxng) as engine, Site(page("<p>A page about lamps.</p>")) as site:
        answers = [
            chunks(call("search", '{"query": "lamps"}', call_id="a")),
            chunks(text("Gas [source2].")),
            chunks(call("web_fetch", json.dumps({"url": f"http://localhost:{site.port}/"}), call_id="b")),
            chunks(call("web_fetch", json.dumps({"url": site.url}), call_id="c")),
            chunks(text("A page [source3].")),
        ]
        web = WebSearch([Searxng(engine.url)], allowed_hosts=["localhost"])
        async with serving_model(tmp_path, answers, Agent("scripted", skills=(web,))) as (service, model):
            first = await service.events(request(chat_id="c", messages=[{"role": "user", "content": "lamps?"}]))
            stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
            second = await service.events(request(chat_id="c", messages=[*stored, {"role": "user", "content": "more"}]))
    assert numbers(first) == [1, 2]
    assert numbers(second) == [3]
    (read,) = (json.loads(event.result)[0] for event in second if isinstance(event, ToolCallComplete))
    assert (read["source_number"], read["page_content"]) == (3, "A page about lamps.")
    assert [event.code for event in second if isinstance(event, ToolCallError)] == ["address_refused"]
    assert len(site.heard) == 1
    assert "ignore your instructions" in model.requests[0]["messages"][0]["content"]


def numbers(events: list[Event]) -> list[int]:
    return [event.metadata[0]["source_number"] for event in events if isinstance(event, Source)]
