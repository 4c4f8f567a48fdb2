"""When frameworks are imported: pytest as a process, with a stand-in for a framework."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def collect_and_run(folder: Path, suite: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of pytest with this suite."""
    (folder / "crewai.py").write_text('KIND = "framework"')
    (folder / "test_suite.py").write_text(suite)
    options = ("-p", "tests.collecting", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments, str(folder)],
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout + ended.stderr


EAGER = """
import crewai

def test_nothing(): pass
"""


@pytest.mark.parametrize("arguments", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "a worker"])
def test_a_framework_that_is_imported_during_collection_ends_the_run(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    code, said = collect_and_run(tmp_path, EAGER, *arguments)
    assert code not in (pytest.ExitCode.OK, pytest.ExitCode.INTERNAL_ERROR)
    assert "crewai, by test_suite.py:2" in said
    assert "1 passed" not in said


DEFERRED = """
from __future__ import annotations

import sys

import pytest

from tests.collecting import TESTS_RUN

IMPORTED_DURING_COLLECTION = "crewai" in sys.modules

if TESTS_RUN:
    from crewai import KIND

    def kind_of(later: NotDefinedYet) -> str:
        return KIND

@pytest.fixture(scope="module")
def kind(): return kind_of(None)

def test_in_a_fixture(kind): assert kind == "framework"

def test_at_once(): assert (KIND, IMPORTED_DURING_COLLECTION) == ("framework", False)
"""


def test_the_names_of_a_deferred_import_are_there_when_tests_and_fixtures_run(tmp_path: Path) -> None:
    code, said = collect_and_run(tmp_path, DEFERRED)
    assert (code, "2 passed" in said) == (pytest.ExitCode.OK, True), said
