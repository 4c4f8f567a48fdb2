"""Installing Open WebUI: once, whole, with a fitting Python.

Python, pip and uv are stand-ins that write down how they were called.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import openwebui
from tests.scripts.stand_in import ADMIN, PASSWORD, StandIn

PYTHON = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    *"pip install "*open-webui=*)
        [ ! -e {broken} ] || {{ echo no space left; exit 1; }}
        touch "${{0%python}}open-webui" ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """While this file is there, pip fails."""
    return tmp_path / "broken"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, log: Path, broken: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, whose own Python does not fit and whose python3.11 is a stand-in; its PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    command(path / "python3.11", PYTHON.format(log=log, broken=broken))
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    # As a pyenv shim does for a version that is not chosen.
    command(path / "python3.12", "#!/bin/sh\nexit 127\n")
    return path


def command(file: Path, script: str) -> None:
    file.write_text(script)
    file.chmod(0o755)


def test_an_installation_says_its_cost_first_and_takes_the_small_torch_before_open_webui(log: Path) -> None:
    said: list[str] = []
    home = openwebui.install("1.2.3", said.append)
    assert home.name == "open-webui-1.2.3"
    assert "3 GB" in said[0]
    assert "minutes" in said[0]
    pip = [call for call in log.read_text().splitlines() if "pip install" in call]
    assert [call.split()[-1] for call in pip] == ["torch==2.13.0", "open-webui==1.2.3"]


def test_an_installation_that_failed_was_killed_or_lost_its_python_is_begun_anew(
    broken: Path, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken.touch()
    with pytest.raises(openwebui.OpenWebUIError, match="failed; see the messages above"):
        openwebui.install("1.2.3", lambda _: None)
    assert capfd.readouterr().out == "no space left\n"
    assert openwebui.installed("1.2.3") is None
    broken.unlink()
    home = openwebui.install("1.2.3", lambda _: None)
    assert openwebui.installed("1.2.3") == home
    # The rest of a killed installation, which may have all files that are checked, and the marker.
    home.with_name(f"{home.name}.installing").touch()
    assert openwebui.installed("1.2.3") is None
    openwebui.install("1.2.3", lambda _: None)
    assert openwebui.installed("1.2.3") == home
    assert log.read_text().count("-m venv") == 3
    (home / "bin" / "python").unlink()
    assert openwebui.installed("1.2.3") is None


def test_a_concurrent_installation_waits_for_the_first(log: Path) -> None:
    homes: list[Path] = []
    threads = [
        threading.Thread(target=lambda: homes.append(openwebui.install("1.2.3", lambda _: None))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert homes[0] == homes[1]
    assert log.read_text().count("-m venv") == 1


def test_uv_provides_a_python_if_none_fits(machine: Path, tmp_path: Path) -> None:
    (machine / "python3.11").rename(tmp_path / "fetched")
    command(machine / "python3.11", "#!/bin/sh\nexit 127\n")
    command(machine / "uv", f'#!/bin/sh\n[ "$2" = find ] && echo {tmp_path / "fetched"}\n')
    said: list[str] = []
    assert openwebui.find_python(said.append) == str(tmp_path / "fetched")
    assert "asking uv" in said[0]


def test_no_fitting_python_at_all_is_explained(machine: Path) -> None:
    command(machine / "python3.11", "#!/bin/sh\nexit 127\n")
    with pytest.raises(openwebui.OpenWebUIError) as failure:
        openwebui.find_python(lambda _: None)
    assert "3.11 and 3.12 only" in str(failure.value)
    assert "OPEN_WEBUI_URL" in str(failure.value)


def test_the_shells_settings_for_other_programs_do_not_reach_open_webui(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://of-another-program")
    webui = openwebui.service(tmp_path / "home", tmp_path / "data", 1234, "secret")
    assert "DATABASE_URL" not in webui.environment
    assert webui.environment["DATA_DIR"] == str(tmp_path / "data")
    assert webui.health == "http://127.0.0.1:1234/health"


def test_the_first_admin_signs_in_and_an_unknown_password_is_reported_with_the_settings(webui: StandIn) -> None:
    assert openwebui.first_admin(webui.url, ADMIN, PASSWORD) == "session of admin"
    with pytest.raises(openwebui.OpenWebUIError) as failure:
        openwebui.first_admin(webui.url, ADMIN, "the one of the first run")
    assert "password provided is incorrect" in str(failure.value)
    assert "OPEN_WEBUI_PASSWORD" in str(failure.value)
