"""The files that keep Callboard running: image, compose file, unit. Checked as far as no engine is needed."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

import openwebui
from callboard.cli import SHUTDOWN_SECONDS
from callboard.settings import Settings, unknown_settings
from tests import processes
from tests.scripts import stand_in

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = (ROOT / "deploy" / "callboard.service").read_text()
MUST_BE_SET = {
    "CALLBOARD_API_KEY": "a-long-random-string",
    "OPEN_WEBUI_SECRET_KEY": "another",
    "OPEN_WEBUI_EMAIL": stand_in.ADMIN,
    "OPEN_WEBUI_PASSWORD": stand_in.PASSWORD,
}
MOST_EXPOSURE_TENTHS = 20
"""Of systemd's 0 to 10, where a unit without a word on security has 9.6."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose_config(folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What compose makes of the file, with these variables as the one `.env`."""
    shutil.copy(ROOT / "compose.yaml", folder)
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    clean = {name: value for name, value in os.environ.items() if name not in variables}
    return run("docker-compose", "config", env=clean, cwd=folder)


@pytest.fixture
def services(tmp_path: Path) -> dict[str, Any]:
    ended = compose_config(tmp_path, example() | MUST_BE_SET)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = yaml.safe_load(ended.stdout)["services"]
    return found


@pytest.mark.needs("docker-compose")
def test_compose_reads_the_file_once_the_example_is_filled_in(services: dict[str, Any]) -> None:
    assert set(services) == {"callboard", "open-webui", "pipe"}
    assert services["callboard"]["environment"]["CALLBOARD_API_KEY"] == MUST_BE_SET["CALLBOARD_API_KEY"]
    assert {service["image"] for service in services.values()} == {
        "callboard",
        f"ghcr.io/open-webui/open-webui:v{openwebui.VERSION}",
    }


@pytest.mark.needs("docker-compose")
@pytest.mark.parametrize("missing", MUST_BE_SET)
def test_compose_says_what_is_not_filled_in(tmp_path: Path, missing: str) -> None:
    ended = compose_config(tmp_path, example() | {**MUST_BE_SET, missing: ""})
    assert ended.returncode != 0
    assert missing in ended.stderr
    assert "set it in .env" in ended.stderr


@pytest.mark.needs("docker-compose")
def test_the_example_names_no_setting_that_there_is_not_and_none_is_wrong(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unknown_settings(example()) == []
    for name, value in services["callboard"]["environment"].items():
        monkeypatch.setenv(name, value)
    assert Settings().host == "0.0.0.0"


def test_the_default_version_of_open_webui_is_the_one_that_is_tested() -> None:
    assert f"OPEN_WEBUI_VERSION:-{openwebui.VERSION}" in (ROOT / "compose.yaml").read_text()
    assert example()["OPEN_WEBUI_VERSION"] == openwebui.VERSION


@pytest.mark.needs("docker-compose")
def test_the_server_is_not_given_open_webuis_secrets(services: dict[str, Any]) -> None:
    given = set(services["callboard"]["environment"].values())
    assert not given & {MUST_BE_SET["OPEN_WEBUI_SECRET_KEY"], MUST_BE_SET["OPEN_WEBUI_PASSWORD"]}


@pytest.mark.needs("docker-compose")
def test_the_pipe_is_installed_by_what_the_image_holds(services: dict[str, Any], tmp_path: Path) -> None:
    image = tmp_path / "image"
    copied = [line for line in copies() if "--from" not in line and line.split()[-1].startswith("/opt/callboard/")]
    for line in copied:
        source, target = line.split()
        place = image / target.removeprefix("/opt/callboard/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
    service = services["pipe"]
    with stand_in.serving() as webui:
        command = [sys.executable, *service["entrypoint"][1:], *service["command"]]
        moved = [
            word.replace("/opt/callboard", str(image)).replace("http://open-webui:8080", webui.url) for word in command
        ]
        ended = run(*moved, env=service["environment"])
    assert ended.returncode == 0, ended.stderr
    assert webui.functions["callboard"]["is_active"]
    assert webui.valves["callboard"] == {
        "CALLBOARD_URL": "http://callboard:8700",
        "CALLBOARD_API_KEY": MUST_BE_SET["CALLBOARD_API_KEY"],
    }


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    ended = run(Path(sys.executable).parent / "hadolint", "Dockerfile")
    assert ended.returncode == 0, ended.stdout


def test_the_image_does_not_run_as_root() -> None:
    [user] = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0


def copies() -> list[str]:
    """The arguments of each COPY."""
    return re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)


@pytest.mark.needs("downloads")
def test_the_image_is_built_from_all_that_the_wheel_needs(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for line in takewhile(lambda line: "--from" not in line, copies()):
        *names, _ = line.split()
        for name in names:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    ended = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, source)
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("callboard-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"callboard/cli.py", "callboard_protocol/events.py"} <= set(names)
    assert any(name.startswith("callboard/history/migrations/versions/0001") for name in names)


def test_what_docker_does_not_send_holds_nothing_that_the_image_needs() -> None:
    sent = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    wanted = [name.rstrip("/") for line in copies() if "--from" not in line for name in line.split()[:-1]]
    assert sorted(sent) == sorted(wanted)


def test_the_health_check_is_well_with_a_server_and_not_without(tmp_path: Path) -> None:
    found = re.search(r"^HEALTHCHECK .* CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    assert found
    command = [sys.executable, *json.loads(found[1])[1:]]
    with processes.serving(tmp_path) as (url, _):
        environment = {"CALLBOARD_PORT": url.rpartition(":")[2], "http_proxy": "http://127.0.0.1:9"}
        assert run(*command, env=environment).returncode == 0
    assert run(*command, env=environment).returncode != 0


@pytest.mark.needs("systemd")
def test_systemd_takes_the_unit_and_finds_it_locked_down(tmp_path: Path) -> None:
    # systemd looks for the program itself: here it lies elsewhere.
    unit = tmp_path / "callboard.service"
    unit.write_text(UNIT.replace("/opt/callboard/bin/", f"{Path(sys.executable).parent}/"))
    verified = run("systemd-analyze", "verify", unit)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    judged = run("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSURE_TENTHS}", unit)
    assert judged.returncode == 0, judged.stdout


@pytest.mark.needs("docker-compose")
def test_both_wait_longer_for_the_server_to_stop_than_it_takes(services: dict[str, Any]) -> None:
    waits = re.search(r"^TimeoutStopSec=(\d+)s$", UNIT, re.MULTILINE)
    assert waits
    for seconds in (waits[1], services["callboard"]["stop_grace_period"].removesuffix("s")):
        assert int(seconds) >= 2 * SHUTDOWN_SECONDS
