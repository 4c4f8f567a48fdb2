"""What the model is sent on the next turn: the calls of the turns before, with their whole results, as it lived them.

Each test compares the request that began a turn with the requests of the turns before it, as a model behind a real
Open WebUI received them: the ids, the arguments byte for byte, the results, the order and the text in between.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from callboard._history.endpoint_rules import NO_ANSWER
from tests.e2e.conftest import OpenWebUI
from tests.e2e.librarian import book
from tests.e2e.library import Library, Told, spaced_anew
from tests.e2e.open_webui_page import Chat

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

SHOWN_CHARS = 10_000
"""Where the pipe cuts a result, as its valve has it by default."""
NEXT = "What did you find?"


async def test_the_second_turn_is_told_the_first_turns_calls_and_results(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple and pear")
    await chat.ask(NEXT)
    first, second = library.turns
    assert [call.arguments for call in first.calls] == ['{ "word":"apple" }', '{ "word":"pear" }']
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_a_second_round_in_one_turn_is_told_as_two_rounds_in_order(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple and pear, then look up fig")
    [chip] = await chat.chips()
    assert chip.group, "on screen the rounds are one group"
    await chat.ask(NEXT)
    first, second = library.turns
    assert [len(message.calls) for message in first.own if message.calls] == [2, 1]
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_text_between_two_rounds_stays_between_them(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple, then say so and look up pear, then look up fig")
    await chat.ask(NEXT)
    first, second = library.turns
    assert "Now I look up pear." in [message.content for message in first.own]
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_a_result_that_is_cut_on_screen_reaches_the_model_whole(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("read Emma")
    assert_cut(await chat.result("read_book"), book("Emma"))
    await chat.ask(NEXT)
    first, second = library.turns
    assert first.results == [book("Emma")]
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_after_a_reload_of_the_page_the_model_is_told_the_same(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("read Emma, then look up apple and pear")
    await chat.reload()
    await chat.ask(NEXT)
    first, second = library.turns
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_after_a_restart_of_the_server_the_model_is_told_the_same(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("read Emma, then look up apple and pear")
    await library.restart()
    await chat.ask("look up fig")
    await chat.ask(NEXT)
    first, second, third = library.turns
    assert second.told == [*first.own, Told.user("look up fig")]
    assert third.told == [*first.own, *second.own, Told.user(NEXT)]


async def test_a_failed_call_is_told_with_the_error_that_the_model_read(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("borrow Emma")
    await chat.ask(NEXT)
    first, second = library.turns
    assert first.results == ["Error: Emma is lent to somebody else"]
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_a_stopped_call_is_told_as_an_error(chat: Chat, library: Library, open_webui: OpenWebUI) -> None:
    await chat.open(library.model)
    await chat.send("search for whales")
    await chat.wait_for_chip("Searching")
    await chat.stop()
    await chat.ask(NEXT)
    second = library.turns[1]
    question, asked, answered, ended, now = second.told
    assert (ended.role, ended.content) == ("assistant", NO_ANSWER)
    [call] = asked.calls
    assert (question, now) == (Told.user("search for whales"), Told.user(NEXT))
    assert (call.name, call.arguments) == ("search_shelves", '{ "subject":"whales" }')
    assert answered.answers == call.id
    assert answered.content.startswith("Error:")
    [stored] = await library.timeline(chat.chat_id, await user_id(open_webui))
    assert (stored["status"], stored["error_code"], stored["result"]) == ("stopped", "cancelled", answered.content)


async def test_the_timeline_tells_what_was_seen_and_is_the_same_after_a_restart(
    chat: Chat, library: Library, open_webui: OpenWebUI
) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple and pear, then say so and borrow Emma")
    [turn] = library.turns
    user = await user_id(open_webui)
    timeline = await library.timeline(chat.chat_id, user)
    assert [(call["tool_call_id"], call["tool_name"], call["arguments"]) for call in timeline] == [
        (call.id, call.name, call.arguments) for call in turn.calls
    ]
    assert [call["result"] for call in timeline] == turn.results
    assert [(call["round_index"], call["sequence_index"]) for call in timeline] == [(0, 0), (0, 1), (1, 0)]
    assert [call["status"] for call in timeline] == ["complete", "complete", "error"]
    labels = " ".join(chip.label for chips in await chat.chips_seen() for chip in chips)
    told = [f"{event['progress']:.0f}% {event['message']}" for event in timeline[2]["events"]]
    assert told == ["30% Asking the cellar", "70% Looking at the cards"]
    assert all(f"borrow_book · Emma · {event}" in labels for event in told), labels
    assert await chat.result("borrow_book") == timeline[2]["result"]
    await library.restart()
    assert await library.timeline(chat.chat_id, user) == timeline


async def test_a_temporary_chat_is_told_its_calls_from_the_blocks_alone(chat: Chat, library: Library) -> None:
    """Open WebUI 0.12.4 keeps a temporary chat in the page and sends the answers' items, blocks included, with each
    question: the calls come back as calls. No server knows them, so of a long result the model gets what is shown.
    """
    await chat.open_temporary(library.model)
    await chat.ask("look up apple and pear, then say so and look up fig")
    await chat.ask("read Emma")
    await chat.ask(NEXT)
    first, second, third = library.turns
    assert spaced_anew(second.told) == spaced_anew([*first.own, Told.user("read Emma")])
    question, asked, result, said, now = third.told[len(first.own) :]
    assert spaced_anew([question, asked, said, now]) == spaced_anew(
        [second.own[0], second.own[1], second.own[3], Told.user(NEXT)]
    )
    assert result.answers == asked.calls[0].id
    assert_cut(result.content, book("Emma"))


async def test_nothing_of_a_temporary_chat_is_kept(chat: Chat, library: Library, open_webui: OpenWebUI) -> None:
    """Open WebUI saves no temporary chat; its id is no chat's, but that of the page's connection."""
    user = await user_id(open_webui)
    newest = await library.newest_call(user)
    await chat.open_temporary(library.model)
    await chat.ask("look up apple")
    assert "/c/" not in chat.page.url, "Open WebUI has not saved it"
    assert await library.newest_call(user) == newest


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no-stream"])
async def test_a_caller_without_a_chat_is_told_its_calls_from_the_blocks_that_it_sends_back(
    library: Library, open_webui: OpenWebUI, stream: bool
) -> None:
    question = {"role": "user", "content": "look up apple and pear, then say so and look up fig, then look up plum"}
    answer = await complete(open_webui, library.model, [question], stream=stream)
    assert answer.count('<details type="tool_calls" done="true"') == 4
    history = [question, {"role": "assistant", "content": answer}]
    again = await complete(
        open_webui, library.model, [*history, {"role": "user", "content": "look up quince"}], stream=stream
    )
    history += [{"role": "user", "content": "look up quince"}, {"role": "assistant", "content": again}]
    await complete(open_webui, library.model, [*history, {"role": "user", "content": NEXT}], stream=stream)
    first, second, third = library.turns
    assert first.results
    assert spaced_anew(second.told) == spaced_anew([*first.own, Told.user("look up quince")])
    assert spaced_anew(third.told) == spaced_anew([*first.own, *second.own, Told.user(NEXT)])


def assert_cut(text: str, whole: str) -> None:
    """That the text is the beginning of `whole`, no longer than the valve says, and a line on what is missing."""
    assert len(text) <= SHOWN_CHARS
    shown, line = text.rsplit("\n", 1)
    assert whole.startswith(shown)
    assert line == f"… [{len(whole) - len(shown):,} more characters]"


async def user_id(open_webui: OpenWebUI) -> str:
    """The admin's id in Open WebUI, which is the one that the pipe sends."""
    async with webui_client(open_webui) as client:
        answer = await client.get("/api/v1/auths/")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def complete(open_webui: OpenWebUI, model: str, messages: list[dict[str, str]], *, stream: bool) -> str:
    """The answer's text, as a program reads it that knows Open WebUI's API and nothing of its chats."""
    body = {"model": model, "messages": messages, "stream": stream}
    async with webui_client(open_webui) as client:
        answer = await client.post("/api/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not stream:
        return str(answer.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: {")]
    chunks: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def webui_client(open_webui: OpenWebUI) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {open_webui.token}"}
    return httpx.AsyncClient(base_url=open_webui.url, headers=headers, timeout=60, trust_env=False)
