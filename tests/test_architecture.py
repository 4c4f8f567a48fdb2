"""Imports go down only, and the pipe is a file of its own."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import callboard

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "callboard"

# Outermost first. Packages on one line must not import each other.
LAYERS = [
    {"__init__"},
    {"_cli", "testing"},
    {"_application"},
    {"_inspect", "_metrics", "_openai", "_tracing"},
    {"http"},
    {"runs"},
    {"frameworks"},
    {"agents"},
    {"_formats"},
    {"skills"},
    {"calls"},
    {"observers"},
    {"models"},
    {"storage"},
    {"_history"},
    {"settings"},
    {"_keys", "_logging", "_named_keys", "openwebui", "reading"},
    {"_bundled_files"},
    {
        "_call_ids",
        "data_urls",
        "errors",
        "extras",
        "_private_files",
        "redaction",
        "sources",
        "_streams",
        "text",
        "threads",
        "trace_context",
        "_version",
        "_watchdog",
    },
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


HOMES: dict[str, str] = vars(callboard)["_MODULES"]
"""The module of each name of `callboard`, which imports it on first use."""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            for alias in node.names:
                # `from callboard import errors` names a module, `from callboard import tool` a value of another one.
                if node.module == "callboard":
                    yield HOMES.get(alias.name, f"callboard.{alias.name}" if alias.name in RANK else "callboard")
                else:
                    yield str(node.module)


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
        "callboard.agents.tool_loop",
        "callboard._formats",
        "callboard.storage.sql",
    },
    "http": {"callboard.calls.executor", "callboard.calls.runner"},
    "agents": {
        "callboard.storage",
        "callboard._history",
        "callboard_formats",
        "callboard._formats.reading",
        "callboard._formats.rescuing",
    },
    "frameworks": {"callboard.storage", "callboard._history"},
    "calls": {"callboard._history"},
    "_formats": {"callboard.calls.executor", "callboard.calls.runner", "callboard.storage", "callboard._history"},
    "models": {"callboard.calls", "callboard.storage", "callboard._history"},
    "_history": {"callboard.storage", "sqlalchemy", "sqlite3"},
}
# Modules that put the parts of a server together.
WIRING = {"server/callboard/http/state.py"}

BUILT_ON_THE_CORE = ("skills", "frameworks", "_inspect", "_metrics", "_openai", "_tracing")
"""Packages that use only the public interface, as packages of other people do."""


@pytest.mark.parametrize("package", BUILT_ON_THE_CORE)
def test_a_package_built_on_the_core_imports_only_public_names(package: str) -> None:
    private = [
        f"{path.relative_to(SERVER)}: {module}.{name}"
        for path in sorted((SERVER / package).rglob("*.py"))
        for module, name in imported_names(path)
        if module.startswith("callboard") and not f"{module}.".startswith(f"callboard.{package}.")
        if not is_public(module, name)
    ]
    assert private == []


def imported_names(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


def is_public(module: str, name: str) -> bool:
    """Whether a module without an underscore has the name, and not only a module inside of it."""
    if "._" in module or module.count(".") > module.startswith("callboard."):
        return False
    is_public_module = module == "callboard" and name in RANK and not name.startswith("_")
    return not name or is_public_module or name in list_public(module)


def list_public(module: str) -> set[str]:
    """The names of `__all__`; without it, those that do not begin with an underscore and are defined there."""
    found = vars(import_module(module))
    defined = {name for name, value in found.items() if getattr(value, "__module__", module) == module}
    return set(found.get("__all__", {name for name in defined if not name.startswith("_")}))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("callboard", "_formats"),
        ("callboard._formats", "parse"),
        ("callboard.http.gate", "Access"),
        ("callboard.http", "gate"),
        ("callboard.storage", "sql"),
        ("callboard_formats.syntax", "WrittenCall"),
    ],
)
def test_a_name_of_a_module_inside_of_a_package_is_not_public(module: str, name: str) -> None:
    assert not is_public(module, name)


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
    assert RANK.keys() - told == {"__init__"}


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
    # pydantic needs typing_extensions itself, for TypedDict on Python 3.11.
    allowed = {"pydantic", "typing_extensions", "callboard_protocol"}
    for path in (ROOT / "shared" / "callboard_protocol").glob("*.py"):
        roots = {module.split(".")[0] for module in imports(path)}
        assert roots - set(sys.stdlib_module_names) <= allowed, path


def test_the_pipe_imports_only_what_every_open_webui_has() -> None:
    roots = {module.split(".")[0] for module in imports(ROOT / "pipe" / "callboard_pipe.py")}
    assert roots - set(sys.stdlib_module_names) <= {"httpx", "jwt", "pydantic", "open_webui"}


def test_the_function_for_events_imports_only_what_an_open_webui_with_events_has() -> None:
    roots = {module.split(".")[0] for module in imports(ROOT / "pipe" / "callboard_events.py")}
    assert roots - set(sys.stdlib_module_names) <= {"pydantic", "sqlalchemy", "starlette", "open_webui"}


def test_the_filter_imports_only_open_webui() -> None:
    roots = {module.split(".")[0] for module in imports(ROOT / "pipe" / "callboard_filter.py")}
    assert roots - set(sys.stdlib_module_names) == {"open_webui"}


@pytest.mark.parametrize("name", ["callboard_pipe.py", "callboard_events.py", "callboard_filter.py"])
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
        "server/callboard/text.py",
        "server/callboard/calls/executor.py",
        "server/callboard/calls/approval.py",
        "server/callboard/_application/application.py",
        "server/callboard/_formats/call_styles.py",
        "server/callboard/observers.py",
        "server/callboard/frameworks/agno/model.py",
        "server/callboard/frameworks/openai_agents/local_tools.py",
        "pipe/callboard_pipe.py",
        "pipe/callboard_filter.py",
        "server/callboard/agents/loading.py",
        "server/callboard/_cli/doctor/__init__.py",
        "server/callboard/reading/child.py",
        "server/callboard/runs/ownership.py",
        "server/callboard/runs/run.py",
        "server/callboard/runs/factory.py",
        "server/callboard/runs/database_poller.py",
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
