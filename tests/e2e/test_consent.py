"""The user in the loop: Open WebUI's own dialogs, and what runs without a yes: nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.e2e import box_office as box_offices
from tests.e2e.answer_content import Dialog
from tests.e2e.box_office import AFTER, NASTY_PLAY, SEATS, BoxOffice
from tests.e2e.conftest import OpenWebUI
from tests.e2e.open_webui_page import Chat

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

TITLE = "Run sell?"
WAITING = "sell · waiting for approval"
HAMLET = {"play": "Hamlet", "seats": SEATS}
MACBETH = {"play": "Macbeth", "seats": SEATS}
REFUSED = "Error: Not run: the user refused it."
UNANSWERED = "Error: Not run: nobody allowed it."
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


async def check_the_next_message(chat: Chat) -> None:
    """Nothing turns, and the next message is answered."""
    await expect(chat.spinners).to_have_count(0)
    await Dialog(chat).expect_none()
    await chat.ask("hello")
    assert AFTER in await chat.text()


def results_told(box_office: BoxOffice) -> list[str]:
    """The results that the model was told of in its last request."""
    return [message["content"] for message in box_office.told[-1] if message["role"] == "tool"]


async def test_a_call_runs_once_the_user_agrees(chat: Chat, dialog: Dialog, demo: str) -> None:
    await chat.open(demo)
    await chat.send("approve")
    await dialog.wait("Run sell_ticket?")
    assert await dialog.arguments() == {"play": "As You Like It", "seats": 2}
    await chat.wait_for_chip("sell_ticket · waiting for approval")
    [chip] = await chat.chips()
    assert chip.running
    await chat.screenshot("waiting-for-approval")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert (chip.label, chip.failed) == ("View Result from sell_ticket", False)
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
    assert await dialog.arguments() == {"play": NASTY_PLAY, "seats": SEATS}
    message = await dialog.message()
    assert "\\u202ereversed" in message, "what turns a line around is shown by its number"
    await chat.screenshot("nasty-arguments")
    assert box_office.sold == []
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert box_office.sold == [{"play": NASTY_PLAY, "seats": SEATS}]
    assert "pwned" not in await chat.page.title()


async def test_a_call_that_the_user_refuses_never_runs_and_the_model_is_told(
    chat: Chat, dialog: Dialog, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    await dialog.press("Cancel")
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert chip.failed == chat.look.red_failures
    assert (await chat.result("sell")).startswith(REFUSED)
    await chat.screenshot("refused")
    [told] = results_told(box_office)
    assert told.startswith(REFUSED)
    assert AFTER in await chat.text()
    await check_the_next_message(chat)
    assert box_office.sold == []


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
    assert box_office.sold == [MACBETH]
    refused, sold = results_told(box_office)
    assert refused.startswith(REFUSED)
    assert sold == f"{SEATS} seats for Macbeth are sold."
    await check_the_next_message(chat)


async def test_a_question_that_nobody_answers_is_a_no_and_a_late_yes_changes_nothing(
    chat: Chat, dialog: Dialog, hasty_agents: str, hasty: BoxOffice
) -> None:
    await chat.open(f"{hasty_agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    await chat.wait_until_finished()
    [told] = results_told(hasty)
    assert told.startswith(UNANSWERED), told
    await chat.screenshot("answered-too-late")
    await dialog.confirm_what_is_left_open()
    [chip] = await chat.chips()
    assert chip.failed == chat.look.red_failures
    await check_the_next_message(chat)
    assert hasty.sold == []


async def test_a_tab_that_is_closed_while_it_asks_is_a_no(
    chat: Chat, dialog: Dialog, hasty_agents: str, hasty: BoxOffice
) -> None:
    await chat.open(f"{hasty_agents}.cashier")
    await chat.send("sell Hamlet")
    await dialog.wait(TITLE)
    await chat.reopen_in_a_new_tab()
    await chat.reload_when_idle()
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert not chip.running
    await chat.screenshot("asked-in-a-closed-tab")
    assert chip.failed == chat.look.red_failures
    [told] = results_told(hasty)
    assert told.startswith((UNANSWERED, REFUSED)), told
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
    [chip] = await chat.chips()
    assert chip.failed == chat.look.red_failures
    assert await chat.result("sell") == "Stopped by the user"
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
