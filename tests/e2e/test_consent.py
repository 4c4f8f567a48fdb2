"""The user in the loop: Open WebUI's own dialogs, and what runs without a yes: nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

import install_pipe
from tests.e2e import box_office as box_offices
from tests.e2e.answer_content import Dialog, Form
from tests.e2e.box_office import AFTER, NASTY_PLAY, SEATS, BoxOffice
from tests.e2e.conftest import OpenWebUI
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat
from tests.e2e.tables import RENDERINGS
from tests.e2e.test_memory import webui_client

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

TITLE = "Run Sell tickets (sell)?"
HAMLET = {"play": "Hamlet", "seats": SEATS}
MACBETH = {"play": "Macbeth", "seats": SEATS}
IF_DECLINED = "If you cancel or close this, the call is refused: it does not run, and the agent continues without it."
SHORT_SECONDS = 3


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def patient(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BoxOffice]:
    """A server that waits for the user for as long as it does by default."""
    async with box_offices.opened(tmp_path_factory.mktemp("patient"), artifacts) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def impatient(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BoxOffice]:
    """A server that waits for the user for a few seconds."""
    data = tmp_path_factory.mktemp("impatient")
    async with box_offices.opened(data, artifacts, INPUT_TIMEOUT_SECONDS=str(SHORT_SECONDS)) as opened:
        yield opened


@pytest.fixture
def box_office(patient: BoxOffice) -> BoxOffice:
    """The patient server, where nothing was sold yet."""
    patient.forget()
    return patient


@pytest.fixture
def hasty(impatient: BoxOffice) -> BoxOffice:
    """The impatient server, where nothing was sold yet."""
    impatient.forget()
    return impatient


@pytest.fixture
def agents(patient: BoxOffice, open_webui: OpenWebUI, rendering: str) -> str:
    """The beginning of the patient server's agents' ids."""
    return patient.models(open_webui, "patient", rendering)


@pytest.fixture
def hasty_agents(impatient: BoxOffice, open_webui: OpenWebUI, rendering: str) -> str:
    """The beginning of the impatient server's agents' ids."""
    return impatient.models(open_webui, "impatient", rendering)


@pytest.fixture
def dialog(chat: Chat) -> Dialog:
    """The dialog in the chat's page."""
    return Dialog(chat)


@pytest.fixture
def waits(version: str) -> bool:
    """Whether this Open WebUI has cards for approvals that wait, instead of the end of the call."""
    return install_pipe.has_waiting_cards(version)


async def check_that_it_waits(chat: Chat, box_office: BoxOffice) -> None:
    """Open WebUI asks on a card of its own; the model is told nothing yet, and nothing was sold."""
    await expect(chat.message.get_by_role("button", name="Allow", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
    assert len(box_office.told) == 1
    assert box_office.sold == []


async def check_the_next_message(chat: Chat) -> None:
    """Nothing turns, and the next message is answered."""
    await expect(chat.spinners).to_have_count(0)
    await Dialog(chat).expect_none()
    await chat.ask("hello")
    assert AFTER in await chat.text()


async def check_card(chat: Chat, ending: str, words: str) -> None:
    """The only call has a card with that ending, which is not red, and the person reads those words; so after a reload.

    The status line counts it by the same word and not as failed.
    """
    for _ in range(2):
        [chip] = await chat.chips()
        assert (chip.tool, chip.failed) == ("View Result from sell", False)
        assert " · Sell tickets · " in chip.label
        assert chip.label.endswith(f" · {ending}")
        assert await chat.result("sell") == words
        status = await chat.message.inner_text()
        assert f"1 call, 1 {ending}" in status
        assert "failed" not in status
        await chat.reload()


def results_told(box_office: BoxOffice) -> list[str]:
    """The results that the model was told of in its last request."""
    return [message["content"] for message in box_office.told[-1] if message["role"] == "tool"]


async def test_a_call_runs_once_the_user_agrees(chat: Chat, dialog: Dialog, demo: str) -> None:
    await chat.open(demo)
    await chat.send("approve")
    await dialog.wait("Run sell_ticket?")
    assert await dialog.arguments() == {"play": "As You Like It", "seats": 2}
    await chat.wait_for_chip(re.compile("sell_ticket · .* · waiting for approval"))
    [chip] = await chat.chips()
    assert chip.running
    await chat.screenshot("waiting-for-approval")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from sell_ticket", False)
    assert await chat.result("sell_ticket") == "2 seats for As You Like It are sold."
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.chips() == [chip]
    await dialog.expect_none()


async def test_the_arguments_are_shown_exactly_as_they_will_run(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.send("sell the nasty play")
    await dialog.wait(TITLE)
    # What turns a line around, or ends it unseen, is shown by its number.
    shown = re.sub(r"[\u2028-\u202e]", lambda found: ascii(found[0])[1:-1], NASTY_PLAY)
    first, second = shown.split("\n")
    as_lines = f"play:\n    {first}\n    {second}\nseats: {SEATS}"
    as_json = json.dumps({"play": shown, "seats": SEATS}, indent=2, ensure_ascii=False)
    assert await dialog.message() == (as_json if dialog.has_permissions else as_lines)
    await chat.screenshot("nasty-arguments")
    assert box_office.sold == []
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert box_office.sold == [{"play": NASTY_PLAY, "seats": SEATS}]
    assert "pwned" not in await chat.page.title()


@pytest.mark.ending("the user refuses a call")
async def test_a_call_that_the_user_refuses_never_runs_and_the_model_is_told(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice, rendering: str
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    old = f"{TITLE} Cashier asks play: Hamlet seats: {SEATS} {IF_DECLINED} Cancel Confirm"
    new = f'Tool Permissions {TITLE} · Cashier asks {{ "play": "Hamlet", "seats": {SEATS} }} Deny Allow'
    assert await dialog.text() == (new if dialog.has_permissions else old)
    await chat.screenshot(f"asked-{rendering}")
    await dialog.press("Cancel")
    await chat.wait_until_finished()
    await chat.screenshot(f"refused-{rendering}")
    await check_card(chat, "declined", "Declined: it was not run.")
    [told] = results_told(box_office)
    assert told.startswith("Error: Not run: the user refused it.")
    assert AFTER in await chat.text()
    await check_the_next_message(chat)
    assert box_office.sold == []


async def test_a_dialog_that_is_closed_is_a_refusal(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice, hasty_agents: str, hasty: BoxOffice
) -> None:
    is_told = chat.look.escape_answers
    await chat.open(f"{agents if is_told else hasty_agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    await dialog.close()
    await chat.wait_until_finished()
    if is_told:
        await check_card(chat, "declined", "Declined: it was not run.")
    else:
        await check_card(chat, "not answered", "Not run: no valid answer came.")
    assert box_office.sold == hasty.sold == []


@pytest.mark.ending("two answers side by side ask at once")
async def test_two_answers_side_by_side_are_asked_about_one_after_the_other(
    chat: Chat, dialog: Dialog, agents: str, open_webui: OpenWebUI, box_office: BoxOffice, rendering: str
) -> None:
    [other] = [kind for kind in RENDERINGS if kind != rendering]
    # Through two pipes: those of two servers share the page too.
    await chat.open(f"{agents}.cashier,{box_office.models(open_webui, 'patient', other)}.steward")
    await chat.send("sell Hamlet", answers=2)
    asked = []
    for place, answer in (("1 of 2", "Confirm"), ("2 of 2", "Cancel")):
        await expect(dialog.window).to_contain_text(f"asks ({place})")
        await chat.screenshot(f"side-by-side-{place[0]}-{rendering}")
        asked += [name for name in ("Cashier", "Steward") if f"{name} asks" in await dialog.text()]
        await dialog.press(answer)
    await chat.wait_until_finished()
    await chat.screenshot(f"side-by-side-answered-{rendering}")
    assert sorted(asked) == ["Cashier", "Steward"]
    assert len(box_office.sold) == 1
    labels = [chip.label for position in range(2) for chip in await chat.chips_of(position)]
    assert sorted(label.endswith(" · declined") for label in labels) == [False, True]


@pytest.mark.ending("nobody can be asked")
async def test_a_call_that_nobody_can_be_asked_about_is_not_said_to_be_refused(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice, rendering: str, waits: bool
) -> None:
    async def take_the_page_away(route: Route) -> None:
        await route.continue_(post_data=json.dumps(json.loads(route.request.post_data or "") | {"session_id": "gone"}))

    await chat.page.route("**/api/chat/completions", take_the_page_away)
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    if waits:
        await check_that_it_waits(chat, box_office)
        await chat.screenshot(f"not-asked-{rendering}")
        return
    await chat.wait_until_finished()
    await chat.screenshot(f"not-asked-{rendering}")
    await check_card(chat, "not asked", "Not run: the question could not be asked.")
    [told] = results_told(box_office)
    assert "the user could not be asked, so they have not refused it" in told
    await dialog.expect_none()
    assert box_office.sold == []


@pytest.mark.parametrize("stream", [False, True])
async def test_over_open_webuis_own_api_nobody_can_be_asked(
    agents: str, open_webui: OpenWebUI, box_office: BoxOffice, stream: bool
) -> None:
    messages = [{"role": "user", "content": "sell Hamlet"}]
    body = {"model": f"{agents}.cashier", "messages": messages, "stream": stream}
    async with webui_client(open_webui) as client:
        answer = await client.post("/api/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200
    assert "not asked" in answer.text
    assert "failed" not in answer.text
    [told] = results_told(box_office)
    assert "the user could not be asked, so they have not refused it" in told
    assert box_office.sold == []


async def wait_until_in(client: httpx.AsyncClient, path: str, text: str) -> None:
    """Return once Open WebUI's answer at this path has the text."""
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while True:
            if text in (await client.get(path)).raise_for_status().text:
                return
            await asyncio.sleep(0.5)


async def enable_channels(client: httpx.AsyncClient) -> None:
    """Let Open WebUI have channels, in which an agent answers below the message and not in a thread."""
    settings = (await client.get("/api/v1/auths/admin/config")).raise_for_status().json()
    settings |= {"ENABLE_CHANNELS": True, "CHANNEL_MODEL_RESPONSE_MODE": "channel"}
    (await client.post("/api/v1/auths/admin/config", json=settings)).raise_for_status()


@pytest.mark.permissions
async def test_in_a_channel_nobody_can_be_asked(
    chat: Chat, agents: str, open_webui: OpenWebUI, box_office: BoxOffice, rendering: str
) -> None:
    async with webui_client(open_webui) as client:
        await enable_channels(client)
        created = (await client.post("/api/v1/channels/create", json={"name": f"plays-{rendering}"})).raise_for_status()
        channel = f"channels/{created.json()['id']}"
        mention = {"content": f"<@M:{agents}.cashier|Cashier> please sell Hamlet"}
        (await client.post(f"/api/v1/{channel}/messages/post", json=mention)).raise_for_status()
        # A page that loads the channel during the answer may miss its end.
        await wait_until_in(client, f"/api/v1/{channel}/messages", AFTER)
    await chat.page.goto(f"{open_webui.url}/{channel}")
    await expect(chat.page.get_by_text(AFTER)).to_be_visible(timeout=TIMEOUT_MS)
    await chat.screenshot(f"channel-{rendering}")
    [told] = results_told(box_office)
    assert "the user could not be asked, so they have not refused it" in told
    assert box_office.sold == []


@pytest.mark.permissions
async def test_a_call_of_an_automation_waits_for_its_approval(
    chat: Chat, agents: str, open_webui: OpenWebUI, box_office: BoxOffice, rendering: str
) -> None:
    name = f"Every morning {rendering}"
    rule = "DTSTART:20300101T060000Z\nRRULE:FREQ=DAILY"
    data = {"prompt": "sell Hamlet", "model_id": f"{agents}.cashier", "rrule": rule}
    await chat.page.goto(open_webui.url)
    await chat.page.get_by_role("button", name="Open Sidebar").first.click()
    async with webui_client(open_webui) as client:
        created = await client.post("/api/v1/automations/create", json={"name": name, "data": data})
        automation = f"/api/v1/automations/{created.raise_for_status().json()['id']}"
        (await client.post(f"{automation}/run")).raise_for_status()
        # Open WebUI records the run after the answer. A page that loads the chat before may keep an old state (0.12.4).
        await wait_until_in(client, f"{automation}/runs", '"chat_id"')
    await chat.page.get_by_text(name, exact=True).click()
    await check_that_it_waits(chat, box_office)
    await chat.screenshot(f"automation-{rendering}")
    await chat.message.get_by_role("button", name="Allow", exact=True).click()
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=TIMEOUT_MS)
    assert box_office.sold == [HAMLET]


async def test_two_parallel_calls_are_asked_about_one_after_the_other(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet and Macbeth")
    await dialog.wait(TITLE, "Hamlet")
    assert await dialog.arguments() == HAMLET
    await chat.screenshot("two-ask-the-first")
    await dialog.press("Cancel")
    await dialog.wait(TITLE, "Macbeth")
    assert await dialog.arguments() == MACBETH
    assert box_office.sold == []
    await chat.screenshot("two-ask-the-second")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert box_office.sold == [{"play": "Macbeth", "seats": SEATS}]
    refused, sold = results_told(box_office)
    assert "the user refused it" in refused
    assert sold == f"{SEATS} seats for Macbeth are sold."
    await check_the_next_message(chat)


@pytest.mark.ending("nobody answers a question in time")
async def test_a_question_that_nobody_answers_is_no_refusal_and_a_late_yes_changes_nothing(
    chat: Chat, dialog: Dialog, hasty_agents: str, hasty: BoxOffice, rendering: str, waits: bool
) -> None:
    await chat.open(f"{hasty_agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    if waits:
        await check_that_it_waits(chat, hasty)
        await dialog.expect_none()
        await chat.screenshot(f"not-answered-{rendering}")
        return
    await chat.wait_until_finished()
    [told] = results_told(hasty)
    assert "no answer came in time, but the user has not refused it" in told
    await dialog.confirm_what_is_left_open()
    await chat.screenshot(f"not-answered-{rendering}")
    await check_card(chat, "not answered", "Not run: no valid answer came.")
    await check_the_next_message(chat)
    assert hasty.sold == []


@pytest.mark.feature("approvals that wait")
async def test_a_tab_that_is_closed_while_it_asks_gives_no_answer(
    chat: Chat,
    dialog: Dialog,
    hasty_agents: str,
    hasty: BoxOffice,
    waits: bool,
    record_property: Callable[[str, object], None],
) -> None:
    if not waits:
        record_property("instead", "`not answered`")
    await chat.open(f"{hasty_agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    await chat.reopen_in_a_new_tab()
    if waits:
        await check_that_it_waits(chat, hasty)
        return
    await chat.reload_when_idle()
    await chat.wait_until_finished()
    await chat.screenshot("asked-in-a-closed-tab")
    await check_card(chat, "not answered", "Not run: no valid answer came.")
    await check_the_next_message(chat)
    assert hasty.sold == []


async def test_stop_while_the_user_is_asked(chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    # The dialog covers the stop button: it is pressed in another tab.
    other = await chat.in_another_tab()
    await other.stop()
    await other.page.close()
    await chat.wait_until_finished()
    await chat.screenshot("stopped-while-asked")
    await dialog.confirm_what_is_left_open()
    await check_card(chat, "stopped", "Stopped by the user")
    await check_the_next_message(chat)
    assert box_office.sold == []


@pytest.mark.parametrize(("prompt", "title"), [("name", "Your name"), ("secret", "Your secret")])
async def test_an_agent_that_asks_is_answered_in_a_dialog(
    chat: Chat, dialog: Dialog, agents: str, prompt: str, title: str
) -> None:
    await chat.open(f"{agents}.asker")
    await chat.send(prompt)
    await dialog.wait(title)
    assert await dialog.message() == "For the *guest* list."
    await expect(dialog.field).to_have_attribute("placeholder", "e.g. Rosalind")
    await dialog.field.fill("Viola")
    await chat.screenshot(f"asked-for-a-{prompt}")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert "You said 5: Vio…" in await chat.text()
    assert "Viola" not in await chat.text()


@pytest.mark.permissions
async def test_a_tool_asks_with_a_form_and_a_wrong_answer_is_asked_again(
    chat: Chat, agents: str, rendering: str
) -> None:
    form = Form(chat)
    await chat.open(f"{agents}.cashier")
    await chat.send("reserve")
    await form.wait("Which seats?")
    await chat.wait_for_chip(re.compile("reserve"))
    await form.window.get_by_label("How many").fill("2")
    await form.window.get_by_label("Row").select_option(label="Stalls")
    await form.window.get_by_label("Aisle").select_option(label="Yes")
    await form.window.get_by_label("Mail").fill("viola@illyria")
    await form.window.get_by_label("Arrival").fill("noon")
    await chat.screenshot(f"form-{rendering}")
    await form.press("Submit")
    await form.wait("Arrival: it is not a time such as")
    await chat.screenshot(f"form-again-{rendering}")
    await expect(form.window.get_by_label("How many")).to_have_value("2")
    await form.window.get_by_label("Arrival").fill("2026-12-31T19:30:00Z")
    await form.press("Submit")
    await chat.wait_until_finished()
    assert json.loads(await chat.result("reserve")) == {
        "seats": 2,
        "row": "s",
        "aisle": True,
        "mail": "viola@illyria",
        "arrival": "2026-12-31T19:30:00Z",
    }


@pytest.mark.permissions
@pytest.mark.parametrize(("button", "given"), [("Decline", "false"), ("Cancel", "null")])
async def test_a_form_that_is_declined_or_closed(chat: Chat, agents: str, button: str, given: str) -> None:
    form = Form(chat)
    await chat.open(f"{agents}.cashier")
    await chat.send("reserve")
    await form.wait("Which seats?")
    await form.press(button)
    await chat.wait_until_finished()
    assert await chat.result("reserve") == given


@pytest.mark.permissions
async def test_a_question_waits_while_the_page_shows_another_chat(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.ask("hello")
    other = chat.chat_id
    chat.forget_answers()
    # Within the page, as somebody who clicks: its session stays the same.
    await chat.page.get_by_role("button", name="Open Sidebar").first.click()
    await chat.page.get_by_role("link", name="New Chat").first.click()
    await expect(chat.page.locator(".chat-assistant")).to_have_count(0)
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    asking = chat.chat_id
    assert asking != other
    await chat.page.go_back()
    await chat.page.wait_for_url(f"**/c/{other}")
    await dialog.expect_none()
    await expect(chat.page.get_by_text(f"Cashier asks: {TITLE}")).to_be_visible()
    await chat.screenshot("asked-in-another-chat")
    await chat.page.locator(f'a[href="/c/{asking}"]').first.click()
    await dialog.wait(TITLE)
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert box_office.sold == [HAMLET]


@pytest.mark.permissions
async def test_a_tool_that_is_allowed_always_is_not_asked_about_again_in_this_chat(
    chat: Chat, open_webui: OpenWebUI, box_office: BoxOffice, rendering: str
) -> None:
    agents = box_office.models(open_webui, "remembering", rendering, APPROVALS="form")
    form = Form(chat)
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    await form.wait("play: Hamlet")
    await form.window.get_by_label("Decision").select_option(label="Allow always in this chat")
    await chat.screenshot(f"allow-always-{rendering}")
    await form.press("Submit")
    await chat.wait_until_finished()
    await chat.ask("sell Macbeth")
    assert box_office.sold == [HAMLET, MACBETH]
    await chat.message.get_by_role("button", name="Toggle status history").click()
    await expect(chat.message).to_contain_text("allowed always in this chat")


@pytest.mark.permissions
async def test_user_changes_the_arguments_in_the_form(
    chat: Chat, open_webui: OpenWebUI, box_office: BoxOffice, rendering: str
) -> None:
    agents = box_office.models(open_webui, "remembering", rendering, APPROVALS="form")
    form = Form(chat)
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    await form.wait("play: Hamlet")
    await form.window.get_by_label("seats").fill("5")
    await chat.screenshot(f"changing-arguments-{rendering}")
    await form.press("Submit")
    await chat.wait_until_finished()
    assert box_office.sold == [{"play": "Hamlet", "seats": 5}]
    [told] = results_told(box_office)
    assert told.startswith("The user changed the arguments of this call before they allowed it.")
    for _ in range(2):
        [chip] = await chat.chips()
        assert "sell · arguments changed" in chip.label
        assert await chat.result("sell") == told
        # The input of the card; the result quotes it as JSON.
        await expect(chat.message).to_contain_text(re.compile(r"seats\s*5"))
        await chat.screenshot(f"arguments-changed-{rendering}")
        await chat.reload()
    await check_the_next_message(chat)
