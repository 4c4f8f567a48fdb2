"""The tool `history`, as a model calls it."""

from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.errors import InvalidArguments, ToolError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import PastChats
from callboard.storage import Store
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError
from tests.loop.conftest import wants
from tests.serving import Service, request, serving
from tests.skills.calling import Caller


async def test_search_finds_earlier_chats_without_current_one(store: Store) -> None:
    ann = Caller(store)
    await ann.but(chat_id="old").say("Which umbrella is best?", "The red one.")
    await ann.say("What did we say of the umbrella?")
    [found] = (await ann.call(PastChats(), action="search", query="umbrella"))["messages"]
    assert (found["chat_id"], found["said_by"], found["text"]) == ("old", "user", "Which umbrella is best?")
    [listed] = (await ann.call(PastChats(), action="recent"))["chats"]
    assert (listed["chat_id"], listed["began_with"], listed["turns"]) == ("old", "Which umbrella is best?", 1)
    assert "hint" in await ann.call(PastChats(), action="search", query="gloves")


async def test_forgetting_deletes_only_users_own_chat(store: Store) -> None:
    ann = Caller(store)
    await ann.but(chat_id="old").say("umbrella")
    with pytest.raises(ToolError, match="no chat 'old'"):
        await ann.but(user_id="bob").call(PastChats(), action="forget", chat_id="old")
    assert await ann.call(PastChats(), action="forget", chat_id="old") == {"forgotten": "old"}
    assert (await ann.call(PastChats(), action="search", query="umbrella"))["messages"] == []
    with pytest.raises(ToolError, match="recent returns"):
        await ann.call(PastChats(), action="forget", chat_id="old")


async def test_current_chat_cannot_be_forgotten(store: Store) -> None:
    await Caller(store).say("umbrella")
    with pytest.raises(ToolError, match="is the current chat"):
        await Caller(store).call(PastChats(), action="forget", chat_id="chat")
    assert (await store.chats("ann").history("chat")) is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "search"}, "'search' needs the argument 'query'"),
        ({"action": "forget"}, "'forget' needs the argument 'chat_id'"),
    ],
)
async def test_a_missing_argument_is_named(store: Store, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await Caller(store).call(PastChats(), **arguments)


def forgetful() -> Agent:
    """A model that searches, and then forgets the chat that it found."""

    def script(asked: ModelRequest) -> list[ModelDelta]:
        if any(message["role"] == "tool" for message in asked.messages):
            return [TextDelta("Done.")]
        return [
            wants("history", {"action": "recent"}, index=0, call_id="look"),
            wants("history", {"action": "forget", "chat_id": "old"}, index=1, call_id="forget"),
        ]

    return Agent("forgetful", skills=(PastChats(),), model=ScriptedModel(script))


async def answering(service: Service, value: object) -> list[Event]:
    body = request(agent="forgetful", run_id=f"run-{value}", chat_id="now", user={"id": "ann"})
    return await service.events_with_answer(body, value)


async def test_only_forgetting_needs_approval(tmp_path: Path) -> None:
    async with serving(tmp_path, forgetful()) as service:
        await Caller(service.state.store, chat_id="old").say("umbrella")
        refused = await answering(service, False)
        assert [event.tool_call_id for event in refused if isinstance(event, InputRequest)] == ["forget"]
        assert [event.code for event in refused if isinstance(event, ToolCallError)] == ["denied"]
        assert (await service.client.get("/v1/chats/old/messages", params={"user_id": "ann"})).status_code == 200
        agreed = await answering(service, True)
        assert '{"forgotten":"old"}' in [event.result for event in agreed if isinstance(event, ToolCallComplete)]
        assert (await service.client.get("/v1/chats/old/messages", params={"user_id": "ann"})).status_code == 404
