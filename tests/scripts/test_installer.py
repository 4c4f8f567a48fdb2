"""The progress that an installation shows. The installer is a stand-in that waits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

import installer
from installer import InstallationFailed, Installer

PIP = """
exec 3< {go}
pause() {{ read -r _ <&3; }}
pause
echo "Collecting numpy (from open-webui==1)"; pause
echo "  Downloading torch-2.13.0-cp312-cp312-linux_x86_64.whl (812.0 MB)"; pause
echo "Progress 412000000 of 812000000"; pause
echo "Progress 5000000 of 0"; pause
echo "WARNING: of no interest"
echo "Installing collected packages: numpy, torch"; pause
mkdir {packages}/numpy-2.0.dist-info; pause
"""
STEPS = (
    "s  Installing torch",
    "s  Collecting numpy",
    "s  Downloading torch 2.13.0 (812.0 MB)",
    "s  Downloading torch 2.13.0: 412 of 812 MB",
    "s  Downloading torch 2.13.0: 5 MB",
    "s  Installing 2 packages: 0 done, now numpy",
    "s  Installing 2 packages: 1 done, now torch",
)
"""The progress that is shown while the stand-in waits."""


def test_the_output_of_pip_is_told_as_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "LOG_SECONDS", 0.01)
    packages = tmp_path / "home" / "lib" / "python3.12" / "site-packages"
    (packages / "pip-26.dist-info").mkdir(parents=True)
    go = tmp_path / "go"
    os.mkfifo(go)
    opened: list[IO[bytes]] = []
    told: list[str] = []

    def say(line: str) -> None:
        if len(told) < len(STEPS) and line.endswith(STEPS[len(told)]):
            told.append(line)
            if not opened:
                opened.append(go.open("wb", buffering=0))
            opened[0].write(b"\n")

    command = ("sh", "-c", PIP.format(go=go, packages=packages))
    Installer(tmp_path / "home", tmp_path / "log", say).run("Installing torch", *command)
    opened[0].close()
    assert len(told) == len(STEPS)


def test_a_command_that_fails_ends_with_its_last_lines_and_without_figures_of_downloads(tmp_path: Path) -> None:
    fails = "echo no space left; i=0; while [ $i -lt 50 ]; do echo Progress $i of 50; i=$((i+1)); done; exit 3"
    with pytest.raises(InstallationFailed) as failure:
        Installer(tmp_path, tmp_path / "log", print).run("Installing", "sh", "-c", fails)
    assert str(failure.value) == f"The last lines of {tmp_path / 'log'}:\n    no space left"
