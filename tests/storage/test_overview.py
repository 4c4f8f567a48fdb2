"""The inspector's lists of chats, turns and calls, on SQLite and PostgreSQL."""

import base64
import time
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any

import pytest

from callboard._history import HistoryCall, Turn
from callboard.errors import RequestError, UnknownChat
from callboard.storage import Store
from callboard.storage.sql.overview import SUMMARY_CHARS, Overview
from callboard.storage.values import ANY_USER, ToolCallFilter
from callboard_protocol import Done, Error, Event
from tests.storage.turns import StoredSteps


async def write_turn(
    store: Store,
    chat_id: str,
    run_id: str,
    *calls: tuple[str, str, str | None, int],
    user_id: str | None = "ann",
    question: Any = "Where is my umbrella?",
    agent_id: str = "clerk",
    user_name: str | None = None,
    ending: Event | None = None,
) -> None:
    """A turn; each call is a tuple of tool, result, error code and duration."""
    turn = Turn(chat_id, run_id, f"m-{run_id}", user_id, question, agent_id=agent_id, user_name=user_name)
    journal = StoredSteps(store, turn)
    await journal.begin()
    for number, (tool, result, code, milliseconds) in enumerate(calls):
        call_id = f"{run_id}-{number}"
        await journal.call_started(HistoryCall(call_id, tool, '{"place": "Hall"}', number), "Let me look.")
        await journal.call_progressed(call_id, "processing", "looking", 50)
        await journal.call_ended(call_id, result, code, milliseconds)
    await journal.finish("In the hall.", is_answered=True, ending=(ending or Done()).model_dump_json())


async def list_calls(overview: Overview, limit: int = 50, **wanted: Any) -> list[str]:
    page = await overview.calls(ToolCallFilter(**wanted), limit)
    return [one.call.tool_call_id for one in page.items]


async def list_chats(overview: Overview, text: str = "") -> list[str]:
    page = await overview.chats(text, 50)
    return [one.chat_id for one in page.items]


async def test_chats_are_listed_with_what_happened_in_them_newest_first(store: Store) -> None:
    await write_turn(store, "one", "r1", ("look", "found", None, 5), ("look", "Error: dark", "tool_failed", 7))
    await write_turn(store, "two", "r2", question="What is the time?", user_id="bob")
    page = await store.overview(ANY_USER).chats("", 10)
    assert [(one.chat_id, one.user_id, one.turns, one.calls, one.errors) for one in page.items] == [
        ("two", "bob", 1, 0, 0),
        ("one", "ann", 1, 2, 1),
    ]
    assert [one.began_with for one in page.items] == ["What is the time?", "Where is my umbrella?"]
    assert page.next_cursor is None
    assert await list_chats(store.overview("bob")) == ["two"]


async def test_the_newest_turns_of_all_chats_have_their_question_user_and_ending(store: Store) -> None:
    failed = Error(message="no answer in 60 s", code="model_timeout")
    await write_turn(store, "one", "r1", ("look", "found", None, 5), user_name="Ann Lee")
    await write_turn(store, "two", "r2", user_id="bob", ending=failed)
    await write_turn(store, "one", "r3", ("look", "Error: dark", "tool_failed", 7))
    newest = await store.overview(ANY_USER).newest_turns(10)
    assert [(one.chat_id, one.run_id, one.user_name, one.calls, one.errors, one.ending) for one in newest] == [
        ("one", "r3", "Ann Lee", 1, 1, Done()),
        ("two", "r2", None, 0, 0, failed),
        ("one", "r1", "Ann Lee", 1, 0, Done()),
    ]
    assert [[call.call.tool_call_id for call in one.failures] for one in newest] == [["r3-0"], [], []]
    assert {(one.question, one.agent_id, one.answer) for one in newest} == {("Where is my umbrella?", "clerk", "")}
    assert [one.run_id for one in await store.overview(ANY_USER).newest_turns(2)] == ["r3", "r2"]
    assert [one.run_id for one in await store.overview("bob").newest_turns(10)] == ["r2"]
    assert await store.overview("eve").newest_turns(10) == []


async def test_a_turn_has_its_question_what_was_said_before_each_round_and_its_answer(store: Store) -> None:
    await write_turn(store, "one", "r1", ("look", "x" * 100_000, None, 5), ("look", "found", None, 5))
    turn = await store.overview("ann").turn("one", "r1")
    assert turn is not None
    assert (turn.question, turn.agent_id) == ("Where is my umbrella?", "clerk")
    assert (turn.texts, turn.answer) == ({0: "Let me look.", 1: "Let me look."}, "In the hall.")
    assert (turn.calls, turn.errors) == (2, 0)
    assert await store.overview("ann").turn("one", "another") is None
    # A list has the beginning of a long result.
    [found, _] = (await store.overview("ann").calls_of_turn("one", "r1", 10)).items
    assert (found.call.result, found.result_chars) == ("x" * SUMMARY_CHARS, 100_000)
    assert [step.message for step in found.call.events] == ["looking"]


FILES = '<attached_files>\n<file type="file" id="f1" name="a.pdf"/>\n</attached_files>\n\n'
RAG = '### Task:\nRespond to the query.\n\n<context>\n<source id="1">the weather</source>\n</context>\n\n'


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        (RAG + "Will it rain?", "Will it rain?"),
        (FILES + "<skill>\n<id>s</id>\n</skill>\n" + "And this?", "And this?"),
        ([{"type": "text", "text": "And?"}, {"type": "image_url", "image_url": {"url": "x" * 60_000}}], "And?"),
        ("x < y <context> stays", "x < y <context> stays"),
        (FILES, FILES.strip()),
    ],
)
async def test_a_question_is_shown_without_what_open_webui_puts_before_it(
    store: Store, question: Any, shown: str
) -> None:
    await write_turn(store, "one", "r1", question=question)
    overview = store.overview(ANY_USER)
    [turn] = await overview.newest_turns(10)
    [chat] = (await overview.chats("", 10)).items
    [past] = await store.past_chats("ann", None).recent(10)
    assert (turn.question.strip(), chat.began_with, past.began_with) == (shown, *[" ".join(shown.split())] * 2)


async def test_chats_are_found_by_their_words(store: Store) -> None:
    await write_turn(store, "one", "r1")
    await write_turn(store, "two", "r2", user_id="bob")
    await write_turn(store, "three", "r3", question="What is the time?")
    assert await list_chats(store.overview(ANY_USER), "umbrellas") == ["two", "one"]
    assert await list_chats(store.overview("bob"), "umbrellas") == ["two"]
    assert await list_chats(store.overview("bob"), "time") == []


async def test_find_missing_returns_unknown_and_deleted_chats(store: Store) -> None:
    await write_turn(store, "one", "r1")
    await write_turn(store, "two", "r2", user_id="bob")
    wanted = {"one", "two", "three"}
    assert await store.overview(ANY_USER).find_missing(wanted) == {"three"}
    assert await store.overview("bob").find_missing(wanted) == {"one", "three"}
    await store.chats("ann").delete("one")
    assert await store.overview(ANY_USER).find_missing(wanted) == {"one", "three"}
    assert await store.overview(ANY_USER).find_missing(set()) == set()


async def test_every_list_continues_after_its_last_page(store: Store) -> None:
    for number in range(5):
        await write_turn(store, "chat", f"r{number}", ("look", "found", None, 5), ("look", "found", None, 5))
        await write_turn(store, f"chat{number}", f"x{number}")
    overview = store.overview("ann")

    async def list_all(read: Callable[[str | None], Awaitable[Any]], name: str) -> list[str]:
        found: list[str] = []
        cursor = None
        while page := await read(cursor):
            found += [attrgetter(name)(one) for one in page.items]
            if (cursor := page.next_cursor) is None:
                break
        return found

    chats = await list_all(lambda cursor: overview.chats("", 2, cursor), "chat_id")
    turns = await list_all(lambda cursor: overview.turns("chat", 2, cursor), "run_id")
    call_id = "call.tool_call_id"
    calls = await list_all(lambda cursor: overview.calls(ToolCallFilter(), 3, cursor), call_id)
    of_turn = await list_all(lambda cursor: overview.calls_of_turn("chat", "r1", 1, cursor), call_id)
    assert chats == ["chat4", "chat", "chat3", "chat2", "chat1", "chat0"]
    assert turns == ["r4", "r3", "r2", "r1", "r0"]
    assert calls == [f"r{run}-{number}" for run in (4, 3, 2, 1, 0) for number in (1, 0)]
    assert of_turn == ["r1-0", "r1-1"]


async def test_calls_are_found_by_each_filter(store: Store) -> None:
    await write_turn(store, "one", "r1", ("look", "A red Umbrella%", None, 5), ("write", "Error: no", "tool_failed", 5))
    await write_turn(store, "two", "r2", ("look", "nothing", None, 5), agent_id="guard", user_id="bob")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["r2-0", "r1-1", "r1-0"]),
        ({"tool_name": "look"}, ["r2-0", "r1-0"]),
        ({"status": "error"}, ["r1-1"]),
        ({"agent_id": "guard"}, ["r2-0"]),
        ({"text": "umbrella%"}, ["r1-0"]),
        ({"text": "umbrella_"}, []),
        ({"text": "HALL", "tool_name": "write"}, ["r1-1"]),
        ({"until": 0.0}, []),
        ({"since": time.time() - 60}, ["r2-0", "r1-1", "r1-0"]),
    ]
    for fields, found in wanted:
        assert await list_calls(store.overview(ANY_USER), **fields) == found, fields
    assert await list_calls(store.overview("bob")) == ["r2-0"]


async def test_what_is_kept_of_a_result_says_how_much_of_it_is_replayed(store: Store) -> None:
    sources = '[{"source_number": 1, "title": "a"}, {"source_number": 2, "title": "b"}]'
    turn = Turn("chat", "r", "m", "ann", "What?")
    journal = StoredSteps(store, turn)
    await journal.begin()
    await journal.call_started(HistoryCall("a", "search", "{}"), "")
    await journal.call_ended("a", sources, None, 5)
    await journal.finish("So it is [source1].", is_answered=True)
    found = await store.overview("ann").results("chat", ["a", "b"])
    assert found.keys() == {"a"}
    assert found["a"].run_id == "r"
    assert found["a"].chars == len(sources)
    assert found["a"].replayed_chars == len('[{"source_number": 1, "title": "a"}]')


async def test_another_users_chat_does_not_exist(store: Store) -> None:
    await write_turn(store, "chat", "r", ("look", "found", None, 5))
    bob = store.overview("bob")
    reads: list[Awaitable[Any]] = [
        bob.turns("chat", 5),
        bob.turn("chat", "r"),
        bob.calls_of_turn("chat", "r", 5),
        bob.results("chat", ["r-0"]),
    ]
    for asked in reads:
        with pytest.raises(UnknownChat):
            await asked


def cursor_of(written: str) -> str:
    return base64.urlsafe_b64encode(written.encode()).decode()


async def test_an_invalid_cursor_is_refused_and_one_with_values_that_cannot_be_stored_finds_nothing(
    store: Store,
) -> None:
    overview = store.overview(ANY_USER)
    for cursor in ("nonsense", *map(cursor_of, ("", "[1]", "{}", "[null, null]", '["x", "y"]', "[" * 20_000))):
        with pytest.raises(RequestError, match="next_cursor"):
            await overview.chats("", 10, cursor)
        with pytest.raises(RequestError, match="next_cursor"):
            await overview.calls(ToolCallFilter(), 10, cursor)
    for written in ('[1, "\\ud800"]', '[1, "\\u0000"]', f'[-{"9" * 400}, "x"]'):
        assert (await overview.chats("", 10, cursor_of(written))).items == ()
