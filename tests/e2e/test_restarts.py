"""The server or Open WebUI is killed in the middle of an answer and started again: the answer goes on in the page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.async_api import expect

import openwebui
from tests.e2e.conftest import OpenWebUI, webui_client
from tests.e2e.open_webui_page import Chat
from tests.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

TELL = "look up apple and pear, then say so and listen for owls"
AFTER = "That is my answer"
WAIT_MS = 60_000
ALIKE = re.compile(
    r''' · (?:under )?[\d.]+ s\b|entry [0-9a-f]{8}|answer number \d+| id=\\?"[^"\\]+\\?"|"call_id": "[^"]+"'''
)


@dataclass(frozen=True)
class Saved:
    """A message as Open WebUI's database has it, without ids and times, which are no two times the same."""

    done: bool
    content: str
    output: str
    statuses: list[str]


async def ask(open_webui: OpenWebUI, path: str, method: str = "GET", body: object = None) -> Any:
    """What Open WebUI's API answers its admin."""
    async with webui_client(open_webui) as client:
        return (await client.request(method, f"/api/v1/{path}", json=body)).raise_for_status().json()


async def user_id(open_webui: OpenWebUI) -> str:
    """The admin's id in Open WebUI, which is the one that the pipe sends."""
    return str((await ask(open_webui, "auths/"))["id"])


async def read_saved(open_webui: OpenWebUI, chat_id: str) -> Saved:
    """The newest message of the chat."""
    history = (await ask(open_webui, f"chats/{chat_id}"))["chat"]["history"]
    message = history["messages"][history["currentId"]]
    output = [{name: value for name, value in item.items() if name != "id"} for item in message.get("output") or ()]
    statuses = [status["description"] for status in message.get("statusHistory") or ()]
    return Saved(message["done"], alike(message["content"]), alike(json.dumps(output, ensure_ascii=False)), statuses)


def alike(text: str) -> str:
    """The text without the times behind the names of calls, and without what is different in each answer."""
    return ALIKE.sub("", text)


@asynccontextmanager
async def killed(open_webui: OpenWebUI) -> AsyncIterator[None]:
    """Open WebUI is away for a block; it is started again however that ends: the tests that follow need it too."""
    await asyncio.to_thread(open_webui.service.kill)
    try:
        yield
    finally:
        open_webui.service.start()
        await asyncio.to_thread(open_webui.service.wait_until_healthy, openwebui.START_SECONDS)


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once this holds in another process, which tells nobody."""
    async with asyncio.timeout(WAIT_MS / 1000):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.5)


async def wait_for_log(open_webui: OpenWebUI, words: str, times: int = 1) -> None:
    """Return once Open WebUI has logged these words so often since its start."""

    async def is_logged() -> bool:
        return open_webui.service.log.read_text().count(words) >= times

    await wait_until(is_logged)


async def check_that_it_is_over(chat: Chat) -> None:
    """Nothing turns, all is the same after a reload, and the next message is answered."""
    await expect(chat.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
    await chat.wait_until_finished()
    # The last status may come after the answer.
    await chat.wait_until_idle()
    said = await chat.text()
    assert said.count(AFTER) == 1
    chips = await chat.chips()
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert (await chat.text(), await chat.chips()) == (said, chips)
    await chat.ask("hello")


async def test_an_answer_goes_on_whose_server_is_killed_in_one_of_two_parallel_calls(
    chat: Chat, pipe: str, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("say so and look up apple, search for owls")
    await chat.wait_for_chip("Exploring")
    await chat.expand("Exploring")
    await chat.wait_for_chip("View Result from look_up")
    await server.kill()
    try:
        await expect(chat.page.get_by_text("Reconnecting…").last).to_be_visible(timeout=WAIT_MS)
    finally:
        # The tests that follow need it too.
        await server.start()
    await chat.wait_until_finished(WAIT_MS / 1000)
    looked_up, searched = server.turns[-1].results
    assert looked_up.startswith("apple: entry ")
    assert "whether it took effect is not known" in searched
    # Anew, so that the group is folded: whether it stays open at the end is Open WebUI's own affair.
    await chat.reload()
    await check_that_it_is_over(chat)


async def test_an_answer_goes_on_in_the_open_page_and_is_what_it_would_have_been(
    chat: Chat, pipe: str, open_webui: OpenWebUI, server: Server
) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.ask(TELL)
    usual = await read_saved(open_webui, chat.chat_id)
    usual_text = (await chat.text()).partition("\n")[2]
    usual_chips = await chat.chips()
    server.gate.close()
    await chat.open(f"{pipe}.librarian")
    await chat.send(TELL)
    await chat.wait_for_chip("listen")
    # A busy page gets the address of a new chat after its first answer has begun.
    await chat.page.wait_for_url("**/c/*")
    async with chat.connected_anew(), killed(open_webui):
        pass
    # A tab that is opened now, and the one that was open all the time.
    other = await chat.in_another_tab()
    await other.wait_for_chip("listen")
    server.gate.open()
    for page in (other, chat):
        await expect(page.answer.get_by_text(AFTER)).to_be_visible(timeout=WAIT_MS)
        await page.wait_until_finished()
        # The line of status says how long an answer took only where that is known.
        assert alike((await page.text()).partition("\n")[2]) == alike(usual_text)
        chips = [replace(chip, label=alike(chip.label)) for chip in await page.chips()]
        assert chips == [replace(chip, label=alike(chip.label)) for chip in usual_chips]
    await other.page.close()
    saved = await read_saved(open_webui, chat.chat_id)
    assert replace(saved, statuses=[]) == replace(usual, statuses=[])
    assert saved.statuses[-1] == "3 calls"
    assert saved.statuses.count("listen · owls: 10% Listening") == 1
    await check_that_it_is_over(chat)


async def test_a_chat_that_is_deleted_is_forgotten_unless_its_valve_is_off(
    chat: Chat, pipe: str, open_webui: OpenWebUI, server: Server
) -> None:
    chats = []
    for _ in range(3):
        await chat.open(f"{pipe}.librarian")
        await chat.ask("look up apple")
        chats.append(f"chats/{chat.chat_id}")
    user = await user_id(open_webui)
    kept, forgotten, forgotten_with_all = chats
    # Each pipe of the tests has a function for events, and all talk to this server.
    functions = [one["id"] for one in await ask(open_webui, "functions/") if one["id"].endswith("_events")]
    for function_id in functions:
        await ask(open_webui, f"functions/id/{function_id}/valves/update", "POST", {"FORGET_CHATS": False})
    await ask(open_webui, kept, "DELETE")
    # Open WebUI answers first and tells its functions then, with the valves as they are by that time.
    words = f"FORGET_CHATS is off: the server keeps {kept.removeprefix('chats/')}"
    await wait_for_log(open_webui, words, times=len(functions))
    for function_id in functions:
        await ask(open_webui, f"functions/id/{function_id}/valves/update", "POST", {})
    await ask(open_webui, forgotten, "DELETE")
    await wait_for_log(open_webui, f"DELETE {server.url}/v1/{forgotten}")
    assert (await server.get(f"/v1/{forgotten}/messages", user)).status_code == 404
    assert (await server.get(f"/v1/{kept}/messages", user)).status_code == 200
    await ask(open_webui, "chats/", "DELETE")
    await wait_for_log(open_webui, f"DELETE {server.url}/v1/chats?user_id={user}")
    assert (await server.get(f"/v1/{forgotten_with_all}/messages", user)).status_code == 404
