"""scripts/venv: which Python the server's environment is made with. The Pythons are stand-ins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

VENV = Path(__file__).resolve().parents[2] / "scripts" / "venv"
FITS = '#!/bin/sh\n[ "$1" = -c ] || { mkdir -p .venv/bin; echo "$0" >> .venv/made-with; cp "$0" .venv/bin/python; }\n'
TOO_OLD = "#!/bin/sh\nexit 1\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A repository with nothing but the script, and an empty PATH beside it."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(VENV, tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in ("mkdir", "cp", "dirname"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def has(machine: Path, name: str, script: str) -> None:
    (machine / "bin" / name).write_text(script)
    (machine / "bin" / name).chmod(0o755)


def run(machine: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(machine / "scripts" / "venv")]
    return subprocess.run(command, env={"PATH": str(machine / "bin")}, capture_output=True, text=True, check=False)


def made_with(machine: Path) -> list[str]:
    return [Path(line).name for line in (machine / ".venv" / "made-with").read_text().split()]


def test_the_environment_is_made_once_with_the_first_python_that_fits(machine: Path) -> None:
    has(machine, "python3", TOO_OLD)
    has(machine, "python3.11", FITS)
    assert run(machine).stdout == "Making a virtual environment in .venv …\n"
    again = run(machine)
    assert (again.returncode, again.stdout) == (0, "")
    assert made_with(machine) == ["python3.11"]


def test_uv_makes_the_environment_if_no_python_fits(machine: Path) -> None:
    has(machine, "python3", TOO_OLD)
    has(machine, "uv", FITS)
    assert run(machine).returncode == 0
    assert made_with(machine) == ["uv"]


def test_without_a_fitting_python_a_message_says_what_is_needed(machine: Path) -> None:
    has(machine, "python3", TOO_OLD)
    ended = run(machine)
    assert ended.returncode == 1
    assert "Python 3.11 or later" in ended.stderr
