"""An agent of Agno in a real Open WebUI: its calls are seen as they run, asked about, remembered and stopped."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from service import free_port
from tests.e2e import stage as stages
from tests.e2e.answer_content import Dialog
from tests.e2e.conftest import KEY, ROOT, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.library import Told, ToolCall
from tests.e2e.open_webui_page import Chat
from tests.e2e.stage import Stage
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

EXAMPLE = ROOT / "server" / "examples" / "agno_agent.py"
ROUTE = '{ "origin":"Rome", "destination":"Oslo" }'
FLIGHT = '{ "flight":"CB 101" }'
BEFORE = "Let me look. "
BOOKED = "You fly with CB 101."
NEXT = "What have you booked?"


def travels(body: Body) -> Answer:
    """A model that finds a flight, and then books it, or begins an answer that it never ends."""
    messages: list[Body] = body["messages"]
    asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
    question = str(messages[asked]["content"])
    ended = len(messages) - 1 - asked
    match question, ended:
        case _, _ if question.startswith("### Task:"):
            return chunks(text(json.dumps({"title": "A journey", "tags": [], "follow_ups": []})), finish("stop"))
        case "book" | "look", 0:
            return chunks(text(BEFORE), call("find_flights", ROUTE, call_id="call_0"), finish("tool_calls"))
        case "book", 2:
            return chunks(call("book_flight", FLIGHT, call_id="call_0"), finish("tool_calls"))
        case "look", _:
            return chunks(text("There is one at"), ending="hang")
        case _:
            return chunks(text(BOOKED), finish("stop"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agency(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A server with the example's agent, and its model's endpoint."""
    async with OpenAIServer(travels) as endpoint:
        port = free_port()
        data = tmp_path_factory.mktemp("agency")
        service = stages.service(port, data, KEY, endpoint.base_url)
        environment = {**service.environment, "CALLBOARD_AGENTS": str(EXAMPLE)}
        service = replace(service, name="The example's server", environment=environment, log=data / "agency.log")
        with running(service, SERVER_START_SECONDS, artifacts):
            yield Stage(service, f"http://127.0.0.1:{port}", KEY, endpoint)


@pytest.fixture
def model(open_webui: OpenWebUI, agency: Stage, rendering: str) -> str:
    """The example's agent, through a pipe with that rendering; nothing has been asked of its model yet."""
    function_id = f"agency_{rendering}"
    models = install(open_webui, agency.url, function_id, rendering)
    assert models[f"{function_id}.travel"] == "Travel agent"
    agency.endpoint.requests.clear()
    return f"{function_id}.travel"


async def test_the_calls_of_an_agno_agent_are_seen_live_asked_about_and_remembered(
    chat: Chat, model: str, agency: Stage
) -> None:
    await chat.open(model)
    await chat.send("book")
    await chat.wait_for_chip(re.compile("book_flight · .* · waiting for approval"))
    assert (await chat.chips())[-1].running
    dialog = Dialog(chat)
    await dialog.wait("Run book_flight?")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    await expect(chat.spinners).to_have_count(0)
    assert (await chat.text()).count(BOOKED) == 1
    await chat.expand(re.compile("Explored find_flights .*, book_flight"))
    assert "is booked" in await chat.result("View Result from book_flight")
    assert [chip.failed for chip in await chat.chips()] == [False] * 3
    await chat.ask(NEXT)
    told = told_in(agency, NEXT)
    [first] = [call for call in calls_of(told) if call.name == "find_flights"]
    [second] = [call for call in calls_of(told) if call.name == "book_flight"]
    assert first.id != second.id, "the model gave both the same"
    assert told == [
        Told.user("book"),
        Told("assistant", BEFORE, (ToolCall(first.id, "find_flights", ROUTE),)),
        Told("tool", "['CB 101 at 09:15, 120 €', 'CB 205 at 17:40, 95 €']", answers=first.id),
        Told("assistant", "", (ToolCall(second.id, "book_flight", FLIGHT),)),
        Told("tool", "CB 101 is booked.", answers=second.id),
        Told("assistant", BOOKED),
        Told.user(NEXT),
    ]


async def test_stop_ends_an_agno_agent_and_its_request_to_the_model(chat: Chat, model: str, agency: Stage) -> None:
    agency.endpoint.disconnected.clear()
    await chat.open(model)
    await chat.send("look")
    await expect(chat.answer.get_by_text("There is one")).to_be_visible()
    await chat.stop()
    await asyncio.wait_for(agency.endpoint.disconnected.wait(), 10)
    await expect(chat.spinners).to_have_count(0)
    [chip] = await chat.chips()
    assert chip.tool == "View Result from find_flights"
    assert not chip.failed
    await chat.ask(NEXT)
    assert (await chat.text()).strip().endswith(BOOKED)


def told_in(agency: Stage, question: str) -> list[Told]:
    """What the model was sent with that question last, without the system's prompt."""
    [sent] = [body["messages"] for body in agency.endpoint.requests if body["messages"][-1].get("content") == question]
    return [Told.read(message) for message in sent if message["role"] not in ("system", "developer")]


def calls_of(told: list[Told]) -> list[ToolCall]:
    return [call for message in told for call in message.calls]
