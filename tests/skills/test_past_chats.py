"""The tool `history`, as a model calls it."""

from pathlib import Path

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


async def test_forgetting_deletes_only_users_own_earlier_chat(store: Store) -> None:
    ann = Caller(store)
    await ann.but(chat_id="old").say("umbrella")
    with pytest.raises(ToolError, match="no chat 'old'"):
        await ann.but(user_id="bob").call(PastChats(), action="forget", chat_id="old")
    assert await ann.call(PastChats(), action="forget", chat_id="old") == {"forgotten": "old"}
    assert (await ann.call(PastChats(), action="search", query="umbrella"))["messages"] == []
    with pytest.raises(ToolError, match="recent returns"):
        await ann.call(PastChats(), action="forget", chat_id="old")
    await ann.say("gloves")
    with pytest.raises(ToolError, match="is the current chat"):
        await ann.call(PastChats(), action="forget", chat_id="chat")
    for action, argument in (("search", "query"), ("forget", "chat_id")):
        with pytest.raises(InvalidArguments, match=f"'{action}' needs the argument '{argument}'"):
            await ann.call(PastChats(), action=action)


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
