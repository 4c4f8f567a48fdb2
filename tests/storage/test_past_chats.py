"""The search in past chats, on both databases."""

import time
from itertools import count
from typing import Any

import pytest
from sqlalchemy import func, select, table

from callboard._history import HistoryCall, Turn
from callboard.errors import UnknownChat
from callboard.storage import Store
from tests.storage.turns import StoredSteps

_numbers = count()


async def write_chat(store: Store, chat_id: str, user_id: str | None, *turns: tuple[Any, str]) -> None:
    """Store a chat; each turn is a question and an answer, with a tool call between them."""
    for asked, answer in turns:
        run_id = f"run-{next(_numbers)}"
        journal = StoredSteps(store, Turn(chat_id, run_id, None, user_id, asked))
        await journal.begin()
        await journal.call_started(HistoryCall(f"call-{run_id}", "look", '{"q": "argument"}', 0, 0), "Let me see.")
        await journal.call_ended(f"call-{run_id}", "xylophone in a result", None, 5)
        await journal.finish(answer, is_answered=True)


async def found(store: Store, query: str, user_id: str = "ann", current: str | None = None) -> list[tuple[str, str]]:
    return [(one.chat_id, one.excerpt) for one in await store.past_chats(user_id, current).search(query, 10)]


async def indexed_rows(store: Store) -> int:
    return int(await store.database.scalar(select(func.count()).select_from(table("message_words"))) or 0)


async def test_search_finds_texts_of_user_and_assistant_but_not_results_of_tools(store: Store) -> None:
    # It was sent again, and is found once.
    await write_chat(
        store, "one", "ann", ("Where is my umbrella?", "In the hall."), ("Where is my umbrella?", "There.")
    )
    assert await found(store, "umbrellas") == [("one", "Where is my umbrella?")]
    assert await found(store, "hall") == [("one", "In the hall.")]
    assert await found(store, "see") == [("one", "Let me see.")]
    assert await found(store, "xylophone argument") == []
    assert await found(store, '" OR *') == []


async def test_the_text_of_a_message_with_pictures_is_found_and_the_picture_is_not(store: Store) -> None:
    parts = [
        {"type": "text", "text": "My cat at the window"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}},
    ]
    await write_chat(store, "one", "ann", (parts, "Nice."))
    assert await found(store, "cat") == [("one", "My cat at the window")]
    assert await found(store, "png base64 aaaa") == []
    assert (await store.past_chats("ann", None).recent(5))[0].began_with == "My cat at the window"


async def test_a_user_finds_and_lists_only_their_own_earlier_chats(store: Store) -> None:
    await write_chat(store, "hers", "ann", ("umbrella", "yes"))
    await write_chat(store, "his", "bob", ("umbrella", "no"))
    await write_chat(store, "nobodys", None, ("umbrella", "maybe"))
    await write_chat(store, "now", "ann", ("umbrella", "later"))
    assert [chat_id for chat_id, _ in await found(store, "umbrella", current="now")] == ["hers"]
    assert [chat.chat_id for chat in await store.past_chats("ann", "now").recent(5)] == ["hers"]


async def test_the_last_chats_come_first_by_how_they_began(store: Store) -> None:
    for name in ("first", "second", "third"):
        await write_chat(store, name, "ann", (f"{name} question " * 100, "answer"), ("and then?", "answer"))
    await write_chat(store, "first", "ann", ("back again", "answer"))
    recent = await store.past_chats("ann", None).recent(2)
    assert [(chat.chat_id, chat.turns) for chat in recent] == [("first", 3), ("third", 2)]
    assert recent[0].began_with.startswith("first question first")
    assert len(recent[0].began_with) <= 301
    assert recent[0].started_at < recent[1].started_at < recent[1].last_at < recent[0].last_at


async def test_all_chats_of_a_user_are_deleted_that_a_client_has_named_and_that_began_before(store: Store) -> None:
    for chat_id, user_id in [("one", "ann"), ("two", "ann"), ("his", "bob"), ("own:ann", "ann")]:
        await write_chat(store, chat_id, user_id, ("Where is my umbrella?", "In the hall."))
    long_ago = time.time() - 60
    now = time.time() + 60
    assert await store.chats("ann").delete_all(long_ago) == 0
    assert await store.chats("ann").delete_all(now) == 2
    left = [chat.chat_id for user in ("ann", "bob") for chat in await store.past_chats(user, None).recent(10)]
    assert left == ["own:ann", "his"]


async def test_a_deleted_chat_leaves_nothing_in_the_index(store: Store) -> None:
    await write_chat(store, "one", "ann", ("umbrella", "yes"))
    await write_chat(store, "two", "ann", ("umbrella", "no"))
    before = await indexed_rows(store)
    with pytest.raises(UnknownChat):
        await store.chats("bob").delete("one")
    assert await indexed_rows(store) == before
    await store.chats("ann").delete("one")
    assert await indexed_rows(store) == before // 2
    assert await found(store, "umbrella") == [("two", "umbrella")]


async def test_a_chat_remembers_the_model_that_was_chosen_for_it_by_its_user(store: Store) -> None:
    await write_chat(store, "one", "ann", ("hi", "hi"))
    chats = store.chats("ann")
    assert await chats.chosen_model("one") is None
    await chats.choose_model("one", "large")
    assert await chats.chosen_model("one") == "large"
    assert (await store.chats("ann").history("one")).model == "large"
    for call in (store.chats("bob").choose_model("one", "small"), store.chats("bob").chosen_model("one")):
        with pytest.raises(UnknownChat):
            await call
    assert await chats.chosen_model("one") == "large"
    await chats.choose_model("one", None)
    assert (await store.chats("ann").history("one")).model is None
    with pytest.raises(UnknownChat):
        await chats.choose_model("none", "large")
