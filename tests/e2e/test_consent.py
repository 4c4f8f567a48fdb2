"""The user in the loop: Open WebUI's own dialogs, forms and cards, and what runs without a yes: nothing."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page, expect

from tests.e2e.conftest import OpenWebUI
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat, Form, Question
from tests.e2e.server import NASTY_PLAY, START_SECONDS, Server
from tests.e2e.test_restarts import killed, user_id, wait_until
from tests.fakes.mcp_oauth import Notes

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

TITLE = "Sell a ticket?"
SINCE = "2026-12-31T19:30:00Z"


@pytest.mark.every_version
async def test_a_call_is_shown_as_it_will_run_and_runs_only_if_it_is_allowed(
    chat: Chat, pipe: str, server: Server, version: str
) -> None:
    question = Question(chat, version)
    await chat.open(f"{pipe}.librarian")
    await chat.send("sell Nastiness")
    await question.wait(TITLE)
    await chat.wait_for_chip(re.compile("Sell a ticket · .* · waiting for approval"))
    # What turns a line around, or ends it unseen, is shown by its number.
    shown = re.sub(r"[\u2028-\u202e]", lambda found: ascii(found[0])[1:-1], NASTY_PLAY)
    as_lines = "play:\n    " + shown.replace("\n", "\n    ")
    assert await question.message() == (as_lines if version.startswith("0.11.") else f"{TITLE}\n\n▸ {as_lines}")
    assert server.sold == []
    await question.allow()
    await chat.wait_until_finished()
    assert server.sold == [NASTY_PLAY]
    assert "pwned" not in await chat.page.title()
    server.forget()
    await chat.send("sell Hamlet and Macbeth")
    # One after the other.
    await question.wait(TITLE, "Hamlet")
    await question.refuse()
    await question.wait(TITLE, "Macbeth")
    await question.allow()
    await chat.wait_until_finished()
    await question.expect_none()
    assert server.sold == ["Macbeth"]
    refused, sold = server.turns[-1].results
    assert refused.startswith("Error: Not run: the user refused it.")
    assert sold == "A seat for Macbeth is sold."
    await chat.reload()
    await chat.expand("Explored")
    [_, hamlet, macbeth] = await chat.chips()
    assert hamlet.label == "Denied Sell a ticket · Hamlet · declined"
    assert macbeth.label.startswith("View Result from Sell a ticket · Macbeth · ")
    assert await chat.result(re.compile(r"Denied.*declined", re.DOTALL)) == "Declined: it was not run."


LETTER = f"Dear Bob, {NASTY_PLAY}\n\n- *one*"


async def test_calls_wait_over_a_restart_of_everything_until_each_is_allowed_or_denied(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    letters = [json.dumps({"to": to, "body": LETTER}) for to in ("ada@example.org", "bob@example.org")]
    # A phone.
    await chat.page.set_viewport_size({"width": 390, "height": 844})
    await send_to_nobody(chat, pipe, f"use mail {letters[0]} and use mail {letters[1]}")
    for letter in ("ada", "bob"):
        card = chat.message.get_by_text(f"Send an e-mail · {letter}@").first
        await expect(card).to_be_visible()
        row = card.locator("xpath=ancestor::*[.//button][1]")
        await expect(row.get_by_role("button", name="Allow", exact=True)).to_have_count(1)
    question = re.sub("[\u2060\u200b]", "", await chat.text()).replace("\xa0", " ")
    for line in re.sub(r"[\u2028-\u202e]", lambda found: ascii(found[0])[1:-1], LETTER).split("\n"):
        assert line in question
    assert "pwned" not in await chat.page.title()
    async with killed(open_webui):
        await server.kill()
        await server.start()
    await chat.reload()
    assert server.sold == []
    await press(chat, server, "Deny")
    await press(chat, server, "Allow")
    for _ in range(2):
        await expect(chat.answer.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
        await chat.wait_until_finished()
        await expect(chat.message.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
        await expect(chat.spinners).to_have_count(0)
        assert server.sold == ["bob@example.org"]
        assert "Dear Bob" not in await chat.text()
        await chat.wait_until_idle()
        await chat.reload()
    await chat.expand("Explored")
    [_, ada, bob] = await chat.chips()
    assert ada.label == "Send an e-mail · ada@example.org · declined"
    assert bob.label.startswith("Send an e-mail · bob@example.org · ")
    assert [result[:10] for result in server.turns[-1].results] == ["Error: Not", "A seat for"]
    await chat.ask("hello")


async def test_a_question_is_on_the_desktop_and_the_phone_and_is_answered_with_words(
    chat: Chat, pipe: str, server: Server, version: str
) -> None:
    question = Question(chat, version)
    await chat.open(f"{pipe}.librarian")
    await chat.send("sell Hamlet")
    await question.wait(TITLE, "play: Hamlet")
    phone = await chat.in_another_tab()
    await phone.page.set_viewport_size({"width": 390, "height": 844})
    form = Form(phone)
    await form.wait(TITLE)
    await expect(form.window.get_by_label("Decision")).to_have_value("Allow once")
    await phone.screenshot("question-phone")
    await chat.screenshot("question")
    await form.window.get_by_label("Or say what to do instead").fill("No. <b>Macbeth</b>, please.")
    await form.press("Submit")
    await question.expect_none()
    await chat.wait_until_finished()
    assert server.sold == []
    [refused] = server.turns[-1].results
    assert refused.endswith("answered instead:\n\nNo. <b>Macbeth</b>, please.")
    await phone.page.close()


async def test_the_user_changes_the_arguments_or_allows_the_tool_always(
    chat: Chat, pipe: str, server: Server, version: str
) -> None:
    question = Question(chat, version)
    await chat.open(f"{pipe}.librarian")
    await chat.send("sell Hamlet, then sell Macbeth")
    await question.wait(TITLE, "play: Hamlet")
    await question.window.get_by_label("Change “play”").fill("Othello")
    await question.window.get_by_label("Decision").select_option("Allow always in this chat")
    await question.allow()
    await chat.wait_until_finished()
    assert server.sold == ["Othello", "Macbeth"]


async def test_calls_that_are_answered_elsewhere_are_answered_on_the_page_too(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    await send_to_nobody(chat, pipe, "sell Hamlet and Macbeth and Othello")
    user = await user_id(open_webui)
    buttons = chat.message.get_by_role("button", name="Allow", exact=True)
    await press(chat, server, "Deny")

    async def is_known() -> bool:
        return len(await server.list_waiting(user)) == 2

    # Open WebUI tells nobody of it while other calls wait.
    await wait_until(is_known)
    [first, second] = sorted((await server.list_waiting(user)).items())
    await server.answer(first[1], user, value=False)
    await expect(chat.message.get_by_role("button", name="Deny", exact=True)).to_have_count(1, timeout=TIMEOUT_MS)
    await chat.screenshot("answered-elsewhere")
    async with chat.connected_anew(), killed(open_webui):
        await server.answer(second[1], user, value=True)
    await expect(chat.answer.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
    await expect(buttons).to_have_count(0)
    assert server.sold == [json.loads(second[0])["play"]]
    await chat.wait_until_idle()
    await chat.reload()
    await expect(chat.answer.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
    await chat.ask("hello")


async def test_a_question_of_a_tool_is_asked_again_after_a_restart_of_open_webui(
    chat: Chat, pipe: str, server: Server, open_webui: OpenWebUI
) -> None:
    form = Form(chat)
    await chat.open(f"{pipe}.librarian")
    await chat.send("use reserve")
    await form.wait("Which seats?")
    await chat.page.wait_for_url("**/c/*")
    async with chat.connected_anew(), killed(open_webui):
        pass
    # In another tab: the open page still shows the form of the killed process, before the new one.
    other = await chat.in_another_tab()
    form = Form(other)
    await form.wait("Which seats?")
    await form.window.get_by_label("How many").fill("2")
    await form.window.get_by_label("Row").select_option(label="Stalls")
    await form.press("Submit")
    await other.wait_until_finished()
    [reserved] = server.turns[-1].results
    assert json.loads(reserved)["seats"] == 2


async def test_the_person_is_called_to_a_chat_that_waits(
    chat: Chat, pipe: str, server: Server, page: Page, version: str
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("sell Hamlet")
    await Question(chat, version).wait(TITLE)
    other = await page.context.new_page()
    await other.add_init_script("localStorage.setItem('sidebar', 'true')")
    await other.goto(chat.page.url.partition("/c/")[0])
    await expect(other.locator("#chat-input")).to_be_visible(timeout=TIMEOUT_MS)
    place = chat.page.url
    await chat.page.goto("about:blank")
    toast = other.get_by_text(f"Librarian: {TITLE}")
    await expect(toast).to_be_visible(timeout=TIMEOUT_MS)
    await other.screenshot(path=chat.artifacts / "called.png")
    await toast.click()
    await other.wait_for_url(place)
    await other.get_by_role("button", name="Deny", exact=True).click()
    await expect(other.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
    assert server.sold == []


async def test_a_tool_asks_with_a_form_and_a_wrong_answer_is_asked_again(chat: Chat, pipe: str, server: Server) -> None:
    form = Form(chat)
    await chat.open(f"{pipe}.librarian")
    await chat.send("use reserve")
    await form.wait("Which seats?")
    await form.window.get_by_label("How many").fill("2")
    await form.window.get_by_label("Row").select_option(label="Stalls")
    await form.window.get_by_label("Aisle").select_option(label="Yes")
    await form.window.get_by_label("Mail").fill("viola@illyria")
    await form.window.get_by_label("Arrival").fill("noon")
    await form.press("Submit")
    await form.wait("Arrival: it is not a time such as")
    await expect(form.window.get_by_label("How many")).to_have_value("2")
    await form.window.get_by_label("Arrival").fill(SINCE)
    await form.press("Submit")
    await chat.wait_until_finished()
    [reserved] = server.turns[-1].results
    given = {"seats": 2, "row": "s", "aisle": True, "mail": "viola@illyria", "arrival": SINCE}
    assert json.loads(reserved) == given


async def send_to_nobody(chat: Chat, pipe: str, prompt: str) -> None:
    """Send a message and leave while its question is open; returns when the cards are there and the page is back."""
    await chat.open(f"{pipe}.librarian")
    await chat.send(prompt)
    await expect(Form(chat).window).to_be_visible(timeout=TIMEOUT_MS)
    url = await leave(chat)
    await chat.page.goto(url)
    await expect(chat.message.get_by_role("button", name="Allow", exact=True).first).to_be_visible(timeout=TIMEOUT_MS)


async def leave(chat: Chat) -> str:
    """Leave the chat; returns its address when its calls wait."""
    await chat.page.wait_for_url("**/c/*")
    url, place = chat.page.url, f"/api/v1/chats/{chat.chat_id}"
    headers = {"Authorization": f"Bearer {await chat.page.evaluate('localStorage.token')}"}
    await chat.page.goto("about:blank")

    async def waits() -> bool:
        saved = await (await chat.page.request.get(url.partition("/c/")[0] + place, headers=headers)).json()
        history = saved["chat"]["history"]
        output = history["messages"][history["currentId"]].get("output") or ()
        return any(item.get("status") == "pending" for item in output)

    await wait_until(waits)
    return url


async def press(chat: Chat, server: Server, name: str) -> None:
    """Press a button of the first pending card; the model answers only once the page knows that its answer goes on.

    A page that is told of an answer's end before that shows the stop button for ever.
    """
    button = chat.message.get_by_role("button", name=name, exact=True).first
    await expect(button).to_be_visible(timeout=START_SECONDS * 1000)
    server.endpoint.may_answer.clear()
    try:
        async with chat.page.expect_response(re.compile("/resolve$")):
            await button.click()
    finally:
        server.endpoint.may_answer.set()


async def test_a_user_signs_in_to_an_mcp_server_in_a_tab_that_the_question_opens(
    chat: Chat, pipe: str, server: Server, notes: Notes
) -> None:
    context = chat.page.context
    await context.add_cookies([{"name": "account", "value": "ada@notes", "url": notes.authorization.issuer}])
    form = Form(chat)
    await chat.open(f"{pipe}.reader")
    await chat.send("use notes_sign_in")
    await form.wait("Sign in to notes")
    await chat.screenshot("sign-in")
    async with context.expect_page() as opened:
        await form.window.get_by_role("link").click()
    tab = await opened.value
    await expect(tab.get_by_text("If you are somebody else")).to_be_visible(timeout=TIMEOUT_MS)
    await tab.screenshot(path=chat.artifacts / "sign-in-back.png")
    await tab.get_by_role("link", name="Continue as").click()
    await expect(tab.get_by_text("go on in the chat")).to_be_visible(timeout=TIMEOUT_MS)
    await chat.wait_until_finished()
    await chat.ask("use notes_whoami")
    assert server.turns[-1].results == ["ada@notes"]
