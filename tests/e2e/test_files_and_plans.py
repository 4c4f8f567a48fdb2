"""Files of tools as chips, and plans in the task panel of Open WebUI, in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.answer_content import SAVED_CHAT, Content
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat
from tests.gates import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180, func_only=True)]


@pytest.fixture
def clerk(demo: str) -> str:
    """The model id of the clerk."""
    return demo.replace(".demo", ".clerk")


def find_chip(chat: Chat, name: str) -> Locator:
    """The chip of a file in the newest answer, or its link in a version without chips."""
    return chat.message.get_by_role("button" if chat.look.has_chips else "link", name=name)


async def read_tasks(chat: Chat) -> list[dict[str, str]]:
    """Return the tasks that Open WebUI has saved with the chat."""
    await chat.page.wait_for_url(re.compile(r"/c/[0-9a-f-]+"))
    saved: dict[str, Any] = await chat.page.evaluate(SAVED_CHAT, chat.chat_id)
    return list(saved["tasks"])


@pytest.mark.feature("files of tools")
async def test_files_of_tools_are_chips_that_open_without_a_second_sign_in(
    chat: Chat, clerk: str, gate: Gate, rendering: str, record_property: Callable[[str, object], None]
) -> None:
    if not chat.look.has_chips:
        record_property("instead", "links")
    await chat.open(clerk)
    await chat.send("write")
    await asyncio.to_thread(gate.pass_one)
    await expect(find_chip(chat, "letter.md")).to_be_visible(timeout=TIMEOUT_MS)
    await chat.reload()
    if chat.look.has_chips:
        # A link comes back with the next change of the answer.
        await expect(find_chip(chat, "letter.md")).to_be_visible(timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    for _ in range(2):
        for name in ("letter.md", "ledger.csv"):
            await expect(find_chip(chat, name)).to_have_count(1)
        assert "/api/v1/files" not in await chat.text()
        await chat.screenshot(f"file-chips-{rendering}")
        await chat.reload_when_idle()
        await chat.wait_until_finished()
    if not chat.look.has_chips:
        return
    await find_chip(chat, "letter.md").click()
    dialog = chat.page.get_by_role("dialog").filter(has_text="letter.md")
    await expect(dialog).to_contain_text("The key is under the third plank.", timeout=TIMEOUT_MS)
    await chat.screenshot(f"file-opened-{rendering}")
    saved = (await Content(chat).saved())["files"]
    assert sorted(file["name"] for file in saved) == ["ledger.csv", "letter.md"]


@pytest.mark.feature("plan")
async def test_plan_is_in_the_task_panel_after_a_reload_too(
    chat: Chat, clerk: str, gate: Gate, rendering: str, record_property: Callable[[str, object], None]
) -> None:
    if not chat.look.has_tasks:
        record_property("instead", "status line")
        await chat.open(clerk)
        await check_plan_in_status_lines(chat, gate)
        return
    panel = chat.page.get_by_text("tasks completed")
    await chat.open(clerk)
    await chat.send("write")
    await expect(panel).to_contain_text("0 out of 2", timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    for _ in range(2):
        await expect(panel).to_contain_text("1 out of 2", timeout=TIMEOUT_MS)
        await expect(chat.page.get_by_text("2. Write ledger.csv")).to_be_visible()
        await chat.screenshot(f"plan-{rendering}")
        await chat.reload()
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    await expect(panel).to_have_count(0)
    assert {task["status"] for task in await read_tasks(chat)} == {"completed"}


@pytest.mark.tasks
async def test_plan_of_a_stopped_answer_is_not_in_the_panel_of_the_next(chat: Chat, clerk: str, gate: Gate) -> None:
    panel = chat.page.get_by_text("tasks completed")
    await chat.open(clerk)
    await chat.send("write")
    await expect(panel).to_contain_text("0 out of 2", timeout=TIMEOUT_MS)
    assert [task["status"] for task in await read_tasks(chat)] == ["in_progress", "pending"]
    await chat.stop()
    await expect(panel).to_have_count(0)
    await chat.wait_until_idle()
    assert await read_tasks(chat) == []


async def test_plan_in_a_temporary_chat_is_a_status_line(chat: Chat, clerk: str, gate: Gate) -> None:
    await chat.open_temporary(clerk)
    await check_plan_in_status_lines(chat, gate)


async def check_plan_in_status_lines(chat: Chat, gate: Gate) -> None:
    """The status line above the answer says which step of the plan is at work."""
    await chat.send("write")
    await expect(chat.message).to_contain_text("Plan: 0 of 2: Write letter.md", timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await expect(chat.message).to_contain_text("Plan: 1 of 2: Write ledger.csv", timeout=TIMEOUT_MS)
    await chat.screenshot("plan-as-a-status-line")
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
