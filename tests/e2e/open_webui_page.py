"""A chat in Open WebUI's page, as a person sees it: sent, watched, stopped, reloaded, read.

All that is known of Open WebUI's HTML (0.11.4 to 0.12.4) is here. A tool call is drawn as a *chip*: an icon, a label
and, once expanded, its input and output. Neighbouring calls are drawn as one chip, a *group*, with theirs inside once
expanded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import FrameLocator, Locator, Page, WebSocket, expect

TIMEOUT_MS = 30_000

# Blocks in a text end in -tc and -detail-group, items of their own in -detail-1 and -detail-group-1, members of their
# group in -detail-group-1-0-tool-call.
CHIP = '[id$="-tc"], [id*="-detail-"]'

# A chip's line, inside the chip: what is clicked to expand it.
HEAD = '[role="button"]'

_READ_CHIPS = f"""
answer => [...answer.querySelectorAll('{CHIP}')].flatMap(chip => {{
    const head = chip.querySelector('{HEAD}');
    return !head || head.closest('{CHIP}') !== chip ? [] : {{
        label: head.innerText.replace(/\\s+/g, ' ').trim(),
        running: head.querySelector('[class*="spinner"]') !== null,
        failed: head.querySelector('.text-red-500') !== null,
        group: /-detail-group(-\\d+)?$/.test(chip.id),
    }};
}})
"""

# Each state of the newest answer's chips, as the page changes: what is shown only for a moment cannot be missed.
_RECORD_CHIPS = f"""
window.chipsSeen = [];
new MutationObserver(() => {{
    const answer = [...document.querySelectorAll('.chat-assistant')].at(-1);
    const chips = answer ? ({_READ_CHIPS.strip()})(answer) : [];
    const last = window.chipsSeen.at(-1);
    if (chips.length && JSON.stringify(chips) !== JSON.stringify(last)) window.chipsSeen.push(chips);
}}).observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
"""

SAVED_CHAT = """
async id => (await fetch(`/api/v1/chats/${id}`, {headers: {Authorization: `Bearer ${localStorage.token}`}})).json()
"""

_IS_IDLE = """
async tasks => {
    const headers = {Authorization: `Bearer ${localStorage.token}`};
    return (await (await fetch(tasks, {headers})).json()).task_ids.length === 0;
}
"""


@dataclass(frozen=True)
class Chip:
    """One tool call, or one group of them, as it is drawn."""

    label: str
    running: bool
    failed: bool
    group: bool

    @property
    def tool(self) -> str:
        """The label up to the tool's name, without the argument and the time behind it."""
        return self.label.partition(" · ")[0]


class Chat:
    """One chat in one page."""

    def __init__(self, page: Page, url: str, artifacts: Path) -> None:
        self.page = page
        self._url = url
        self.artifacts = artifacts
        self._answers = 0

    @classmethod
    async def prepare(cls, page: Page, url: str, artifacts: Path) -> Chat:
        """A chat for a page that has not been opened yet."""
        await page.add_init_script(_RECORD_CHIPS)
        return cls(page, url, artifacts)

    @property
    def answer(self) -> Locator:
        """The newest answer."""
        return self.page.locator(".chat-assistant").last

    @property
    def message(self) -> Locator:
        """The newest answer with all that stands around its text."""
        return self.answer.locator("xpath=ancestor::*[starts-with(@id, 'message-')][1]")

    @property
    def spinners(self) -> Locator:
        """Everything in the chat that still turns."""
        return self.page.locator('.chat-assistant [class*="spinner"], .chat-assistant .shimmer')

    async def open(self, model: str) -> None:
        """A new chat with the model of that id."""
        self._answers = 0
        await self.page.goto(f"{self._url}/?models={model}")
        await expect(self._box).to_be_visible(timeout=TIMEOUT_MS)
        await expect(self.page.get_by_role("button", name="Selected model: ").first).to_be_visible()

    async def send(self, prompt: str) -> None:
        """Send a message; returns when its answer has begun."""
        await self._box.click()
        await self.page.keyboard.insert_text(prompt)
        await self.page.keyboard.press("Enter")
        self._answers += 1
        await expect(self.page.locator(".chat-assistant")).to_have_count(self._answers, timeout=TIMEOUT_MS)

    async def send_now(self, prompt: str) -> None:
        """Write a message while an answer runs, and press "Send now" at it, where the page keeps it for later."""
        await self._box.click()
        await self.page.keyboard.insert_text(prompt)
        await self.page.keyboard.press("Enter")
        button = self.page.get_by_role("button", name="Send now")
        await expect(button).to_be_visible(timeout=TIMEOUT_MS)
        await self.screenshot("queued-message")
        self._answers += 1
        await button.click()
        await expect(self.page.locator(".chat-assistant")).to_have_count(self._answers, timeout=TIMEOUT_MS)

    async def ask(self, prompt: str) -> None:
        """Send a message and wait for the whole answer."""
        await self.send(prompt)
        await self.wait_until_finished()

    async def wait_until_finished(self, seconds: float = TIMEOUT_MS / 1000) -> None:
        """Return once the answer has ended: Open WebUI offers to copy it and no longer to stop it."""
        await expect(self._stop_button).to_have_count(0, timeout=seconds * 1000)
        copy = self.page.locator("button.copy-response-button")
        await expect(copy).to_have_count(self._answers, timeout=seconds * 1000)

    async def wait_until_idle(self) -> None:
        """Return once Open WebUI is at work for this chat no more: what an answer says last may come late."""
        await self.page.wait_for_function(_IS_IDLE, arg=f"/api/tasks/chat/{self.chat_id}", timeout=TIMEOUT_MS)

    async def stop(self, times: int = 1) -> None:
        """Press the stop button, as often as that in one go, and wait for the answer to end."""
        await self._stop_button.click(click_count=times)
        await self.wait_until_finished()

    async def reload(self) -> None:
        """Load the page anew: what is shown afterwards comes from Open WebUI's database."""
        # Open WebUI gives a chat its address with the first message; before that there is nothing to come back to.
        await self.page.wait_for_url(re.compile(r"/c/[0-9a-f-]+"))
        await self.page.reload()
        await expect(self.page.locator(".chat-assistant")).to_have_count(self._answers, timeout=TIMEOUT_MS)

    async def reopen_in_a_new_tab(self) -> None:
        """Close the tab and open the chat in another one."""
        await self.page.wait_for_url(re.compile(r"/c/[0-9a-f-]+"))
        url = self.page.url
        context = self.page.context
        await self.page.close()
        self.page = await context.new_page()
        await self._show(url)

    async def in_another_tab(self) -> Chat:
        """The same chat, opened in a second tab."""
        await self.page.wait_for_url(re.compile(r"/c/[0-9a-f-]+"))
        other = Chat(await self.page.context.new_page(), self._url, self.artifacts)
        other._answers = self._answers
        await other._show(self.page.url)
        return other

    @asynccontextmanager
    async def connected_anew(self) -> AsyncIterator[None]:
        """Open WebUI is restarted in the block; at its end the open page has found it again.

        Such a page reads its chat anew, and shows that over what it is told meanwhile, were it the answer's end.
        """
        connected = asyncio.Event()

        def hear(frame: str | bytes) -> None:
            # Socket.IO's answer to a page that connects.
            if frame[:2] in ("40", b"40"):
                connected.set()

        def follow(socket: WebSocket) -> None:
            socket.on("framereceived", hear)

        self.page.on("websocket", follow)
        try:
            yield
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await connected.wait()
        finally:
            self.page.remove_listener("websocket", follow)

    async def text(self) -> str:
        """The newest answer as it can be read on screen."""
        return await self.answer.inner_text()

    async def chips(self) -> list[Chip]:
        """The newest answer's chips, from top to bottom; those in a group follow it once it is expanded."""
        return [Chip(**chip) for chip in await self.answer.evaluate(_READ_CHIPS)]

    async def chips_seen(self) -> list[list[Chip]]:
        """Every state in which the newest answers' chips have been since the page was loaded."""
        seen: list[list[dict[str, Any]]] = await self.page.evaluate("window.chipsSeen")
        return [[Chip(**chip) for chip in chips] for chips in seen]

    async def wait_for_chip(self, label: str | re.Pattern[str]) -> None:
        """Return once a chip with that text in its label is on screen."""
        await expect(self._head(label).first).to_be_visible(timeout=TIMEOUT_MS)

    async def expand(self, label: str | re.Pattern[str]) -> Locator:
        """Open the first chip with that text in its label; the chip with what it now shows."""
        head = self._head(label).first
        await head.click()
        return head.locator("xpath=ancestor::*[@id][1]")

    async def result(self, label: str | re.Pattern[str]) -> str:
        """What the first chip with that text in its label shows as the call's output once it is expanded."""
        chip = await self.expand(label)
        output = chip.get_by_text("Output", exact=True).locator("xpath=following-sibling::*[1]")
        await expect(output).to_be_visible(timeout=TIMEOUT_MS)
        # Open WebUI shows the first 10,000 characters and offers the others.
        if await (show_all := output.get_by_role("button", name="Show all")).count():
            await show_all.click()
        return await output.inner_text()

    @property
    def chat_id(self) -> str:
        """Open WebUI's id of the chat, which its address ends in."""
        return self.page.url.rpartition("/c/")[2]

    async def open_temporary(self, model: str) -> None:
        """A new temporary chat, which Open WebUI keeps in the page alone."""
        await self.open(f"{model}&temporary-chat=true")

    async def edit_question(self, position: int, prompt: str) -> None:
        """Write a question anew, counted from 0, send it and wait for its answer: the chat then branches above it."""
        question = self._questions.nth(position)
        await self._press(question, "Edit")
        await question.locator("textarea").fill(prompt)
        self._answers = position + 1
        await self._replace(self._message_of_answer(position), question.get_by_role("button", name="Send"))
        await self.wait_until_finished()

    async def show_older_question(self, position: int) -> None:
        """Go to the branch of the version before of a question."""
        await self._show_older(self._questions.nth(position))

    async def rewrite_answer(self, position: int, rewrite: Callable[[str], str]) -> None:
        """Edit an answer and save it: Open WebUI offers each item's text."""
        answer = self._message_of_answer(position)
        await self._press(answer, "Edit")
        for text in await answer.locator("textarea").all():
            await text.fill(rewrite(await text.input_value()))
        saved = f"/api/v1/chats/{self.chat_id}"
        async with self.page.expect_response(
            lambda response: response.request.method == "POST" and response.url.endswith(saved) and response.ok
        ):
            await answer.get_by_role("button", name="Save", exact=True).click()

    async def screenshot(self, name: str) -> None:
        """Keep what is on screen among the artefacts."""
        self.artifacts.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=self.artifacts / f"{name}.png", animations="disabled")

    async def _press(self, message: Locator, button: str) -> None:
        await message.hover()
        await message.locator(f'[aria-label="{button}"]').click()

    async def _replace(self, message: Locator, button: Locator) -> None:
        """Press what puts another message into this one's place, and wait until it has."""
        shown = self.page.locator(f"#{await message.get_attribute('id')}")
        await button.click()
        await expect(shown).to_have_count(0, timeout=TIMEOUT_MS)

    async def _show_older(self, message: Locator) -> None:
        await self._replace(message, message.locator('[aria-label="Previous message"]'))
        self._answers = await self.page.locator(".chat-assistant").count()
        await self.wait_until_finished()

    async def _show(self, url: str) -> None:
        await self.page.add_init_script(_RECORD_CHIPS)
        await self.page.goto(url)
        await expect(self.page.locator(".chat-assistant")).to_have_count(self._answers, timeout=TIMEOUT_MS)

    @property
    def _questions(self) -> Locator:
        return self.page.locator(".user-message")

    def _message_of_answer(self, position: int) -> Locator:
        answer = self.page.locator(".chat-assistant").nth(position)
        return answer.locator("xpath=ancestor::*[starts-with(@id, 'message-')][1]")

    @property
    def _box(self) -> Locator:
        return self.page.locator("#chat-input")

    @property
    def _stop_button(self) -> Locator:
        return self.page.locator('button[aria-label="Stop"]')

    @property
    def _chips(self) -> Locator:
        return self.answer.locator(CHIP)

    def _head(self, label: str | re.Pattern[str]) -> Locator:
        return self._chips.locator(HEAD).filter(has_text=label)


class Content:
    """The newest answer's content."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def thoughts(self) -> Locator:
        """The lines of the reasoning blocks."""
        return self._chat.answer.get_by_text(re.compile(r"^(Thought for|Thinking)"))

    async def unfold(self, line: Locator) -> Locator:
        """What a reasoning block, or a result below the cards, holds."""
        await line.click()
        block = line.locator("xpath=ancestor::*[@id][1]")
        await expect(block.locator("blockquote, p, table, code, .cm-content").first).to_be_visible(timeout=TIMEOUT_MS)
        return block

    @property
    def results(self) -> Locator:
        """The lines of the results below the cards."""
        return self._chat.answer.get_by_role("button", name=re.compile(r": .*(rows?|characters)$|results$"))

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
        await source.get_by_role("button", name="Close citation modal").click()
        await expect(source).to_have_count(0)
        return str(address), text.strip()

    async def sources(self) -> list[str]:
        """The list of sources below the text, unfolded."""
        await self._chat.answer.get_by_role("button", name=re.compile(r"^Toggle \d+ source")).click()
        listed = self._chat.answer.locator('[id^="source-"]')
        await expect(listed.first).to_be_visible()
        return [" ".join(text.split()) for text in await listed.all_inner_texts()]

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


class Question:
    """The question whether a call may run: a form, or before 0.12 a dialog."""

    def __init__(self, chat: Chat, version: str) -> None:
        is_form = not version.startswith("0.11.")
        self._allow, self._refuse = ("Submit", "Decline") if is_form else ("Confirm", "Cancel")
        button = chat.page.get_by_role("button", name=self._allow, exact=True)
        self.window = chat.page.locator("[role=dialog], body > .fixed").filter(has=button).last
        self._message = self.window.locator("form > p, pre").first

    async def wait(self, title: str, message: str = "") -> None:
        """Return once a question of that title, with that text in its message, is open."""
        await expect(self.window.get_by_text(title).first).to_be_visible(timeout=TIMEOUT_MS)
        await expect(self._message).to_contain_text(message)

    async def message(self) -> str:
        """What is asked, to the letter."""
        return str(await self._message.evaluate("message => message.textContent"))

    async def allow(self) -> None:
        """Allow the call, as the form is."""
        await self.window.get_by_role("button", name=self._allow, exact=True).click()

    async def refuse(self) -> None:
        """Refuse the call."""
        await self.window.get_by_role("button", name=self._refuse, exact=True).click()

    async def expect_none(self) -> None:
        """Nothing is asked."""
        await expect(self.window).to_have_count(0, timeout=TIMEOUT_MS)


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


async def sign_in(page: Page, url: str, email: str, password: str, *, is_admin: bool = True) -> None:
    """Sign in through the form, and send away the news of the version, which admins get."""
    await page.goto(url)
    await page.fill('input[type="email"]', email)
    await page.fill('input[type="password"]', password)
    await page.keyboard.press("Enter")
    if is_admin:
        await page.get_by_role("button", name="Okay, Let's Go!").click()
