"""The tool `memory`, as a model calls it."""

from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.skills import Memory
from callboard.skills.memory import MAX_TEXT_CHARS
from callboard.storage import Store
from tests.skills.calling import Caller

MEMORY = Memory()


async def texts(caller: Caller, **arguments: Any) -> list[str]:
    return [one["text"] for one in (await caller.call(MEMORY, action="search", **arguments))["memories"]]


async def test_memory_of_one_chat_is_found_updated_and_deleted_in_another(store: Store) -> None:
    ann = Caller(store)
    stored = (await ann.call(MEMORY, action="store", text="  Allergic to nuts\0 "))["stored"]
    assert await ann.call(MEMORY, action="store", text="Allergic to nuts\ufffd") == {"known_already": stored}
    later = ann.but(chat_id="another", agent_id="other")
    [found] = (await later.call(MEMORY, action="search", query="nut allergy"))["memories"]
    assert found == stored
    # A character that cannot be stored is replaced.
    assert (found["text"], found["updated"][-1]) == ("Allergic to nuts\ufffd", "Z")
    number = found["memory_id"]
    await later.call(MEMORY, action="update", memory_id=number, text="Lives in Lisbon")
    await later.call(MEMORY, action="store", text="Plays chess")
    assert await texts(ann, limit=1) == ["Plays chess"]
    assert await texts(ann, query="lives") == ["Lives in Lisbon"]
    await later.call(MEMORY, action="delete", memory_id=number)
    assert await texts(ann) == ["Plays chess"]


async def test_another_users_memory_does_not_exist(store: Store) -> None:
    number = (await Caller(store).call(MEMORY, action="store", text="Secret"))["stored"]["memory_id"]
    bob = Caller(store, user_id="bob")
    assert await texts(bob, query="secret") == []
    for change in ({"action": "update", "text": "Mine"}, {"action": "delete"}):
        with pytest.raises(ToolError, match=f"no memory {number}"):
            await bob.call(MEMORY, memory_id=number, **change)
    assert await texts(Caller(store)) == ["Secret"]
    with pytest.raises(ToolError, match="names no user"):
        await Caller(store, user_id=None).call(MEMORY, action="search")


async def test_a_search_that_finds_nothing_says_what_to_try(store: Store) -> None:
    assert "None yet" in (await Caller(store).call(MEMORY, action="search"))["hint"]
    assert "try others" in (await Caller(store).call(MEMORY, action="search", query='"*'))["hint"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "store"}, "'store' needs the argument 'text'"),
        ({"action": "update", "text": "x"}, "'update' needs the argument 'memory_id'"),
        ({"action": "delete"}, "'delete' needs the argument 'memory_id'"),
        ({"action": "store", "text": "x" * (MAX_TEXT_CHARS + 1)}, f"at most {MAX_TEXT_CHARS}"),
        ({"action": "delete", "memory_id": 2**64}, "memory_id"),
        ({"action": "forget"}, "action"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(store: Store, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await Caller(store).call(MEMORY, **arguments)
