"""Every way an answer can end, in both renderings: no spinner, no lost text, and the next message works.

What stands in docs/compatibility.md as "How a run can end" is what these tests found; see `tests/e2e/tables.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

import openwebui
from service import free_port
from tests.e2e import stage as stages
from tests.e2e.answer_content import Dialog
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat
from tests.e2e.recording_proxy import recording
from tests.e2e.stage import AFTER, BEFORE, NEXT, Stage
from tests.e2e.test_memory import webui_client
from tests.fakes.openai_server import OpenAIServer

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180, func_only=True)]

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

Models = Callable[[str], str]
"""The id in Open WebUI of an agent of the stage."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The stage's server and its endpoint."""
    async with OpenAIServer(stages.Script()) as endpoint:
        port = free_port()
        data = tmp_path_factory.mktemp("stage")
        service = stages.service(port, data, KEY, endpoint.base_url)
        with running(service, SERVER_START_SECONDS, artifacts):
            yield Stage(service, f"http://127.0.0.1:{port}", KEY, endpoint)


@pytest.fixture
def model(open_webui: OpenWebUI, stage: Stage, rendering: str) -> Models:
    """The stage's agents, through a pipe with that rendering."""
    return _installed(open_webui, stage.url, f"stage_{rendering}", rendering)


def _installed(open_webui: OpenWebUI, url: str, function_id: str, rendering: str) -> Models:
    install(open_webui, url, function_id, rendering)
    return lambda agent: f"{function_id}.{agent}"


async def check_that_it_is_over(chat: Chat, *texts: str) -> None:
    """Nothing turns, each text is there once, all is the same after a reload, and the next message is answered."""
    await chat.wait_until_finished()
    await chat.wait_until_idle()
    await expect(chat.spinners).to_have_count(0)
    said = await chat.text()
    for text in texts:
        assert said.count(text.strip()) == 1, said
    chips = await chat.chips()
    assert not any(chip.running for chip in chips)
    await chat.reload()
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert await chat.text() == said
    assert await chat.chips() == chips
    await chat.ask("hello")
    assert NEXT in await chat.text()


@pytest.mark.ending("the agent ends")
async def test_an_answer_that_ends_by_itself(chat: Chat, model: Models) -> None:
    await chat.open(model("actor"))
    await chat.ask("tell")
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("stop during text")
async def test_stop_while_the_model_writes(chat: Chat, model: Models, stage: Stage) -> None:
    stage.endpoint.disconnected.clear()
    await chat.open(model("actor"))
    await chat.send("go silent in mid-sentence")
    await expect(chat.answer.get_by_text(BEFORE.strip())).to_be_visible()
    await chat.stop()
    await check_that_it_is_over(chat, BEFORE)
    await asyncio.wait_for(stage.endpoint.disconnected.wait(), 10)


@pytest.mark.ending("stop during one of two parallel calls")
async def test_stop_during_one_of_two_parallel_calls(chat: Chat, model: Models) -> None:
    await chat.open(model("actor"))
    await chat.send("two at once")
    await chat.wait_for_chip("Exploring")
    await chat.expand("Exploring")
    await chat.wait_for_chip("View Result from note")
    await chat.wait_for_chip("search")
    await chat.stop()
    # Anew, so that the group is folded: whether it stays open at the end is Open WebUI's own affair.
    await chat.reload()
    [group] = await chat.chips()
    assert not group.failed
    await check_that_it_is_over(chat, BEFORE)


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


@pytest.mark.ending("stop while Open WebUI is busy")
async def test_stop_while_open_webui_takes_nothing_from_the_pipe(
    chat: Chat, model: Models, held_stream: None, rendering: str
) -> None:
    await chat.open(model("actor"))
    await chat.send("walk")
    await expect(chat.page.get_by_text("Held").first).to_be_visible(timeout=TIMEOUT_MS)
    await chat.wait_for_chip("walk")
    await chat.stop()
    await expect(chat.spinners).to_have_count(0)
    [card] = await chat.chips()
    assert not card.failed
    if rendering == "details":
        assert card.label.endswith("stopped")
    await chat.screenshot(f"stop-while-busy-{rendering}")
    await check_that_it_is_over(chat, BEFORE)


@pytest.mark.ending("stop pressed twice")
async def test_stop_pressed_twice(chat: Chat, model: Models) -> None:
    await chat.open(model("actor"))
    await chat.send("search")
    await chat.wait_for_chip("search")
    await chat.stop(times=2)
    await check_that_it_is_over(chat, BEFORE)


@pytest.mark.ending("stop during a tool in a thread, which may go on")
async def test_the_card_of_a_tool_that_stop_cannot_end_says_that_it_may_go_on(
    chat: Chat, model: Models, rendering: str
) -> None:
    await chat.open(model("actor"))
    await chat.send("grind")
    await chat.wait_for_chip("grind")
    await chat.stop()
    await check_that_its_card_says_so(chat)
    await chat.screenshot(f"may-go-on-stopped-{rendering}")
    await chat.reload()
    await check_that_its_card_says_so(chat)
    await chat.screenshot(f"may-go-on-reloaded-{rendering}")
    # Anew, so that the card is folded.
    await chat.reload()
    await check_that_it_is_over(chat, BEFORE)


async def check_that_its_card_says_so(chat: Chat) -> None:
    [card] = await chat.chips()
    assert (card.running, card.failed) == (False, False)
    assert "may continue for a while" in await chat.result("grind")


@pytest.mark.ending("tab closed and opened again in mid-run")
async def test_a_tab_that_is_closed_and_opened_again(chat: Chat, model: Models, stage: Stage) -> None:
    stage.endpoint.hanging.clear()
    await chat.open(model("actor"))
    await chat.send("go silent in mid-sentence")
    await expect(chat.answer.get_by_text(BEFORE.strip())).to_be_visible()
    await chat.reopen_in_a_new_tab()
    await expect(chat.answer.get_by_text(BEFORE.strip())).to_be_visible()
    await chat.stop()
    await check_that_it_is_over(chat, BEFORE)


async def kill_and_start_again(chat: Chat, stage: Stage) -> None:
    await asyncio.to_thread(stage.service.kill)
    try:
        await expect(chat.page.get_by_text("Reconnecting…").last).to_be_visible()
    finally:
        # The tests that follow need it too.
        await _start(stage)


@pytest.mark.ending("server killed in the middle of a text, and started again")
async def test_an_answer_goes_on_whose_server_is_killed_while_it_is_written(
    chat: Chat, model: Models, stage: Stage, rendering: str
) -> None:
    await chat.open(model("actor"))
    await chat.send("go silent once")
    await expect(chat.answer.get_by_text(BEFORE.strip())).to_be_visible()
    await kill_and_start_again(chat, stage)
    await chat.wait_until_finished()
    await chat.screenshot(f"killed-in-text-{rendering}")
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("server killed in a call, and started again")
async def test_an_answer_goes_on_whose_server_is_killed_in_a_call(
    chat: Chat, model: Models, stage: Stage, rendering: str
) -> None:
    await chat.open(model("actor"))
    await chat.send("search")
    await chat.wait_for_chip("search")
    await kill_and_start_again(chat, stage)
    await chat.wait_until_finished()
    [card] = await chat.chips()
    assert (card.running, card.failed) == (False, chat.look.red_failures)
    assert "whether it took effect is not known" in await chat.result("search")
    await chat.screenshot(f"killed-in-call-{rendering}")
    await chat.reload()
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("server killed in one of two parallel calls, and started again")
async def test_an_answer_goes_on_whose_server_is_killed_in_one_of_two_parallel_calls(
    chat: Chat, model: Models, stage: Stage, rendering: str
) -> None:
    await chat.open(model("actor"))
    await chat.send("two at once")
    await chat.wait_for_chip("Exploring")
    await chat.expand("Exploring")
    await chat.wait_for_chip("View Result from note")
    await chat.wait_for_chip("search")
    await kill_and_start_again(chat, stage)
    await chat.wait_until_finished()
    await chat.screenshot(f"killed-in-parallel-calls-{rendering}")
    # Anew, so that the group is folded: whether it stays open at the end is Open WebUI's own affair.
    await chat.reload()
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("server killed while the user is asked, and started again")
async def test_a_question_stays_open_whose_server_is_killed_and_its_answer_counts(
    chat: Chat, model: Models, stage: Stage, rendering: str
) -> None:
    dialog = Dialog(chat)
    await chat.open(model("actor"))
    await chat.send("ask first")
    await dialog.wait("Run sell?")
    await kill_and_start_again(chat, stage)
    await chat.screenshot(f"killed-in-question-{rendering}")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    await dialog.expect_none()
    assert "A seat for Hamlet is sold." in await chat.result("sell")
    await chat.reload()
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("server killed in mid-run, and not started again")
async def test_a_server_that_is_killed(chat: Chat, model: Models, stage: Stage) -> None:
    await chat.open(model("actor"))
    await chat.send("search")
    await chat.wait_for_chip("search")
    await asyncio.to_thread(stage.service.kill)
    try:
        await expect(chat.page.get_by_text("Reconnecting…").last).to_be_visible()
        await chat.screenshot("reconnecting")
        await chat.wait_until_finished()
        await expect(chat.spinners).to_have_count(0)
        assert "was lost and the answer could not be resumed" in await chat.text()
    finally:
        await _start(stage)
    await check_that_it_is_over(chat, BEFORE)


@pytest.mark.ending("server restarted in mid-run")
async def test_a_server_that_is_restarted(chat: Chat, model: Models, stage: Stage) -> None:
    await chat.open(model("actor"))
    await chat.send("search")
    await chat.wait_for_chip("search")
    await asyncio.to_thread(stage.service.stop)
    await _start(stage)
    await chat.wait_until_finished()
    [card] = await chat.chips()
    assert (card.running, card.failed) == (False, chat.look.red_failures)
    await chat.reload()
    await check_that_it_is_over(chat, BEFORE, AFTER)


@pytest.mark.ending("connection cut in mid-run")
async def test_a_connection_that_is_cut_is_resumed_to_the_letter(
    chat: Chat, open_webui: OpenWebUI, stage: Stage, rendering: str
) -> None:
    with recording(stage.url) as proxy:
        proxy.cut_after = b"noted: "
        model = _installed(open_webui, proxy.url, f"cut_{rendering}", rendering)
        await chat.open(model("actor"))
        await chat.ask("tell")
        assert proxy.cuts == 1
        await check_that_it_is_over(chat, BEFORE, AFTER)
        [chip] = [chip for chip in (await chat.chips_of(0)) if not chip.group]
        assert (chip.tool, chip.failed) == ("View Result from note", False)


@pytest.mark.ending("the agent raises")
async def test_an_agent_that_raises(chat: Chat, model: Models) -> None:
    await chat.open(model("clumsy"))
    await chat.ask("go")
    await check_that_it_is_over(chat, BEFORE, "The agent failed with RuntimeError: over its own feet")


@pytest.mark.parametrize(
    ("agent", "prompt", "told"),
    [
        pytest.param(*case, marks=pytest.mark.ending(f"the model's endpoint: {name}"))
        for name, case in {
            "401": ("actor", "refuse 401", "refused the key (401)"),
            "429": ("actor", "refuse 429", "is over its limit (429)"),
            "500": ("actor", "refuse 500", "answered 500"),
            "no answer": ("impatient", "be silent", "did not answer within 2 s"),
            "its filter": ("actor", "filter", "cut by the content filter of the model's endpoint"),
            "a refusal": ("actor", "decline", "I must not say that."),
            "`error` as its reason": ("actor", "fail", "ended the answer with an error"),
            "a call that it cannot read": ("actor", "malform", "The model twice wrote a tool call"),
        }.items()
    ],
)
async def test_an_endpoint_that_fails(chat: Chat, model: Models, agent: str, prompt: str, told: str) -> None:
    await chat.open(model(agent))
    await chat.ask(prompt)
    await check_that_it_is_over(chat, BEFORE, told)


@pytest.mark.ending("over the limit of tool calls")
async def test_a_run_over_its_limits(chat: Chat, model: Models) -> None:
    await chat.open(model("actor"))
    await chat.ask("for ever")
    await check_that_it_is_over(chat, BEFORE, AFTER, "reached its limit of turns")


@pytest.mark.ending("Open WebUI restarted in mid-run")
async def test_an_open_webui_that_is_restarted(
    chat: Chat, model: Models, open_webui: OpenWebUI, record_property: Callable[[str, object], None]
) -> None:
    await chat.open(model("actor"))
    await chat.send("search")
    await chat.wait_for_chip("search")
    await asyncio.to_thread(open_webui.service.stop)
    open_webui.service.start()
    await asyncio.to_thread(open_webui.service.wait_until_healthy, openwebui.START_SECONDS)
    record_property("instead", "✓; before 0.10 Open WebUI keeps nothing of the answer")
    if openwebui.has_events(open_webui.version):
        # The answer goes on: `test_restarted_open_webui` follows it to its end.
        await chat.reload()
        await chat.wait_for_chip("search")
        await chat.stop()
        await check_that_it_is_over(chat, BEFORE)
    else:
        await chat.reload()
        await check_that_it_is_over(chat)


async def _start(stage: Stage) -> None:
    stage.service.start()
    await asyncio.to_thread(stage.service.wait_until_healthy, stages.START_SECONDS)
