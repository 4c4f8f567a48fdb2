"""The README's commands, taken out of it and run by somebody who has nothing but Python.

A fresh clone, an empty home, no cache, no uv, and the pip that came with that Python; `--python=PATH` says which it is.
Only the ports are others, because the README's may be in use.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

import openwebui
from service import Service, answers, free_port, port_is_free
from tests.e2e.open_webui_page import Chat, sign_in

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.readme,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1500, func_only=True),
]

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
EMAIL = "you@example.org"
PASSWORD = "the-password-of-you"


def commands(heading: str) -> list[str]:
    """The blocks of commands in a section of the README, as they stand."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found, f"the README has no commands under {heading!r}"
    return found


@dataclass
class Newcomer:
    """A person with a clone and an empty home."""

    clone: Path
    environment: dict[str, str]
    _terminals: list[subprocess.Popen[str]] = field(default_factory=list)

    def port(self, name: str) -> int:
        return int(self.environment[name])

    def begin(self, script: str) -> subprocess.Popen[str]:
        """Type the commands into a terminal of their own and leave them running.

        The shell is bash, as a person's is: on Ctrl-C it waits for its command and passes its exit code on, where
        dash ends at once by the signal and hides how the command ended.
        """
        terminal = subprocess.Popen(
            ["bash", "-c", f"set -e\n{script}"],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._terminals.append(terminal)
        return terminal

    def run(self, script: str) -> str:
        """Type the commands, wait for their end and return what they said; they must succeed."""
        terminal = self.begin(script)
        said, _ = terminal.communicate()
        assert terminal.returncode == 0, said
        return said

    def press_ctrl_c(self, terminal: subprocess.Popen[str]) -> int:
        """Return the exit code."""
        os.killpg(terminal.pid, signal.SIGINT)
        terminal.communicate()
        return terminal.returncode

    def close(self) -> None:
        """End what still runs."""
        for terminal in self._terminals:
            if terminal.poll() is None:
                self.press_ctrl_c(terminal)


def wait_for(line: str, output: IO[str] | None) -> str:
    """Return what was said up to the line that holds `line`."""
    assert output is not None
    said = ""
    for one in output:
        said += one
        if line in one:
            return said
    pytest.fail(f"it ended early:\n{said}")


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config) -> Path:
    """The Python that the newcomer has."""
    given = pytestconfig.getoption("python") or getattr(sys, "_base_executable", sys.executable)
    asked = [str(given), "-c", "import os, sys; print(os.path.realpath(sys.executable))"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="module")
def newcomer(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("newcomer")
    clone, home, programs = (folder / name for name in ("callboard", "home", "bin"))
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    home.mkdir()
    programs.mkdir()
    (programs / "python3").symlink_to(python)
    if not _is_this_minor(python):
        # What differs from one Python to the next is the server's installation; Open WebUI has its own Python.
        cache = home / ".cache" / "callboard"
        cache.mkdir(parents=True)
        made = openwebui.install()
        (cache / made.name).symlink_to(made)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}
    ports = {name: str(free_port()) for name in ("CALLBOARD_PORT", "OPEN_WEBUI_PORT")}
    path = f"{programs}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert shutil.which("uv", path=path) is None
    person = Newcomer(clone, {**kept, **ports, "HOME": str(home), "PATH": path})
    yield person
    person.close()
    # 3 GB, of which pytest would keep three: those of the last three runs.
    shutil.rmtree(home / ".cache", ignore_errors=True)


def _is_this_minor(python: Path) -> bool:
    asked = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return version == [str(part) for part in sys.version_info[:2]]


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(browser: Browser) -> AsyncIterator[Page]:
    """A page in which nobody has signed in."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    yield await context.new_page()
    await context.close()


async def ask_the_demo(page: Page, url: str, artifacts: Path, picture: str) -> None:
    """Ask for tools, of which one is meant to fail; the answer must end with calls that have finished."""
    chat = await Chat.prepare(page, url, artifacts)
    await chat.open("callboard.demo")
    await chat.ask("What can you do?")
    chips = await chat.chips()
    assert any(not chip.failed for chip in chips)
    assert not any(chip.running for chip in chips)
    await chat.screenshot(picture)


async def test_try_it(newcomer: Newcomer, stranger: Page, artifacts: Path) -> None:
    [script] = commands("Try it")
    terminal = newcomer.begin(script)
    said = wait_for("Ctrl-C stops everything.", terminal.stdout)
    # pip's own output would hide these lines.
    assert len(said.splitlines()) < 40, said
    url, email, password = (
        found(said, pattern) for pattern in (r"(http://localhost:\d+)", r"sign in as +(\S+)", r"password +(\S+)")
    )
    await sign_in(stranger, url, email, password)
    await ask_the_demo(stranger, url, artifacts, "readme_try_it")
    assert newcomer.press_ctrl_c(terminal) == 0
    assert all(port_is_free("127.0.0.1", newcomer.port(name)) for name in ("CALLBOARD_PORT", "OPEN_WEBUI_PORT"))


@contextmanager
def open_webui_of_their_own(address: str, newcomer: Newcomer, data: Path) -> Iterator[None]:
    """An Open WebUI that was there before."""
    home = Path(newcomer.environment["HOME"], ".cache", "callboard", f"open-webui-{openwebui.VERSION}")
    service: Service = openwebui.service(home, data, newcomer.port("OPEN_WEBUI_PORT"), secret_key="readme")
    try:
        service.start()
        service.wait_until_healthy(openwebui.START_SECONDS)
        openwebui.first_admin(address, EMAIL, PASSWORD)
        yield
    finally:
        service.stop()


async def test_you_have_an_open_webui_already(
    newcomer: Newcomer, stranger: Page, artifacts: Path, tmp_path: Path
) -> None:
    first, second = commands("You have an Open WebUI already?")
    address = f"http://localhost:{newcomer.port('OPEN_WEBUI_PORT')}"
    server = f"http://127.0.0.1:{newcomer.port('CALLBOARD_PORT')}"
    newcomer.environment["OPEN_WEBUI_PASSWORD"] = PASSWORD
    with open_webui_of_their_own(address, newcomer, tmp_path):
        serve = newcomer.begin(first)
        wait_for('"listening"', serve.stdout)
        newcomer.run(second.replace("http://localhost:3000", address))
        await sign_in(stranger, address, EMAIL, PASSWORD)
        await ask_the_demo(stranger, address, artifacts, "readme_open_webui_already")
        newcomer.press_ctrl_c(serve)
        # The key that was made is asked for from the next start on; the pipe has it.
        again = newcomer.begin(". venv/bin/activate\ncallboard serve")
        wait_for('"listening"', again.stdout)
        assert refuses_strangers(f"{server}/v1/models")
        await ask_the_demo(stranger, address, artifacts, "readme_open_webui_already_with_a_key")
        newcomer.press_ctrl_c(again)
    assert not answers(f"{server}/health")


def refuses_strangers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code == 401
    return False


def found(said: str, pattern: str) -> str:
    match = re.search(pattern, said)
    assert match, said
    return match.group(1)
