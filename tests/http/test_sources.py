"""Sources are numbered on from the history, and replayed as far as they were cited."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, Skill, ToolContext, ToolResult, tool
from callboard._history.sources import NOTHING_CITED
from callboard.agents import RunContext
from callboard.models import OpenAICompatible
from callboard.skills.web.skill import to_source
from callboard_protocol import Done, Error, Event, FinishReason, Message, Source, ToolCallComplete, ToolCallStart
from tests.fakes.openai_server import OpenAIServer, call, chunks, text
from tests.pipe.loader import PIPE
from tests.serving import ScriptedAgent, request, serving


@tool
async def search(context: ToolContext, query: str) -> list[dict[str, Any]]:
    """Searches.

    Args:
        query: For what.
    """
    return [{"source_number": context.sources.next(), "content": f"{query} {part}"} for part in ("one", "two")]


@tool
async def look_up(context: ToolContext, query: str) -> ToolResult:
    """Looks something up.

    Args:
        query: What.
    """
    number = context.sources.next()
    snippet = f"All of {query}."
    item = {"source_number": number, "title": query, "url": f"https://{query}.example", "snippet": snippet}
    return ToolResult(data=[item], sources=(to_source(item, snippet),))


async def turns(folder: Path, answers: list[Any], *questions: str) -> list[list[Event]]:
    """The events of one turn of a chat after the other, as an agent with `look_up` answers."""
    async with OpenAIServer(answers) as endpoint:
        model = OpenAICompatible(endpoint.base_url, model="m")
        agent = Agent("scripted", skills=(Skill("search", "Searches.", tools=(look_up,)),), model=model)
        history: list[dict[str, Any]] = []
        seen = []
        async with serving(folder, agent) as service:
            for question in questions:
                history.append({"role": "user", "content": question})
                seen.append(await service.events(request(chat_id="c", messages=history)))
                stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
                history = [_as_sent(message) for message in stored]
        await model.aclose()
    return seen


def drawn(events: list[Event]) -> str:
    """The answer's text as the pipe draws it, without its calls."""
    transcript = PIPE.Transcript()
    for event in events:
        if not event.type.startswith("tool"):
            transcript.apply(event.model_dump(mode="json"))
    return str(transcript.render())


async def test_a_source_of_an_earlier_turn_is_told_again_where_it_is_cited_again(tmp_path: Path) -> None:
    answers = [
        chunks(call("look_up", '{"query": "apple"}', call_id="a")),
        chunks(text("Apples are red [source1].")),
        chunks(text("As I said, "), text("red [sou"), text("rce1"), text("]. Really [source1].")),
        chunks(call("look_up", '{"query": "pear"}', call_id="b")),
        chunks(text("Both are fruit [source1, source2].")),
        chunks(text("Goodbye [source7].")),
    ]
    first, again, both, bye = await turns(tmp_path, answers, "apples?", "sure?", "pears?", "bye")

    def told(events: list[Event]) -> list[Source]:
        return [event for event in events if isinstance(event, Source)]

    assert told(again) == told(first)
    assert [source.source["url"] for source in told(both)] == ["https://pear.example", "https://apple.example"]
    assert told(bye) == []
    assert drawn(again) == "As I said, red [1#source1]. Really [1#source1]."
    assert drawn(both) == "Both are fruit [2#source1, 1#source2]."


def _ended(reason: FinishReason) -> Event:
    return Done(finish_reason=reason)


async def replayed_results(folder: Path, texts: tuple[str, str], last: Event, **settings: Any) -> list[str]:
    """What the next turn is told of two searches, with sources 1 and 2, 3 and 4; `texts` are before and after them."""
    told: list[str] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        if told_now := [message["content"] for message in context.messages if message["role"] == "tool"]:
            told.extend(told_now)
            return
        yield Message(content=texts[0])
        for call_id, first in (("a", 1), ("b", 3)):
            found = [{"source_number": number, "content": f"{number}"} for number in (first, first + 1)]
            yield ToolCallStart(tool_call_id=call_id, tool_name="search")
            yield ToolCallComplete(tool_call_id=call_id, result=json.dumps(found))
        if texts[1]:
            yield Message(content=texts[1])
        yield last

    async with serving(folder, ScriptedAgent(script), **settings) as service:
        await service.events(request(chat_id="c"))
        stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
        await service.events(request(chat_id="c", messages=[*map(_as_sent, stored), {"role": "user", "content": "?"}]))
    return [_numbers(content) for content in told]


def _numbers(content: str) -> str:
    """The numbers of the sources that a result has left, `none` for the sentence in the place of all."""
    if content == NOTHING_CITED:
        return "none"
    return " ".join(str(item["source_number"]) for item in json.loads(content))


@pytest.mark.parametrize(
    ("texts", "last", "setting", "told"),
    [
        (("I look.", "It is so [source2]."), _ended("stop"), "cited", ["2", "3 4"]),
        (("I know [source3].", "It is so."), _ended("stop"), "cited", ["1 2", "3"]),
        (("I look.", "It is so."), _ended("stop"), "always", ["none", "none"]),
        (("I look.", "It is so [source2]."), _ended("stop"), "never", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), _ended("length"), "always", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), _ended("cancelled"), "always", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), Error(message="it broke"), "always", ["1 2", "3 4"]),
        (("I look [source2].", ""), _ended("stop"), "always", ["1 2", "3 4"]),
    ],
)
async def test_results_are_compacted_only_by_an_answer_that_came_to_its_end(
    tmp_path: Path, texts: tuple[str, str], last: Event, setting: str, told: list[str]
) -> None:
    assert await replayed_results(tmp_path, texts, last, compact_results=setting) == told


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A stored message as a client sends it, its results cut for display."""
    sent = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if message[key] is not None}
    return {"content": "cut" if message["role"] == "tool" else None, **sent}
