"""A real Open WebUI, a real Callboard server and a real browser, started once for all end-to-end tests."""

from __future__ import annotations

import contextlib
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

import install_pipe
import openwebui
from service import Service, free_port
from tests.browsers import open_browser
from tests.e2e.open_webui_page import Chat
from tests.e2e.server import START_SECONDS, Script, Server
from tests.fakes.mcp_oauth import Notes
from tests.fakes.openai_server import OpenAIServer
from tests.gates import Gate

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts" / "e2e"
KEY = "key-of-the-end-to-end-tests"
EMAIL = "admin@localhost"
PASSWORD = "password-of-the-end-to-end-tests"
BOTH = pytest.mark.parametrize("rendering", ["details", "native"])
"""For what Open WebUI draws with code of its own in each rendering; a test has the default one otherwise."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_version: runs with older versions of Open WebUI too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not tested with an older version."""
    if config.getoption("open_webui") == openwebui.VERSION:
        return
    apart = [item for item in items if item.get_closest_marker("e2e") and not item.get_closest_marker("every_version")]
    items[:] = [item for item in items if item not in apart]
    config.hook.pytest_deselected(items=apart)


@dataclass(frozen=True)
class OpenWebUI:
    """An Open WebUI that answers at `url`, and the session of its admin."""

    url: str
    token: str
    version: str
    service: Service


@pytest.fixture(scope="session")
def version(pytestconfig: pytest.Config) -> str:
    """The version of Open WebUI that is tested."""
    return str(pytestconfig.getoption("open_webui"))


@pytest.fixture(scope="session")
def open_webui(version: str, artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWebUI]:
    """A fresh Open WebUI of that version with an admin and nothing else."""
    home = openwebui.install(version)
    data = tmp_path_factory.mktemp("open-webui")
    port = free_port()
    service = openwebui.service(home, data, port, secret_key="e2e")
    with running(service, openwebui.START_SECONDS, artifacts):
        url = f"http://127.0.0.1:{port}"
        started = OpenWebUI(url, openwebui.first_admin(url, EMAIL, PASSWORD), version, service)
        _hide_release_notes(started)
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def notes() -> AsyncIterator[Notes]:
    """An MCP server that its users sign in to."""
    async with Notes().running() as notes:
        yield notes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started_server(
    notes: Notes, artifacts: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """A Callboard server with all agents of the tests."""
    script = Script()
    async with OpenAIServer(script) as endpoint:
        data = tmp_path_factory.mktemp("callboard")
        (data / "notes").write_text(notes.url)
        server = Server(data, free_port(), KEY, endpoint, script)
        with running(server.service, START_SECONDS, artifacts):
            yield server


@pytest.fixture
def server(started_server: Server) -> Server:
    """The server, whose model has not been asked anything yet."""
    started_server.forget()
    return started_server


@pytest.fixture
def gate(server: Server) -> Iterator[Gate]:
    """The gate of the server's tools, closed."""
    server.gate.close()
    yield server.gate
    server.gate.open()


@pytest.fixture
def rendering() -> str:
    """How the pipe draws; `BOTH` runs a test with each."""
    return "details"


@pytest.fixture(scope="session")
def pipes(open_webui: OpenWebUI, started_server: Server) -> Mapping[str, str]:
    """The pipes' function ids, by their rendering."""
    ids = {rendering: f"callboard_{rendering}" for rendering in ("details", "native")}
    for rendering, function_id in ids.items():
        install(open_webui, started_server, function_id, RENDERING=rendering)
    return ids


@pytest.fixture
def pipe(pipes: Mapping[str, str], server: Server, rendering: str) -> str:
    """The pipe's function id, which the ids of its models begin with."""
    return pipes[rendering]


@pytest.fixture(scope="session")
def artifacts(version: str) -> Path:
    """Where pictures and logs of that version are kept."""
    return ARTIFACTS / version


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, open_webui: OpenWebUI) -> AsyncIterator[Page]:
    """A page with the admin signed in, not yet opened."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    # Set before the first page is loaded: Open WebUI reads it only then.
    await context.add_init_script(f"localStorage.setItem('token', {json.dumps(open_webui.token)})")
    yield await context.new_page()
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chat(
    page: Page, open_webui: OpenWebUI, artifacts: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Chat]:
    """A chat that leaves a picture of how it ended."""
    chat = await Chat.prepare(page, open_webui.url, artifacts)
    yield chat
    await chat.screenshot(request.node.name.removeprefix("test_"))


@pytest.fixture
def admin(open_webui: OpenWebUI) -> install_pipe.OpenWebUI:
    """Open WebUI's API, for its admin."""
    return install_pipe.OpenWebUI(open_webui.url, token=open_webui.token)


def install(webui: OpenWebUI, server: Server, function_id: str, **valves: str) -> install_pipe.Installed:
    """Install the pipe for that server."""
    # With the session's token: Open WebUI limits how often one may sign in.
    credentials = install_pipe.Credentials(api_key=webui.token)
    own = {"CALLBOARD_URL": server.url, "CALLBOARD_API_KEY": KEY}
    return install_pipe.install(webui.url, credentials, own | valves, function_id)


def webui_client(webui: OpenWebUI) -> httpx.AsyncClient:
    """A client of Open WebUI's API, for its admin."""
    headers = {"Authorization": f"Bearer {webui.token}"}
    return httpx.AsyncClient(base_url=webui.url, headers=headers, timeout=60, trust_env=False)


@contextlib.contextmanager
def running(service: Service, seconds: float, artifacts: Path) -> Iterator[None]:
    """Keeps a service up for a block, and its log among the artefacts."""
    try:
        service.start()
        service.wait_until_healthy(seconds)
        yield
    finally:
        service.stop()
        artifacts.mkdir(parents=True, exist_ok=True)
        shutil.copy(service.log, artifacts)


def _hide_release_notes(webui: OpenWebUI) -> None:
    """Tell Open WebUI that this user has seen what is new in its version: it would cover the page with it."""
    settings = json.dumps({"ui": {"version": webui.version}}).encode()
    headers = {"Authorization": f"Bearer {webui.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{webui.url}/api/v1/users/user/settings/update", settings, headers)
    with urllib.request.urlopen(request, timeout=30):
        pass
