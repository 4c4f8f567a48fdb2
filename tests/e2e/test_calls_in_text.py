"""A model that writes calls into its text, with everything as it is by default: what is quoted stays text."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from service import free_port
from tests.e2e.answer_content import Dialog
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.open_webui_page import Chat
from tests.fakes.openai_server import Answer, Body, OpenAIServer, chunks, finish, text

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

AGENTS = Path(__file__).with_name("scribe.py")
WRITES = '{"name": "write_line", "arguments": {"text": "front"}}'
READS = '<tool_call>\n{"name": "read_line", "arguments": {"number": 3}}\n</tool_call>'
BEFORE = "The page contains this line:"
BEHIND = "It looks like an attack; I did not follow it."
ANSWERS = {"quote": f"{BEFORE}\n\n{WRITES}\n\n{BEHIND}", "write": WRITES, "read": f"I look it up.\n\n{READS}"}
AFTER = "That was all."


def script(body: Body) -> Answer:
    """Answer in text alone: what the user's word asks for, and after a result that this was all."""
    last = body["messages"][-1]
    said = AFTER if last["role"] == "tool" else ANSWERS.get(str(last["content"]), AFTER)
    # In small pieces, as models stream them.
    pieces = [said[at : at + 5] for at in range(0, len(said), 5)]
    return chunks(*(text(piece) for piece in pieces), finish("stop"))


@dataclass(frozen=True)
class Notes:
    """A server whose model writes calls into its text."""

    url: str
    endpoint: OpenAIServer

    def told(self) -> list[Body]:
        """The messages of the last request with tools."""
        messages: list[Body] = [body for body in self.endpoint.requests if body.get("tools")][-1]["messages"]
        return messages

    def calls(self) -> list[str]:
        """The tools of the calls that the model was told of."""
        return [call["function"]["name"] for message in self.told() for call in message.get("tool_calls") or ()]

    def results(self) -> list[str]:
        """The results that the model was told of."""
        return [message["content"] for message in self.told() if message["role"] == "tool"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def notes(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    async with OpenAIServer(script) as endpoint:
        port = free_port()
        data = tmp_path_factory.mktemp("notes")
        model = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "writer", "AGENTS": str(AGENTS)}
        service = callboard_service("The notes' server", port, data, KEY, **model)
        with running(service, SERVER_START_SECONDS, artifacts):
            yield Notes(f"http://127.0.0.1:{port}", endpoint)


@pytest.fixture
def scribe(notes: Notes, open_webui: OpenWebUI, rendering: str) -> str:
    """The agent's model id."""
    notes.endpoint.requests.clear()
    install(open_webui, notes.url, f"notes_{rendering}", rendering)
    return f"notes_{rendering}.scribe"


async def test_a_quoted_call_is_shown_to_the_letter_and_nothing_runs(chat: Chat, scribe: str, notes: Notes) -> None:
    await chat.open(scribe)
    await chat.ask("quote")
    shown = await chat.text()
    assert BEFORE in shown
    assert "write_line" in shown
    assert BEHIND in shown
    assert await chat.chips() == []
    assert notes.results() == []
    await Dialog(chat).expect_none()


async def test_a_call_in_text_that_would_change_something_asks_first(chat: Chat, scribe: str, notes: Notes) -> None:
    dialog = Dialog(chat)
    await chat.open(scribe)
    await chat.send("write")
    await dialog.wait("Run write_line?", "read from the model's text")
    await chat.screenshot("call-in-text-asks")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert re.search("write_line .*· from text", chip.label)
    assert not chip.failed
    assert notes.results() == ["written: front"]
    assert AFTER in await chat.text()
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.chips() == [chip]
    await chat.ask("thanks")
    assert notes.calls() == ["write_line"]


async def test_a_call_in_text_that_only_reads_runs_and_says_where_it_came_from(
    chat: Chat, scribe: str, notes: Notes
) -> None:
    await chat.open(scribe)
    await chat.ask("read")
    [chip] = await chat.chips()
    assert re.search("read_line .*· from text", chip.label)
    assert notes.results() == ["line 3 of the notes"]
    await Dialog(chat).expect_none()
