"""What an answer in Open WebUI's page holds beside text and chips, and the dialogs above it, as a person sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import FrameLocator, Locator, expect

from tests.e2e.open_webui_page import TIMEOUT_MS, Chat

SAVED_CHAT = """
async id => (await fetch(`/api/v1/chats/${id}`, {headers: {Authorization: `Bearer ${localStorage.token}`}})).json()
"""


class Content:
    """The newest answer's content."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def thoughts(self) -> Locator:
        """The lines of the reasoning blocks."""
        return self._chat.answer.get_by_text(re.compile(r"^(Thought for|Thinking)"))

    async def unfold(self, thought: Locator) -> str:
        """What a reasoning block holds."""
        await thought.click()
        block = thought.locator("xpath=ancestor::*[@id][1]")
        await expect(block.locator("blockquote, p").first).to_be_visible(timeout=TIMEOUT_MS)
        return await block.inner_text()

    @property
    def pictures(self) -> Locator:
        """The images."""
        return self._chat.answer.locator('img[data-cy="image"]')

    @property
    def frame(self) -> FrameLocator:
        """The page that a tool gave."""
        return self._chat.message.frame_locator("iframe")

    @property
    def citations(self) -> Locator:
        """The citations in the text, each with its source's name."""
        return self._chat.answer.locator("p").get_by_role("button", name=re.compile("^View source: "))

    async def follow(self, citation: Locator) -> tuple[str, str]:
        """The address and the text of the source that a citation leads to."""
        await citation.click()
        source = self._chat.page.get_by_role("dialog").filter(has_text="Content")
        address = await source.get_by_role("link").first.get_attribute("href")
        text = await source.locator(".prose, pre").last.inner_text()
        await self._chat.screenshot("a-source")
        await source.get_by_role("button", name="Close citation modal").click()
        await expect(source).to_have_count(0)
        return str(address), text.strip()

    async def sources(self) -> list[str]:
        """The list of sources below the text, unfolded."""
        await self._chat.answer.get_by_role("button", name=re.compile(r"^Toggle \d+ source")).click()
        listed = self._chat.answer.locator('[id^="source-"]')
        await expect(listed.first).to_be_visible()
        return [" ".join(text.split()) for text in await listed.all_inner_texts()]

    async def usage(self) -> dict[str, int]:
        """What the info button tells."""
        await self._chat.message.locator('[id^="info-"]').hover()
        shown = self._chat.page.locator("[data-tippy-root]").filter(has_text="tokens")
        await expect(shown).to_be_visible(timeout=TIMEOUT_MS)
        return {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", await shown.inner_text())}

    async def saved(self) -> dict[str, Any]:
        """The answer as Open WebUI has saved it."""
        chat = await self._chat.page.evaluate(SAVED_CHAT, self._chat.chat_id)
        history = chat["chat"]["history"]
        saved: dict[str, Any] = history["messages"][history["currentId"]]
        assert saved["role"] == "assistant"
        return saved

    async def attach(self, files: Sequence[Path]) -> None:
        """Attach files to the next message; returns when Open WebUI has them."""
        page = self._chat.page
        names = {file.name for file in files}
        statuses = re.compile(r"/api/v1/files/[\w-]+/process/status")
        waiting = len(names)

        def is_last(response: Any) -> bool:
            nonlocal waiting
            waiting -= bool(statuses.search(response.url))
            return waiting == 0

        async with page.expect_response(is_last, timeout=TIMEOUT_MS) as last:
            await page.locator("input[type=file]").first.set_input_files(files)
        await (await last.value).finished()
        await expect(page.locator('button[aria-label="Remove file" i]')).to_have_count(len(names))
        await expect(page.locator('#message-input-container [class*="spinner"]')).to_have_count(0)


class Dialog:
    """Open WebUI's own dialog in a page: it asks, and is answered."""

    def __init__(self, chat: Chat) -> None:
        self._page = chat.page
        self._look = chat.look
        self._confirm = chat.page.get_by_role("button", name=_find_button("Confirm"))

    @property
    def window(self) -> Locator:
        """The dialog."""
        return self._page.locator("body > .fixed").filter(has=self._confirm)

    async def wait(self, title: str, message: str = "", timeout_ms: float = TIMEOUT_MS) -> None:
        """Return once a dialog of that title, with that text in its message, is open."""
        await expect(self.window.get_by_text(title).first).to_be_visible(timeout=timeout_ms)
        await expect(self.window.locator("pre")).to_contain_text(message)

    async def message(self) -> str:
        """What is asked, to the letter."""
        return str(await self.window.locator("pre").evaluate("message => message.textContent"))

    async def arguments(self) -> dict[str, object]:
        """The arguments of the call that may be allowed, of one line each."""
        shown = await self.message()
        if self.has_permissions:
            return dict(json.loads(shown))
        pairs = [line.split(": ", 1) for line in shown.splitlines()]
        return {name: int(value) if value.isdecimal() else value for name, value in pairs}

    async def text(self) -> str:
        """All that the dialog says."""
        return " ".join((await self.window.inner_text()).split())

    async def close(self) -> None:
        """Close it without a button."""
        await self._page.keyboard.press("Escape")

    @property
    def field(self) -> Locator:
        """Where an answer is written."""
        return self.window.locator("input, textarea")

    async def press(self, button: str) -> None:
        """Answer with a button."""
        await self.window.get_by_role("button", name=_find_button(button)).click()

    async def confirm_what_is_left_open(self) -> None:
        """Say yes where a dialog is still open that nobody waits for any more: newer versions close it."""
        if not self._look.dialogs_close:
            await self.press("Confirm")
        await self.expect_none()

    async def expect_none(self) -> None:
        """Nothing is asked."""
        await expect(self.window).to_have_count(0)

    @property
    def has_permissions(self) -> bool:
        """Whether approvals are Open WebUI's own "Tool Permissions"."""
        return self._look.has_permissions


def _find_button(name: str) -> re.Pattern[str]:
    """A button's name, or the one that it has in "Tool Permissions"."""
    return re.compile({"Confirm": "^(Confirm|Allow)$", "Cancel": "^(Cancel|Deny)$"}.get(name, f"^{name}$"))


class Form:
    """Open WebUI's own form in a page."""

    def __init__(self, chat: Chat) -> None:
        self.window = chat.page.locator("form").filter(has=chat.page.get_by_role("button", name="Decline", exact=True))

    async def wait(self, message: str) -> None:
        """Return once a form with that message is open."""
        await expect(self.window.get_by_text(message)).to_be_visible(timeout=TIMEOUT_MS)

    async def press(self, button: str) -> None:
        """Answer with a button."""
        await self.window.get_by_role("button", name=button, exact=True).click()
