"""Open WebUI is killed in the middle of an answer and started again: the answer is there as if it had not been."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

import openwebui
from service import Service, free_port
from tests.e2e.answer_content import Dialog
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.open_webui_page import Chat
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.gates import Gate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.events,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300, func_only=True),
]

AGENTS = Path(__file__).with_name("narrator.py")
BEFORE = "Once upon a time. "
BETWEEN = "Then it was quiet. "
AFTER = "And so it ended."
GATE = "listen_at_the_gate"
GRACE_SECONDS = 600
WAIT_MS = 60_000


def script(body: Body) -> Answer:
    """Text and two calls at once, text and a call that waits, text."""
    messages = body["messages"]
    asked = str(next(message["content"] for message in reversed(messages) if message["role"] == "user"))
    if asked.startswith("### Task:"):
        return chunks(text(json.dumps({"title": "A play", "tags": ["play"], "follow_ups": []})), finish("stop"))
    results = sum(message["role"] == "tool" for message in messages)
    if asked == "sign" and results == 0:
        return chunks(text(BEFORE), call("sign", '{"name": "Ann"}', call_id="signature"), finish("tool_calls"))
    if results == 0:
        noted = [call("note", json.dumps({"word": word}), index=i, call_id=word) for i, word in enumerate(("a", "b"))]
        return chunks(text(BEFORE), *noted, finish("tool_calls"))
    if results == 2 and asked == "tell":
        return chunks(text(BETWEEN), call(GATE, '{"subject": "owls"}', call_id="gate"), finish("tool_calls"))
    return chunks(text(AFTER), finish("stop"))


class Narration:
    """The narrator's server, and the gate that its answers wait at."""

    def __init__(self, service: Service, url: str, gate: Gate) -> None:
        self.service = service
        self.url = url
        self.gate = gate

    def read(self, path: str, user_id: str) -> tuple[int, Any]:
        """The status and the body of what the server answers for that user."""
        return ask(f"{self.url}{path}?user_id={user_id}", KEY)

    async def wait_for_end(self, chat_id: str, user_id: str) -> None:
        """Return once the chat's last run has ended."""
        _, chat = self.read(f"/v1/chats/{chat_id}/messages", user_id)
        run_id = chat["messages"][-1]["run_id"]
        address = f"{self.url}/v1/runs/{run_id}/events?user_id={user_id}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {KEY}"})
        with await asyncio.to_thread(urllib.request.urlopen, request, timeout=30) as events:
            await asyncio.to_thread(events.read)


@dataclass(frozen=True)
class Saved:
    """A message as Open WebUI's database has it, without ids, which are no two times the same."""

    done: bool
    content: str
    output: list[dict[str, Any]]
    statuses: list[str]
    user_id: str

    @property
    def answer(self) -> tuple[bool, str, list[dict[str, Any]]]:
        """What of it is the answer, without the times that its calls took."""
        output = json.loads(without_times(json.dumps(self.output, ensure_ascii=False)))
        return self.done, without_times(self.content), output


def read_saved(open_webui: OpenWebUI, chat_id: str) -> Saved:
    """The newest message of the chat."""
    _, chat = ask(f"{open_webui.url}/api/v1/chats/{chat_id}", open_webui.token)
    history = chat["chat"]["history"]
    message = history["messages"][history["currentId"]]
    output = [{name: value for name, value in item.items() if name != "id"} for item in message.get("output") or ()]
    statuses = [status["description"] for status in message.get("statusHistory") or ()]
    return Saved(message["done"], message["content"], output, statuses, chat["user_id"])


def ask(url: str, token: str, method: str = "GET") -> tuple[int, Any]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read() or b"null")


def post(url: str, token: str, body: object) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30):
        pass


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrating(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Narration]:
    async with OpenAIServer(script) as endpoint:
        port = free_port()
        data = tmp_path_factory.mktemp("narration")
        settings = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "scripted", "AGENTS": str(AGENTS)}
        grace = {"DETACH_GRACE_SECONDS": str(GRACE_SECONDS)}
        service = callboard_service("The narrator's server", port, data, KEY, **settings, **grace)
        with running(service, SERVER_START_SECONDS, artifacts):
            yield Narration(service, f"http://127.0.0.1:{port}", Gate(data))


@pytest.fixture
def narration(narrating: Narration) -> Iterator[Narration]:
    narrating.gate.open()
    narrating.gate.close()
    yield narrating
    narrating.gate.open()


@pytest.fixture
def function_id(rendering: str) -> str:
    return f"narration_{rendering}"


@pytest.fixture
def model(open_webui: OpenWebUI, narration: Narration, function_id: str, rendering: str) -> str:
    """The narrator's id in Open WebUI, through a pipe with that rendering."""
    install(open_webui, narration.url, function_id, rendering)
    return f"{function_id}.narrator"


@pytest.fixture
def without(open_webui: OpenWebUI, model: str, function_id: str) -> Iterator[Callable[[str], None]]:
    """Switches a valve of the function for events off, for one test."""
    path = f"{open_webui.url}/api/v1/functions/id/{function_id}_events/valves/update"
    yield lambda valve: post(path, open_webui.token, {valve: False})
    post(path, open_webui.token, {})


async def kill(open_webui: OpenWebUI) -> None:
    await asyncio.to_thread(open_webui.service.kill)


async def start(open_webui: OpenWebUI) -> None:
    open_webui.service.start()
    await asyncio.to_thread(open_webui.service.wait_until_healthy, openwebui.START_SECONDS)


@asynccontextmanager
async def killed(open_webui: OpenWebUI) -> AsyncIterator[None]:
    """Open WebUI is away for a block; it is started again however that ends: the tests that follow need it too."""
    await kill(open_webui)
    try:
        yield
    finally:
        await start(open_webui)


async def ask_at_the_closed_gate(chat: Chat, model: str) -> None:
    await chat.open(model)
    await chat.send("tell")
    await chat.wait_for_chip(GATE)
    # A busy page gets the address of a new chat after its first answer has begun.
    await chat.page.wait_for_url("**/c/*")


def without_times(text: str) -> str:
    """The text without the times behind the names of calls, which are never twice the same."""
    return re.sub(r" · (?:under )?[\d.]+ s\b", "", text)


def count_lines_of_the_gate(saved: Saved) -> int:
    """How many status lines say that the call at the gate runs."""
    return sum(line.startswith(f"Running {GATE}") for line in saved.statuses)


def without_status(text: str) -> str:
    """What stands below the line of status, which says how long an answer took only where that is known."""
    return text.partition("\n")[2]


async def check_that_it_is_over(chat: Chat) -> None:
    """Nothing turns, all is the same after a reload, and the next message is answered."""
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    # The last status may come after the answer.
    await chat.wait_until_idle()
    said = await chat.text()
    chips = await chat.chips()
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert (await chat.text(), await chat.chips()) == (said, chips)
    await chat.ask("hello")


@pytest.mark.parametrize("ending", ["kill", "stop"])
async def test_an_answer_goes_on_in_the_open_page_and_is_what_it_would_have_been(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration, ending: str
) -> None:
    narration.gate.open()
    await chat.open(model)
    await chat.ask("tell")
    usual = read_saved(open_webui, chat.chat_id)
    usual_text = await chat.text()
    usual_chips = await chat.chips()
    narration.gate.close()
    await chat.page.goto("about:blank")
    chat.forget_answers()
    await ask_at_the_closed_gate(chat, model)
    async with chat.connected_anew():
        await asyncio.to_thread(getattr(open_webui.service, ending))
        await start(open_webui)
    # A tab that is opened now, and the one that was open all the time.
    other = await chat.in_another_tab()
    await other.wait_for_chip(GATE)
    await other.screenshot(f"restarted-{ending}-before-the-end")
    narration.gate.open()
    for page in (other, chat):
        await expect(page.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
        await page.wait_until_finished()
        assert without_times(without_status(await page.text())) == without_times(without_status(usual_text))
        chips = [replace(chip, label=without_times(chip.label)) for chip in await page.chips()]
        assert chips == [replace(chip, label=without_times(chip.label)) for chip in usual_chips]
    await chat.screenshot(f"restarted-{ending}-open-page")
    # A tab behind another one draws nothing in 0.11.
    await other.page.close()
    saved = read_saved(open_webui, chat.chat_id)
    assert saved.answer == usual.answer
    assert saved.statuses[-1] == "3 calls"
    assert count_lines_of_the_gate(saved) == 1
    await check_that_it_is_over(chat)


async def test_an_answer_that_ended_while_open_webui_was_away_is_there(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    await ask_at_the_closed_gate(chat, model)
    user_id = read_saved(open_webui, chat.chat_id).user_id
    async with killed(open_webui):
        narration.gate.open()
        await narration.wait_for_end(chat.chat_id, user_id)
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
    assert (await chat.text()).count(BEFORE.strip()) == 1
    await chat.screenshot("restarted-ended-meanwhile")
    await check_that_it_is_over(chat)


async def test_a_page_that_hears_of_the_task_after_its_end_offers_to_stop_nothing(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    await ask_at_the_closed_gate(chat, model)
    user_id = read_saved(open_webui, chat.chat_id).user_id

    async def answer_late(route: Route) -> None:
        await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
        await route.fulfill(json={"task_ids": ["restored"]})

    await chat.page.route("**/api/tasks/chat/*", answer_late, times=1)
    async with killed(open_webui):
        narration.gate.open()
        await narration.wait_for_end(chat.chat_id, user_id)
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
    await check_that_it_is_over(chat)


async def test_of_two_replicas_that_start_together_one_restores_the_answer(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration, artifacts: Path
) -> None:
    await ask_at_the_closed_gate(chat, model)
    url = chat.page.url
    chat_id = chat.chat_id
    user_id = read_saved(open_webui, chat_id).user_id
    # Each waits for a page of the user's, for the same time.
    await chat.page.goto("about:blank")
    own = open_webui.service
    port = free_port()
    command = [str(port) if part == open_webui.url.rpartition(":")[2] else part for part in own.command]
    health = f"http://127.0.0.1:{port}/health"
    twin = replace(own, command=command, log=own.log.with_name("open-webui-twin.log"), health=health)
    await kill(open_webui)
    try:
        narration.gate.open()
        await narration.wait_for_end(chat_id, user_id)
    except BaseException:
        # The tests that follow need it too.
        await start(open_webui)
        raise
    own.start()
    with running(twin, openwebui.START_SECONDS, artifacts):
        await asyncio.to_thread(own.wait_until_healthy, openwebui.START_SECONDS)
        async with asyncio.timeout(60):
            while True:
                if read_saved(open_webui, chat_id).done:
                    break
                # It is in another process's database, and no page is open that would be told.
                await asyncio.sleep(0.5)
        logs = own.log.read_text() + twin.log.read_text()
    assert logs.count("Open WebUI was stopped in message") == 2
    assert len(re.findall(r"GET \S+/events\?\S+ \"HTTP", logs)) == 1
    assert count_lines_of_the_gate(read_saved(open_webui, chat_id)) == 1
    await chat.page.goto(url)
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
    await check_that_it_is_over(chat)


async def test_an_answer_on_a_branch_is_restored_beside_the_other(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    narration.gate.open()
    await chat.open(model)
    await chat.ask("tell")
    first = await chat.text()
    narration.gate.close()
    await chat.begin_again()
    await chat.wait_for_chip(GATE)
    await kill(open_webui)
    await start(open_webui)
    narration.gate.open()
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
    await chat.wait_until_finished()
    await chat.show_older_answer(0)
    assert await chat.text() == first


async def test_a_question_that_was_open_is_asked_again(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    await chat.open(model)
    await chat.send("sign")
    await Dialog(chat).wait("Run sign?")
    await kill(open_webui)
    await start(open_webui)
    await chat.reopen_in_a_new_tab()
    dialog = Dialog(chat)
    await dialog.wait("Run sign?", timeout_ms=WAIT_MS)
    await chat.screenshot("restarted-question")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert AFTER in await chat.text()
    [chip] = await chat.chips()
    assert not chip.failed
    assert await chat.result("sign") == "signed: Ann"


async def test_a_question_waits_for_a_page_that_shows_its_chat(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    await chat.open(model)
    await chat.send("sign")
    await Dialog(chat).wait("Run sign?")
    url = chat.page.url
    async with killed(open_webui):
        await chat.page.goto("about:blank")
    elsewhere = await chat.page.context.new_page()
    await elsewhere.goto(open_webui.url)
    await wait_for_log(open_webui, "/events?user_id=")
    await chat.page.goto(url)
    dialog = Dialog(chat)
    await dialog.wait("Run sign?", timeout_ms=WAIT_MS)
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    assert AFTER in await chat.text()


async def test_stop_ends_a_restored_answer(chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration) -> None:
    await ask_at_the_closed_gate(chat, model)
    user_id = read_saved(open_webui, chat.chat_id).user_id
    await kill(open_webui)
    await start(open_webui)
    await chat.reopen_in_a_new_tab()
    await chat.wait_for_chip(GATE)
    await chat.stop()
    await narration.wait_for_end(chat.chat_id, user_id)
    [*_, chip] = await chat.chips()
    assert not chip.failed
    await chat.screenshot("restarted-stopped")


async def test_a_message_that_is_deleted_meanwhile_stays_deleted(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    narration.gate.open()
    await chat.open(model)
    await chat.ask("tell")
    narration.gate.close()
    await chat.begin_again()
    await chat.wait_for_chip(GATE)
    chat_id = chat.chat_id
    user_id = read_saved(open_webui, chat_id).user_id
    await kill(open_webui)
    await start(open_webui)
    await wait_for_log(open_webui, "/events?user_id=")
    # In another tab, with none that shows the answer.
    await chat.page.goto("about:blank")
    _, before = ask(f"{open_webui.url}/api/v1/chats/{chat_id}", open_webui.token)
    message = f"/messages/{before['chat']['history']['currentId']}"
    assert ask(f"{open_webui.url}/api/v1/chats/{chat_id}{message}", open_webui.token, "DELETE")[0] == 200
    narration.gate.open()
    await narration.wait_for_end(chat_id, user_id)
    await wait_for_log(open_webui, "was deleted meanwhile")
    _, kept = ask(f"{open_webui.url}/api/v1/chats/{chat_id}", open_webui.token)
    assert len(kept["chat"]["history"]["messages"]) == 2


async def test_an_answer_that_the_server_has_forgotten_has_a_note(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration
) -> None:
    await ask_at_the_closed_gate(chat, model)
    async with killed(open_webui):
        await asyncio.to_thread(narration.service.kill)
        try:
            for file in narration.gate.folder.glob("*.db*"):
                file.unlink()
        finally:
            narration.service.start()
            await asyncio.to_thread(narration.service.wait_until_healthy, SERVER_START_SECONDS)
    await expect(chat.answer.get_by_text("ask again")).to_be_visible(timeout=2 * WAIT_MS)
    await chat.screenshot("restarted-forgotten")
    assert "Thinking" not in await chat.text()
    narration.gate.open()
    await check_that_it_is_over(chat)


async def test_with_its_valve_off_nothing_is_restored(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration, without: Callable[[str], None]
) -> None:
    without("RESTORE_ANSWERS")
    await ask_at_the_closed_gate(chat, model)
    await kill(open_webui)
    await start(open_webui)
    narration.gate.open()
    await chat.reopen_in_a_new_tab()
    await chat.screenshot("restarted-valve-off")
    assert "Open WebUI was stopped in message" not in open_webui.service.log.read_text()
    assert AFTER not in read_saved(open_webui, chat.chat_id).content


async def test_a_chat_that_is_deleted_is_forgotten_unless_its_valve_is_off(
    chat: Chat, model: str, open_webui: OpenWebUI, narration: Narration, without: Callable[[str], None]
) -> None:
    narration.gate.open()
    chats = []
    for _ in range(3):
        chat.forget_answers()
        await chat.open(model)
        await chat.ask("tell")
        chats.append(f"/chats/{chat.chat_id}")
    user_id = read_saved(open_webui, chat.chat_id).user_id
    kept, forgotten, forgotten_with_all = chats
    without("FORGET_CHATS")
    assert ask(f"{open_webui.url}/api/v1{kept}", open_webui.token, "DELETE") == (200, True)
    # Open WebUI answers first and tells its functions then, with the valves as they are by that time.
    await wait_for_log(open_webui, f"FORGET_CHATS is off: the server keeps {kept.removeprefix('/chats/')}")
    post(f"{open_webui.url}/api/v1/functions/id/{model.partition('.')[0]}_events/valves/update", open_webui.token, {})
    assert ask(f"{open_webui.url}/api/v1{forgotten}", open_webui.token, "DELETE") == (200, True)
    await wait_for_log(open_webui, f"DELETE {narration.url}/v1{forgotten}")
    assert narration.read(f"/v1{forgotten}/messages", user_id)[0] == 404
    assert narration.read(f"/v1{kept}/messages", user_id)[0] == 200
    assert ask(f"{open_webui.url}/api/v1/chats/", open_webui.token, "DELETE") == (200, True)
    await wait_for_log(open_webui, f"DELETE {narration.url}/v1/chats?user_id={user_id}")
    assert narration.read(f"/v1{forgotten_with_all}/messages", user_id)[0] == 404


async def wait_for_log(open_webui: OpenWebUI, words: str) -> None:
    """Return once Open WebUI has logged these words."""
    async with asyncio.timeout(30):
        while True:
            if words in open_webui.service.log.read_text():
                return
            # Another process writes the file.
            await asyncio.sleep(0.1)
