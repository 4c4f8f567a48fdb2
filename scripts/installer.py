"""Runs the commands of an installation, writes their output to a log file, and shows their progress.

On a terminal it redraws one line; otherwise, for example in a log, it prints a line every ten seconds. `openwebui` and
`server_install` use it. Standard library only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path

TERMINAL_SECONDS = 0.5
LOG_SECONDS = 10.0
LAST_LINES = 15

Say = Callable[[str], None]

_STEP = re.compile(r" *(Collecting|Downloading|Building|Preparing|Getting|Installing) (\S.*)")
_BYTES = re.compile(r"Progress (\d+) of (\d+)")  # pip --progress-bar=raw
_PACKAGES = "Installing collected packages: "


class InstallationFailed(Exception):
    """A command of an installation failed; the message has the last lines of its output."""


class Installer:
    """An installation into the virtual environment `home`; all output of its commands goes to `log`."""

    def __init__(self, home: Path, log: Path, say: Say) -> None:
        self._home = home
        self._log = log
        self._say = say
        self._begun = time.monotonic()
        self._step = self._file = self._unread = ""
        self._packages: Sequence[str] = ()
        self._packages_before: Set[Path] = frozenset()
        log.write_bytes(b"")

    def run(self, step: str, *command: str) -> None:
        """Run a command; `step` is shown until its output shows its progress. Raises `InstallationFailed`."""
        self._step, self._unread, self._packages = step, "", ()
        self._packages_before = self._find_packages()
        is_terminal = sys.stdout.isatty()
        with (
            self._log.open("ab") as output,
            self._log.open(encoding="utf-8", errors="replace") as lines,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
        ):
            lines.seek(output.tell())
            try:
                while not _ends_within(TERMINAL_SECONDS if is_terminal else LOG_SECONDS, process):
                    self._read(lines.read())
                    if is_terminal:
                        _redraw(self._progress())
                    else:
                        self._say(self._progress())
            finally:
                process.kill()
                if is_terminal:
                    _redraw("")
        if process.returncode != 0:
            raise InstallationFailed(f"The last lines of {self._log}:\n    {self._last_lines()}")

    def _read(self, text: str) -> None:
        *lines, self._unread = (self._unread + text).split("\n")
        for line in lines:
            if line.startswith(_PACKAGES):
                self._packages = line.removeprefix(_PACKAGES).split(", ")
            elif found := _BYTES.fullmatch(line):
                done, total = (int(number) / 1e6 for number in found.groups())
                self._step = f"{self._file}: {done:.0f} of {total:.0f} MB" if total else f"{self._file}: {done:.0f} MB"
            elif found := _STEP.fullmatch(line):
                self._step = _shorten(*found.groups())
                self._file = self._step.partition(" (")[0]

    def _progress(self) -> str:
        step = self._step
        if self._packages:
            count = len(self._packages)
            # pip installs packages in the order of its list, and writes the `.dist-info` of each last.
            done = min(len(self._find_packages() - self._packages_before), count - 1)
            step = f"Installing {count} packages: {done} done, now {self._packages[done]}"
        return f"  {time.monotonic() - self._begun:4.0f} s  {step}"

    def _find_packages(self) -> Set[Path]:
        return frozenset(self._home.glob("lib/python*/site-packages/*.dist-info"))

    def _last_lines(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n    ".join([line for line in lines if not _BYTES.fullmatch(line)][-LAST_LINES:])


def _ends_within(seconds: float, process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _shorten(verb: str, rest: str) -> str:
    """Return a line of pip without the tags of files and the path of requirements, which are too long."""
    if verb == "Downloading":
        file, _, size = rest.partition(" ")
        return " ".join([verb, *file.split("-")[:2], size])
    return f"{verb} {rest.partition(' (from')[0]}"


def _redraw(line: str) -> None:
    """Replace the last line of the terminal by `line`, which may be empty."""
    columns = shutil.get_terminal_size().columns - 1
    print(f"\r{line[:columns].ljust(columns)}\r", end="", flush=True)
