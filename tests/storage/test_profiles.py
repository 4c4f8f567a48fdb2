"""Profiles and the agents' own notes, on both databases."""

import asyncio

from callboard.storage import Store
from callboard.storage.values import AttributeKind, AttributeValue

VALUES: list[tuple[AttributeKind, AttributeValue]] = [
    ("text", 'quotes " and 日本'),
    ("number", 42),
    ("number", 0.1),
    ("boolean", True),
    ("date", "1990-02-28"),
    ("list", ["a", "b"]),
]


async def test_a_value_comes_back_as_it_was_with_its_type(store: Store) -> None:
    for number, (kind, value) in enumerate(VALUES):
        await store.profile("ann").put(str(number), kind, value)
    for name, kept in (await store.profile("ann").attributes()).items():
        assert (kept.kind, kept.value) == VALUES[int(name)]
        assert type(kept.value) is type(VALUES[int(name)][1])


async def test_attributes_are_replaced_and_removed_for_one_user_alone(store: Store) -> None:
    ann = store.profile("ann")
    bob = store.profile("bob")
    await ann.put("town", "text", "Oslo")
    await bob.put("town", "text", "Rome")
    await ann.put("town", "list", ["Oslo", "Bergen"])
    assert (await ann.attributes())["town"].value == ["Oslo", "Bergen"]
    assert await ann.remove("town")
    assert not await ann.remove("town")
    assert await ann.attributes() == {}
    assert (await bob.attributes())["town"].value == "Rome"


async def test_every_version_of_a_description_is_kept_for_one_agent_and_user(store: Store) -> None:
    notes = store.self_notes("assistant", "ann")
    assert await notes.newest("description", 1) == []
    assert [await notes.add("description", text) for text in ("first", "second")] == [1, 2]
    assert await notes.add("note", "a note") == 1
    newest = await notes.newest("description", 10)
    assert [(one.version, one.text) for one in newest] == [(2, "second"), (1, "first")]
    old = await notes.description(1)
    assert old is not None
    assert old.text == "first"
    assert await notes.description(3) is None
    for agent, user in (("assistant", "bob"), ("media", "ann")):
        others = store.self_notes(agent, user)
        assert await others.newest("note", 5) == []
        assert await others.add("note", "another's") == 1
    assert [one.text for one in await notes.newest("note", 5)] == ["a note"]


async def test_two_servers_that_write_versions_at_once_get_different_versions(store: Store, database_url: str) -> None:
    other = await Store.open(database_url)
    writers = [store.self_notes("assistant", "ann"), other.self_notes("assistant", "ann")]
    versions = await asyncio.gather(*(writers[number % 2].add("description", str(number)) for number in range(20)))
    assert sorted(versions) == list(range(1, 21))
    for number, version in enumerate(versions):
        kept = await writers[0].description(version)
        assert kept is not None
        assert kept.text == str(number)
    await other.close()
