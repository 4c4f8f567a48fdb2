"""scripts/up reports problems in one line each, and leaves no process running.

Open WebUI is a stand-in here; the Callboard server is the real one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from callboard._keys import make_api_key
from service import answers, free_port, port_is_free
from tests.scripts.stand_in import ADMIN, PASSWORD, StandIn

pytestmark = pytest.mark.slow

UP = Path(__file__).resolve().parents[2] / "scripts" / "up.py"
START = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def environment(webui: StandIn, tmp_path: Path, port: int) -> dict[str, str]:
    """The shell's, with everything pointed at the stand-in and at a folder of the test."""
    return os.environ | {
        "CALLBOARD_PORT": str(port),
        "CALLBOARD_DATA_DIR": str(tmp_path),
        "OPEN_WEBUI_URL": webui.url,
        "OPEN_WEBUI_EMAIL": ADMIN,
        "OPEN_WEBUI_PASSWORD": PASSWORD,
    }


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages of this one and the command `callboard` beside it."""
    home = tmp_path_factory.mktemp("python")
    venv.create(home, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "inherited.pth").write_text("\n".join(filter(None, sys.path)))
    command = home / "bin" / "callboard"
    command.write_text(f"#!{home}/bin/python\nimport sys\nfrom callboard._cli import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return home / "bin" / "python"


@pytest.fixture
def start(environment: dict[str, str], python: Path) -> Iterator[START]:
    """Starts scripts/up with settings of the test, and stops all its processes at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python, UP, *arguments],
            env=environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        process.communicate()


def until_up(process: subprocess.Popen[str]) -> str:
    """The output until everything is up."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C stops" in line:
            return said
    pytest.fail(f"it ended early: {said}\n{process.communicate()[1]}")


def the_end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and the standard error."""
    said = process.communicate()[1]
    assert "Traceback" not in said
    return process.returncode, said


def test_it_brings_the_server_up_and_installs_the_pipe_with_address_and_key(
    start: START, webui: StandIn, port: int, tmp_path: Path
) -> None:
    said = until_up(start())
    key = (tmp_path / "api_key").read_text().strip()
    assert webui.functions["callboard"]["is_active"]
    assert webui.valves["callboard"] == {
        "CALLBOARD_URL": f"http://127.0.0.1:{port}",
        "CALLBOARD_API_KEY": key,
        "INSPECTOR_URL": f"http://127.0.0.1:{port}/inspect",
        "ACCESS": "everyone",
    }
    assert answers(f"http://127.0.0.1:{port}/health")
    assert not answers(f"http://127.0.0.1:{port}/v1/models"), "the server does not ask for the key"
    assert webui.url in said
    assert "done in" in said
    assert "could not be loaded" not in said
    assert (
        "No language model was found. Assistant and Model are listed once CALLBOARD_MODEL_BASE_URL names one." in said
    )
    assert "Models: Demo. Who sees them: everyone.\nChecked: a new user with the role 'user' sees Demo" in said
    assert key not in said
    inspector = f"http://127.0.0.1:{port}/inspect"
    assert f"{inspector}\n  API key     in {tmp_path / 'api_key'}" in said
    assert httpx.get(inspector).status_code == 401
    assert httpx.get(inspector, headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_stopped_and_started_again_it_keeps_its_secrets_and_makes_files_private_that_others_could_read(
    start: START, webui: StandIn, port: int, tmp_path: Path
) -> None:
    key = make_api_key(tmp_path)
    names = ("secrets.json", "api_key", "callboard.log", "callboard.db")
    kept = []
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start()
        until_up(process)
        process.send_signal(number)
        assert the_end(process) == (0, "")
        assert port_is_free("127.0.0.1", port)
        kept.append((tmp_path / "secrets.json").read_text())
        for name in names:
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name
            (tmp_path / name).chmod(0o644 if name != "api_key" else 0o600)
        tmp_path.chmod(0o777)
    assert kept[0] == kept[1]
    assert len(set(json.loads(kept[0]).values())) == 2
    assert webui.valves["callboard"]["CALLBOARD_API_KEY"] == key


def test_a_server_that_dies_ends_it_with_the_last_lines_of_its_log(start: START) -> None:
    process = start()
    until_up(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    code, said = the_end(process)
    assert code == 1
    assert "The Callboard server ended by itself with exit code -9" in said
    assert "listening" in said


def test_a_mistake_in_a_file_of_agents_is_shown_with_its_line_and_the_other_agents_serve(
    start: START, port: int, tmp_path: Path
) -> None:
    (tmp_path / "good.py").write_text('from callboard import Agent, register\nregister(Agent("good"))\n')
    (tmp_path / "broken.py").write_text('print("{not of the log")\n\nfoo()\n')
    (tmp_path / "half.py").write_text("def begun(:\n")
    (tmp_path / "empty.py").write_text("")
    files = [str(tmp_path / name) for name in ("good.py", "broken.py", "half.py", "empty.py", "gone.py")]
    hosts = {"CALLBOARD_URL": f"http://host.docker.internal:{port}", "CALLBOARD_TRUSTED_HOSTS": "nas.lan"}
    said = until_up(start(CALLBOARD_AGENTS=",".join(files), **hosts))
    advice = "Correct the mistake and start again; until then the agents of this source are left out."
    assert said.partition("Agents that could not be loaded:\n\n")[2].splitlines()[:4] == [
        f"  CALLBOARD_AGENTS: {tmp_path / 'broken.py'}, line 3: NameError: name 'foo' is not defined. {advice}",
        f"  CALLBOARD_AGENTS: {tmp_path / 'half.py'}, line 1: SyntaxError: invalid syntax. {advice}",
        f"  CALLBOARD_AGENTS: {tmp_path / 'empty.py'} registers no agent: call callboard.register(agent) in it.",
        f"  CALLBOARD_AGENTS: {tmp_path / 'gone.py'} cannot be loaded: FileNotFoundError: "
        f"there is no file {tmp_path / 'gone.py'}. {advice}",
    ]
    # It answers by the name by which Open WebUI calls it, and by those of the user.
    key = {"Authorization": f"Bearer {(tmp_path / 'api_key').read_text().strip()}"}
    for host, status in (("host.docker.internal", 200), ("nas.lan", 200), ("localhost", 200), ("evil.example", 421)):
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/models", headers=key | {"Host": f"{host}:{port}"})
        assert answer.status_code == status
        assert status != 200 or "good" in [model["id"] for model in answer.json()["data"]]


@pytest.mark.parametrize(
    ("program", "name"), [("The Callboard server", "CALLBOARD_PORT"), ("Open WebUI", "OPEN_WEBUI_PORT")]
)
def test_a_busy_port_is_explained_before_anything_is_started(
    start: START, webui: StandIn, program: str, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        code, said = the_end(start(**{"OPEN_WEBUI_URL": "", name: str(busy)}))
    assert code == 1
    assert f"{program} needs port {busy}, which is in use" in said
    assert f"{name}={busy + 1} scripts/up" in said
    assert webui.calls == []


def not_ours(folder: Path, _: StandIn) -> None:
    make_api_key(folder)
    (folder / "api_key").chmod(0o644)


def no_secrets(folder: Path, _: StandIn) -> None:
    (folder / "secrets.json").write_text("{}")


def cut_off(_: Path, webui: StandIn) -> None:
    webui.server_reachable = False


@pytest.mark.parametrize(
    ("settings", "harm", "said"),
    [
        ({}, not_ours, ["chmod 600"]),
        ({}, no_secrets, ["secrets.json"]),
        ({}, cut_off, ["CALLBOARD_URL", "CALLBOARD_HOST"]),
        ({"OPEN_WEBUI_PASSWORD": ""}, None, ["OPEN_WEBUI_EMAIL and OPEN_WEBUI_PASSWORD"]),
        ({"OPEN_WEBUI_URL": "http://127.0.0.1:9"}, None, ["No Open WebUI answers at http://127.0.0.1:9"]),
        (
            {"CALLBOARD_SEERR_URL": "http://127.0.0.1:1"},
            None,
            ["ended with exit code 1 before it was ready.", "CALLBOARD_SEERR_API_KEY"],
        ),
    ],
)
def test_what_keeps_it_from_starting_is_explained_and_leaves_no_server(
    start: START,
    port: int,
    tmp_path: Path,
    webui: StandIn,
    settings: dict[str, str],
    harm: Callable[[Path, StandIn], None] | None,
    said: list[str],
) -> None:
    if harm:
        harm(tmp_path, webui)
    code, explained = the_end(start(**settings))
    assert code == 1
    for words in said:
        assert words in explained
    assert port_is_free("127.0.0.1", port)
