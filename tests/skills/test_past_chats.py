"""The tool `history`, as a model calls it."""

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.skills import PastChats
from callboard.storage import Store
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


def test_only_forgetting_needs_approval() -> None:
    [history] = PastChats().current_tools()
    asks = {action: history.asks_first({"action": action}) for action in ("search", "recent", "forget")}
    assert asks == {"search": False, "recent": False, "forget": True}
