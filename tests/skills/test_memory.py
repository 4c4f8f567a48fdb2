"""The tool `memory`, as a model calls it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.models import EmbeddingEndpoint
from callboard.skills import Memory
from callboard.skills.memory import MAX_TEXT_CHARS
from callboard.storage import Store
from tests.fakes.embeddings import EmbeddingServer
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


@pytest.fixture
async def embedder() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer() as server:
        yield server


def searching_by_meaning(embedder: EmbeddingServer, model: str = "m") -> Memory:
    return Memory(EmbeddingEndpoint(embedder.base_url, None, model))


FACTS = ("Drinks green tea in the morning", "Has two cats", "Plays chess on Sundays", "Lives in Lisbon")


async def kept(ann: Caller, *facts: str, memory: Memory = MEMORY) -> dict[str, int]:
    """The ids of the stored memories."""
    stored = [await ann.call(memory, action="store", text=fact) for fact in facts or FACTS]
    return {one["stored"]["text"]: one["stored"]["memory_id"] for one in stored}


async def test_embedding_search_finds_related_word_and_reports_meaning(store: Store, embedder: EmbeddingServer) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    await kept(ann)
    found = await ann.call(memory, action="search", query="favourite beverage", limit=2)
    assert found["found_by"] == "meaning"
    first, second = found["memories"]
    assert first["text"] == "Drinks green tea in the morning"
    assert first["similarity"] > second["similarity"]
    # Without the endpoint only the words are searched.
    plain = await Caller(store).call(MEMORY, action="search", query="favourite beverage")
    assert (plain["memories"], plain["found_by"]) == ([], "words")


async def test_exact_word_ranks_before_similar_meaning(store: Store, embedder: EmbeddingServer) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    await kept(ann, "Has a dog", "Has cats", "Gave the animal Zerberus away")
    found = await ann.call(memory, action="search", query="zerberus pet")
    assert found["memories"][0]["text"] == "Gave the animal Zerberus away"


async def test_each_memory_is_embedded_once_for_a_model_and_anew_when_it_changes(
    store: Store, embedder: EmbeddingServer
) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    ids = await kept(ann, *FACTS[:2])
    for _ in range(2):
        await ann.call(memory, action="search", query="pet")
    assert sorted(map(len, embedder.embedded)) == [1, 1, 2]
    await ann.call(memory, action="update", memory_id=ids["Has two cats"], text="Has a game console")
    found = await ann.call(memory, action="search", query="hobby", limit=1)
    assert [one["text"] for one in found["memories"]] == ["Has a game console"]
    assert embedder.embedded[-1] == ["Has a game console"]
    await ann.call(searching_by_meaning(embedder, "another"), action="search", query="pet")
    assert len(embedder.embedded[-1]) == 2


async def test_another_users_memories_are_neither_embedded_nor_found(store: Store, embedder: EmbeddingServer) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    await kept(ann)
    bob = ann.but(user_id="bob")
    await kept(bob, "Prefers coffee")
    found = await bob.call(memory, action="search", query="beverage")
    assert [one["text"] for one in found["memories"]] == ["Prefers coffee"]
    assert ["Prefers coffee"] in embedder.embedded
    assert not any(fact in texts for texts in embedder.embedded for fact in FACTS)


@pytest.mark.parametrize(
    ("status", "garbled", "said"), [(500, None, "answered 500"), (200, {"data": []}, "did not send one vector")]
)
async def test_failing_embedding_endpoint_falls_back_to_words_with_note(
    store: Store, embedder: EmbeddingServer, status: int, garbled: Any, said: str
) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    await kept(ann)
    embedder.status = status
    embedder.garbled = garbled
    found = await ann.call(memory, action="search", query="tea")
    assert [one["text"] for one in found["memories"]] == ["Drinks green tea in the morning"]
    assert found["found_by"] == "words"
    assert said in found["note"]


async def test_parallel_searches_store_each_vector_once(store: Store, embedder: EmbeddingServer) -> None:
    ann = Caller(store)
    memory = searching_by_meaning(embedder)
    await kept(ann)
    both = await asyncio.gather(*(ann.call(memory, action="search", query="pet", limit=1) for _ in range(2)))
    assert [one["memories"][0]["text"] for one in both] == ["Has two cats"] * 2
