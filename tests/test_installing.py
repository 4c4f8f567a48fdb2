"""`pip install .` without the lock, by the oldest pip that is promised to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLDEST_PIP = "22.3"


def run(*command: str | Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.needs("downloads")
@pytest.mark.timeout(900)
def test_an_old_pip_installs_what_the_agents_need_and_nothing_is_missing(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"pip=={OLDEST_PIP}", folder=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", f"{ROOT}[agents]", folder=tmp_path)
    listed = run(tmp_path / "venv" / "bin" / "callboard", "agents", folder=tmp_path)
    assert "tools: search, web_fetch, memory" in listed
    assert "lacks" not in listed
    run(python, "-c", "import callboard.reading.pages", folder=tmp_path)
