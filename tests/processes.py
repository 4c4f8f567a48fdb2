"""The `callboard` command as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "import sys; from callboard._cli import main; sys.exit(main())"]


def environment(folder: Path, **settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CALLBOARD_")}
    # A model that happens to run on this machine, or a `.env` in its working directory, must not change a test.
    own = {"CALLBOARD_DATA_DIR": str(folder), "CALLBOARD_PORT": "0", "CALLBOARD_FIND_MODEL": "false"}
    # The agents' files of tests import from the tests.
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), clean.get("PYTHONPATH")]))
    return {**clean, **own} | {f"CALLBOARD_{name}": value for name, value in settings.items()}


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(folder, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*COMMAND, "serve"], cwd=folder, env=environment(folder, **settings), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield address(process.stderr), process
    finally:
        process.kill()
        process.communicate()


def address(log: IO[str]) -> str:
    for line in log:
        if line.startswith("{") and (event := json.loads(line))["event"] == "listening":
            return str(event["url"])
    raise AssertionError("the server ended before it listened")
