"""Memories: found by their words, each user's own, on both databases."""

import asyncio

from callboard.storage import Store
from callboard.storage.sql.memories import Memories


async def texts(memories: Memories, query: str, limit: int = 10) -> list[str]:
    return [memory.text for memory in await memories.search(query, limit)]


FOUND = {
    "which allergies": "Allergic to nuts",
    "CAFE or zurich": "Likes the Café Zürich",
    "喜欢": "她喜欢吃辣的菜",
    "cat": "Has two cats",
    "runs": "Was running in Vienna",
    "connecting": "The connection was slow",
    "happiness": "She is happy",
    # A word that English has for nothing is a word all the same.
    "she": "She is happy",
    # A query has no operators, on either database.
    "tea & | ! <-> :*": "Drinks tea",
    "'); DROP TABLE memories; --": None,
    "NEAR(tea, 2)": None,
    "\0tea": "Drinks tea",
    "\ud800 tea": "Drinks tea",
}


async def test_a_memory_is_found_by_any_word_whatever_its_case_accents_or_form(store: Store) -> None:
    ann = store.memories("ann")
    for text in {text for text in FOUND.values() if text}:
        await ann.add(text)
    for query, found in FOUND.items():
        assert await texts(ann, query) == ([found] if found else []), query
    await ann.add("Green tea in the morning")
    await ann.add("Dislikes green walls in any room of the house")
    best = ["Green tea in the morning", "Dislikes green walls in any room of the house"]
    assert await texts(ann, "green morning") == best
    assert await texts(ann, "green morning", limit=1) == best[:1]


async def test_users_cannot_read_change_or_delete_memories_of_others(store: Store) -> None:
    ann = store.memories("ann")
    bob = store.memories("bob")
    kept, _ = await ann.add("Ann plays chess")
    assert await texts(bob, "chess") == []
    assert await bob.newest(10) == []
    assert not await bob.change(kept.id, "Bob plays chess")
    assert not await bob.remove(kept.id)
    assert await texts(ann, "chess") == ["Ann plays chess"]


async def test_the_same_text_is_stored_once_for_a_user(store: Store) -> None:
    ann = store.memories("ann")
    bob = store.memories("bob")
    first, new = await ann.add("Plays chess")
    again, new_again = await ann.add("Plays chess")
    assert (new, new_again, again) == (True, False, first)
    assert (await bob.add("Plays chess"))[1]


async def test_a_changed_memory_is_found_only_by_its_new_words_and_a_deleted_one_not_at_all(store: Store) -> None:
    ann = store.memories("ann")
    # It has no words.
    kept, _ = await ann.add("🎭")
    assert await ann.change(kept.id, "Lives in Oslo")
    assert await ann.change(kept.id, "Lives in Lisbon")
    assert await texts(ann, "oslo") == []
    assert await texts(ann, "lisbon") == ["Lives in Lisbon"]
    assert await ann.remove(kept.id)
    assert await texts(ann, "lisbon") == []
    assert not await ann.remove(kept.id)
    assert not await ann.change(2**62, "x")


async def test_two_servers_write_at_once_and_nothing_is_lost(store: Store, database_url: str) -> None:
    other = await Store.open(database_url)
    writers = [store.memories("ann"), other.memories("ann")]
    added = await asyncio.gather(*(writers[number % 2].add(f"Number {number}") for number in range(40)))
    changed = await asyncio.gather(
        *(writers[number % 2].change(memory.id, f"Changed {number}") for number, (memory, _) in enumerate(added))
    )
    assert all(changed)
    assert len(await texts(writers[0], "changed", 50)) == 40
    assert await texts(writers[1], "number", 50) == []
    await other.close()


async def test_foremost_memories_are_the_newest_and_most_used(store: Store) -> None:
    ann = store.memories("ann")
    kept = [(await ann.add(f"Fact {number}"))[0] for number in range(6)]
    assert [one.text for one in await ann.foremost(2)] == ["Fact 5", "Fact 4"]
    await ann.count_use([kept[0].id])
    for _ in range(2):
        await ann.count_use([kept[1].id])
    assert [one.text for one in await ann.foremost(4)] == ["Fact 1", "Fact 0", "Fact 5", "Fact 4"]
    await store.memories("bob").count_use([kept[2].id])
    assert [one.text for one in await ann.foremost(3)] == ["Fact 1", "Fact 0", "Fact 5"]
