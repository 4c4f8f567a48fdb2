"""Open WebUI's own tools as calls of an agent: knowledge of a preset, tools of the workspace, servers and page."""

from __future__ import annotations

import asyncio
import json
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

import install_pipe
from tests.e2e.conftest import OpenWebUI, install
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat, Content, Question
from tests.e2e.server import Server
from tests.e2e.test_consent import leave, press
from tests.fakes.embeddings import EmbeddingServer
from tests.fakes.http_server import HttpServer
from tests.fakes.mcp_http import ForgetfulServer

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

EVERYBODY = [{"principal_type": "user", "principal_id": "*", "permission": "read"}]
WORKSPACE_TOOL = '''
class Tools:
    async def whoami(self, greeting: str, __user__: dict = {}, __event_emitter__=None) -> str:
        """Greet the user by their name.

        :param greeting: The first word.
        """
        if __event_emitter__:
            await __event_emitter__({"type": "status", "data": {"description": "Looking for a name", "done": True}})
        return f"{greeting} {__user__['name']}, the code is {len(__user__['name'])}0"
'''


class Admin:
    """Open WebUI's API for one user."""

    def __init__(self, open_webui: OpenWebUI, token: str) -> None:
        self.api = install_pipe.OpenWebUI(open_webui.url, token=token)
        self.token = token
        self._open_webui = open_webui

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.api.ask("POST", path, body, doing=f"POST {path}")

    def upload(self, name: str, content: str) -> str:
        """Upload a text file; its id, once Open WebUI has read it."""
        mark = uuid.uuid4().hex
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        body = f"{head}Content-Type: text/plain\r\n\r\n{content}\r\n--{mark}--\r\n".encode()
        request = urllib.request.Request(
            f"{self.api.url}/api/v1/files/?process=true&process_in_background=false",
            body,
            {"Authorization": f"Bearer {self.token}", "Content-Type": f"multipart/form-data; boundary={mark}"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(json.load(response)["id"])

    def add_knowledge(self, name: str, fact: str) -> dict[str, Any]:
        """Add a knowledge base with one file, which only this user may read."""
        knowledge: dict[str, Any] = self.post("/api/v1/knowledge/create", {"name": name, "description": name})
        file_id = self.upload(f"{name}.txt", fact)
        self.post(f"/api/v1/knowledge/{knowledge['id']}/file/add", {"file_id": file_id})
        return {"type": "collection", "id": knowledge["id"], "name": name}

    def bypass_retrieval(self, is_bypassed: bool) -> None:
        """Let Open WebUI use files as a whole, without an embedding model, or not."""
        self.post("/api/v1/retrieval/config/update", {"BYPASS_EMBEDDING_AND_RETRIEVAL": is_bypassed})

    def add_preset(self, model: str, name: str, **meta: Any) -> str:
        """Add a model of the workspace over an agent, for everybody; its id."""
        preset = f"{name}-{uuid.uuid4().hex[:6]}"
        body = {"id": preset, "base_model_id": model, "name": name, "meta": meta, "params": {}}
        self.post("/api/v1/models/create", {**body, "access_grants": EVERYBODY})
        return preset

    def add_user(self, name: str, role: str = "user") -> Admin:
        body = {"name": name, "email": f"{name}-{uuid.uuid4().hex[:6]}@example.org", "password": "Password-1"}
        return Admin(self._open_webui, self.post("/api/v1/auths/add", {**body, "role": role})["token"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keeping(open_webui: OpenWebUI, started_server: Server) -> AsyncIterator[str]:
    """The function id of a pipe for everybody, with an embedding model for Open WebUI's knowledge."""
    admin = Admin(open_webui, open_webui.token)
    usual = admin.api.ask("GET", "/api/v1/retrieval/embedding", doing="read the embedding model")
    async with EmbeddingServer() as embeddings:
        config = {"RAG_EMBEDDING_ENGINE": "openai", "RAG_EMBEDDING_MODEL": "meanings"}
        where = {"url": embeddings.base_url, "key": "k"}
        await asyncio.to_thread(admin.bypass_retrieval, False)
        await asyncio.to_thread(admin.post, "/api/v1/retrieval/embedding/update", {**config, "openai_config": where})
        await asyncio.to_thread(install, open_webui, started_server, "keeping", ACCESS="everyone")
        yield "keeping"
        await asyncio.to_thread(admin.post, "/api/v1/retrieval/embedding/update", usual)
        await asyncio.to_thread(admin.bypass_retrieval, True)


@pytest.fixture
def admin(open_webui: OpenWebUI) -> Admin:
    return Admin(open_webui, open_webui.token)


@pytest.fixture
def permissions(admin: Admin) -> Iterator[None]:
    """Lets users decide whether tools ask first."""
    usual = admin.api.ask("GET", "/api/v1/chats/config", doing="read the chats' settings")
    admin.post("/api/v1/chats/config", usual | {"ENABLE_TOOL_PERMISSIONS": True})
    yield
    admin.post("/api/v1/chats/config", usual)


@pytest.fixture
def workspace_tool(admin: Admin) -> str:
    """The id of a tool of the workspace, for everybody."""
    tool_id = f"greeter_{uuid.uuid4().hex[:6]}"
    meta = {"description": "Greets."}
    body = {"id": tool_id, "name": "Greeter", "content": WORKSPACE_TOOL, "meta": meta, "access_grants": EVERYBODY}
    admin.post("/api/v1/tools/create", body)
    return tool_id


@asynccontextmanager
async def chat_of(browser: Browser, user: Admin, open_webui: OpenWebUI, artifacts: Path) -> AsyncIterator[Chat]:
    """A chat in a browser of that user."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    await context.add_init_script(f"localStorage.setItem('token', {json.dumps(user.token)})")
    try:
        yield await Chat.prepare(await context.new_page(), open_webui.url, artifacts)
    finally:
        await context.close()


async def open_with_tool(chat: Chat, tool_id: str) -> None:
    """A new chat with the keeper, and with that tool chosen at the input."""
    await chat.open(f"keeping.keeper&tools={tool_id}")
    await expect(chat.page.get_by_role("button", name="Available Tools")).to_be_visible()


@pytest.mark.usefixtures("keeping")
async def test_preset_answers_from_its_knowledge_with_a_card(chat: Chat, server: Server, admin: Admin) -> None:
    knowledge = await asyncio.to_thread(admin.add_knowledge, "House", "The coffee machine's code is 7319.")
    preset = await asyncio.to_thread(admin.add_preset, "keeping.keeper", "Housekeeper", knowledge=[knowledge])
    await chat.open(preset)
    await chat.ask('use query_knowledge_files {"query": "coffee"}')
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from query_knowledge_files", False)
    [turn] = server.turns
    assert "<attached_knowledge>" in str(turn.bodies[-1]["messages"][0]["content"])
    assert "query_knowledge_files" in turn.offered
    assert "search_chats" not in turn.offered
    assert "House.txt" in (await Content(chat).sources())[0]
    await chat.reload()
    await chat.wait_until_finished()
    assert "7319" in await chat.result("query_knowledge_files")
    await chat.ask("hello")
    assert server.turns[-1].told == [*turn.own, server.turns[-1].told[-1]]


@pytest.mark.usefixtures("keeping")
async def test_what_a_preset_has_and_is_not_shared_with_its_user_is_named_and_its_tools_are_not_offered(
    browser: Browser, server: Server, admin: Admin, open_webui: OpenWebUI, artifacts: Path
) -> None:
    knowledge = await asyncio.to_thread(admin.add_knowledge, "Safe", "The safe's code is 7319.")
    skill = {"id": "refunds", "name": "Refunds", "content": "Be quick.", "description": "Pays back.", "meta": {}}
    await asyncio.to_thread(admin.post, "/api/v1/skills/create", skill)
    meta = {"knowledge": [knowledge], "skillIds": ["refunds"]}
    preset = await asyncio.to_thread(lambda: admin.add_preset("keeping.keeper", "Clerk", **meta))
    user = await asyncio.to_thread(admin.add_user, "Cleo")
    async with chat_of(browser, user, open_webui, artifacts) as chat:
        await chat.open(preset)
        await chat.ask("hello")
        await expect(chat.message).to_contain_text("Not shared with you, or deleted: skill refunds, knowledge Safe")
        await chat.screenshot("not_shared")
    [turn] = server.turns
    assert turn.offered == []
    assert "Safe" not in str(turn.bodies)


@pytest.mark.usefixtures("keeping")
async def test_workspace_tool_runs_as_the_user_who_asks_and_as_often_as_the_user_allows(
    browser: Browser,
    server: Server,
    admin: Admin,
    permissions: None,
    workspace_tool: str,
    open_webui: OpenWebUI,
    artifacts: Path,
) -> None:
    for name, mode in (("Ada", "full"), ("Benedict", "ask")):
        user = await asyncio.to_thread(admin.add_user, name)
        settings = {"ui": {"params": {"tool_approval_mode": mode}}}
        await asyncio.to_thread(user.post, "/api/v1/users/user/settings/update", settings)
        async with chat_of(browser, user, open_webui, artifacts) as chat:
            question = Question(chat, open_webui.version)
            await open_with_tool(chat, workspace_tool)
            await chat.send('use whoami {"greeting": "Hello"}')
            if mode == "ask":
                await question.wait("Run whoami?", "greeting: Hello")
                await question.allow()
            await chat.wait_until_finished()
            assert f"Hello {name}, the code" in await chat.result("whoami")
            if mode == "ask":
                await chat.send('use whoami {"greeting": "Hello"}')
                await question.wait("Run whoami?")
                await question.refuse()
                await chat.wait_until_finished()
                assert "the user refused it" in server.turns[-1].results[0]
                await chat.send('use whoami {"greeting": "Good evening"}')
                await question.wait("Run whoami?")
                await chat.page.goto(await leave(chat))
                await press(chat, server, "Allow")
                await expect(chat.answer.get_by_text("That is my answer")).to_be_visible(timeout=TIMEOUT_MS)
                assert f"Good evening {name}, the code" in server.turns[-1].results[0]
    assert server.turns[-1].offered == ["whoami"]


@pytest.mark.usefixtures("keeping")
async def test_built_in_tools_work_for_an_agent_with_all(chat: Chat, server: Server) -> None:
    await chat.open("keeping.collector")
    await chat.ask('use write_note {"title": "List", "content": "The code is 4711."}')
    await chat.ask('use search_notes {"query": "List"}')
    assert "The code is 4711." in server.turns[-1].results[0]
    assert {"search_chats", "view_chat", "write_note"} <= set(server.turns[-1].offered)


@pytest.mark.usefixtures("keeping")
async def test_code_interpreter_of_the_input_runs_in_the_page(chat: Chat, server: Server) -> None:
    await chat.open("keeping.keeper")
    await chat.page.locator("#integration-menu-button").click()
    await chat.page.get_by_text("Code Interpreter").click()
    await chat.page.keyboard.press("Escape")
    await chat.send('use execute_code {"code": "print(\\"The code is\\", 6 * 7)"}')
    await chat.wait_until_finished(2 * TIMEOUT_MS / 1000)
    [turn] = server.turns
    assert "The code is 42" in turn.results[0]
    assert turn.offered == ["execute_code"]
    assert "Pyodide" in str(turn.bodies[-1]["messages"][0]["content"])


@pytest.mark.usefixtures("keeping")
async def test_tool_of_an_mcp_server_of_open_webui_runs(chat: Chat, server: Server, admin: Admin) -> None:
    path = "/api/v1/configs/tool_servers"
    async with ForgetfulServer() as mcp:
        connection = {
            "url": mcp.url,
            "path": "",
            "type": "mcp",
            "auth_type": "none",
            "key": "",
            "config": {"enable": True},
            "info": {"id": "fake", "name": "Fake"},
        }
        await asyncio.to_thread(admin.post, path, {"TOOL_SERVER_CONNECTIONS": [connection]})
        await open_with_tool(chat, "server:mcp:fake")
        await chat.ask("use fake_run")
        await asyncio.to_thread(admin.post, path, {"TOOL_SERVER_CONNECTIONS": []})
        assert mcp.runs == 1
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from fake_run", False)
    assert server.turns[-1].offered == ["fake_run"]


@pytest.mark.usefixtures("keeping")
async def test_tool_server_of_the_browser_runs_in_the_page(
    browser: Browser, server: Server, admin: Admin, open_webui: OpenWebUI, artifacts: Path
) -> None:
    operation = {"operationId": "tell_code", "summary": "Tells the code.", "responses": {"200": {"description": "It."}}}
    spec = {"openapi": "3.1.0", "info": {"title": "Codes", "version": "1"}, "paths": {"/code": {"get": operation}}}
    routes = [
        Route("/openapi.json", lambda _: JSONResponse(spec)),
        Route("/code", lambda _: JSONResponse("The code is 31.")),
    ]
    everywhere = Middleware(CORSMiddleware, allow_origins=["*"], allow_headers=["*"])
    path = "/api/v1/configs/connections"
    usual = admin.api.ask("GET", path, doing="read the connections")
    # By default only admins may have tool servers of their own.
    user = await asyncio.to_thread(admin.add_user, "Heidi", "admin")
    async with HttpServer(Starlette(routes=routes, middleware=[everywhere]), interface="asgi3") as codes:
        await asyncio.to_thread(admin.post, path, usual | {"ENABLE_DIRECT_INTEGRATIONS": True})
        connection = {"url": f"http://127.0.0.1:{codes.port}", "path": "openapi.json", "auth_type": "none", "key": ""}
        servers = [{**connection, "config": {"enable": True}, "info": {"name": "Codes"}}]
        body = {"ui": {"toolServers": servers, "version": open_webui.version}}
        await asyncio.to_thread(user.post, "/api/v1/users/user/settings/update", body)
        async with chat_of(browser, user, open_webui, artifacts) as chat:
            await chat.open("keeping.keeper")
            await chat.page.locator("#integration-menu-button").click()
            await chat.page.get_by_text("Tools").click()
            await chat.page.get_by_text("Codes").click()
            await chat.page.keyboard.press("Escape")
            await chat.ask("use tell_code")
    await asyncio.to_thread(admin.post, path, usual)
    assert server.turns[-1].offered == ["tell_code"]
    assert "The code is 31." in server.turns[-1].results[0]
