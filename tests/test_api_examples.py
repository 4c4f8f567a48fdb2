"""The examples of the pages about the public interface run, and name every public class."""

import ast
import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import BaseModel

from callboard.errors import CallboardError
from tests.test_docs import API, ROOT

PAGES = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))

FOR_RUNS_ONLY = {
    "StoredFrame",
    "StoredRun",
    "NewRun",
    "Notification",
    "PastResponse",
    "StoredRuns",
    "RunRecord",
    "RunSignals",
}
"""Classes of `callboard.storage` with which a server stores runs; a `Run` has what others need of them."""


def blocks(page: Path) -> Sequence[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_examples_of_a_page_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    assert blocks(page)
    for source in blocks(page):
        code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        # As `python -m asyncio` runs it: a block that awaits is a coroutine.
        if inspect.iscoroutine(result := eval(code, names)):
            await result


@pytest.mark.parametrize("module", [module for module in API if not module.startswith("callboard.frameworks.")])
def test_every_public_class_is_in_an_example(module: str) -> None:
    page = ROOT / "docs" / "reference" / "api" / API[module]
    words = set(re.findall(r"\w+", "\n".join(blocks(page))))
    assert [name for name in list_classes(module) if name not in words] == []


def list_classes(module: str) -> list[str]:
    """The public classes of a module that need an example of their own.

    Errors, and the events of the protocol, are alike: one example stands for all of them.
    """
    found = vars(import_module(module))
    own = {name for name, value in found.items() if getattr(value, "__module__", module) == module}
    public = found.get("__all__", {name for name in own if not name.startswith("_")})
    classes = {name: getattr(import_module(module), name) for name in sorted(public)}
    alike: tuple[type, ...] = (CallboardError, BaseModel) if module == "callboard_protocol" else (CallboardError,)
    return [
        name
        for name, value in classes.items()
        if inspect.isclass(value) and not issubclass(value, alike) and name not in FOR_RUNS_ONLY
    ]
