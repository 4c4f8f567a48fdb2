"""What the model is sent on the next turn: the calls on the branch that is shown, with their whole results.

Each test compares the request that began a turn with the requests of the turns before it, as a model behind a real
Open WebUI received them: the ids, the arguments byte for byte, the results, the order and the text in between.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.async_api import expect

from callboard._endpoint_rules import NO_ANSWER
from tests.e2e.agents import book
from tests.e2e.conftest import BOTH, OpenWebUI, webui_client
from tests.e2e.open_webui_page import Chat
from tests.e2e.server import Server, Told, spaced_anew
from tests.e2e.test_restarts import user_id
from tests.gates import Gate

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


@BOTH
async def test_a_message_that_is_sent_now_stops_the_answer_and_the_model_keeps_the_calls_that_have_ended(
    chat: Chat, pipe: str, server: Server, gate: Gate, rendering: str
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("look up apple, then listen for birds")
    await chat.wait_for_chip("Listening")
    await chat.send_now("look up pear")
    await chat.wait_until_finished()
    await chat.screenshot(f"sent-now-{rendering}")
    first, second = server.turns
    question, looked_up, entry, *_ = first.requests[-1]
    *told, bridge, now = second.told
    assert told[:3] == [question, looked_up, entry]
    assert ([call.name for call in told[3].calls], told[4].role) == (["listen"], "tool")
    assert "stopped" in told[4].content or "cancelled" in told[4].content
    assert (bridge.content, now) == (NO_ANSWER, Told.user("look up pear"))
    assert [call.name for call in second.calls] == ["look_up"]


@BOTH
async def test_a_message_to_the_run_is_quoted_where_the_model_read_it_and_replayed_there(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI, gate: Gate, rendering: str
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("look up apple, then listen for birds")
    await chat.wait_for_chip("Listening")
    said = "look up pear, then say so and look up fig"
    await server.say(chat.chat_id, await user_id(open_webui), said)
    gate.open()
    await chat.wait_until_finished()
    await chat.screenshot(f"said-{rendering}")
    assert f"You: {said}" in (await chat.text()).replace("\u200b", "")
    await chat.reload()
    await chat.ask(NEXT)
    _, after, following = server.turns
    assert [call.name for message in after.told for call in message.calls] == ["look_up", "listen"]
    assert after.told[-2:] == [Told("assistant", NO_ANSWER), Told.user(said)]
    assert following.told == [*after.told[:-1], *after.own, Told.user(NEXT)]


@BOTH
async def test_another_model_in_the_chat_is_told_the_calls_with_their_names_and_results(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    body = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [server.endpoint.base_url],
        "OPENAI_API_KEYS": ["key"],
        "OPENAI_API_CONFIGS": {"0": {"enable": True, "prefix_id": "plain", "model_ids": ["scripted"]}},
    }
    await chat.open(f"{pipe}.librarian")
    await chat.ask("look up apple and pear, then say so and look up fig, then borrow Ivanhoe")
    await chat.wait_until_idle()
    async with webui_client(open_webui) as client:
        assert (await client.post("/openai/config/update", json=body)).status_code == 200
        await client.get("/api/models?refresh=true")
        saved = (await client.get(f"/api/v1/chats/{chat.chat_id}")).json()["chat"]
        changed = {"chat": saved | {"models": ["plain.scripted"]}}
        assert (await client.post(f"/api/v1/chats/{chat.chat_id}", json=changed)).status_code == 200
        await chat.reload()
        await chat.ask(NEXT)
        await client.post("/openai/config/update", json=body | {"ENABLE_OPENAI_API": False})
        await client.get("/api/models?refresh=true")
    first, second = server.turns
    assert spaced_anew(second.told) == spaced_anew([*first.own, Told.user(NEXT)])
    assert second.said


async def test_what_continues_an_answer_is_set_apart_from_it(chat: Chat, pipe: str, server: Server) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask("hello")
    await chat.message.hover()
    await chat.message.locator('[aria-label="Continue Response"]').click()
    await expect(chat.answer).to_have_text(re.compile(r"answer number \d+\. That is my answer number \d+\.\s*$"))


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
