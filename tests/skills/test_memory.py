"""The tool `memory`, as a model calls it."""

from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.history import Store
from callboard.skills.memory import MAX_TEXT_CHARS, MEMORY
from tests.skills.calling import Caller


async def texts(caller: Caller, **arguments: Any) -> list[str]:
    return [one["text"] for one in (await caller.call(MEMORY, action="search", **arguments))["memories"]]


async def test_what_is_stored_in_one_chat_is_found_in_another(store: Store) -> None:
    ann = Caller(store)
    stored = await ann.call(MEMORY, action="store", text="  Allergic to nuts ")
    later = ann.but(chat_id="another", agent_id="other")
    [found] = (await later.call(MEMORY, action="search", query="nut allergy"))["memories"]
    assert found == stored["stored"]
    assert (found["text"], found["updated"][-1]) == ("Allergic to nuts", "Z")


async def test_without_a_query_the_newest_come(store: Store) -> None:
    ann = Caller(store)
    for number in range(4):
        await ann.call(MEMORY, action="store", text=f"Fact {number}")
    assert await texts(ann, limit=2) == ["Fact 3", "Fact 2"]


async def test_what_is_known_already_is_not_stored_again(store: Store) -> None:
    ann = Caller(store)
    first = await ann.call(MEMORY, action="store", text="Plays chess")
    assert await ann.call(MEMORY, action="store", text="Plays chess") == {"known_already": first["stored"]}


async def test_a_memory_is_updated_and_deleted_by_its_id(store: Store) -> None:
    ann = Caller(store)
    number = (await ann.call(MEMORY, action="store", text="Lives in Oslo"))["stored"]["memory_id"]
    await ann.call(MEMORY, action="update", memory_id=number, text="Lives in Lisbon")
    assert await texts(ann, query="lives") == ["Lives in Lisbon"]
    await ann.call(MEMORY, action="delete", memory_id=number)
    assert await texts(ann) == []


async def test_another_users_memory_does_not_exist(store: Store) -> None:
    number = (await Caller(store).call(MEMORY, action="store", text="Secret"))["stored"]["memory_id"]
    bob = Caller(store, user_id="bob")
    assert await texts(bob, query="secret") == []
    for change in ({"action": "update", "text": "Mine"}, {"action": "delete"}):
        with pytest.raises(ToolError, match=f"no memory {number} of this user"):
            await bob.call(MEMORY, memory_id=number, **change)
    assert await texts(Caller(store)) == ["Secret"]


async def test_a_search_that_finds_nothing_says_what_to_try(store: Store) -> None:
    assert "None yet" in (await Caller(store).call(MEMORY, action="search"))["hint"]
    assert "try others" in (await Caller(store).call(MEMORY, action="search", query='"*'))["hint"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "store"}, "'store' needs the argument 'text'"),
        ({"action": "store", "text": " "}, "'store' needs the argument 'text'"),
        ({"action": "update", "text": "x"}, "'update' needs the argument 'memory_id'"),
        ({"action": "update", "memory_id": 1}, "'update' needs the argument 'text'"),
        ({"action": "delete"}, "'delete' needs the argument 'memory_id'"),
        ({"action": "store", "text": "x" * (MAX_TEXT_CHARS + 1)}, f"at most {MAX_TEXT_CHARS}"),
        ({"action": "delete", "memory_id": 2**64}, "memory_id"),
        ({"action": "search", "limit": 10_000}, "limit"),
        ({"action": "forget"}, "action"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(store: Store, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await Caller(store).call(MEMORY, **arguments)


async def test_a_character_that_no_database_can_hold_is_left_out(store: Store) -> None:
    await Caller(store).call(MEMORY, action="store", text="a\0b")
    assert await texts(Caller(store)) == ["a\ufffdb"]


async def test_a_request_that_names_no_user_has_no_memory(store: Store) -> None:
    with pytest.raises(ToolError, match="names no user"):
        await Caller(store, user_id=None).call(MEMORY, action="search")
