"""What the model is sent when a chat has branches: exactly the calls on the branch that is shown, and no others."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.e2e.library import Library, Told
from tests.e2e.open_webui_page import Chat

IN_THE_TEXT = pytest.mark.parametrize("rendering", ["details"], indirect=True)
"""Where calls are Open WebUI's own items, an answer's text has none to cut out."""

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

NEXT = "What did you find?"


async def test_an_edited_question_is_answered_without_the_calls_of_what_was_asked_before(
    chat: Chat, library: Library
) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.edit_question(1, "look up fig")
    await chat.ask(NEXT)
    apple, _pear, fig, last = library.turns
    assert fig.told == [*apple.own, Told.user("look up fig")]
    assert last.told == [*apple.own, *fig.own, Told.user(NEXT)]


async def test_an_edited_first_question_begins_with_nothing(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.edit_question(0, "look up fig")
    await chat.ask(NEXT)
    *_, fig, last = library.turns
    assert fig.told == [Told.user("look up fig")]
    assert last.told == [*fig.own, Told.user(NEXT)]


async def test_an_answer_given_again_knows_nothing_of_the_first_attempts_calls(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.answer_again()
    await chat.ask(NEXT)
    apple, pear, pear_again, last = library.turns
    assert pear_again.told == pear.told == [*apple.own, Told.user("look up pear")]
    assert pear_again.results != pear.results
    assert last.told == [*apple.own, *pear_again.own, Told.user(NEXT)]


async def test_back_on_the_older_questions_branch_its_calls_are_told_again(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.ask("read Emma")
    await chat.edit_question(1, "look up fig")
    await chat.show_older_question(1)
    await chat.ask(NEXT)
    apple, pear, emma, _fig, last = library.turns
    assert last.told == [*apple.own, *pear.own, *emma.own, Told.user(NEXT)]


async def test_back_on_the_older_answers_branch_its_calls_are_told_again(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple, then look up pear")
    await chat.answer_again()
    await chat.show_older_answer(0)
    await chat.ask("look up fig")
    await chat.ask(NEXT)
    attempt, _again, fig, last = library.turns
    assert fig.told == [*attempt.own, Told.user("look up fig")]
    assert last.told == [*attempt.own, *fig.own, Told.user(NEXT)]


async def test_a_deleted_answers_calls_are_not_told(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.answer_again()
    await chat.delete_answer(0)
    await chat.ask(NEXT)
    attempt, _deleted, last = library.turns
    assert last.told == [*attempt.own, Told.user(NEXT)]


async def test_a_deleted_questions_calls_are_not_told_and_those_below_it_are(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple")
    await chat.ask("look up pear")
    await chat.ask("look up fig")
    await chat.delete_question(1)
    await chat.reload()
    await chat.ask(NEXT)
    apple, _pear, fig, last = library.turns
    assert last.told == [*apple.own, *fig.own, Told.user(NEXT)]


@IN_THE_TEXT
async def test_a_block_that_is_cut_out_of_an_answers_text_is_not_told(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple and pear")
    [turn] = library.turns
    apple, pear = turn.calls
    await chat.rewrite_answer(0, lambda text: without_block(text, apple.id))
    [chip] = await chat.chips()
    assert chip.group != chat.look.edits_are_told
    await chat.ask(NEXT)
    told = library.turns[1].told
    if not chat.look.edits_are_told:
        assert told == [*turn.own, Told.user(NEXT)]
        return
    assert told == [*without_call(turn.own, apple.id), Told.user(NEXT)]
    assert [call for message in told for call in message.calls] == [pear]


@IN_THE_TEXT
async def test_a_block_that_is_cut_out_from_between_two_texts_is_not_told(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("look up apple, then say so and look up pear")
    [turn] = library.turns
    apple, pear = turn.calls
    await chat.rewrite_answer(0, lambda text: without_block(text, pear.id))
    await chat.reload()
    await chat.ask(NEXT)
    told = library.turns[1].told
    if not chat.look.edits_are_told:
        assert told == [*turn.own, Told.user(NEXT)]
        return
    *before, first_text, second_text = without_call(turn.own, pear.id)
    # Nothing stands between the two texts now: they are one, as on screen, with the empty lines that were around it.
    text = Told("assistant", f"{first_text.content}\n\n\n{second_text.content}")
    assert told == [*before, text, Told.user(NEXT)]
    assert [call for message in told for call in message.calls] == [apple]


async def test_an_answers_new_words_are_told_with_its_calls(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.ask("read Emma")
    [turn] = library.turns
    assert turn.said
    said = turn.said.content
    await chat.rewrite_answer(0, lambda text: text.replace(said, "It is a novel."))
    assert "It is a novel." in await chat.text()
    await chat.ask(NEXT)
    last = Told("assistant", "It is a novel.") if chat.look.edits_are_told else turn.said
    assert library.turns[1].told == [*turn.own[:-1], last, Told.user(NEXT)]


def without_block(text: str, call_id: str) -> str:
    """The text as a person leaves it who selects the block from its first character to its last and deletes it."""
    return re.sub(rf'<details type="tool_calls"[^>]* id="{call_id}"[^>]*>.*?</details>\n', "", text, flags=re.DOTALL)


def without_call(messages: list[Told], call_id: str) -> list[Told]:
    """The messages without that call and its result, and without what says nothing then."""
    kept = [replace(one, calls=tuple(call for call in one.calls if call.id != call_id)) for one in messages]
    return [one for one in kept if one.answers != call_id and (one.content or one.calls)]
