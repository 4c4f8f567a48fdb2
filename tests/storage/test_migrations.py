"""A database of an earlier version, with data, becomes one of this version: nothing is lost, and all of it is found."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, column, func, inspect, select, table, text
from sqlalchemy.ext.asyncio import create_async_engine

import callboard.storage.sql
from callboard._history import HistoryCall, Turn
from callboard.errors import StorageError
from callboard.storage import Store
from tests.storage.turns import StoredSteps

CHATS = "INSERT INTO chats (id, user_id, created_at, updated_at) VALUES (:id, :user_id, 1, 2)"
MESSAGES = (
    "INSERT INTO messages (chat_id, run_id, role, content, tool_call_id, tool_name, arguments, tool_output, ended_at, "
    "created_at) VALUES (:chat_id, 'run', :role, :content, :call_id, 'look', '{}', :output, 5, 3)"
)
PICTURE = '[{"type": "text", "text": "Ein schönes Bild"}, {"type": "image_url", "image_url": {"url": "data:base64"}}]'
MANY = 1_200
"""More than one batch of the migration."""


def run_alembic(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(callboard.storage.sql.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    (command.downgrade if inspect(connection).has_table("memories") else command.upgrade)(config, revision)


def upgrade_to(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(callboard.storage.sql.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def write_old_database(url: str) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(run_alembic, "0001")
        await connection.execute(text(CHATS), [{"id": "old", "user_id": "ann"}, {"id": "his", "user_id": "bob"}])
        said = [
            ("old", "user", "Where is my umbrella?"),
            ("old", "assistant", "In the hall."),
            ("his", "user", "umbrella"),
        ]
        said += [("old", "user", PICTURE), ("old", "user", "\N{MEMO}")]
        said += [("old", "assistant", f"Line {number}") for number in range(MANY)]
        rows = [{"chat_id": c, "role": r, "content": t, "call_id": None, "output": None} for c, r, t in said]
        rows.append({"chat_id": "old", "role": "tool", "content": None, "call_id": "a", "output": "a xylophone"})
        await connection.execute(text(MESSAGES), rows)
    await engine.dispose()


async def test_what_an_old_database_holds_is_found_and_goes_on(database_url: str) -> None:
    await write_old_database(database_url)
    store = await Store.open(database_url)
    past = store.past_chats("ann", None)
    assert [one.excerpt for one in await past.search("umbrella", 5)] == ["Where is my umbrella?"]
    assert [one.excerpt for one in await past.search("schon", 5)] == ["Ein schönes Bild"]
    assert [one.excerpt for one in await past.search(str(MANY - 1), 5)] == [f"Line {MANY - 1}"]
    assert await past.search("xylophone base64", 5) == []
    # All but the tool's and the one without a word.
    assert await store.database.scalar(select(func.count()).select_from(table("message_words"))) == MANY + 4
    assert len(await store.chats("ann").messages("old")) == MANY + 5
    assert (await store.chats("ann").history("old")).model is None

    await StoredSteps(store, Turn("old", "new-run", None, "ann", "And my gloves?")).begin()
    assert [one.excerpt for one in await past.search("gloves", 5)] == ["And my gloves?"]
    await store.chats("ann").delete("old")
    assert await past.search("umbrella gloves line", 5) == []
    await store.close()


async def test_a_migration_that_breaks_off_leaves_the_database_as_it_was(database_url: str) -> None:
    await write_old_database(database_url)
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE message_words (in_the_way INTEGER)"))
    with pytest.raises(StorageError, match="message_words"):
        await Store.open(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("DROP TABLE message_words"))
    await engine.dispose()
    store = await Store.open(database_url)
    assert len(await store.past_chats("ann", None).search("umbrella", 5)) == 1
    await store.close()


async def test_two_servers_that_start_at_once_migrate_once(database_url: str) -> None:
    await write_old_database(database_url)
    stores = await asyncio.gather(Store.open(database_url), Store.open(database_url))
    for store in stores:
        assert len(await store.past_chats("ann", None).search("umbrella", 5)) == 1
        await store.close()


async def test_the_migration_can_be_taken_back_and_done_again(database_url: str) -> None:
    await write_old_database(database_url)
    store = await Store.open(database_url)
    await store.database.write(partial(run_alembic, revision="0001"))
    await store.close()
    again = await Store.open(database_url)
    assert len(await again.chats("ann").messages("old")) == MANY + 5
    assert len(await again.past_chats("ann", None).search("umbrella", 5)) == 1
    await again.close()


async def test_memories_of_an_earlier_version_are_found_by_their_stems_and_are_still_deleted_with_their_words(
    database_url: str,
) -> None:
    engine = create_async_engine(database_url)
    kept = "INSERT INTO memories (user_id, text, created_at, updated_at) VALUES ('ann', :text, 1, 1)"
    async with engine.begin() as connection:
        await connection.run_sync(run_alembic, "0001")
    async with engine.begin() as connection:
        await connection.run_sync(upgrade_to, "0002")
        await connection.execute(text(kept), [{"text": f"Was running number {number}"} for number in range(MANY)])
    await engine.dispose()
    store = await Store.open(database_url)
    ann = store.memories("ann")
    assert len(await ann.search("runs", MANY * 2)) == MANY
    [last] = await ann.search(str(MANY - 1), 5)
    assert await ann.remove(last.id)
    assert await ann.search(str(MANY - 1), 5) == []
    await store.database.write(partial(run_alembic, revision="0002"))
    assert await store.database.scalar(select(func.count()).select_from(table("memory_words"))) == MANY - 1
    await store.close()


async def test_thoughts_of_an_earlier_version_are_provider_details_and_go_back(database_url: str) -> None:
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade_to, "0011")
        await connection.execute(text(CHATS), [{"id": "old", "user_id": "ann"}])
        call = {"chat_id": "old", "role": "tool", "content": None, "call_id": "a", "output": "found"}
        await connection.execute(text(MESSAGES), [call])
        await connection.execute(text("UPDATE messages SET thought = 'I \"should\" look.' WHERE tool_call_id = 'a'"))
    await engine.dispose()
    store = await Store.open(database_url)
    journal = StoredSteps(store, Turn("old", "new-run", None, "ann", "And now?"))
    await journal.begin()
    await journal.call_started(HistoryCall("b", "look", "{}", 0, 0, {"id": "gemini-1"}), "")
    await journal.call_ended("b", "there", None, 1)
    await journal.finish("It is there.", is_answered=True, details={"message": {"signature": "s"}})
    history = await store.chats("ann").history("old")
    assert [call.details for call in history.calls] == [{"thought": 'I "should" look.'}, {"id": "gemini-1"}]
    assert history.answers == (("It is there.", {"message": {"signature": "s"}}),)
    await store.database.write(partial(run_alembic, revision="0011"))
    old = table("messages", column("thought"), column("tool_call_id"))
    assert await store.database.scalar(select(old.c.thought).where(old.c.tool_call_id == "a")) == 'I "should" look.'
    await store.close()
