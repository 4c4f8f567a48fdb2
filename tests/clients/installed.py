"""Clients that are not in this environment, at the versions that were tried: each in a folder of the user's cache."""

import sys
from pathlib import Path

from tests.skills.mcp.installed import once, run

OPENAI_1 = ("openai==1.109.1",)
NPM = ("openai@6.49.0", "ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7")


def python_of_openai_1() -> Path:
    """The Python that has OpenAI's client as it was before its second version."""
    return once("openai-1", OPENAI_1, _install_from_pypi) / "bin" / "python"


def node_folder() -> Path:
    """The folder whose `node_modules` have the clients from npm."""
    return once("clients-npm", NPM, _install_from_npm)


def _install_from_pypi(folder: Path) -> None:
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *OPENAI_1)


def _install_from_npm(folder: Path) -> None:
    folder.mkdir(parents=True)
    run("npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", *NPM)
