"""The examples of the pages about the public interface run."""

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.test_docs import DOCS

PAGES = sorted((DOCS / "reference" / "api").glob("*.md"))


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
