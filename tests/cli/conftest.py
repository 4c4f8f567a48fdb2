"""The doctor, called as the command line calls it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from callboard._cli import main
from tests.scripts.stand_in import StandIn

FUNCTIONS = Path(__file__).parents[2] / "pipe"


@dataclass(frozen=True)
class Diagnosis:
    """The printed lines and the exit code."""

    lines: list[str]
    exit_code: int

    @property
    def broken(self) -> list[str]:
        """The lines with the mark ✗."""
        return [line for line in self.lines if line.startswith("✗ ")]

    def of(self, subject: str) -> list[str]:
        """The lines about this subject."""
        return [line for line in self.lines if line[2:].startswith(f"{subject}: ")]


@dataclass(frozen=True)
class Doctor:
    """Runs `callboard doctor` in an empty folder, with these settings and no others."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, **settings: str) -> Diagnosis:
        own = {"DATA_DIR": str(self.folder / "data"), "PORT": "0", "FIND_MODEL": "false"}
        for name, value in (own | settings).items():
            self.monkeypatch.setenv(f"CALLBOARD_{name}", value)
        exit_code = main(["doctor", *arguments])
        said = self.capsys.readouterr()
        assert said.err == ""
        lines = said.out.splitlines()
        assert all(line[:2] in ("✓ ", "✗ ", "– ") for line in lines), lines
        assert exit_code == any(line.startswith("✗ ") for line in lines)
        return Diagnosis(lines, exit_code)


def add_functions(webui: StandIn) -> None:
    """Put the pipe and the function for approvals into an Open WebUI."""
    for function_id, kind in (("callboard", "pipe"), ("callboard_approvals", "filter")):
        content = (FUNCTIONS / f"callboard_{kind}.py").read_text()
        function = {"id": function_id, "type": kind, "content": content}
        webui.functions[function_id] = {**function, "is_active": True, "is_global": kind == "filter"}


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Doctor]:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    yield Doctor(tmp_path, monkeypatch, capsys)
    # The command configures the logging of its process, which the other tests share.
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
