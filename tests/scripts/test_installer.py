"""The progress that an installation shows, in a log and on a terminal. The installer is a stand-in that waits."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyte
import pytest

import installer
from installer import InstallationFailed, Installer

SCRIPTS = Path(installer.__file__).parent
COLUMNS = 60
PIP = """
exec 3< {go}
pause() {{ read -r _ <&3; }}
pause
echo "Collecting a-name-that-is-longer-than-any-terminal-is-wide-{long} (from open-webui==1)"; pause
echo "  Downloading torch-2.13.0-cp312-cp312-linux_x86_64.whl (812.0 MB)"; pause
echo "Progress 412000000 of 812000000"; pause
echo "Progress 5000000 of 0"; pause
echo "WARNING: of no interest"
echo "Installing collected packages: numpy, torch"; pause
mkdir {packages}/numpy-2.0.dist-info; pause
"""
STEPS = (
    "Installing torch",
    "Collecting a-name-that-is-longer-than-any-terminal",
    "Downloading torch 2.13.0 (812.0 MB)",
    "Downloading torch 2.13.0: 412 of 812 MB",
    "Downloading torch 2.13.0: 5 MB",
    "Installing 2 packages: 0 done, now numpy",
    "Installing 2 packages: 1 done, now torch",
)
"""The progress that is shown while the stand-in waits."""


class StandIn:
    """A pip that goes on when the test lets it."""

    def __init__(self, folder: Path) -> None:
        self._go = folder / "go"
        self._opened: IO[bytes] | None = None
        os.mkfifo(self._go)
        self.home = folder / "home"
        self.log = folder / "pip.log"
        packages = self.home / "lib" / "python3.12" / "site-packages"
        (packages / "pip-26.dist-info").mkdir(parents=True)
        self.command = ("sh", "-c", PIP.format(go=self._go, long="x" * 99, packages=packages))

    def let_go_on(self) -> None:
        if self._opened is None:
            self._opened = self._go.open("wb", buffering=0)
        self._opened.write(b"\n")

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


@pytest.fixture
def pip(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path)
    yield stand_in
    stand_in.close()


def test_a_terminal_gets_one_line_that_is_redrawn_and_erased_in_the_end(pip: StandIn) -> None:
    script = (
        "import sys; from pathlib import Path; import installer\n"
        "installer.TERMINAL_SECONDS = 0.01\n"
        "home, log, *command = sys.argv[1:]\n"
        "print('Before')\n"
        "installer.Installer(Path(home), Path(log), print).run('Installing torch', *command)\n"
        "print('After')\n"
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(pip.home), str(pip.log), *pip.command],
        stdin=theirs,
        stdout=theirs,
        env=variables | {"PYTHONPATH": str(SCRIPTS)},
    ) as process:
        os.close(theirs)
        written = ""
        for step in STEPS:
            while step[:40] not in written:
                written += os.read(ours, 4096).decode()
            pip.let_go_on()
        while "After\r\n" not in written:
            written += os.read(ours, 4096).decode()
    os.close(ours)
    assert process.returncode == 0
    screen = pyte.Screen(COLUMNS, 24)
    pyte.Stream(screen).feed(written)
    assert [row.rstrip() for row in screen.display if row.strip()] == ["Before", "After"]


def test_a_command_that_fails_ends_with_its_last_lines_and_without_figures_of_downloads(tmp_path: Path) -> None:
    fails = "echo no space left; i=0; while [ $i -lt 50 ]; do echo Progress $i of 50; i=$((i+1)); done; exit 3"
    with pytest.raises(InstallationFailed) as failure:
        Installer(tmp_path, tmp_path / "log", print).run("Installing", "sh", "-c", fails)
    assert str(failure.value) == f"The last lines of {tmp_path / 'log'}:\n    no space left"
