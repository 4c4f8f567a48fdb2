"""The Callboard server in its own virtual environment, with the versions of the lock: the one that runs this file.

    .venv/bin/python scripts/server_install.py [server|all|dev]

`requirements/` holds a lock for each of the three, with hashes; `scripts/lock` makes them. uv installs them where it
is on the PATH, the pip of the environment elsewhere, whichever version Python came with. The sources are used where
they lie. Installed once for each state of pyproject.toml and the lock. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from pathlib import Path

from installer import InstallationFailed, Installer, Say

ROOT = Path(__file__).resolve().parent.parent
SCOPES = ("server", "all", "dev")
"""The scopes that can be installed, each with all that stands before it."""


class ServerNotInstalled(Exception):
    """The installation failed; the message holds its last lines."""


def is_installed(scope: str = "server") -> bool:
    """Return whether `scope`, or one that includes it, was installed here from this very lock."""
    wider = SCOPES[SCOPES.index(scope) :]
    kept = _stamp().read_text("utf-8").split() if _stamp().exists() else []
    return any(kept == [name, _fingerprint(name)] for name in wider)


def install_server(scope: str = "server", say: Say = print) -> None:
    """Install the server with `scope`, unless that is done; raises `ServerNotInstalled`."""
    if is_installed(scope):
        return
    _stamp().unlink(missing_ok=True)
    uv = shutil.which("uv")
    pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")
    install = (uv, "pip", "install", "--python", sys.executable) if uv else pip
    installer = Installer(Path(sys.prefix), Path(sys.prefix) / "callboard-install.log", say)
    try:
        # The lock is complete, so nothing is resolved: what is not in it is not installed.
        locked = ("--no-deps", "--require-hashes", "--requirement", str(_lock(scope)))
        installer.run("Installing the packages of the lock", *install, *locked)
        # The lock has the build's requirements too, so nothing is fetched to build the project itself.
        installer.run("Installing Callboard", *install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    except InstallationFailed as failure:
        tool = "uv" if uv else "pip"
        raise ServerNotInstalled(f"{tool} could not install the Callboard server. {failure}") from None
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
    try:
        install_server(parser.parse_args().scope)
    except ServerNotInstalled as error:
        sys.exit(str(error))
