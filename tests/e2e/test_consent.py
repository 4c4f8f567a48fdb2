"""The user in the loop: Open WebUI's own dialogs, forms and cards, and what runs without a yes: nothing."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Route, expect

from tests.e2e.conftest import OpenWebUI
from tests.e2e.open_webui_page import SAVED_CHAT, TIMEOUT_MS, Chat, Dialog, Form
from tests.e2e.server import NASTY_PLAY, START_SECONDS, Server
from tests.e2e.test_restarts import killed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

TITLE = "Run Sell a ticket (sell)?"
SINCE = "2026-12-31T19:30:00Z"


@pytest.mark.every_version
async def test_a_call_is_shown_as_it_will_run_and_runs_only_if_it_is_allowed(
    chat: Chat, pipe: str, server: Server, version: str
) -> None:
    dialog = Dialog(chat)
    await chat.open(f"{pipe}.librarian")
    await chat.send("sell Nastiness")
    await dialog.wait(TITLE)
    await chat.wait_for_chip(re.compile("Sell a ticket · .* · waiting for approval"))
    # What turns a line around, or ends it unseen, is shown by its number.
    shown = re.sub(r"[\u2028-\u202e]", lambda found: ascii(found[0])[1:-1], NASTY_PLAY)
    as_json = json.dumps({"play": shown}, indent=2, ensure_ascii=False)
    as_lines = "play:\n    " + shown.replace("\n", "\n    ")
    assert await dialog.message() == (as_lines if version.startswith("0.11.") else as_json)
    assert server.sold == []
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert server.sold == [NASTY_PLAY]
    assert "pwned" not in await chat.page.title()
    server.forget()
    await chat.send("sell Hamlet and Macbeth")
    # One after the other.
    await dialog.wait(TITLE, "Hamlet")
    await dialog.press("Cancel")
    await dialog.wait(TITLE, "Macbeth")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    await dialog.expect_none()
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


async def test_a_late_answer_on_a_card_says_what_has_happened(chat: Chat, pipe: str, server: Server) -> None:
    await send_to_nobody(chat, pipe, "sell Hamlet and Macbeth")
    saved = await chat.page.evaluate(SAVED_CHAT, chat.chat_id)
    rows = (await server.get(f"/v1/chats/{chat.chat_id}/messages", saved["user_id"])).json()["messages"]
    await server.answer(rows[-1]["run_id"], saved["user_id"], f"approve:{rows[-2]['tool_call_id']}", True)
    await press(chat, server, "Deny")
    await press(chat, server, "Deny")
    await expect(chat.answer.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
    await chat.wait_until_finished()
    await chat.expand("Explored")
    [_, hamlet, macbeth] = await chat.chips()
    assert hamlet.label.startswith("View Result from Sell a ticket · Hamlet · answered elsewhere first · ")
    assert macbeth.label == "Denied Sell a ticket · Macbeth · declined"
    assert server.sold == ["Hamlet"]


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
    """Send a message whose calls nobody can be asked about; returns when their card is there."""

    async def take_the_page_away(route: Route) -> None:
        await route.continue_(post_data=json.dumps(json.loads(route.request.post_data or "") | {"session_id": "gone"}))

    await chat.page.route("**/api/chat/completions", take_the_page_away, times=1)
    await chat.open(f"{pipe}.librarian")
    await chat.send(prompt)
    await expect(chat.message.get_by_role("button", name="Allow", exact=True).first).to_be_visible(timeout=TIMEOUT_MS)


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
