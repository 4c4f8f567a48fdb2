"""Open WebUI connected to the server without the pipe, as to any OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.e2e.agents import book
from tests.e2e.conftest import KEY, OpenWebUI, webui_client
from tests.e2e.open_webui_page import Chat
from tests.e2e.server import Server, Told

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

HEADERS = {
    "X-OpenWebUI-User-Id": "{{USER_ID}}",
    "X-OpenWebUI-Chat-Id": "{{CHAT_ID}}",
    "X-OpenWebUI-Message-Id": "{{MESSAGE_ID}}",
    "X-OpenWebUI-Task": "{{TASK}}",
}
NEXT = "What did you find?"


@pytest_asyncio.fixture(loop_scope="session")
async def connected(open_webui: OpenWebUI, server: Server) -> AsyncIterator[Server]:
    """The server, to which Open WebUI has a connection whose models begin with "items"."""
    body = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [f"{server.url}/v1"],
        "OPENAI_API_KEYS": [KEY],
        "OPENAI_API_CONFIGS": {
            "0": {"enable": True, "prefix_id": "items", "api_type": "responses", "headers": HEADERS}
        },
    }
    async with webui_client(open_webui) as client:
        assert (await client.post("/openai/config/update", json=body)).status_code == 200
        models = (await client.get("/api/models?refresh=true")).json()["data"]
        assert "items.librarian" in {model["id"] for model in models}
        yield server
        assert (await client.post("/openai/config/update", json=body | {"ENABLE_OPENAI_API": False})).status_code == 200
        await client.get("/api/models?refresh=true")


async def test_calls_are_drawn_live_and_after_a_reload_and_the_next_turn_is_told_them_whole(
    chat: Chat, connected: Server
) -> None:
    await chat.open("items.librarian")
    connected.gate.close()
    await chat.send("look up apple and pear, then say so and read Emma, then borrow Ivanhoe, then listen for owls")
    await chat.wait_for_chip("listen")
    assert any(chip.running for chip in await chat.chips())
    connected.gate.open()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    chips = await chat.chips()
    await chat.reload()
    assert await chat.chips() == chips
    await chat.ask(NEXT)
    first, second = connected.turns
    assert first.results[2:] == [book("Emma"), "Error: Ivanhoe is lent to somebody else", "heard: owls"]
    assert second.told == [*first.own, Told.user(NEXT)]


async def test_thoughts_pictures_and_sources_are_shown_and_what_needs_consent_does_not_run(
    chat: Chat, connected: Server
) -> None:
    await chat.open("items.demo")
    await chat.ask("think, picture, cite and approve")
    await chat.reload()
    await expect(chat.answer.get_by_role("button", name="Thought")).to_be_visible()
    await expect(chat.answer.locator('img[src^="data:image/png"]')).to_be_visible()
    await expect(chat.answer.get_by_text("2 Sources")).to_be_visible()
    assert (await chat.chips())[-1].failed
    assert "it was not approved" in await chat.result("sell_ticket")
