"""What becomes of tests that need more than is there: pytest as a process, on a suite and with a PATH of the test."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS

ROOT = Path(__file__).parent.parent
SUITE = """
import pytest

def test_without_needs(): pass

@pytest.mark.needs("docker-compose")
def test_with_a_need(): pass

@pytest.mark.needs("npm", "downloads")
@pytest.mark.parametrize("number", range(2))
def test_with_two_needs(number): pass

@pytest.mark.e2e
def test_end_to_end(): pass
"""
COMMANDS = ("docker-compose", "node", "npm", "chromium")


class Machine:
    """A folder with a suite, and a PATH on which there is what was installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "bin"
        self._path.mkdir()
        self.write(SUITE)

    def write(self, suite: str) -> None:
        (self._folder / "test_suite.py").write_text(suite)

    def install(self, *commands: str) -> None:
        for command in commands:
            (self._path / command).touch(mode=0o755)

    def pytest(self, *arguments: str) -> tuple[int, str]:
        """Run the suite; the exit code, and what was said."""
        options = ("-p", "tests.needs", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(self._folder))
        marker = ("-o", "markers=e2e: end to end", "--strict-markers")
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *marker, *arguments, str(self._folder)],
            cwd=ROOT,
            env={"PATH": str(self._path), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
        )
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_cannot_run_is_left_out_with_the_number_and_the_reason(machine: Machine) -> None:
    code, said = machine.pytest()
    assert code == 0
    assert "1 passed, 4 deselected" in said
    assert "for want of docker-compose: 1 (not found: apt-get install docker-compose)" in said
    assert "for want of Node.js: 2 (no node or npm found: apt-get install nodejs npm)" in said
    assert "for want of a browser: 1 (none found: apt-get install chromium)" in said


def test_what_is_there_is_used(machine: Machine) -> None:
    machine.install("docker-compose")
    code, said = machine.pytest()
    assert code == 0
    assert "2 passed, 3 deselected" in said
    assert "docker-compose" not in said


def test_nothing_is_downloaded_unasked(machine: Machine) -> None:
    machine.install(*COMMANDS)
    code, said = machine.pytest()
    assert code == 0
    assert "2 passed, 3 deselected" in said
    assert "for want of packages of PyPI or npm: 2 (downloaded by pytest --everything)" in said
    assert "for want of a real Open WebUI: 1 (3 GB, downloaded once by pytest --everything -m e2e)" in said


def test_everything_is_run_by_those_who_ask_for_it(machine: Machine) -> None:
    machine.install(*COMMANDS)
    code, said = machine.pytest("--everything")
    assert code == 0
    assert "5 passed" in said
    assert "left out" not in said


def test_asking_for_everything_where_something_is_missing_ends_before_the_first_test(machine: Machine) -> None:
    machine.install("node", "npm", "chromium")
    code, said = machine.pytest("--everything")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "for want of docker-compose: 1 (not found: apt-get install docker-compose)" in said
    assert "passed" not in said


def test_what_tests_need_that_were_not_asked_for_is_not_missed(machine: Machine) -> None:
    machine.install("node", "npm")
    code, said = machine.pytest("--everything", "-m", "not e2e", "-k", "not with_a_need")
    assert code == 0
    assert "3 passed, 2 deselected" in said


def test_the_tests_readme_has_every_need() -> None:
    listed = re.findall(r"^\| (`.*?) \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    assert NEEDS.keys() <= {name for cell in listed for name in re.findall(r"`([\w-]+)`", cell)}


def test_a_need_that_nobody_knows_is_an_error(machine: Machine) -> None:
    machine.write('import pytest\n\n@pytest.mark.needs("docker_compose")\ndef test_misspelt(): pass\n')
    code, said = machine.pytest()
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "test_misspelt needs docker_compose: tests/needs.py knows no such need" in said
