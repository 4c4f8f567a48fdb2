"""What a run is doing, above its answer in a real Open WebUI: live, at its end, and after a reload."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.e2e.open_webui_page import TIMEOUT_MS, Chat
from tests.gates import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180, func_only=True)]

TOOK = re.compile(r"1 call, [\d.]+ s")
STEPS = ["Reading the prompt", "Sketching", "Painting", "Adding light", "Finishing"]


@pytest.mark.cell("status line")
async def test_the_line_above_an_answer_tells_what_the_run_does_and_keeps_the_steps_of_its_calls(
    chat: Chat, held_demo: str, gate: Gate, rendering: str
) -> None:
    await chat.open(held_demo)
    await chat.send("slow")
    line = chat.answer.locator("xpath=ancestor::*[starts-with(@id, 'message-')][1]")
    for step in STEPS:
        await expect(line).to_contain_text(step, timeout=TIMEOUT_MS)
        await chat.screenshot(f"activity-live-{rendering}")
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    await expect(line).to_contain_text(TOOK, timeout=TIMEOUT_MS)
    await chat.screenshot(f"activity-ended-{rendering}")
    await chat.reload()
    await expect(line).to_contain_text(TOOK, timeout=TIMEOUT_MS)
    await line.get_by_text(TOOK).first.click()
    for step in ("Running generate_image · ", *STEPS):
        await expect(line).to_contain_text(step, timeout=TIMEOUT_MS)
    await chat.screenshot(f"activity-steps-{rendering}")


@pytest.mark.cell("status line")
async def test_parallel_and_many_calls_of_a_tool_can_be_told_apart(
    chat: Chat, held_demo: str, gate: Gate, rendering: str
) -> None:
    await chat.open(held_demo.replace(".held", ".framer"))
    await chat.send("frame them")
    await chat.wait_for_chip("50% Stirring")
    # Open WebUI adds the dots of a running call.
    assert [chip.label for chip in await chat.chips()] == ["Executing mix · blue · 50% Stirring..."]
    await chat.screenshot(f"activity-dots-{rendering}")
    await asyncio.to_thread(gate.pass_one)
    await expect(chat.message).to_contain_text("paint · a dog: 10% Sketching", timeout=TIMEOUT_MS)
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_for_chip("paint · a cat · 60% Adding light, paint · a dog · 60% Adding light")
    await expect(chat.message).to_contain_text("paint · a dog: 60% Adding light", timeout=TIMEOUT_MS)
    await chat.screenshot(f"activity-parallel-{rendering}")
    await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    await chat.reload()
    await chat.message.get_by_text(re.compile(r"63 calls, [\d.]+ s")).first.click()
    for what in ("a cat", "a dog"):
        for step in ("10% Sketching", "60% Adding light"):
            await expect(chat.message).to_contain_text(f"paint · {what}: {step}", timeout=TIMEOUT_MS)
    lines = await chat.message.get_by_text(re.compile("^Running frame")).all_inner_texts()
    assert lines[0] == "Running frame · picture 0"
    assert lines[-1] == "Running frame, 60 times so far"
    assert len(lines) < 20
    await chat.screenshot(f"activity-many-{rendering}")
