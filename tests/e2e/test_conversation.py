"""What the model is sent on the next turn: the calls on the branch that is shown, with their whole results.

Each test compares the request that began a turn with the requests of the turns before it, as a model behind a real
Open WebUI received them: the ids, the arguments byte for byte, the results, the order and the text in between.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from callboard._history.endpoint_rules import NO_ANSWER
from tests.e2e.agents import book
from tests.e2e.conftest import BOTH, OpenWebUI, webui_client
from tests.e2e.open_webui_page import Chat
from tests.e2e.server import Server, Told, spaced_anew
from tests.e2e.test_restarts import user_id

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

SHOWN_CHARS = 10_000
"""Where the pipe cuts a result, as its valve has it by default."""
NEXT = "What did you find?"


@BOTH
@pytest.mark.every_version
async def test_the_next_turn_is_told_rounds_texts_failures_and_whole_results_as_they_were(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple and pear, then say so and read Emma, then borrow Ivanhoe")
    await chat.reload()
    await chat.ask(NEXT)
    first, second = server.turns
    assert [len(message.calls) for message in first.own if message.calls] == [2, 1, 1]
    assert first.calls[0].arguments == '{ "word":"apple" }'
    assert first.results[2:] == [book("Emma"), "Error: Ivanhoe is lent to somebody else"]
    assert second.told == [*first.own, Told.user(NEXT)]


@pytest.mark.every_version
async def test_a_stopped_call_is_told_as_an_error(chat: Chat, pipe: str, server: Server) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("search for whales")
    await chat.wait_for_chip("Searching")
    await chat.stop()
    await chat.ask(NEXT)
    question, asked, answered, ended, now = server.turns[1].told
    assert (ended.role, ended.content) == ("assistant", NO_ANSWER)
    assert (question, now) == (Told.user("search for whales"), Told.user(NEXT))
    [call] = asked.calls
    assert (call.name, call.arguments) == ("search_shelves", '{ "subject":"whales" }')
    assert answered.answers == call.id
    assert answered.content.startswith("Error:")


async def test_a_temporary_chat_is_told_its_calls_from_the_blocks_alone_and_nothing_of_it_is_kept(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    """Open WebUI 0.12.4 keeps a temporary chat in the page and sends the answers' items, blocks included, with each
    question: the calls come back as calls. No server knows them, so of a long result the model gets what is shown.
    """
    user = await user_id(open_webui)
    kept = (await server.get("/v1/tool-calls", user)).json()["tool_calls"]
    await chat.open_temporary(f"{pipe}.librarian")
    await chat.ask("look up apple and pear, then say so and look up fig")
    await chat.ask("read Emma")
    await chat.ask(NEXT)
    first, second, third = server.turns
    assert spaced_anew(second.told) == spaced_anew([*first.own, Told.user("read Emma")])
    question, asked, result, said, now = third.told[len(first.own) :]
    assert spaced_anew([question, asked, said, now]) == spaced_anew(
        [second.own[0], second.own[1], second.own[3], Told.user(NEXT)]
    )
    assert result.answers == asked.calls[0].id
    shown, line = result.content.rsplit("\n", 1)
    assert len(result.content) <= SHOWN_CHARS
    assert book("Emma").startswith(shown)
    assert line == f"… [{len(book('Emma')) - len(shown):,} more characters]"
    assert (await server.get("/v1/tool-calls", user)).json()["tool_calls"] == kept


async def test_a_caller_of_open_webuis_api_is_told_its_calls_from_the_blocks_that_it_sends_back(
    pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    question = {"role": "user", "content": "look up apple and pear, then say so and look up fig, then look up plum"}
    history = [question]
    async with webui_client(open_webui) as client:
        for next_question in ("look up quince", NEXT):
            body = {"model": f"{pipe}.librarian", "messages": history, "stream": False}
            answer = (await client.post("/api/chat/completions", json=body)).raise_for_status().json()
            history.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            history.append({"role": "user", "content": next_question})
        body = {"model": f"{pipe}.librarian", "messages": history, "stream": False}
        (await client.post("/api/chat/completions", json=body)).raise_for_status()
    assert history[1]["content"].count('<details type="tool_calls" done="true"') == 4
    first, second, third = server.turns
    assert first.results
    assert spaced_anew(second.told) == spaced_anew([*first.own, Told.user("look up quince")])
    assert spaced_anew(third.told) == spaced_anew([*first.own, *second.own, Told.user(NEXT)])


async def test_an_edited_question_begins_a_branch_and_back_on_the_older_one_its_calls_are_told_again(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.ask("read Emma")
    await chat.edit_question(1, "look up fig")
    await chat.ask(NEXT)
    await chat.show_older_question(1)
    await chat.ask(NEXT)
    apple, pear, emma, fig, new, old = server.turns
    assert fig.told == [*apple.own, Told.user("look up fig")]
    assert new.told == [*apple.own, *fig.own, Told.user(NEXT)]
    assert old.told == [*apple.own, *pear.own, *emma.own, Told.user(NEXT)]


async def test_an_answer_given_again_begins_a_branch_and_back_on_the_older_one_its_calls_are_told_again(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple, then look up pear")
    await chat.answer_again()
    await chat.ask(NEXT)
    await chat.show_older_answer(0)
    await chat.ask(NEXT)
    attempt, again, new, old = server.turns
    assert again.told == attempt.told == [Told.user("look up apple, then look up pear")]
    assert again.results != attempt.results
    assert new.told == [*again.own, Told.user(NEXT)]
    assert old.told == [*attempt.own, Told.user(NEXT)]


async def test_a_deleted_questions_calls_are_not_told_and_those_below_it_are(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.ask("look up fig")
    await chat.delete_question(1)
    await chat.reload()
    await chat.ask(NEXT)
    apple, _pear, fig, last = server.turns
    assert last.told == [*apple.own, *fig.own, Told.user(NEXT)]


async def test_what_is_cut_out_of_an_answer_is_not_told_and_its_new_words_are(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple and pear")
    [turn] = server.turns
    apple, pear = turn.calls
    assert turn.said
    said = turn.said.content
    await chat.rewrite_answer(0, lambda text: without_block(text, apple.id).replace(said, "Both are fruit."))
    [chip] = await chat.chips()
    assert not chip.group
    await chat.ask(NEXT)
    question, asked, _, answered, _ = turn.own
    told = [question, replace(asked, calls=(pear,)), answered, Told("assistant", "Both are fruit."), Told.user(NEXT)]
    assert server.turns[1].told == told


def without_block(text: str, call_id: str) -> str:
    """The text as a person leaves it who selects the block from its first character to its last and deletes it."""
    return re.sub(rf'<details type="tool_calls"[^>]* id="{call_id}"[^>]*>.*?</details>\n', "", text, flags=re.DOTALL)
