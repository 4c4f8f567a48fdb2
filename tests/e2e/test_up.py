"""scripts/up as a person runs it: what it starts works for others than admins, with knowledge, and is inspected."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

import install_pipe
import openwebui
from service import free_port, port_is_free
from tests.e2e.open_webui_page import Chat, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]

ROOT = Path(__file__).resolve().parents[2]
LAST_LINE = "Ctrl-C stops everything."


class Up:
    """scripts/up with data and ports of its own."""

    def __init__(self, data: Path) -> None:
        self.ports = {"CALLBOARD_PORT": free_port(), "OPEN_WEBUI_PORT": free_port()}
        settings = {name: str(port) for name, port in self.ports.items()}
        self._environment = os.environ | settings | {"CALLBOARD_DATA_DIR": str(data)}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Run it; what it has said when everything is up."""
        command = [sys.executable, str(ROOT / "scripts" / "up.py")]
        self._process = subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if LAST_LINE in line:
                return said
        pytest.fail(f"it ended early:\n{said}")

    def press_ctrl_c(self) -> int:
        """Its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        return self._process.returncode


def found(said: str, pattern: str) -> str:
    match = re.search(pattern, said)
    assert match, said
    return match.group(1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """What it said in its first run, and in a second one, which goes on."""
    up = Up(tmp_path_factory.mktemp("up"))
    first = up.start()
    assert up.press_ctrl_c() == 0
    assert all(port_is_free("127.0.0.1", port) for port in up.ports.values())
    second = up.start()
    yield first, second
    assert up.press_ctrl_c() == 0


@pytest.fixture
def said(runs: tuple[str, str]) -> str:
    return runs[1]


async def test_a_second_run_installs_nothing_and_keeps_the_sign_in(runs: tuple[str, str]) -> None:
    first, second = runs
    assert found(second, r"password +(\S+)") == found(first, r"password +(\S+)")
    assert "Installing Open WebUI" not in second
    assert "Installing the Callboard server" not in second
    assert "Who sees them: everyone." in first
    assert "a new user with the role 'user' sees Demo, and Demo answers" in first
    assert openwebui.KNOWLEDGE in second


async def test_a_second_account_gets_an_answer_with_a_card_and_adds_a_file_to_knowledge(
    said: str, browser: Browser, artifacts: Path
) -> None:
    url = found(said, r"(http://localhost:\d+)").replace("localhost", "127.0.0.1")
    admin = install_pipe.OpenWebUI(url)
    admin.sign_in(install_pipe.Credentials(found(said, r"sign in as +(\S+)"), found(said, r"password +(\S+)")))
    account = {"name": "Ada", "email": "ada@example.org", "password": "Password-1", "role": "user"}
    admin.ask("POST", "/api/v1/auths/add", account, doing="add an account")
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    await sign_in(page, url, account["email"], account["password"], is_admin=False)
    chat = await Chat.prepare(page, url, artifacts)
    await check_the_first_page(page)
    await page.get_by_role("button", name="A picture").click()
    await expect(page.locator(".chat-assistant")).to_have_count(1)
    await expect(page.locator("button.copy-response-button")).to_have_count(1, timeout=30_000)
    [chip] = await chat.chips()
    assert "draw_picture" in chip.label
    assert not chip.failed
    await context.close()
    check_knowledge(admin)


async def check_the_first_page(page: Page) -> None:
    """Demo is the one model that is offered, with its suggestions."""
    for suggestion in ("Show me everything", "Something slow", "Ask me before you delete", "A picture"):
        await expect(page.get_by_role("button", name=suggestion)).to_be_visible(timeout=30_000)
    await page.get_by_role("button", name="Selected model: Demo").click()
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Escape")


def check_knowledge(admin: install_pipe.OpenWebUI) -> None:
    """A file can be added to knowledge, and an agent is asked with what is in it."""
    headers = {"Authorization": f"Bearer {admin.token}", "Accept": "application/json"}
    file = {"file": ("rose.txt", b"The Rose was found again in 1989.", "text/plain")}
    # With its text read before the answer comes.
    added = httpx.post(f"{admin.url}/api/v1/files/?process_in_background=false", headers=headers, files=file)
    new = {"name": "Theatres", "description": "", "access_grants": []}
    knowledge = admin.ask("POST", "/api/v1/knowledge/create", new, doing="make knowledge")
    path = f"/api/v1/knowledge/{knowledge['id']}/file/add"
    admin.ask("POST", path, {"file_id": added.json()["id"]}, doing="add a file")
    question = {
        "model": "callboard.demo",
        "messages": [{"role": "user", "content": "What do you remember?"}],
        "files": [{"type": "collection", "id": knowledge["id"], "name": "Theatres"}],
        "stream": False,
    }
    answer = admin.ask("POST", "/api/chat/completions", question, doing="ask with knowledge")
    assert answer["sources"][0]["document"] == ["The Rose was found again in 1989."]
    assert answer["choices"][0]["message"]["content"].startswith("I remember no tool call")
