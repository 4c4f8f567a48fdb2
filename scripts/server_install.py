"""Install the Callboard server with the versions of the lock into the virtual environment that runs this file.

    .venv/bin/python scripts/server_install.py [server|all|dev]

`requirements/` has a lock with hashes for each scope, which `scripts/lock` makes. uv installs the lock if it is on the
PATH, otherwise the environment's pip. The server is installed as editable. Nothing is done if pyproject.toml and the
lock have not changed since the last installation. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCOPES = ("server", "all", "dev")
"""What can be installed; each scope includes those before it."""


def is_installed(scope: str = "server") -> bool:
    """Return whether `scope`, or a scope that includes it, is installed here from the current lock."""
    wider = SCOPES[SCOPES.index(scope) :]
    kept = _stamp().read_text("utf-8").split() if _stamp().exists() else []
    return any(kept == [name, _fingerprint(name)] for name in wider)


def install_server(scope: str = "server") -> None:
    """Install the server with `scope` unless it is installed. If the installer fails, exit."""
    if is_installed(scope):
        return
    _stamp().unlink(missing_ok=True)
    uv = shutil.which("uv")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    install = (uv, "pip", "install", "--quiet", "--python", sys.executable) if uv else pip
    print("Installing Callboard; the packages are downloaded once, which takes a minute …", flush=True)
    try:
        # The lock has all dependencies, so pip must not add others.
        locked = ("--no-deps", "--require-hashes", "--requirement", str(_lock(scope)))
        subprocess.run((*install, *locked), check=True, stdin=subprocess.DEVNULL)
        # The lock also has the requirements of the build, so nothing else is downloaded.
        own = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        subprocess.run((*install, *own), check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as failure:
        sys.exit(f"Callboard is not installed; see the messages above. {failure}")
    _stamp().write_text(f"{scope} {_fingerprint(scope)}", "utf-8")


def _lock(scope: str) -> Path:
    return ROOT / "requirements" / f"{scope}.txt"


def _stamp() -> Path:
    return Path(sys.prefix) / "callboard-installed"


def _fingerprint(scope: str) -> str:
    files = (ROOT / "pyproject.toml", _lock(scope))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + os.fsencode(ROOT)).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scope", nargs="?", choices=SCOPES, default="server", help="how much (default: %(default)s)")
    install_server(parser.parse_args().scope)
