"""What a stranger finds out after `scripts/up`: by what it prints and by links that can be seen alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.open_webui_page import Chat, sign_in
from tests.e2e.up import Up, found

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

QUESTION = "fail: is there a table for tonight?"
TOO_WIDE = """[...document.querySelectorAll('*')]
    .filter(one => document.documentElement.scrollWidth > document.documentElement.clientWidth)
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map(one => one.outerHTML.slice(0, 200))"""
WHY = "The Green Room has no table for 4 at 19:30: fully booked tonight."


async def test_a_stranger_finds_why_a_call_failed_and_what_the_model_was_sent(
    up: Up, browser: Browser, artifacts: Path
) -> None:
    printed = up.start()
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    open_webui = await context.new_page()
    await ask_in_open_webui(open_webui, printed, artifacts)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))

    async def picture(name: str) -> None:
        await page.screenshot(path=artifacts / f"inspector-{name}.png", full_page=True)
        assert await page.evaluate(TOO_WIDE) == []

    # As it is printed: the address, and where the key is.
    await page.goto(found(printed, r"(http://\S+/inspect)"))
    await picture("sign-in")
    await page.get_by_label("API key").fill(read_key(printed))
    await page.get_by_role("button", name="Sign in").click()
    # The first page has the answer, by its question and by the names that people know; tasks are folded.
    await expect(page.get_by_role("heading", name="Last answers")).to_be_visible()
    row = page.get_by_role("row", name=QUESTION)
    for words in ("Demo", "Admin", "1 call failed", "just now"):
        await expect(row).to_contain_text(words)
    await expect(row).to_have_count(1)
    await expect(page.locator("#tasks summary")).to_contain_text("background")
    await picture("first")
    await row.get_by_role("link", name=QUESTION).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(QUESTION)
    # An admin's answer says where its run is.
    await expect(page).to_have_url(await read_inspector_line(open_webui, artifacts))
    # By the chats, …
    await page.get_by_role("link", name="Chats", exact=True).click()
    await picture("chats")
    await page.get_by_role("link", name=QUESTION).click()
    await page.get_by_role("link", name="1 call failed").click()
    await expect(page.get_by_text(WHY).first).to_be_visible()
    await picture("run")
    # … or by the calls: both lead to the same.
    await page.get_by_role("link", name="Calls", exact=True).click()
    await page.get_by_label("Status").select_option("failed")
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("link", name="book_table").click()
    await expect(page.get_by_role("heading", name="Why it failed")).to_be_visible()
    await expect(page.locator(".card.error")).to_contain_text(WHY)
    await picture("call")
    await page.get_by_role("link", name="What the model was sent before it made this call").click()
    await expect(page.locator(".message.user").last).to_contain_text(QUESTION)
    await picture("sent")
    # What it was told of the failure is in the request after.
    await page.get_by_role("link", name="Next request").click()
    await expect(page.locator(".message.tool").last).to_contain_text(WHY)
    assert not complaints
    await context.close()
    assert up.press_ctrl_c() == 0


async def read_inspector_line(page: Page, artifacts: Path) -> str:
    """The address of the run, from the status lines of the answer in Open WebUI."""
    await page.screenshot(path=artifacts / "inspector-answer.png")
    await page.get_by_text("1 call, 1 failed").first.click()
    line = page.get_by_text("Inspector: http").first
    await expect(line).to_be_visible()
    await page.screenshot(path=artifacts / "inspector-status-line.png")
    return (await line.inner_text()).removeprefix("Inspector: ").strip()


def read_key(printed: str) -> str:
    """The key, from where it is printed to be."""
    return Path(found(printed, r"API key +in (\S+)")).read_text().strip()


async def ask_in_open_webui(page: Page, printed: str, artifacts: Path) -> None:
    """Sign in to Open WebUI as it is printed, and ask the demo for something that fails."""
    url = found(printed, r"(http://localhost:\d+)")
    await sign_in(page, url, found(printed, r"sign in as +(\S+)"), found(printed, r"password +(\S+)"))
    chat = await Chat.prepare(page, url, artifacts)
    await chat.open("callboard.demo")
    await chat.ask(QUESTION)
