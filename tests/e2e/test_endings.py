"""However a run ends: no spinner, no lost text, words that say what to do, and the next message works."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import OpenWebUI, install
from tests.e2e.library import Library, Told
from tests.e2e.open_webui_page import Chat

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]


async def test_a_server_that_is_killed_in_a_call_leaves_its_text_and_no_spinner(chat: Chat, library: Library) -> None:
    await chat.open(library.model)
    await chat.send("search for owls")
    await chat.wait_for_chip("Executing search_shelves")
    await library.kill()
    try:
        await chat.wait_until_finished()
        await expect(chat.spinners).to_have_count(0)
        [chip] = await chat.chips()
        assert chip.failed == chat.look.red_failures
        text = await chat.text()
        assert "was lost and the answer could not be resumed" in text
        await chat.screenshot("server-killed")
        await chat.reload()
        await chat.wait_until_finished()
        await expect(chat.spinners).to_have_count(0)
        assert await chat.text() == text
    finally:
        await library.start()
    await chat.ask("look up apple")
    _, second = library.turns
    [interrupted] = [message for message in second.told if message.role == "tool"]
    assert interrupted.content.startswith("Error: The server stopped while this tool was running")
    assert "could not be resumed" not in str(second.told)
    assert len(second.calls) == 1


async def test_a_server_that_is_down_is_named_with_the_valve_and_works_when_it_is_back(
    chat: Chat, library: Library
) -> None:
    await chat.open(library.model)
    await library.stop()
    try:
        await chat.ask("look up apple")
        text = await chat.text()
        assert "Cannot reach the Callboard server" in text
        assert "CALLBOARD_URL" in text
        await chat.screenshot("server-down")
    finally:
        await library.start()
    await chat.ask("look up pear")
    [turn] = library.turns
    assert "Cannot reach" not in str(turn.told)
    # The question before has no answer: the two are one message.
    assert turn.told[-1] == Told.user("look up apple\n\nlook up pear")


async def test_a_wrong_key_is_named_with_its_valve(chat: Chat, library: Library, open_webui: OpenWebUI) -> None:
    models = install(open_webui, library.url, "locked_out", "details", key="not-the-key")
    assert "CALLBOARD_API_KEY" in models["locked_out.unreachable"]
    await chat.open("locked_out.unreachable")
    await chat.ask("hello")
    assert "The API key is wrong; it is the server's CALLBOARD_API_KEY" in await chat.text()
