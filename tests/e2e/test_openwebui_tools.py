"""Open WebUI's own tools as calls of an agent: knowledge of a preset, a tool of the workspace, two users."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
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
from service import Service, free_port
from tests.e2e.answer_content import Content, Dialog
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, running
from tests.e2e.open_webui_page import Chat, Look
from tests.e2e.test_memory import webui_client
from tests.e2e.test_restarted_open_webui import WAIT_MS, killed
from tests.fakes.embeddings import EmbeddingServer
from tests.fakes.http_server import HttpServer
from tests.fakes.mcp_http import ForgetfulServer
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300, func_only=True),
]

AGENTS = Path(__file__).with_name("keeper.py")
EVERYBODY = [{"principal_type": "user", "principal_id": "*", "permission": "read"}]
QUESTION = "What is the code of the coffee machine?"
WORKSPACE_TOOL = '''
import asyncio


class Tools:
    async def whoami(self, greeting: str, __user__: dict = {}, __event_emitter__=None) -> str:
        """Greet the user by their name.

        :param greeting: The first word.
        """
        if __event_emitter__:
            await __event_emitter__({"type": "status", "data": {"description": "Looking for a name", "done": True}})
        return f"{greeting} {__user__['name']}, the code is {len(__user__['name'])}0"

    async def wait(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
'''


def script(body: Body) -> Answer:
    """Answer a question for a code from knowledge; `use NAME {arguments}` is a call of that tool."""
    messages = body["messages"]
    asked = str(next(message["content"] for message in reversed(messages) if message["role"] == "user"))
    if asked.startswith("### Task:"):
        return chunks(text(json.dumps({"title": "Codes", "tags": [], "follow_ups": []})), finish("stop"))
    if messages[-1]["role"] == "tool":
        result = str(messages[-1]["content"])
        code = re.search(r"code is (\d+)", result)
        return chunks(text(f"The code is {code[1]}." if code else f"I could not find it: {result}"), finish("stop"))
    if asked == "hello":
        return chunks(text("Hello."), finish("stop"))
    offered = {tool["function"]["name"] for tool in body.get("tools") or ()}
    made = re.match(r"use (\w+) ?(\{.*\})?", asked)
    name, arguments = (made[1], made[2] or "{}") if made else ("query_knowledge_files", '{"query": "coffee"}')
    if name not in offered:
        return chunks(text("I have no tool for this."), finish("stop"))
    return chunks(call(name, arguments, call_id=f"call_{uuid.uuid4().hex}"), finish("tool_calls"))


class Admin:
    """Open WebUI's API for one user."""

    def __init__(self, open_webui: OpenWebUI, token: str) -> None:
        self.api = install_pipe.OpenWebUI(open_webui.url, token=token)
        self.token = token
        self._open_webui = open_webui
        self._params = {} if Look.of(open_webui.version).calls_natively else {"function_calling": "native"}

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
        # 0.8.12 stores the setting, and then fails to describe all of its settings.
        with suppress(install_pipe.InstallFailed):
            self.post("/api/v1/retrieval/config/update", {"BYPASS_EMBEDDING_AND_RETRIEVAL": is_bypassed})

    def call_natively(self, models: Mapping[str, str]) -> None:
        """Let these models call tools themselves, in versions in which that has to be chosen."""
        for model, name in models.items() if self._params else ():
            body = {"id": model, "name": name, "meta": {}, "params": self._params, "access_grants": EVERYBODY}
            self.post("/api/v1/models/model/update", body)

    def add_preset(self, model: str, name: str, **meta: Any) -> str:
        """Add a model of the workspace over an agent, for everybody; its id."""
        preset = f"{name}-{uuid.uuid4().hex[:6]}"
        body = {"id": preset, "base_model_id": model, "name": name, "meta": meta, "params": self._params}
        self.post("/api/v1/models/create", {**body, "access_grants": EVERYBODY})
        return preset

    def add_user(self, name: str, role: str = "user") -> Admin:
        body = {"name": name, "email": f"{name}-{uuid.uuid4().hex[:6]}@example.org", "password": "Password-1"}
        return Admin(self._open_webui, self.post("/api/v1/auths/add", {**body, "role": role})["token"])


@dataclass(frozen=True)
class Keeper:
    """The agents' server, and their model."""

    service: Service
    endpoint: OpenAIServer
    function_id: str

    @property
    def told(self) -> list[Body]:
        """The requests for answers, without those for titles and the like."""
        bodies = self.endpoint.requests
        return [body for body in bodies if not str(body["messages"][-1]["content"]).startswith("### Task:")]

    @property
    def offered(self) -> list[str]:
        """The names of the tools in the last request."""
        return [tool["function"]["name"] for tool in self.told[-1].get("tools") or ()]

    @property
    def prompt(self) -> str:
        """The system prompt of the last request."""
        return "".join(message["content"] for message in self.told[-1]["messages"] if message["role"] == "system")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keeping(
    open_webui: OpenWebUI, artifacts: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Keeper]:
    """The server with the agents, and an embedding model for Open WebUI's knowledge."""
    admin = Admin(open_webui, open_webui.token)
    usual = admin.api.ask("GET", "/api/v1/retrieval/embedding", doing="read the embedding model")
    async with OpenAIServer(script) as endpoint, EmbeddingServer() as embeddings:
        config = {"RAG_EMBEDDING_ENGINE": "openai", "RAG_EMBEDDING_MODEL": "meanings"}
        where = {"url": embeddings.base_url, "key": "k"}
        await asyncio.to_thread(admin.bypass_retrieval, False)
        await asyncio.to_thread(admin.post, "/api/v1/retrieval/embedding/update", {**config, "openai_config": where})
        port = free_port()
        data = tmp_path_factory.mktemp("keeper")
        model = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "scripted", "AGENTS": str(AGENTS)}
        service = callboard_service("The keeper's server", port, data, KEY, DETACH_GRACE_SECONDS="600", **model)
        with running(service, SERVER_START_SECONDS, artifacts):
            valves = {"CALLBOARD_URL": f"http://127.0.0.1:{port}", "CALLBOARD_API_KEY": KEY, "ACCESS": "everyone"}
            credentials = install_pipe.Credentials(api_key=open_webui.token)
            installed = await asyncio.to_thread(install_pipe.install, open_webui.url, credentials, valves, "keeper")
            await asyncio.to_thread(admin.call_natively, installed.models)
            yield Keeper(service, endpoint, "keeper")
        await asyncio.to_thread(admin.post, "/api/v1/retrieval/embedding/update", usual)
        await asyncio.to_thread(admin.bypass_retrieval, True)


@pytest.fixture
def keeper(keeping: Keeper) -> Keeper:
    """The agents' server, whose model has not been sent anything yet."""
    keeping.endpoint.requests.clear()
    return keeping


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
        yield await Chat.prepare(await context.new_page(), open_webui.url, artifacts, open_webui.version)
    finally:
        await context.close()


async def open_with_tool(chat: Chat, tool_id: str) -> None:
    """A new chat with the keeper, and with that tool chosen at the input."""
    await chat.open(f"keeper.keeper&tools={tool_id}")
    await expect(chat.page.get_by_role("button", name="Available Tools")).to_be_visible()


async def switch_on_code_interpreter(chat: Chat) -> None:
    await chat.page.locator("#integration-menu-button").click()
    await chat.page.get_by_text("Code Interpreter").click()
    await chat.page.keyboard.press("Escape")


@pytest.mark.feature("its own tools")
async def test_preset_answers_from_its_knowledge_with_a_card(
    chat: Chat, keeper: Keeper, admin: Admin, record_property: Callable[[str, object], None]
) -> None:
    if not chat.look.calls_natively:
        record_property("instead", "if function calling is `native`")
    knowledge = await asyncio.to_thread(admin.add_knowledge, "House", "The coffee machine's code is 7319.")
    preset = await asyncio.to_thread(admin.add_preset, "keeper.keeper", "Housekeeper", knowledge=[knowledge])
    await chat.open(preset)
    await chat.ask(QUESTION)
    assert "The code is 7319." in await chat.text()
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from query_knowledge_files", False)
    assert ("<attached_knowledge>" in keeper.prompt) == chat.look.calls_natively
    assert "query_knowledge_files" in keeper.offered
    assert "search_chats" not in keeper.offered
    await chat.picture("preset-with-knowledge")
    assert "House.txt" in (await Content(chat).sources())[0]
    await chat.reload()
    await chat.wait_until_finished()
    assert "7319" in await chat.result("query_knowledge_files")
    await chat.screenshot("preset-with-knowledge-after-a-reload")
    await chat.ask("hello")
    roles = [message["role"] for message in keeper.told[-1]["messages"]]
    assert roles[roles.index("user") :] == ["user", "assistant", "tool", "assistant", "user"]


async def test_agent_with_none_says_what_it_cannot_use(chat: Chat, keeper: Keeper, admin: Admin) -> None:
    knowledge = await asyncio.to_thread(admin.add_knowledge, "Cellar", "The coffee machine's code is 7319.")
    preset = await asyncio.to_thread(admin.add_preset, "keeper.hermit", "Hermit", knowledge=[knowledge])
    await chat.open(preset)
    await chat.ask(QUESTION)
    assert "I have no tool for this." in await chat.text()
    assert "Not available to this agent: knowledge · " in await chat.message.inner_text()
    assert keeper.offered == []
    assert "attached_knowledge" not in keeper.prompt


async def test_workspace_tool_runs_as_the_user_who_asks(
    browser: Browser, keeper: Keeper, admin: Admin, workspace_tool: str, open_webui: OpenWebUI, artifacts: Path
) -> None:
    for name in ("Ada", "Benedict"):
        user = await asyncio.to_thread(admin.add_user, name)
        async with chat_of(browser, user, open_webui, artifacts) as chat:
            await open_with_tool(chat, workspace_tool)
            await chat.ask('use whoami {"greeting": "Hello"}')
            assert f"The code is {len(name)}0." in await chat.text()
            assert f"Hello {name}, the code" in await chat.result("whoami")
            await chat.screenshot(f"workspace-tool-{name}")
    assert sorted(keeper.offered) == ["wait", "whoami"]


async def test_two_users_of_a_preset_get_only_the_knowledge_that_they_may_read(
    browser: Browser, keeper: Keeper, admin: Admin, open_webui: OpenWebUI, artifacts: Path
) -> None:
    users = [await asyncio.to_thread(admin.add_user, name) for name in ("Eva", "Finn")]
    knowledge = []
    for user in users:
        # Only users who may use the workspace can make knowledge, so the admin makes it for them.
        user_id = user.api.ask("GET", "/api/v1/auths/", doing="read the user")["id"]
        made = await asyncio.to_thread(admin.add_knowledge, user_id[:4], f"The coffee code is 1{users.index(user)}.")
        grants = [{"principal_type": "user", "principal_id": user_id, "permission": "read"}]
        admin.post(f"/api/v1/knowledge/{made['id']}/access/update", {"access_grants": grants})
        knowledge.append(made)
    preset = await asyncio.to_thread(admin.add_preset, "keeper.keeper", "Shared", knowledge=knowledge)
    for number, user in enumerate(users):
        async with chat_of(browser, user, open_webui, artifacts) as chat:
            await chat.open(preset)
            await chat.ask(QUESTION)
            assert f"The code is 1{number}." in await chat.text()
        [result] = [message["content"] for message in keeper.told[-1]["messages"] if message["role"] == "tool"]
        assert f"code is 1{number}." in result
        assert f"code is 1{1 - number}." not in result


async def test_stop_ends_a_tool_that_hangs(chat: Chat, keeper: Keeper, workspace_tool: str) -> None:
    await open_with_tool(chat, workspace_tool)
    await chat.send("use wait")
    await chat.wait_for_chip("wait")
    await chat.stop()
    [chip] = await chat.chips()
    assert (chip.running, "stopped" in chip.label) == (False, True)
    await chat.ask("hello")


@pytest.mark.events
async def test_kill_of_open_webui_during_a_call_ends_it_truthfully(
    chat: Chat, keeper: Keeper, workspace_tool: str, open_webui: OpenWebUI
) -> None:
    await open_with_tool(chat, workspace_tool)
    await chat.send("use wait")
    await chat.wait_for_chip("wait")
    # An open page whose request for the chat fails meanwhile goes to the start page.
    async with chat.closed(), killed(open_webui):
        pass
    await expect(chat.answer.get_by_text("I could not find it")).to_be_visible(timeout=WAIT_MS)
    await chat.wait_until_finished()
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from wait", True)
    assert "it is not known whether" in await chat.result("wait")
    await chat.screenshot("call-after-a-kill-of-open-webui")


@pytest.mark.native_calls
@pytest.mark.usefixtures("permissions")
async def test_approval_mode_of_open_webui_asks_through_callboard(
    browser: Browser, keeper: Keeper, admin: Admin, workspace_tool: str, open_webui: OpenWebUI, artifacts: Path
) -> None:
    user = await asyncio.to_thread(admin.add_user, "Grace")
    await asyncio.to_thread(
        user.post, "/api/v1/users/user/settings/update", {"ui": {"params": {"tool_approval_mode": "ask"}}}
    )
    async with chat_of(browser, user, open_webui, artifacts) as chat:
        await open_with_tool(chat, workspace_tool)
        for button, words in (("Confirm", "The code is 50."), ("Cancel", "the user refused it")):
            await chat.send('use whoami {"greeting": "Hello"}')
            dialog = Dialog(chat)
            await dialog.wait("Run whoami?")
            assert await dialog.arguments() == {"greeting": "Hello"}
            await chat.screenshot(f"approval-mode-{button}")
            await dialog.press(button)
            await chat.wait_until_finished()
            assert words in await chat.text()


async def test_built_in_tools_work_for_an_agent_with_all(chat: Chat, keeper: Keeper) -> None:
    await chat.open("keeper.collector")
    await chat.ask('use write_note {"title": "List", "content": "The code is 4711."}')
    await chat.ask('use search_notes {"query": "List"}')
    assert "The code is 4711." in await chat.text()
    assert {"search_chats", "view_chat", "write_note"} <= set(keeper.offered)


async def test_code_interpreter_of_the_input_runs_in_the_page(chat: Chat, keeper: Keeper, version: str) -> None:
    await chat.open("keeper.keeper")
    await switch_on_code_interpreter(chat)
    await chat.send('use execute_code {"code": "print(\\"The code is\\", 6 * 7)"}')
    await chat.wait_until_finished(WAIT_MS / 1000)
    assert "The code is 42." in await chat.text()
    assert keeper.offered == ["execute_code"]
    # 0.8 describes it in the tool alone.
    assert "Pyodide" in keeper.prompt or version.startswith("0.8.")


async def test_agent_with_none_names_the_code_interpreter(chat: Chat, keeper: Keeper) -> None:
    await chat.open("keeper.hermit")
    await switch_on_code_interpreter(chat)
    await chat.ask("hello")
    assert "Not available to this agent: code interpreter · " in await chat.message.inner_text()
    assert "Pyodide" not in keeper.prompt


@pytest.mark.native_calls
async def test_skill_of_a_preset_is_read(chat: Chat, keeper: Keeper, admin: Admin) -> None:
    skill_id = f"brewing-{uuid.uuid4().hex[:6]}"
    skill = {"id": skill_id, "name": "Brewing", "description": "How to brew.", "content": "The brewing code is 88."}
    await asyncio.to_thread(admin.post, "/api/v1/skills/create", skill)
    preset = await asyncio.to_thread(admin.add_preset, "keeper.keeper", "Brewer", skillIds=[skill_id])
    await chat.open(preset)
    await chat.ask(f'use view_skill {{"id": "{skill_id}"}}')
    assert "The code is 88." in await chat.text()
    assert "Brewing" in keeper.prompt
    await chat.open("keeper.keeper")
    chat.forget_answers()
    await chat.ask("hello")
    assert keeper.offered == []
    assert "<available_skills>" not in keeper.prompt, "nobody attached a skill, and no tool opens one"


async def test_caller_of_the_api_gets_the_tools_that_it_names(
    keeper: Keeper, workspace_tool: str, open_webui: OpenWebUI
) -> None:
    question = [{"role": "user", "content": 'use whoami {"greeting": "Hello"}'}]
    body = {"model": "keeper.keeper", "messages": question, "tool_ids": [workspace_tool], "stream": False}
    async with webui_client(open_webui) as client:
        answer = (await client.post("/api/chat/completions", json=body)).json()
    assert "The code is 50." in answer["choices"][0]["message"]["content"]
    assert sorted(keeper.offered) == ["wait", "whoami"]


async def test_tool_of_an_mcp_server_of_open_webui_runs(chat: Chat, keeper: Keeper, admin: Admin) -> None:
    path = "/api/v1/configs/tool_servers"
    async with ForgetfulServer() as server:
        connection = {
            "url": server.url,
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
        assert server.runs == 1
    [chip] = await chat.chips()
    assert (chip.tool, chip.failed) == ("View Result from fake_run", False)
    assert keeper.offered == ["fake_run"]


async def test_tool_server_of_the_browser_runs_in_the_page(
    browser: Browser, keeper: Keeper, admin: Admin, open_webui: OpenWebUI, artifacts: Path
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
    async with HttpServer(Starlette(routes=routes, middleware=[everywhere]), interface="asgi3") as server:
        await asyncio.to_thread(admin.post, path, usual | {"ENABLE_DIRECT_INTEGRATIONS": True})
        connection = {"url": f"http://127.0.0.1:{server.port}", "path": "openapi.json", "auth_type": "none", "key": ""}
        servers = [{**connection, "config": {"enable": True}, "info": {"name": "Codes"}}]
        body = {"ui": {"toolServers": servers, "version": open_webui.version}}
        await asyncio.to_thread(user.post, "/api/v1/users/user/settings/update", body)
        async with chat_of(browser, user, open_webui, artifacts) as chat:
            await chat.open("keeper.keeper")
            await chat.page.locator("#integration-menu-button").click()
            await chat.page.get_by_text("Tools").click()
            await chat.page.get_by_text("Codes").click()
            await chat.page.keyboard.press("Escape")
            await chat.ask("use tell_code")
            await chat.screenshot("tool-server-of-the-browser")
            assert "The code is 31." in await chat.text()
    await asyncio.to_thread(admin.post, path, usual)
    assert keeper.offered == ["tell_code"]
