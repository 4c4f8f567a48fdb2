"""The server runs without the packages that are built on its public interface."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import BUILT_ON_THE_CORE, SERVER

ROOT = Path(__file__).parent.parent

SERVE = """
import sys
import callboard
from callboard import Agent, Callboard, Settings, Skill
from callboard.testing import Call, FakeModel, client
from echo import Echo, echo

assert callboard.__file__.startswith(sys.argv[1]), callboard.__file__
model = FakeModel([Call("echo", text="Three.")], "It said three.")
agents = [Echo(), Agent("clerk", skills=[Skill("echoes", "Repeats.", tools=[echo])])]
board = Callboard(agents, model=model, settings=Settings(data_dir=sys.argv[1]))
with client(board) as asked:
    for agent in ("echo", "clerk"):
        run = asked.run("Hello", agent=agent)
        print(run.text, *[(call.tool_name, call.result) for call in run.calls], file=sys.stderr)
    for path in ("/v1/models", "/inspect", "/metrics", "/v1/chat/completions"):
        print(path, asked.http.get(path).status_code, file=sys.stderr)
"""


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """A folder with `callboard` without the packages that are built on it, and without the command line, which uses
    them. `skills` keeps the class `Skill`."""
    copy = tmp_path / "callboard"
    shutil.copytree(SERVER, copy, ignore=shutil.ignore_patterns("__pycache__", "README.md"))
    for name in {*BUILT_ON_THE_CORE, "_cli"} - {"skills"}:
        shutil.rmtree(copy / name)
    for path in (copy / "skills").iterdir():
        if path.name not in ("__init__.py", "skill.py"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # The agents that ship with Callboard are made of the skills that do.
    (copy / "agents" / "builtin.py").unlink()
    return tmp_path


def test_the_core_alone_serves_agents_written_by_hand_and_agents_with_a_model(core: Path) -> None:
    paths = os.pathsep.join(map(str, [core, ROOT / "server" / "examples"]))
    ended = subprocess.run(
        [sys.executable, "-c", SERVE, str(core)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines() == [
        "Hello ('echo', 'Hello')",
        "It said three. ('echo', 'Three.')",
        "/v1/models 200",
        "/inspect 404",
        "/metrics 404",
        "/v1/chat/completions 404",
    ]


@pytest.mark.slow
def test_the_core_alone_passes_the_tests_of_calls_sources_and_the_tool_loop(core: Path) -> None:
    tests = ("calls/test_executor.py", "history/test_sources.py", "loop/test_tool_loop.py")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *(f"tests/{one}" for one in tests)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(core)},
        cwd=ROOT,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout
