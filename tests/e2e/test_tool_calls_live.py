"""Tool calls in a real Open WebUI: seen while they run, when they end, after a reload, and on the next turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from playwright.async_api import expect

from tests.e2e.open_webui_page import Chat
from tests.e2e.recording_proxy import RecordingProxy
from tests.gates import Gate
from tests.pipe.loader import read_next_turn

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

STEPS = ("Reading the prompt", "Sketching", "Painting", "Adding light", "Finishing")


@pytest.mark.cell("live")
async def test_a_running_call_has_a_spinner_and_a_finished_one_has_none(chat: Chat, held_demo: str, gate: Gate) -> None:
    await chat.open(held_demo)
    await chat.send("slow")
    await chat.wait_for_chip("Executing generate_image")
    [chip] = await chat.chips()
    assert chip.running
    await chat.screenshot("running")
    gate.open()
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert chip.tool == "View Result from generate_image"
    assert not chip.running
    assert not chip.failed
    await expect(chat.spinners).to_have_count(0)


@pytest.mark.cell("progress", "in place")
async def test_the_label_of_a_running_call_tells_its_progress(chat: Chat, held_demo: str, gate: Gate) -> None:
    await chat.open(held_demo)
    await chat.send("slow")
    for step in STEPS:
        await chat.wait_for_chip(re.compile(rf"generate_image · .*\d+% {step}"))
        await chat.screenshot(f"progress-{step}")
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_until_finished()
    seen = await chat.chips_seen()
    assert {len(chips) for chips in seen} == {1}, "there was never a second one"
    labels = [chip.label for [chip] in seen]
    told = [step for step in STEPS if any(step in label for label in labels)]
    assert told == list(STEPS), labels
    assert labels[-1].startswith("View Result from generate_image · ")


@pytest.mark.cell("parallel")
async def test_parallel_calls_are_one_group_whose_members_end_one_by_one(
    chat: Chat, held_demo: str, gate: Gate
) -> None:
    await chat.open(held_demo)
    await chat.send("what is the weather?")
    await chat.wait_for_chip("Exploring")
    assert (await chat.chips())[0].group
    await chat.expand("Exploring")
    await expect(chat.answer.get_by_text("View Result from get_weather")).to_have_count(1)
    states = {chip.running for chip in await chat.chips() if not chip.group}
    await chat.screenshot("parallel-calls-one-finished")
    assert states == {True, False}, "one has its result while the other still runs"
    gate.open()
    await chat.wait_until_finished()
    await chat.wait_for_chip("Explored")


@pytest.mark.cell("result")
async def test_the_result_is_shown_after_expanding(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("slow")
    assert "painted in 5 steps" in await chat.result("generate_image")
    await chat.screenshot("result")


@pytest.mark.cell("failing")
async def test_a_failing_call_is_red_and_the_run_goes_on(
    chat: Chat, demo: str, record_property: Callable[[str, object], None]
) -> None:
    await chat.open(demo)
    await chat.ask("fail")
    [chip] = await chat.chips()
    assert chip.failed == chat.look.red_failures
    if not chat.look.red_failures:
        record_property("instead", "`Error: …`")
    assert re.match("Error: .*fully booked tonight", await chat.result("book_table"))
    assert "I suggest a later time" in await chat.text()


async def test_a_result_that_the_reader_opened_stays_open_while_the_answer_goes_on(
    chat: Chat, held_demo: str, gate: Gate
) -> None:
    await chat.open(held_demo)
    await chat.send("slow and fail")
    for _ in STEPS:
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_for_chip("View Result from generate_image")
    opened = await chat.expand("generate_image")
    await chat.wait_for_chip("book_table")
    gate.open()
    await chat.wait_until_finished()
    await expect(opened).to_contain_text("painted in 5 steps")


async def test_a_long_result_is_cut_with_a_line_that_says_how_much_is_missing(chat: Chat, demo: str) -> None:
    await chat.open(demo)
    await chat.ask("big")
    result = await chat.result("read_archive")
    assert len(result) < 12_000
    assert re.search(r"19\d[,.]?\d{3}", result.splitlines()[-1]), result[-300:]


@pytest.mark.cell("after reload")
async def test_after_a_reload_everything_is_as_it_was(chat: Chat, held_demo: str, gate: Gate) -> None:
    await chat.open(held_demo)
    await chat.send("slow and fail")
    for _ in ("Reading the prompt", "Sketching"):
        await asyncio.to_thread(gate.pass_one)
    await chat.wait_for_chip("40% Painting")
    await chat.picture("live")
    gate.open()
    await chat.wait_until_finished()
    chips = await chat.chips()
    text = await chat.text()
    assert [chip.tool.split()[-1] for chip in chips] == ["generate_image", "book_table"]
    await chat.screenshot("whole-range")
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.chips() == chips
    assert await chat.text() == text
    await expect(chat.spinners).to_have_count(0)
    assert "fully booked tonight" in await chat.result("book_table")


@pytest.mark.cell("reload in mid-run")
async def test_a_page_reloaded_in_the_middle_of_a_run_shows_it_to_its_end(
    chat: Chat, held_demo: str, gate: Gate
) -> None:
    await chat.open(held_demo)
    await chat.send("slow")
    await chat.wait_for_chip(STEPS[0])
    await chat.reload()
    await chat.wait_for_chip(STEPS[0])
    gate.open()
    await chat.wait_for_chip("View Result from generate_image")
    seen = await chat.chips_seen()
    assert {len(chips) for chips in seen} == {1}
    assert seen[0][0].running, "it was there before its end"
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)


@pytest.mark.cell("next turn")
async def test_the_second_turn_tells_the_server_of_the_first_turns_calls(
    chat: Chat, recorded_demo: str, proxy: RecordingProxy
) -> None:
    await chat.open(recorded_demo)
    await chat.ask("fail and slow")
    await chat.ask("remember")
    first, second = proxy.turns
    messages = read_next_turn(second.request["messages"])
    called = [call for message in messages for call in message.get("tool_calls") or ()]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    assert [call["function"]["name"] for call in called] == ["generate_image", "book_table"]
    assert list(results) == [call["id"] for call in called]
    assert all(call["id"].encode() in first.stream for call in called), "they are the calls that the server told of"
    assert "painted in 5 steps" in results[called[0]["id"]]
    assert "fully booked tonight" in results[called[1]["id"]]
    assert "<details" not in str(messages)
    assert "I remember 2 tool calls" in await chat.text()


async def test_no_tool_runs_for_a_chats_title(chat: Chat, recorded_demo: str, proxy: RecordingProxy) -> None:
    await chat.open(recorded_demo)
    await chat.ask("fail")
    title = await proxy.wait_for_task("title_generation")
    assert b'"type":"done"' in title.stream
    assert b"tool_call_start" not in title.stream
    [turn] = proxy.turns
    assert turn.stream.count(b"tool_call_start") == 1


@pytest.mark.cell("stop")
async def test_stop_during_a_call_leaves_no_spinner(chat: Chat, held_demo: str, gate: Gate) -> None:
    await chat.open(held_demo)
    await chat.send("slow")
    await chat.wait_for_chip(STEPS[0])
    await chat.stop()
    await expect(chat.spinners).to_have_count(0)
    [stopped] = await chat.chips()
    assert (stopped.tool, stopped.failed) == ("View Result from generate_image", False)
    assert " · stopped" in stopped.label
    await chat.screenshot("stopped")
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert await chat.chips() == [stopped]
    assert await chat.result("generate_image") == "Stopped by the user"
