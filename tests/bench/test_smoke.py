"""Every benchmark runs, at its smallest size; what it measures there is not judged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import openwebui

INSTALLING_SECONDS = 900
"""How long a test may take that may have to install Open WebUI."""
ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"scripts/bench ([a-z]+)")
MAY_BE_MISSING = {"agentos", "hayhooks"}
STORES = ("postgresql", "redis")
MARKS: dict[str, list[pytest.MarkDecorator]] = {
    "stream": [pytest.mark.e2e, pytest.mark.timeout(INSTALLING_SECONDS)],
    "browser": [pytest.mark.e2e, pytest.mark.timeout(INSTALLING_SECONDS)],
    "history": [pytest.mark.slow],
    "scale": [pytest.mark.slow, pytest.mark.needs(*STORES)],
    "finish": [pytest.mark.slow, pytest.mark.needs(*STORES)],
    "parsing": [pytest.mark.slow],
    "hostility": [pytest.mark.slow],
    "memory": [pytest.mark.slow],
    "observe": [pytest.mark.slow],
    "start": [pytest.mark.slow],
    "frameworks": [pytest.mark.slow],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_benchmark_runs_at_its_smallest_size(name: str, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("e2e"):
        openwebui.install()
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.bench", "--smoke", name]
    ran = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout
    assert f"No error in {name}" in ran.stdout
    assert set(re.findall(r"Left out: (\w+)", ran.stdout)) <= MAY_BE_MISSING


def test_every_benchmark_has_a_smoke_test() -> None:
    assert _benchmarks() == MARKS.keys()


def test_benchmarks_that_the_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "scripts" / "bench"]
    named = {name for page in pages for name in NAMED.findall(page.read_text())}
    # Those whose figures `docs/explanation/speed.md` has are the reason for this test.
    assert {"stream", "history", "scale", "finish", "observe"} <= named
    assert named <= _benchmarks()


def _benchmarks() -> set[str]:
    # Not at the top: collecting tests would import the frameworks that are measured.
    from tests.bench.__main__ import BENCHMARKS

    return set(BENCHMARKS)
