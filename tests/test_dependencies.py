"""The dependencies of the packages: only what they import, with names that every pip knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from callboard.extras import LIBRARIES, how_to_install, is_installed
from tests import processes

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def named(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


WITHOUT_EXTRAS = f"""
import sys
sys.modules.update(dict.fromkeys({sorted({library for libraries in LIBRARIES.values() for library in libraries})!r}))
from callboard._cli import main
sys.exit(main(["agents"]))
"""


def test_without_any_extra_every_agent_is_there_and_says_which_it_lacks(tmp_path: Path) -> None:
    token = {"CALLBOARD_HOME_ASSISTANT_URL": "http://127.0.0.1:9", "CALLBOARD_HOME_ASSISTANT_TOKEN": "token"}
    environment = processes.environment(tmp_path) | token
    command = [sys.executable, "-c", WITHOUT_EXTRAS]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    entries = dict(re.findall(r"^(\w+): .*\n((?:    .*\n)*)", ended.stdout, re.MULTILINE))
    assert {"demo", "assistant", "naked", "home"} <= entries.keys()
    assert "lacks search, web_fetch: pip install 'callboard[web]'" in entries["assistant"]
    assert "lacks home: pip install 'callboard[home]'" in entries["home"]
    assert "memory" in entries["assistant"]


def test_each_extra_is_known_to_the_server_by_the_libraries_that_it_brings() -> None:
    for extra, libraries in LIBRARIES.items():
        assert {canonicalize_name(library) for library in libraries} == named(EXTRAS[extra])
        assert is_installed(extra)
        assert how_to_install(extra) == f"pip install 'callboard[{extra}]'"


@pytest.mark.parametrize(
    ("files", "libraries"),
    [
        ("server/callboard_formats/*.py", {"regex"}),
        # pydantic itself needs typing_extensions, for TypedDict on Python 3.11.
        ("shared/callboard_protocol/*.py", {"pydantic", "typing_extensions"}),
        ("pipe/callboard_pipe.py", {"httpx", "jwt", "pydantic", "open_webui"}),
        ("pipe/callboard_events.py", {"pydantic", "sqlalchemy", "starlette", "open_webui"}),
        ("pipe/callboard_filter.py", {"open_webui"}),
    ],
)
def test_a_package_that_stands_alone_and_the_functions_import_no_other_library(files: str, libraries: set[str]) -> None:
    for path in ROOT.glob(files):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        roots = {module.partition(".")[0] for module in modules}
        assert roots - sys.stdlib_module_names <= {*libraries, path.parent.name}, path


@pytest.mark.parametrize("path", sorted(ROOT.glob("pipe/callboard_*.py")), ids=lambda path: path.stem)
def test_the_functions_hold_no_word_that_open_webui_rewrites_or_acts_on(path: Path) -> None:
    source = path.read_text()
    assert source.startswith('"""\n')
    assert not re.search("from (?:utils|apps|main|config)|requirements:", source)
