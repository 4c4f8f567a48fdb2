"""A real Open WebUI, a real Callboard server and a real browser, started once for all end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

import install_pipe
import openwebui
from service import Service, free_port
from tests.browsers import open_browser
from tests.e2e import library as libraries
from tests.e2e.callboard_service import callboard_service
from tests.e2e.library import Library
from tests.e2e.open_webui_page import Chat, Look
from tests.e2e.recording_proxy import RecordingProxy, recording
from tests.e2e.tables import RENDERINGS, Recorder
from tests.e2e.up import Up
from tests.gates import Gate

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts" / "e2e"
HELD_DEMO = Path(__file__).with_name("held_demo.py")
KEY = "key-of-the-end-to-end-tests"
EMAIL = "admin@localhost"
PASSWORD = "password-of-the-end-to-end-tests"
SERVER_START_SECONDS = 60.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cell(*columns): proves these columns of the table of versions")
    config.addinivalue_line("markers", "feature(*columns): proves these columns of the table of features")
    config.addinivalue_line("markers", "events: what an Open WebUI can do that tells functions of events")
    config.addinivalue_line("markers", "permissions: needs Open WebUI's own forms and tool permissions, from 0.12")
    config.addinivalue_line("markers", "native_calls: needs models that call tools unless told otherwise, from 0.10")
    config.addinivalue_line("markers", "tasks: needs Open WebUI's panel of tasks, from 0.9")
    config.addinivalue_line("markers", "ending(*rows): proves these rows of the table of endings")
    config.pluginmanager.register(Recorder(config.getoption("open_webui")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has nothing to do with an older version, and unless asked what native adds little to."""
    tests = [item for item in items if isinstance(item, pytest.Function) and item.get_closest_marker("e2e")]
    apart: list[pytest.Item] = []
    if config.getoption("open_webui") != openwebui.VERSION:
        # `scripts/up` installs the newest.
        apart += [item for item in tests if "open_webui" not in item.fixturenames]
    if not openwebui.has_events(config.getoption("open_webui")):
        apart += [item for item in tests if item.get_closest_marker("events")]
    look = Look.of(config.getoption("open_webui"))
    needed = {"permissions": look.has_permissions, "tasks": look.has_tasks, "native_calls": look.calls_natively}
    for marker, is_there in needed.items():
        apart += [item for item in tests if item.get_closest_marker(marker) and not is_there]
    if not config.getoption("both_renderings"):
        apart += [item for item in tests if _is_native(item) and not _is_of_a_table(item)]
    items[:] = [item for item in items if item not in apart]
    config.hook.pytest_deselected(items=apart)


def _is_native(test: pytest.Function) -> bool:
    return hasattr(test, "callspec") and test.callspec.params.get("rendering") == "native"


def _is_of_a_table(test: pytest.Function) -> bool:
    return any(test.get_closest_marker(name) for name in ("cell", "ending"))


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


@pytest.fixture(scope="session")
def server_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the Callboard server."""
    return tmp_path_factory.mktemp("callboard")


@pytest.fixture(scope="session")
def server(artifacts: Path, server_data: Path) -> Iterator[str]:
    """The address of a Callboard server with an empty database and the built-in scripted model."""
    port = free_port()
    callboard = callboard_service("The Callboard server", port, server_data, KEY, AGENTS=str(HELD_DEMO))
    with running(callboard, SERVER_START_SECONDS, artifacts):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=RENDERINGS)
def rendering(request: pytest.FixtureRequest) -> str:
    """How the pipe draws."""
    return str(request.param)


@pytest.fixture
def demo(open_webui: OpenWebUI, server: str, rendering: str) -> str:
    """The demo agent's model id in Open WebUI, through a pipe with that rendering."""
    return _demo(open_webui, server, f"{install_pipe.FUNCTION_ID}_{rendering}", rendering)


@pytest.fixture
def held_demo(demo: str) -> str:
    """The model id of a demo agent whose tools wait at the gate."""
    return demo.replace(".demo", ".held")


@pytest.fixture
def gate(server_data: Path) -> Iterator[Gate]:
    """The gate of the held demo's tools, closed."""
    gate = Gate(server_data)
    yield gate
    gate.open()


@pytest.fixture
def proxy(server: str) -> Iterator[RecordingProxy]:
    """A proxy to the server that keeps the requests."""
    with recording(server) as proxy:
        yield proxy


@pytest.fixture
def recorded_demo(open_webui: OpenWebUI, proxy: RecordingProxy, rendering: str) -> str:
    """The demo agent's model id, through another installation of the pipe that talks to the proxy."""
    return _demo(open_webui, proxy.url, f"recorded_{rendering}", rendering)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def opened_library(
    open_webui: OpenWebUI, artifacts: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Library]:
    """The librarian's server, with the pipe installed for it."""
    async with libraries.endpoint() as (endpoint, script):
        port = free_port()
        data = tmp_path_factory.mktemp("library")
        service = libraries.service(port, data, KEY, endpoint.base_url)
        with running(service, SERVER_START_SECONDS, artifacts):
            url = f"http://127.0.0.1:{port}"
            for kind in RENDERINGS:
                await asyncio.to_thread(install, open_webui, url, f"{libraries.FUNCTION_ID}_{kind}", kind)
            yield Library(service, url, KEY, script)


@pytest.fixture
def library(opened_library: Library, rendering: str) -> Library:
    """The librarian, through a pipe with that rendering; its model has not been sent anything yet."""
    opened_library.forget()
    opened_library.model = f"{libraries.FUNCTION_ID}_{rendering}.librarian"
    return opened_library


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
    chat = await Chat.prepare(page, open_webui.url, artifacts, open_webui.version)
    yield chat
    await chat.screenshot(request.node.name.removeprefix("test_"))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """`scripts/up`, ended with the test."""
    up = Up(tmp_path)
    yield up
    up.close()


def install(
    webui: OpenWebUI, server: str, function_id: str, rendering: str, key: str = KEY, **more: str
) -> Mapping[str, str]:
    """Install the pipe for that server; the names of its models by their ids."""
    # With the session's token: Open WebUI limits how often one may sign in.
    credentials = install_pipe.Credentials(api_key=webui.token)
    valves = {"CALLBOARD_URL": server, "CALLBOARD_API_KEY": key, "RENDERING": rendering, **more}
    return install_pipe.install(webui.url, credentials, valves, function_id).models


def _demo(webui: OpenWebUI, server: str, function_id: str, rendering: str) -> str:
    models = install(webui, server, function_id, rendering)
    model = f"{function_id}.demo"
    assert model in models, f"the demo agent is not among {sorted(models)}"
    return model


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
