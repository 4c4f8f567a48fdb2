"""What a skill keeps for itself: values under keys, in a namespace of its own, each user's apart."""

import asyncio
from typing import Any

import pytest

from callboard.storage import Store


async def test_a_value_comes_back_as_it_was_until_another_takes_its_place(any_store: Store) -> None:
    notes = any_store.records("notes", "ann")
    value: Any = {"text": "NUL \0, a lone surrogate \ud800, äpple", "tags": [1, 2.5, None, True], "": {}}
    await notes.put("a", value)
    first = await notes.get("a")
    assert first is not None
    assert (first.key, first.value) == ("a", value)
    await notes.put("a", "another")
    second = await notes.get("a")
    assert second is not None
    assert second.value == "another"
    assert second.updated_at >= first.updated_at
    assert await notes.remove("a")
    assert not await notes.remove("a")
    assert await notes.get("a") is None


async def test_of_many_who_put_something_where_nothing_is_one_does(any_store: Store) -> None:
    notes = any_store.records("notes", "ann")
    put = await asyncio.gather(*(notes.put_new("a", number) for number in range(20)))
    assert put.count(True) == 1
    kept = await notes.get("a")
    assert kept is not None
    assert kept.value == put.index(True)
    assert not await notes.put_new("a", "later")
    assert await notes.get("a") == kept
    with pytest.raises(ValueError, match="key"):
        await notes.put_new("", 1)


async def test_neither_another_user_nor_another_skill_sees_it(any_store: Store) -> None:
    await any_store.records("notes", "ann").put("a", 1)
    await any_store.records("notes", "bob").put("a", 2)
    for namespace, user_id, kept in (("notes", "ann", [1]), ("notes", "bob", [2]), ("tasks", "ann", [])):
        assert [one.value for one in await any_store.records(namespace, user_id).find()] == kept
    assert not await any_store.records("tasks", "ann").remove("a")
    assert await any_store.records("notes", "ann").get("a") is not None


async def test_what_is_kept_is_listed_by_key_prefix_and_page(any_store: Store) -> None:
    notes = any_store.records("notes", "ann")
    keys = ["b", "a/2", "a/10", "A/1", "a_2", "a%", "ä", "z", "\U0001f3ad"]
    for key in keys:
        await notes.put(key, key)
    assert [one.key for one in await notes.find()] == sorted(keys)
    assert [one.key for one in await notes.find("a/")] == ["a/10", "a/2"]
    assert [one.key for one in await notes.find("a%")] == ["a%"]
    first = await notes.find(limit=4)
    rest = await notes.find(after=first[-1].key)
    assert [one.key for one in [*first, *rest]] == sorted(keys)


@pytest.mark.parametrize("key", ["", "x" * 256, "NUL \0", "\ud800"])
async def test_a_key_that_cannot_be_written_down_is_refused(any_store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        await any_store.records("notes", "ann").put(key, 1)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), "x" * 1_100_000, [[]] * 400_000])
async def test_a_value_that_json_cannot_hold_or_is_too_large_is_refused(any_store: Store, value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON"):
        await any_store.records("notes", "ann").put("a", value)
    assert await any_store.records("notes", "ann").get("a") is None


@pytest.mark.parametrize("namespace", ["", "x" * 65, "\0"])
def test_a_namespace_that_cannot_be_one_is_refused(namespace: str) -> None:

    with pytest.raises(ValueError, match="namespace"):
        Store("sqlite://").records(namespace, "ann")
