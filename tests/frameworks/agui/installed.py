"""Released frameworks that serve agents over AG-UI, each at locked versions in a folder of the user's cache.

Their requirements clash with each other and with those of the server. A lock is made anew with

    echo ag-ui-langgraph langchain langchain-openai fastapi uvicorn | tr ' ' '\\n' | .venv/bin/uv pip compile - \\
        --universal --no-annotate --no-header --python-version 3.11 > langgraph.txt

and so on: `agent-framework-ag-ui agent-framework-openai`, `llama-index-protocols-ag-ui llama-index-llms-openai-like`.
"""

import sys
from functools import partial
from pathlib import Path

from tests.skills.mcp.installed import once, run

HERE = Path(__file__).parent


def python_of(framework: str) -> Path:
    """The Python that has the framework, as `FRAMEWORK.txt` locks it."""
    lock = HERE / f"{framework}.txt"
    folder = once(f"agui-{framework}", lock.read_text().splitlines(), partial(_install, lock))
    return folder / "bin" / "python"


def _install(lock: Path, folder: Path) -> None:
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", lock)
