"""The key-value store of skills: each skill has a namespace, and each user their own values."""

import asyncio
from typing import Any

import pytest

from callboard.storage import Store


async def test_a_value_is_returned_unchanged_until_it_is_replaced(store: Store) -> None:
    notes = store.records("notes", "ann")
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


async def test_of_concurrent_put_new_calls_one_succeeds(store: Store) -> None:
    notes = store.records("notes", "ann")
    put = await asyncio.gather(*(notes.put_new("a", number) for number in range(20)))
    assert put.count(True) == 1
    kept = await notes.get("a")
    assert kept is not None
    assert kept.value == put.index(True)
    assert not await notes.put_new("a", "later")
    assert await notes.get("a") == kept
    with pytest.raises(ValueError, match="key"):
        await notes.put_new("", 1)


async def test_records_are_invisible_to_other_users_and_skills(store: Store) -> None:
    await store.records("notes", "ann").put("a", 1)
    await store.records("notes", "bob").put("a", 2)
    for namespace, user_id, kept in (("notes", "ann", [1]), ("notes", "bob", [2]), ("tasks", "ann", [])):
        assert [one.value for one in await store.records(namespace, user_id).find()] == kept
    assert not await store.records("tasks", "ann").remove("a")
    assert await store.records("notes", "ann").get("a") is not None


async def test_find_returns_records_by_prefix_page_by_page(store: Store) -> None:
    notes = store.records("notes", "ann")
    keys = ["b", "a/2", "a/10", "A/1", "a_2", "a%", "ä", "z", "\U0001f3ad"]
    for key in keys:
        await notes.put(key, key)
    assert [one.key for one in await notes.find()] == sorted(keys)
    assert [one.key for one in await notes.find("a/")] == ["a/10", "a/2"]
    assert [one.key for one in await notes.find("a%")] == ["a%"]
    first = await notes.find(limit=4)
    rest = await notes.find(after=first[-1].key)
    assert [one.key for one in [*first, *rest]] == sorted(keys)


async def test_an_invalid_key_value_or_namespace_is_refused(store: Store) -> None:
    notes = store.records("notes", "ann")
    for key in ("", "x" * 256, "NUL \0", "\ud800"):
        with pytest.raises(ValueError, match="key"):
            await notes.put(key, 1)
    values: list[Any] = [{1, 2}, float("nan"), "x" * 1_100_000, [[]] * 400_000]
    for value in values:
        with pytest.raises(ValueError, match="JSON"):
            await notes.put("a", value)
    for namespace in ("", "x" * 65, "\0"):
        with pytest.raises(ValueError, match="namespace"):
            store.records(namespace, "ann")
    assert await notes.find() == []
