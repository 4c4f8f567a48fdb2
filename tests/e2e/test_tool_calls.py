"""Tool calls in a real Open WebUI: seen while they run, when they end, when they are stopped, and after a reload."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from examples.demo import IMAGE_STEPS
from tests.e2e.conftest import BOTH, OpenWebUI, webui_client
from tests.e2e.open_webui_page import SAVED_CHAT, TIMEOUT_MS, Chat, Content
from tests.e2e.server import HALF, Server
from tests.gates import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

HOLD = """
import asyncio
import json
import re

class Filter:
    async def stream(self, event, __event_emitter__=None):
        # The first steps pass, so that the page shows them.
        if re.search(r"Step ([5-9]|\\d\\d)", json.dumps(event)):
            await __event_emitter__({"type": "notification", "data": {"type": "info", "content": "Held"}})
            await asyncio.Event().wait()
        return event
"""


async def check_that_it_is_over(chat: Chat, *texts: str) -> None:
    """Nothing turns, each text is there once, all is the same after a reload, and the next message is answered."""
    await chat.wait_until_finished()
    await chat.wait_until_idle()
    await expect(chat.spinners).to_have_count(0)
    said = await chat.text()
    for text in texts:
        assert said.count(text) == 1, said
    chips = await chat.chips()
    assert not any(chip.running for chip in chips)
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert (await chat.text(), await chat.chips()) == (said, chips)
    await chat.ask("hello")


@BOTH
@pytest.mark.every_version
async def test_the_label_of_a_running_call_tells_its_progress_and_its_result_takes_its_place(
    chat: Chat, pipe: str, gate: Gate
) -> None:
    await chat.open(f"{pipe}.held")
    await chat.send("slow")
    for step in IMAGE_STEPS:
        await chat.wait_for_chip(re.compile(rf"Executing generate_image · .*\d+% {step}"))
        [chip] = await chat.chips()
        assert chip.running
        # In the line above the answer too.
        await expect(chat.message).to_contain_text(re.compile(rf"generate_image · .*: \d+% {step}"), timeout=TIMEOUT_MS)
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    seen = await chat.chips_seen()
    assert {len(chips) for chips in seen} == {1}, "there was never a second one"
    labels = [chip.label for [chip] in seen]
    assert [step for step in IMAGE_STEPS if any(step in label for label in labels)] == list(IMAGE_STEPS), labels
    assert labels[-1].startswith("View Result from generate_image · ")
    await expect(chat.spinners).to_have_count(0)


@BOTH
@pytest.mark.every_version
async def test_parallel_calls_are_one_group_whose_members_end_one_by_one(chat: Chat, pipe: str, gate: Gate) -> None:
    await chat.open(f"{pipe}.held")
    await chat.send("what is the weather?")
    await chat.wait_for_chip("Exploring")
    assert (await chat.chips())[0].group
    await chat.expand("Exploring")
    await expect(chat.answer.get_by_text("View Result from get_weather")).to_have_count(1)
    states = {chip.running for chip in await chat.chips() if not chip.group}
    assert states == {True, False}, "one has its result while the other still runs"
    gate.open()
    await chat.wait_until_finished()
    await chat.wait_for_chip("Explored")


@BOTH
@pytest.mark.every_version
async def test_results_and_failures_are_shown_and_everything_is_as_it_was_after_a_reload(
    chat: Chat, pipe: str, gate: Gate
) -> None:
    await chat.open(f"{pipe}.held")
    await chat.send("slow and fail")
    for _ in IMAGE_STEPS:
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_for_chip("View Result from generate_image")
    opened = await chat.expand("generate_image")
    await chat.wait_for_chip("book_table")
    gate.open()
    await chat.wait_until_finished()
    # What the reader has opened stays open while the answer goes on.
    await expect(opened).to_contain_text("painted in 5 steps")
    assert "I suggest a later time" in await chat.text()
    chips = await chat.chips()
    assert [chip.tool for chip in chips] == ["View Result from generate_image", "View Result from book_table"]
    assert [chip.failed for chip in chips] == [False, True]
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.chips() == chips
    await expect(chat.spinners).to_have_count(0)
    assert re.match("Error: .*fully booked tonight", await chat.result("book_table"))


@pytest.mark.every_version
async def test_a_page_reloaded_in_the_middle_of_a_run_shows_it_to_its_end(chat: Chat, pipe: str, gate: Gate) -> None:
    await chat.open(f"{pipe}.held")
    await chat.send("slow")
    await chat.wait_for_chip(IMAGE_STEPS[0])
    await chat.reload()
    await chat.wait_for_chip(IMAGE_STEPS[0])
    gate.open()
    await chat.wait_for_chip("View Result from generate_image")
    seen = await chat.chips_seen()
    assert {len(chips) for chips in seen} == {1}
    assert seen[0][0].running, "it was there before its end"
    await check_that_it_is_over(chat)


@BOTH
@pytest.mark.every_version
async def test_stop_pressed_twice_during_a_call_leaves_no_spinner(chat: Chat, pipe: str, gate: Gate) -> None:
    await chat.open(f"{pipe}.held")
    await chat.send("slow")
    await chat.wait_for_chip(IMAGE_STEPS[0])
    await chat.stop(times=2)
    await expect(chat.spinners).to_have_count(0)
    [stopped] = await chat.chips()
    assert (stopped.tool, stopped.failed) == ("View Result from generate_image", True)
    assert " · stopped" in stopped.label
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert await chat.chips() == [stopped]
    assert await chat.result("generate_image") == "Stopped by the user"


@pytest.mark.every_version
async def test_stop_in_a_tab_that_was_opened_in_the_middle_of_a_text_ends_the_request_to_the_model(
    chat: Chat, pipe: str, server: Server
) -> None:
    server.endpoint.disconnected.clear()
    await chat.open(f"{pipe}.librarian")
    await chat.send("fall silent")
    await expect(chat.answer.get_by_text(HALF)).to_be_visible()
    await chat.reopen_in_a_new_tab()
    await expect(chat.answer.get_by_text(HALF)).to_be_visible()
    await chat.stop()
    await asyncio.wait_for(server.endpoint.disconnected.wait(), 10)
    await check_that_it_is_over(chat, HALF)


@pytest_asyncio.fixture(loop_scope="session")
async def held_stream(open_webui: OpenWebUI) -> AsyncIterator[None]:
    """A filter of Open WebUI with which it waits in its own code once it has shown the first steps of a walk."""
    path = "/api/v1/functions/id/hold"
    function = {"id": "hold", "name": "Hold", "content": HOLD, "meta": {"description": "Waits."}}
    async with webui_client(open_webui) as client:
        (await client.post("/api/v1/functions/create", json=function)).raise_for_status()
        (await client.post(f"{path}/toggle")).raise_for_status()
        (await client.post(f"{path}/toggle/global")).raise_for_status()
        yield
        (await client.delete(f"{path}/delete")).raise_for_status()


@BOTH
@pytest.mark.usefixtures("held_stream")
async def test_stop_while_open_webui_takes_nothing_from_the_pipe(chat: Chat, pipe: str) -> None:
    await chat.open(f"{pipe}.librarian")
    await chat.send("walk to Rome")
    await expect(chat.page.get_by_text("Held").first).to_be_visible(timeout=TIMEOUT_MS)
    await chat.wait_for_chip("walk")
    await chat.stop()
    await expect(chat.spinners).to_have_count(0)
    await chat.wait_for_chip("· stopped")
    [card] = await chat.chips()
    assert card.failed
    await check_that_it_is_over(chat)


def find_chip(chat: Chat, name: str) -> Locator:
    """The chip of a file in the newest answer."""
    return chat.message.get_by_role("button", name=name)


@pytest.mark.every_version
async def test_files_of_tools_are_chips_that_open_without_a_second_sign_in(chat: Chat, pipe: str, gate: Gate) -> None:
    await chat.open(f"{pipe}.clerk")
    await chat.send("write")
    await asyncio.to_thread(gate.pass_one)
    await expect(find_chip(chat, "letter.md")).to_be_visible(timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    for _ in range(2):
        for name in ("letter.md", "ledger.csv"):
            await expect(find_chip(chat, name)).to_have_count(1)
        assert "/api/v1/files" not in await chat.text()
        # A page that is loaded between an answer's end and that of its task takes it for one that is still given.
        await chat.wait_until_idle()
        await chat.reload()
        await chat.wait_until_finished()
    await find_chip(chat, "letter.md").click()
    dialog = chat.page.get_by_role("dialog").filter(has_text="letter.md")
    await expect(dialog).to_contain_text("The key is under the third plank.", timeout=TIMEOUT_MS)
    saved = (await Content(chat).saved())["files"]
    assert sorted(file["name"] for file in saved) == ["ledger.csv", "letter.md"]


@pytest.mark.every_version
async def test_plan_is_in_the_task_panel_after_a_reload_too(chat: Chat, pipe: str, gate: Gate) -> None:
    shown = chat.page.get_by_text("tasks completed")
    await chat.open(f"{pipe}.clerk")
    await chat.send("write")
    await expect(shown).to_contain_text("0 out of 2", timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await expect(shown).to_contain_text("1 out of 2", timeout=TIMEOUT_MS)
    await chat.reload()
    await expect(shown).to_contain_text("1 out of 2", timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    await expect(shown).to_have_count(0)
    saved: dict[str, Any] = await chat.page.evaluate(SAVED_CHAT, chat.chat_id)
    assert {task["status"] for task in saved["tasks"]} == {"completed"}
