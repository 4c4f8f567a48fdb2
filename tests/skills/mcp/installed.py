"""Published MCP servers, each installed once into its own folder in the user's cache.

They are not installed into the server's own environment, because their requirements may clash with it.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

NPM = ("@modelcontextprotocol/server-everything@2026.8.31",)


def node_servers() -> Path:
    """The folder with the commands of the servers from npm."""
    return once("mcp-npm", NPM, _install_from_npm) / "node_modules" / ".bin"


def _install_from_npm(folder: Path) -> None:
    folder.mkdir(parents=True)
    run("npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", *NPM)


def once(name: str, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the folder.

    It is created if it is missing, incomplete, or has other packages, safely for several processes.
    """
    cache = Path(os.environ["XDG_CACHE_HOME"], "callboard")
    folder = cache / name
    stamp = cache / f"{name}.installed"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == "\n".join(packages) and folder.exists()):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            stamp.write_text("\n".join(packages))
    return folder


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
