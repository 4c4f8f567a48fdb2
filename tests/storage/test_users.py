"""The export has all data of a user, and forgetting a user deletes all of it and nothing of others."""

import json
from typing import Any

from sqlalchemy import Select, column, select, table

from callboard._history import NewResponse, Turn
from callboard._history.turns import HistoryCall
from callboard.storage import Store
from callboard.storage.sql.database import ROWS_PER_PAGE
from callboard.storage.sql.tables import (
    MEMORY_WORDS,
    MESSAGE_WORDS,
    chats,
    memories,
    messages,
    metadata,
    runs,
    usage,
)
from callboard.storage.sql.users import USER_TABLES
from callboard.storage.values import StoredFrame, StoredRun
from tests.storage.turns import StoredSteps

MANY = ROWS_PER_PAGE * 2 + 5
"""More than two batches."""


async def live(store: Store, user: str, chats: int = 2) -> None:
    """Store data of a user in every table, each with the user's name in it."""
    for number in range(chats):
        response = NewResponse(previous=None, new_messages=[{"role": "user", "content": f"{user} asks"}])
        turn = Turn(f"{user}-{number}", f"run-{user}-{number}", "m", user, f"{user} asks", response=response)
        journal = StoredSteps(store, turn)
        await journal.begin()
        await journal.call_started(HistoryCall(f"call-{user}", "look", f'{{"of": "{user}"}}', 0, 0), "Let me look.")
        await journal.call_ended(f"call-{user}", f"seen by {user}", None, 5)
        await journal.finish(f"Here, {user}.", is_answered=True)
    await store.responses(user).keep([{"id": f"item-{user}", "type": "message", "of": user}], f"{user}-0")
    await store.responses(user).keep([{"id": f"lone-{user}", "type": "message", "of": user}], None)
    await store.memories(user).add(f"{user} likes tea")
    await store.profile(user).put("town", "text", f"{user}ville")
    await store.self_notes("clerk", user).add("note", f"{user} is kind")
    for number in range(MANY):
        await store.records("notes", user).put(f"{number:04}", {"of": user})
    await store.records("tasks", user).put("0000", {"of": user})
    log = store.stored_runs("server")
    run = StoredRun(f"run-{user}", "agent", f"{user}-0", "m", user)
    await log.begin(run, user.encode())
    await log.append(run, [StoredFrame(user.encode(), question=f"{user}?", files={"f": f"data:{user}"})])


async def lines(store: Store, user: str) -> list[Any]:
    return [line async for page in store.read_user(user) for line in page]


async def test_an_export_has_all_data_of_its_user_and_none_of_others(store: Store) -> None:
    for user in ("anneliese", "bob"):
        await live(store, user)
    found = await lines(store, "anneliese")
    counts = {kind: sum(line["kind"] == kind for line in found) for kind in {line["kind"] for line in found}}
    assert counts == {
        "chat": 2,
        "message": 8,
        "response": 2,
        "memory": 1,
        "attribute": 1,
        "self_note": 1,
        "record": MANY + 1,
        "response_item": 2,
    }
    written = [json.dumps(line, ensure_ascii=False) for line in found]
    assert all("anneliese" in line or '"Let me look."' in line for line in written if '"model": null' not in line)
    assert not any("bob" in line for line in written)
    # Each once, however many pages there were.
    assert len(set(written)) == len(written)
    [call, _] = [line for line in found if line.get("role") == "tool"]
    assert (call["arguments"], call["tool_output"]) == ('{"of": "anneliese"}', "seen by anneliese")
    assert call["events"] == []
    assert await lines(store, "nobody") == []


async def test_forgetting_a_user_deletes_their_data_everywhere_and_keeps_that_of_others(store: Store) -> None:
    for user in ("anneliese", "bob"):
        await live(store, user)
    others = await lines(store, "bob")
    log = store.stored_runs("server")
    assert [run.run_id for run in await log.of_user("anneliese")] == ["run-anneliese"]
    assert await log.forget_user("anneliese") == 1
    forgotten = await store.forget_user("anneliese")
    assert dict(forgotten) == {
        "chat": 2,
        "memory": 1,
        "attribute": 1,
        "self_note": 1,
        "record": MANY + 1,
        "response_item": 1,
    }
    assert await lines(store, "anneliese") == []
    assert await store.past_chats("anneliese", None).search("asks", 5) == []
    assert await lines(store, "bob") == others
    assert set((await store.forget_user("anneliese")).values()) == {0}
    for one in metadata.sorted_tables:
        for row in await store.database.fetch(select(one)):
            assert "anneliese" not in repr(tuple(row)), one.name
    for index, ids in ((MESSAGE_WORDS.name, messages), (MEMORY_WORDS.name, memories)):
        # Rows of the index without their text.
        lost: Select[Any] = (
            select(column("rowid")).select_from(table(index)).where(column("rowid").not_in(select(ids.c.id)))
        )
        assert await store.database.fetch(lost) == []
    assert [run.run_id for run in await log.of_user("bob")] == ["run-bob"]
    assert await log.read("run-bob", 0, 100) == [b"bob"]


def test_every_table_that_names_users_is_forgotten() -> None:
    naming = {table for table in metadata.sorted_tables if "user_id" in table.c}
    assert naming == {chats, runs, usage, *(user_table.table for user_table in USER_TABLES)}


async def test_only_chats_without_recent_activity_are_dropped(store: Store) -> None:
    await live(store, "ann", chats=MANY)
    await StoredSteps(store, Turn("own:1", "run-own", None, "ann", "hi")).begin()
    await store.stored_runs("server").begin(StoredRun("run-late", "agent", "late", None, "ann"))
    going_on = StoredSteps(store, Turn("late", "run-late", None, "ann", "hi"))
    await going_on.begin()
    await going_on.call_started(HistoryCall("c", "look", "{}", 0, 0), "")
    assert await store.drop_chats(0) == 0
    # The run in ann-0 goes on too.
    kept = {"late", "ann-0"}
    assert await store.drop_chats(float("inf")) == MANY + 1 - len(kept)
    left = {line["chat_id"] for line in await lines(store, "ann") if line["kind"] == "chat"}
    assert left == kept | {"own:1"}
    # What is not of chats stays.
    assert len(await store.memories("ann").newest(5)) == 1
