"""Every benchmark runs, at its smallest size; what it measures there is not judged."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import openwebui
from tests.needs import OF_BENCHMARKS

INSTALLING_SECONDS = 900
"""How long a test may take that may have to install Open WebUI."""
ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"scripts/bench ([a-z]+)")


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}{os.pathsep}{ROOT}", **variables}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def marks(needs: Sequence[str]) -> list[pytest.MarkDecorator]:
    if "open-webui" in needs:
        return [pytest.mark.e2e, pytest.mark.timeout(INSTALLING_SECONDS)]
    return [pytest.mark.slow, pytest.mark.needs(*needs)]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(needs)) for name, needs in OF_BENCHMARKS.items()])
def test_benchmark_runs_at_its_smallest_size(name: str, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("e2e"):
        openwebui.install()
    ran = run("tests.bench", "--smoke", name)
    assert ran.returncode == 0, ran.stdout
    assert f"No error in {name}" in ran.stdout
    assert "Left out" not in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", [("tests.bench", "scale"), ("tests.faults", "1", "--engine", "redis")])
def test_a_command_says_first_what_is_missing(command: Sequence[str]) -> None:
    ran = run(*command, PATH="")
    assert ran.returncode == 2
    assert "error: these are missing:\n" in ran.stdout
    assert ran.stdout.endswith("  Redis: apt-get install redis-server\n")


def test_benchmarks_that_the_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "scripts" / "bench"]
    named = {name for page in pages for name in NAMED.findall(page.read_text())}
    assert named
    assert named <= OF_BENCHMARKS.keys()
