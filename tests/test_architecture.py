"""Imports go down only, and the pipe is a file of its own."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "callboard"

# Outermost first. Packages on one line must not import each other.
LAYERS = [
    {"__init__"},
    {"_cli", "testing"},
    {"_application"},
    {"_inspect"},
    {"_http"},
    {"_metrics"},
    {"_runs"},
    {"frameworks"},
    {"_agents"},
    {"_formats"},
    {"skills"},
    {"calls"},
    {"_tracing"},
    {"observers"},
    {"models"},
    {"storage"},
    {"_history"},
    {"_settings"},
    {"_keys", "_logging", "_named_keys", "_openwebui", "_reading"},
    {"_bundled_files"},
    {
        "_call_ids",
        "_data_urls",
        "errors",
        "_extras",
        "_private_files",
        "_redaction",
        "_text",
        "_threads",
        "_trace_context",
        "_version",
        "_watchdog",
    },
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            for alias in node.names:
                # `from callboard import errors` names a module, `from callboard import tool` a value.
                is_module = node.module == "callboard" and alias.name in RANK
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def arrows() -> Iterator[tuple[str, str, str]]:
    for path in sorted(SERVER.rglob("*.py")):
        parts = path.relative_to(SERVER).with_suffix("").parts
        for module in imports(path):
            if module.split(".")[0] == "callboard":
                yield str(path.relative_to(ROOT)), parts[0], layer(module)


def test_every_module_has_a_place_in_the_layers() -> None:
    names = {
        path.stem
        for path in SERVER.iterdir()
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
    }
    assert names - RANK.keys() == set()


def test_imports_go_down_only() -> None:
    found = list(arrows())
    assert len(found) > 30
    wrong = [arrow for arrow in found if arrow[1] != arrow[2] and RANK[arrow[1]] >= RANK[arrow[2]]]
    assert wrong == []


# Lower packages that a package must not import; ARCHITECTURE.md describes them.
DOES_NOT_KNOW = {
    "_inspect": {
        "callboard.calls.executor",
        "callboard._agents.tool_loop",
        "callboard._formats",
        "callboard.storage.sql",
    },
    "_http": {"callboard.calls.executor", "callboard.calls.runner"},
    "_agents": {
        "callboard.storage",
        "callboard._history",
        "callboard_formats",
        "callboard._formats.native",
        "callboard._formats.text",
    },
    "frameworks": {"callboard.storage", "callboard._history"},
    "calls": {"callboard._history"},
    "_formats": {"callboard.calls.executor", "callboard.calls.runner", "callboard.storage", "callboard._history"},
    "models": {"callboard.calls", "callboard.storage", "callboard._history"},
    "_history": {"callboard.storage", "sqlalchemy", "sqlite3"},
}
# Modules that put the parts of a server together.
WIRING = {"server/callboard/_http/state.py"}


def test_what_a_package_does_not_know_it_does_not_import() -> None:
    wrong = []
    for path in sorted(SERVER.rglob("*.py")):
        if str(path.relative_to(ROOT)) in WIRING:
            continue
        for stranger in DOES_NOT_KNOW.get(path.relative_to(SERVER).parts[0], ()):
            wrong += [(str(path), module) for module in imports(path) if f"{module}.".startswith(f"{stranger}.")]
    assert wrong == []


def test_the_picture_of_the_layers_has_a_row_for_each_of_them() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)/?`", row)}
    assert RANK.keys() - told == {"__init__", "_version"}


def test_what_others_may_import_has_no_underscore_and_a_word_in_the_picture() -> None:
    told = re.search(r"What others may import: (.+?)\.\s", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL)
    assert told
    public = set(re.findall(r"`callboard\.(\w+)`", told[1]))
    assert {name for name in RANK if not name.startswith("_")} == public


def test_the_package_of_formats_stands_alone() -> None:
    for path in (ROOT / "server" / "callboard_formats").glob("*.py"):
        roots = {module.split(".")[0] for module in imports(path)}
        assert roots - set(sys.stdlib_module_names) <= {"callboard_formats", "regex"}, path


def test_the_protocol_knows_pydantic_and_nothing_else() -> None:
    for path in (ROOT / "shared" / "callboard_protocol").glob("*.py"):
        roots = {module.split(".")[0] for module in imports(path)}
        assert roots - set(sys.stdlib_module_names) <= {"pydantic", "callboard_protocol"}, path


def test_the_pipe_imports_only_what_every_open_webui_has() -> None:
    roots = {module.split(".")[0] for module in imports(ROOT / "pipe" / "callboard_pipe.py")}
    assert roots - set(sys.stdlib_module_names) <= {"httpx", "jwt", "pydantic", "open_webui"}


def test_the_function_for_events_imports_only_what_an_open_webui_with_events_has() -> None:
    roots = {module.split(".")[0] for module in imports(ROOT / "pipe" / "callboard_events.py")}
    assert roots - set(sys.stdlib_module_names) <= {"pydantic", "sqlalchemy", "starlette", "open_webui"}


@pytest.mark.parametrize("name", ["callboard_pipe.py", "callboard_events.py"])
@pytest.mark.parametrize("word", ["from utils", "from apps", "from main", "from config", "requirements:"])
def test_the_functions_hold_no_word_that_open_webui_rewrites_or_acts_on(name: str, word: str) -> None:
    source = (ROOT / "pipe" / name).read_text()
    assert source.startswith('"""\n')
    assert word not in source


EVERYTHING = {"Exception", "BaseException"}


def caught(node: ast.AST) -> list[ast.expr]:
    """The classes that a handler names, or `suppress`, in a tuple or not; a bare `except` catches BaseException."""
    if isinstance(node, ast.ExceptHandler):
        if isinstance(node.type, ast.Tuple):
            return node.type.elts
        return [node.type or ast.Name("BaseException")]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return node.args
    return []


def handlers() -> Iterator[tuple[str, list[str]]]:
    for folder in ("server", "shared", "pipe"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if classes := caught(node):
                    yield str(path.relative_to(ROOT)), [ast.unparse(one) for one in classes]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("try: f()\nexcept: pass", ["BaseException"]),
        ("try: f()\nexcept Exception: pass", ["Exception"]),
        ("try: f()\nexcept (KeyError, Exception) as e: pass", ["KeyError", "Exception"]),
        ("with contextlib.suppress(ValueError, Exception): f()", ["ValueError", "Exception"]),
    ],
)
def test_what_a_handler_catches_is_seen_in_each_of_its_forms(source: str, names: list[str]) -> None:
    assert [ast.unparse(one) for node in ast.walk(ast.parse(source)) for one in caught(node)] == names


def test_only_the_boundaries_catch_everything() -> None:
    assert {path for path, classes in handlers() if EVERYTHING & set(classes)} <= {
        "server/callboard/_text.py",
        "server/callboard/calls/executor.py",
        "server/callboard/_application/application.py",
        "server/callboard/_formats/descriptions.py",
        "server/callboard/observers.py",
        "server/callboard/frameworks/openai_agents/local_tools.py",
        "pipe/callboard_pipe.py",
        "server/callboard/_agents/loading.py",
        "server/callboard/_cli/doctor/__init__.py",
        "server/callboard/_reading/child.py",
        "server/callboard/_runs/ownership.py",
        "server/callboard/_runs/run.py",
        "server/callboard/_runs/factory.py",
        "server/callboard/_runs/run_watcher.py",
        "server/callboard/storage/sql/postgresql_lease.py",
        "server/callboard/storage/bus.py",
        "server/callboard/storage/sql/run_record.py",
    }


# Modules that parse text of models and other programs.
MANY_AT_ONCE = (
    "server/callboard_formats/python",
    "server/callboard_formats/arguments",
    "server/callboard/models/embeddings",
    "server/callboard/models/local_endpoints",
    "server/callboard/skills/home/intents",
    "server/callboard/skills/web/engines",
    "pipe/callboard_pipe",
)


def test_only_where_what_strangers_wrote_is_read_are_many_classes_caught_at_once() -> None:
    assert [path for path, classes in handlers() if len(classes) > 3 and not path.startswith(MANY_AT_ONCE)] == []
