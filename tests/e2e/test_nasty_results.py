"""Results and text that break pages which show them carelessly: here they are shown as the text that they are."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from examples.demo import NASTY
from tests.e2e.open_webui_page import Chat

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]


def as_lines(text: str) -> list[str]:
    """The text's words: how a page breaks and indents lines says nothing about what it shows."""
    return text.split()


@pytest.mark.cell("hostile text")
async def test_a_nasty_result_is_shown_as_text_and_no_script_runs(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("nasty")
    [chip] = await chat.chips()
    assert chip.tool == "View Result from echo_nasty"
    result = await chat.result("echo_nasty")
    assert as_lines(result) == as_lines(f"{NASTY}\n{NASTY}")
    assert "pwned" not in await chat.page.title()
    await expect(chat.answer.locator("img[src=x]")).to_have_count(0)


async def test_nasty_text_in_an_answer_swallows_neither_the_call_nor_what_follows(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("nasty")
    text = await chat.text()
    assert "print('still open')" in text
    assert "View Result from echo_nasty" in text
    assert "If you can read this" in text
    assert "not a thought" in text
    await expect(chat.spinners).to_have_count(0)


@pytest.mark.cell("hostile text")
async def test_nasty_results_are_the_same_after_a_reload(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("nasty")
    text = await chat.text()
    await chat.reload()
    await chat.wait_until_finished()
    # Up to 0.11 a line end is drawn as one or as a space, whichever of the page's parts was loaded first.
    assert as_lines(await chat.text()) == as_lines(text)
    assert as_lines(await chat.result("echo_nasty")) == as_lines(f"{NASTY}\n{NASTY}")
    assert "pwned" not in await chat.page.title()


async def test_nasty_results_come_back_whole_on_the_next_turn(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("nasty")
    await chat.ask("remember")
    text = await chat.text()
    assert "I remember 1 tool call" in text
    assert "</details><img src=x" in text
    assert "pwned" not in await chat.page.title()
