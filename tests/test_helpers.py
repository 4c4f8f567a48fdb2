"""The tests have a language of their own, and it is written down."""

import ast
import gc
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
SHARED_BY = 5


def test_every_function_that_several_tests_share_is_on_the_page_of_the_tests() -> None:
    # The parser of CPython 3.11 fails with `SystemError` if a garbage collection runs finalizers of other tests at the
    # time.
    gc.collect()
    defined = set()
    users: defaultdict[str, set[Path]] = defaultdict(set)
    for path in TESTS.rglob("*.py"):
        if path.is_relative_to(TESTS / "bench"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                for alias in node.names:
                    users[alias.name].add(path)
    shared = {name for name in defined if len(users[name]) >= SHARED_BY}
    assert {"says", "calls", "read_next_turn"} <= shared
    page = (TESTS / "README.md").read_text()
    assert sorted(name for name in shared if f"{name}(" not in page) == []
