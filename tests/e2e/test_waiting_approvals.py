"""Approvals that wait in a real Open WebUI: its own pending card, which somebody answers later, and what runs then."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from service import Service, free_port
from tests.e2e.answer_content import Dialog
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.open_webui_page import Chat
from tests.e2e.test_restarted_open_webui import post, start
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.gates import Gate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.permissions,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300, func_only=True),
]

AGENTS = Path(__file__).with_name("secretary.py")
BEFORE = "I would like to send this."
AFTER = "The results: "
BODY = "Dear boss, " + "all is well. " * 60
ANN = "ann@example.org"
BOB = "bob@example.org"
WAIT_MS = 60_000
USER = """
async () => (await fetch('/api/v1/auths/', {headers: {Authorization: `Bearer ${localStorage.token}`}})).json()
"""
DELETE_CHAT = """
async id => (await fetch(`/api/v1/chats/${id}`, {
    method: 'DELETE', headers: {Authorization: `Bearer ${localStorage.token}`},
})).ok
"""


def script(body: Body) -> Answer:
    """Text and one or two calls, and then a text with their results."""
    messages = body["messages"]
    asked = str(next(message["content"] for message in reversed(messages) if message["role"] == "user"))
    if asked.startswith("### Task:"):
        return chunks(text(json.dumps({"title": "Mail", "tags": ["mail"], "follow_ups": []})), finish("stop"))
    if asked == "hello":
        return chunks(text("Hello."), finish("stop"))
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if results:
        return chunks(text(f"{AFTER}{' | '.join(results)}"), finish("stop"))
    people = [ANN, BOB] if asked == "send two" else [ANN]
    calls = [
        call("send_email", json.dumps({"to": one, "body": BODY}), index=index, call_id=f"mail_{len(messages)}_{one}")
        for index, one in enumerate(people)
    ]
    return chunks(text(BEFORE), *calls, finish("tool_calls"))


class Office:
    """The secretary's server, the emails that it has sent, and the gate that they wait at."""

    def __init__(self, service: Service, url: str, data: Path, endpoint: OpenAIServer) -> None:
        self.service = service
        self.url = url
        self.gate = Gate(data)
        self.endpoint = endpoint
        self._sent = data / "sent"

    @property
    def sent(self) -> list[str]:
        """The receivers of the emails that were sent."""
        lines = self._sent.read_text().splitlines() if self._sent.exists() else []
        return [line.partition(":")[0] for line in lines]

    def forget(self) -> None:
        """Nothing was sent, and the gate is open."""
        self._sent.unlink(missing_ok=True)
        self.gate.open()

    def list_approvals(self, user_id: str) -> list[dict[str, Any]]:
        """The approvals that wait for this user."""
        request = urllib.request.Request(f"{self.url}/v1/approvals?user_id={user_id}")
        request.add_header("Authorization", f"Bearer {KEY}")
        with urllib.request.urlopen(request, timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["approvals"]
            return found

    def approve(self, waiting: dict[str, Any]) -> None:
        """Approve a call as the inspector does."""
        url = f"{self.url}/v1/runs/{waiting['run_id']}/input?user_id={waiting['user_id']}"
        body = json.dumps({"request_id": waiting["request_id"], "value": True}).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:
            assert response.status == 202

    async def restart(self) -> None:
        """Kill the server and start it again."""
        await asyncio.to_thread(self.service.kill)
        self.service.start()
        await asyncio.to_thread(self.service.wait_until_healthy, SERVER_START_SECONDS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened_office(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with OpenAIServer(script) as endpoint:
        port = free_port()
        data = tmp_path_factory.mktemp("office")
        settings = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "scripted", "AGENTS": str(AGENTS)}
        service = callboard_service("The office", port, data, KEY, **settings, INPUT_TIMEOUT_SECONDS="3")
        with running(service, SERVER_START_SECONDS, artifacts):
            yield Office(service, f"http://127.0.0.1:{port}", data, endpoint)


@pytest.fixture
def office(opened_office: Office) -> Iterator[Office]:
    opened_office.forget()
    yield opened_office
    opened_office.gate.open()


@pytest.fixture
def model(open_webui: OpenWebUI, office: Office, rendering: str) -> str:
    """The secretary's id in Open WebUI, through a pipe with that rendering."""
    install(open_webui, office.url, f"office_{rendering}", rendering)
    return f"office_{rendering}.secretary"


def button(chat: Chat, name: str) -> Locator:
    """A button of the pending card."""
    return chat.message.get_by_role("button", name=name, exact=True)


async def wait_for_card(chat: Chat) -> None:
    await expect(button(chat, "Allow")).to_be_visible(timeout=WAIT_MS)
    await expect(button(chat, "Deny")).to_be_visible()


async def send(chat: Chat, model: str, words: str = "send") -> None:
    """Ask for an email, and let the time for the answer pass."""
    await chat.open(model)
    await chat.send(words)
    await wait_for_card(chat)


async def stop_waiting(chat: Chat, model: str) -> None:
    """Stop a call that waits."""
    await send(chat, model)
    # Before that, Open WebUI stops its own work for the answer, and leaves the card.
    await chat.wait_until_idle()
    await chat.stop()
    await expect(button(chat, "Allow")).to_have_count(0)


async def press(chat: Chat, office: Office, name: str) -> None:
    """Press a button of the pending card; the model answers only once the page knows that its answer goes on.

    A page that is told of an answer's end before that shows the stop button for ever.
    """
    office.endpoint.may_answer.clear()
    try:
        async with chat.page.expect_response(re.compile("/resolve$")):
            await button(chat, name).click()
    finally:
        office.endpoint.may_answer.set()


async def wait_for_answer(chat: Chat, results: str) -> None:
    await expect(chat.answer.get_by_text(f"{AFTER}{results}")).to_be_visible(timeout=WAIT_MS)
    await chat.wait_until_finished()
    await expect(button(chat, "Allow")).to_have_count(0)
    await expect(chat.spinners).to_have_count(0)


async def check_after_reload(chat: Chat, results: str) -> None:
    """The whole answer is there once, also after a reload, and the next message is answered."""
    for _ in range(2):
        said = await chat.text()
        assert said.count(BEFORE) == 1
        assert said.count(AFTER) == 1
        await chat.reload_when_idle()
        await wait_for_answer(chat, results)
    await chat.ask("hello")


async def test_a_call_waits_for_its_approval_after_the_time_is_over_and_then_runs_once(
    chat: Chat, model: str, office: Office
) -> None:
    await send(chat, model)
    await chat.answer.get_by_text("Allow send_email?").click()
    await expect(chat.answer.get_by_text(BODY.strip())).to_be_visible()
    await chat.screenshot("waiting-card")
    await chat.reload()
    await wait_for_card(chat)
    assert office.sent == []
    await press(chat, office, "Allow")
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]
    await chat.screenshot("waiting-card-allowed")
    await check_after_reload(chat, f"Sent to {ANN}.")


async def test_a_call_waits_when_its_page_is_closed(chat: Chat, model: str, office: Office) -> None:
    await chat.open(model)
    await chat.send("send")
    await Dialog(chat).wait("Run send_email?")
    await chat.reopen_in_a_new_tab()
    await wait_for_card(chat)
    assert office.sent == []
    await press(chat, office, "Allow")
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]


async def test_a_refusal_goes_to_the_model(chat: Chat, model: str, office: Office) -> None:
    await send(chat, model)
    await press(chat, office, "Deny")
    await wait_for_answer(chat, "Error: Not run: the user refused it.")
    assert office.sent == []
    await chat.screenshot("waiting-card-denied")
    await check_after_reload(chat, "Error: Not run: the user refused it.")


async def test_a_call_is_approved_after_everything_was_restarted(
    chat: Chat, model: str, office: Office, open_webui: OpenWebUI
) -> None:
    await send(chat, model)
    await chat.screenshot("waiting-card-before-a-restart-of-everything")
    await asyncio.to_thread(open_webui.service.kill)
    await office.restart()
    await start(open_webui)
    await chat.reload()
    await wait_for_card(chat)
    await chat.screenshot("waiting-card-after-a-restart-of-everything")
    await press(chat, office, "Allow")
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]
    await check_after_reload(chat, f"Sent to {ANN}.")


async def test_a_call_is_approved_after_open_webui_was_killed(
    chat: Chat, model: str, office: Office, open_webui: OpenWebUI
) -> None:
    await send(chat, model)
    await asyncio.to_thread(open_webui.service.kill)
    await start(open_webui)
    await chat.reload()
    await wait_for_card(chat)
    await press(chat, office, "Allow")
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]


async def test_a_call_whose_time_is_over_while_open_webui_is_away_waits_after_its_restart(
    chat: Chat, model: str, office: Office, open_webui: OpenWebUI
) -> None:
    await chat.open(model)
    user_id = await read_user_id(chat)
    await chat.send("send")
    await Dialog(chat).wait("Run send_email?")
    await asyncio.to_thread(open_webui.service.kill)
    async with asyncio.timeout(WAIT_MS / 1000):
        while True:
            if any(one["chat_id"] == chat.chat_id for one in office.list_approvals(user_id)):
                break
            # Nobody listens to the run, which would say that it is parked.
            await asyncio.sleep(0.5)
    await start(open_webui)
    await chat.reload()
    await wait_for_card(chat)
    await press(chat, office, "Allow")
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]
    await check_after_reload(chat, f"Sent to {ANN}.")


async def test_a_tool_that_had_begun_when_the_server_was_killed_is_not_run_again(
    chat: Chat, model: str, office: Office
) -> None:
    await send(chat, model)
    office.gate.close()
    await press(chat, office, "Allow")
    with await asyncio.to_thread(office.gate.wait_for_one):
        await office.restart()
    await wait_for_answer(chat, "Error: ")
    assert office.sent == [ANN]
    await chat.screenshot("waiting-card-interrupted")


async def test_the_answer_is_restored_if_open_webui_is_killed_while_the_approved_tool_runs(
    chat: Chat, model: str, office: Office, open_webui: OpenWebUI
) -> None:
    await send(chat, model)
    office.gate.close()
    await press(chat, office, "Allow")
    with await asyncio.to_thread(office.gate.wait_for_one):
        await asyncio.to_thread(open_webui.service.kill)
    await start(open_webui)
    await chat.reload()
    await wait_for_answer(chat, f"Sent to {ANN}.")
    assert office.sent == [ANN]
    await chat.screenshot("waiting-card-restored")
    await check_after_reload(chat, f"Sent to {ANN}.")


async def test_stop_while_the_approved_tool_runs_ends_the_run(chat: Chat, model: str, office: Office) -> None:
    await send(chat, model)
    office.gate.close()
    await press(chat, office, "Allow")
    with await asyncio.to_thread(office.gate.wait_for_one):
        await chat.stop()
    await chat.screenshot("waiting-card-stopped-at-work")
    assert AFTER not in await chat.text()
    await chat.ask("hello")
    assert office.sent == [ANN]


async def test_allow_in_two_tabs_runs_the_tool_once(chat: Chat, model: str, office: Office) -> None:
    await send(chat, model)
    other = await chat.in_another_tab()
    await wait_for_card(other)
    office.gate.close()
    await press(other, office, "Allow")
    # The second tab may have been told already, or is told in this moment: then there is no button to press.
    await button(chat, "Allow").evaluate_all("buttons => buttons.forEach(button => button.click())")
    office.gate.open()
    await wait_for_answer(chat, f"Sent to {ANN}.")
    await wait_for_answer(other, f"Sent to {ANN}.")
    assert office.sent == [ANN]
    await other.page.close()


async def test_a_call_that_is_stopped_while_it_waits_never_runs(chat: Chat, model: str, office: Office) -> None:
    await stop_waiting(chat, model)
    await chat.screenshot("waiting-card-stopped")
    assert await list_waiting(chat, office)
    await chat.ask("hello")
    assert office.sent == []
    await wait_until_nothing_waits(chat, office)


async def test_a_call_that_was_stopped_can_still_be_approved_elsewhere(chat: Chat, model: str, office: Office) -> None:
    await stop_waiting(chat, model)
    [waiting] = await list_waiting(chat, office)
    office.gate.close()
    office.approve(waiting)
    with await asyncio.to_thread(office.gate.wait_for_one):
        assert office.sent == [ANN]
    await chat.reload()
    await chat.screenshot("waiting-card-stopped-and-approved-elsewhere")
    assert AFTER not in await chat.text()
    await chat.ask("hello")
    assert office.sent == [ANN]


async def list_waiting(chat: Chat, office: Office) -> list[dict[str, Any]]:
    """The approvals that wait in this chat."""
    user_id = await read_user_id(chat)
    return [one for one in office.list_approvals(user_id) if one["chat_id"] == chat.chat_id]


async def wait_until_nothing_waits(chat: Chat, office: Office) -> None:
    """Return once the server has no approval that waits in this chat."""
    async with asyncio.timeout(WAIT_MS / 1000):
        while True:
            if not await list_waiting(chat, office):
                return
            # The function for events works in the background, and tells nobody.
            await asyncio.sleep(0.5)


async def read_user_id(chat: Chat) -> str:
    user: dict[str, Any] = await chat.page.evaluate(USER)
    return str(user["id"])


async def test_a_call_whose_chat_is_deleted_never_runs(chat: Chat, model: str, office: Office) -> None:
    await send(chat, model)
    user_id = await read_user_id(chat)
    assert any(one["chat_id"] == chat.chat_id for one in office.list_approvals(user_id))
    assert await chat.page.evaluate(DELETE_CHAT, chat.chat_id)
    await wait_until_nothing_waits(chat, office)
    assert office.sent == []


async def test_of_two_calls_that_wait_one_is_approved_and_the_other_refused(
    chat: Chat, model: str, office: Office
) -> None:
    await send(chat, model, "send two")
    await chat.screenshot("two-waiting-cards")
    office.gate.close()
    await press(chat, office, "Allow")
    with await asyncio.to_thread(office.gate.wait_for_one):
        await expect(button(chat, "Allow")).to_have_count(0)
    await wait_for_card(chat)
    assert office.sent == [ANN]
    await chat.screenshot("two-waiting-cards-one-allowed")
    await press(chat, office, "Deny")
    await wait_for_answer(chat, f"Sent to {ANN}. | Error: Not run: the user refused it.")
    assert office.sent == [ANN]


async def test_without_the_filter_the_call_runs_and_the_answer_says_what_is_missing(
    chat: Chat, model: str, office: Office, open_webui: OpenWebUI, rendering: str
) -> None:
    await send(chat, model)
    toggle = f"{open_webui.url}/api/v1/functions/id/office_{rendering}_approvals/toggle"
    post(toggle, open_webui.token, {})
    try:
        await press(chat, office, "Allow")
        await wait_for_answer(chat, f"Sent to {ANN}.")
        await expect(chat.answer.get_by_text("callboard install-pipe")).to_be_visible()
        await chat.screenshot("waiting-card-without-filter")
    finally:
        post(toggle, open_webui.token, {})
    assert office.sent == [ANN]
