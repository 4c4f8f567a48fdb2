"""A framework is imported when the first test that needs it runs, not when tests are collected.

Importing all of them takes seconds. A test module writes its imports of frameworks under a condition, together with the
classes and functions that need a framework to be defined:

    from tests.collecting import TESTS_RUN

    if TESTS_RUN:
        from agno.agent import Agent

The condition is false when pytest imports the module to collect its tests. Before the first test of the module runs,
this plugin executes the statements under the condition in the namespace of the module. This replaces lazy imports
(PEP 810), which Python has from 3.15.

If a framework was imported during collection, the plugin ends the run before the first test and names the line that
imported it.
"""

import ast
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import pytest

from tests.garbage import set_aside_what_is_there

TESTS_RUN = False

FRAMEWORKS = frozenset(
    {
        "agents",
        "agno",
        "crewai",
        "deepagents",
        "langchain",
        "langchain_core",
        "langgraph",
        "langsmith",
        "open_webui",
        "pydantic_ai",
        "torch",
    }
)


class ImportWatch(MetaPathFinder):
    """Records which line imports each framework first. It finds no modules, so that the next finder is asked."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lines: dict[str, str] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in FRAMEWORKS:
            self._lines.setdefault(fullname, self._importing_line())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        sys.meta_path.remove(self)
        if imported := sorted(FRAMEWORKS & sys.modules.keys()):
            lines = [f"{name}, by {self._lines.get(name, 'a plugin of pytest')}" for name in imported]
            advice = "Import these under `if TESTS_RUN:` (see tests/collecting.py)"
            # Not `UsageError`: pytest-xdist loses what a worker says by it.
            session.shouldfail = f"Frameworks were imported during collection: {'; '.join(lines)}. {advice}"
            raise session.Failed(session.shouldfail)

    def _importing_line(self) -> str:
        """Return the file and line of the tests, or of another part of the project, that runs the import."""
        for frame in reversed(traceback.extract_stack()):
            path = Path(frame.filename)
            if path.is_relative_to(self._root) and "site-packages" not in path.parts and frame.filename != __file__:
                return f"{path.relative_to(self._root)}:{frame.lineno}"
        return "a plugin of pytest"


def pytest_configure(config: pytest.Config) -> None:
    watch = ImportWatch(config.rootpath)
    sys.meta_path.insert(0, watch)
    config.pluginmanager.register(watch)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    module = item.getparent(pytest.Module)
    if module is not None:
        _run_deferred(module.obj)


def _run_deferred(module: ModuleType) -> None:
    """Execute the statements under `if TESTS_RUN:` in the namespace of the module, once."""
    namespace = vars(module)
    if namespace.get("TESTS_RUN") is not False:
        return
    path = str(module.__file__)
    deferred: list[ast.stmt] = []
    for statement in ast.parse(Path(path).read_text("utf-8")).body:
        match statement:
            case ast.If(test=ast.Name(id="TESTS_RUN"), body=body):
                deferred += body
            case ast.ImportFrom(module="__future__"):
                # It says how the other statements are compiled.
                deferred.append(statement)
            case _:
                pass
    exec(compile(ast.Module(deferred, []), path, "exec", dont_inherit=True), namespace)
    namespace["TESTS_RUN"] = True
    set_aside_what_is_there()
