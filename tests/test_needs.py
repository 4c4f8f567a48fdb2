"""Which tests a run selects: pytest as a process, with a suite and a PATH of the test's own."""

import subprocess
import sys
from pathlib import Path

import pytest

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

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.thorough
def test_thorough(): pass
"""


class Machine:
    """A folder with a test suite, and a PATH with the installed programs."""

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
        """Run the suite, and return the exit code and the output."""
        options = ("-p", "tests.needs", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(self._folder))
        marker = ("-o", "markers=e2e\nslow\nthorough", "--strict-markers")
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


def test_a_plain_run_leaves_out_what_cannot_run_and_what_takes_long_and_says_so_first(machine: Machine) -> None:
    code, said = machine.pytest()
    assert code == 0
    assert "1 passed, 6 deselected" in said
    header, _ = said.split("collected", 1)
    assert "scripts/test --all leaves out only thorough tests, scripts/test --release none" in header
    assert "tests that need docker-compose: apt-get install docker-compose" in header
    assert "tests that need Node.js: apt-get install nodejs npm" in header
    assert "slow tests, and those that drive a browser" in header
    assert "  thorough tests" in header


def test_everything_ends_before_the_first_test_if_a_need_is_not_met(machine: Machine) -> None:
    machine.install("node", "npm", "chromium")
    code, said = machine.pytest("--everything")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "docker-compose: apt-get install docker-compose" in said
    assert "passed" not in said


def test_an_unknown_need_is_an_error(machine: Machine) -> None:
    machine.write('import pytest\n\n@pytest.mark.needs("docker_compose")\ndef test_misspelt(): pass\n')
    code, said = machine.pytest()
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "test_misspelt needs docker_compose: tests/needs.py knows no such need" in said
