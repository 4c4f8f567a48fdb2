"""The Callboard server in its own virtual environment: the one that runs this file.

    .venv/bin/python scripts/server_install.py [--group dev]

Installed once for each state of pyproject.toml; the sources are used where they lie.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 15


class ServerNotInstalled(Exception):
    """pip failed; the message holds its last lines."""


def is_installed(groups: tuple[str, ...] = ()) -> bool:
    """Whether this very pyproject.toml was installed here, with those dependency groups."""
    kept = _stamp().read_text("utf-8").split() if _stamp().exists() else []
    return kept[:1] == [_fingerprint()] and set(groups) <= set(kept[1:])


def install_server(groups: tuple[str, ...] = ()) -> None:
    """Install the server and those dependency groups, unless that is done; raises `ServerNotInstalled`."""
    if is_installed(groups):
        return
    if groups:
        _pip("--upgrade", "pip")  # the one that comes with Python may be too old for dependency groups
    # What is tested is all of it, with every framework.
    server = f"{ROOT}[all]" if groups else str(ROOT)
    _pip("--editable", server, *(word for group in groups for word in ("--group", f"{ROOT}/pyproject.toml:{group}")))
    _stamp().write_text(" ".join((_fingerprint(), *groups)), "utf-8")


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    ended = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 0:
        last = "\n    ".join((ended.stdout + ended.stderr).splitlines()[-LAST_LINES:])
        raise ServerNotInstalled(f"pip could not install the Callboard server:\n    {last}")


def _stamp() -> Path:
    return Path(sys.prefix) / "callboard-installed"


def _fingerprint() -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + os.fsencode(ROOT)).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--group", action="append", default=[], help="a dependency group of pyproject.toml")
    try:
        install_server(tuple(parser.parse_args().group))
    except ServerNotInstalled as error:
        sys.exit(str(error))
