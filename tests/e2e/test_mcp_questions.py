"""Questions of a real MCP server in the middle of a call, as their user sees and answers them in Open WebUI."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from service import free_port
from tests.e2e.answer_content import Dialog, Form
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.e2e.open_webui_page import Chat
from tests.e2e.test_memory import complete
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

AGENTS = Path(__file__).with_name("traveller.py")
TITLE = "The MCP server 'ours' asks"
GOT = "The server got: "
SINCE = "2026-12-31T19:30:00Z"
URL = "https://pay.example/1?for=<b>you</b>"


def script(body: Body) -> Answer:
    """A call of the tool that the user names, and then a text with its result."""
    messages = body["messages"]
    if not body.get("tools"):
        return chunks(text(json.dumps({"title": "Travels", "tags": [], "follow_ups": []})), finish("stop"))
    if messages[-1]["role"] == "tool":
        return chunks(text(f"{GOT}{messages[-1]['content']}"), finish("stop"))
    return chunks(call(f"ours_{messages[-1]['content']}", "{}", call_id=f"call_{len(messages)}"), finish("tool_calls"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of the traveller's server."""
    async with OpenAIServer(script) as endpoint:
        port = free_port()
        settings = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "scripted", "AGENTS": str(AGENTS)}
        service = callboard_service("The traveller", port, tmp_path_factory.mktemp("traveller"), KEY, **settings)
        with running(service, SERVER_START_SECONDS, artifacts):
            yield f"http://127.0.0.1:{port}"


@pytest.fixture
def model(open_webui: OpenWebUI, url: str, rendering: str) -> str:
    """The traveller's id in Open WebUI, through a pipe with that rendering."""
    install(open_webui, url, f"travel_{rendering}", rendering)
    return f"travel_{rendering}.traveller"


async def read_reply(chat: Chat) -> dict[str, Any]:
    """Return what the MCP server got, which is the result of its call, from the answer."""
    await chat.wait_until_finished()
    reply: dict[str, Any] = json.loads((await chat.text()).partition(GOT)[2])
    return reply


async def fill_in(chat: Chat, message: str, town: str, since: str, picture: str) -> None:
    """Answer the form of the tool `ask`, whose fields Open WebUI asks for one after the other before 0.12."""
    if chat.look.has_permissions:
        form = Form(chat)
        await form.wait(message)
        await expect(form.window).to_contain_text(TITLE)
        await form.window.get_by_label("town").fill(town)
        await form.window.get_by_label("since").fill(since)
        await chat.screenshot(picture)
        await form.press("Submit")
        return
    dialog = Dialog(chat)
    for field, value in (("town", town), ("since", since)):
        await dialog.wait(field, message)
        await dialog.field.fill(value)
        await chat.screenshot(f"{picture}-{field}")
        await dialog.press("Confirm")


@pytest.mark.feature("forms")
async def test_the_form_of_an_mcp_server_is_filled_in_and_asked_again_if_a_value_is_wrong(
    chat: Chat, model: str, rendering: str, record_property: Callable[[str, object], None]
) -> None:
    if not chat.look.has_permissions:
        record_property("instead", "one dialog for each field")
    await chat.open(model)
    await chat.send("ask")
    await chat.wait_for_chip("ours_ask")
    await fill_in(chat, "Where are you?", "Graz", "yesterday", f"mcp-form-{rendering}")
    await fill_in(chat, "since: it is not a time such as", "Graz", SINCE, f"mcp-form-again-{rendering}")
    assert await read_reply(chat) == {"action": "accept", "content": {"town": "Graz", "since": SINCE}}
    await chat.screenshot(f"mcp-form-accepted-{rendering}")


async def test_an_mcp_server_is_told_that_the_user_opened_its_address(chat: Chat, model: str, rendering: str) -> None:
    await chat.open(model)
    await chat.send("pay")
    if chat.look.has_permissions:
        form = Form(chat)
        await form.wait("Please pay.")
        # To open it is to accept: Open WebUI has no button for that.
        link = form.window.get_by_role("link")
        await expect(link).to_have_text(URL)
        await chat.wait_for_chip("waiting for you")
        await chat.screenshot(f"mcp-address-{rendering}")
        async with chat.page.expect_popup():
            await link.click()
    else:
        dialog = Dialog(chat)
        await dialog.wait(TITLE, URL)
        await chat.screenshot(f"mcp-address-{rendering}")
        await dialog.press("Confirm")
    assert await read_reply(chat) == {"action": "accept"}


async def test_an_mcp_server_is_told_that_its_form_is_declined_or_closed(chat: Chat, model: str) -> None:
    await chat.open(model)
    if not chat.look.has_permissions:
        # A dialog of an older version has one button for both.
        await chat.send("ask")
        await Dialog(chat).wait("town")
        await Dialog(chat).press("Cancel")
        assert await read_reply(chat) == {"action": "decline"}
        return
    for button, action in (("Decline", "decline"), ("Cancel", "cancel")):
        await chat.send("ask")
        await Form(chat).wait("Where are you?")
        await Form(chat).press(button)
        assert await read_reply(chat) == {"action": action}


async def test_over_open_webuis_api_an_mcp_server_is_told_at_once_that_nobody_answers(
    open_webui: OpenWebUI, model: str
) -> None:
    said = await complete(open_webui, model, [{"role": "user", "content": "ask"}], stream=False)
    assert f'{GOT}{{"action":"cancel"}}' in said
