"""`scripts/up` as a person runs it, with data and ports of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service import free_port

ROOT = Path(__file__).resolve().parents[2]
LAST_LINE = "Ctrl-C stops everything."


class Up:
    """scripts/up with data and ports of its own."""

    def __init__(self, data: Path) -> None:
        self.ports = {"CALLBOARD_PORT": free_port(), "OPEN_WEBUI_PORT": free_port()}
        settings = {name: str(port) for name, port in self.ports.items()}
        self._environment = os.environ | settings | {"CALLBOARD_DATA_DIR": str(data)}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Run it; what it has said when everything is up."""
        command = [sys.executable, str(ROOT / "scripts" / "up.py")]
        self._process = subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if LAST_LINE in line:
                return said
        pytest.fail(f"it ended early:\n{said}")

    def press_ctrl_c(self) -> int:
        """Its exit code."""
        assert self._process is not None
        process = self._process
        self._process = None
        process.send_signal(signal.SIGINT)
        process.communicate()
        return process.returncode

    def close(self) -> None:
        """End it if the test has not."""
        if self._process is not None:
            self.press_ctrl_c()


def found(said: str, pattern: str) -> str:
    match = re.search(pattern, said)
    assert match, said
    return match.group(1)
