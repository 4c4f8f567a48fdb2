"""The documents are correct: the reference, the tables, the examples and the links."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

import reference
from callboard.errors import CallboardError
from callboard.settings import known_settings
from tests.tables import TABLES, Table
from tests.test_architecture import RANK

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = ("*.md", "pipe/*.md", "server/**/*.md", ".github/**/*.md", "docs/**/*.md")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(folder))
CODE = ("pipe", "scripts", "server", "shared")
ABOUT_CODE = re.compile(r"^ARCHITECTURE\.md$|^(pipe|server)/.*README\.md$")
API = {
    "callboard": "callboard.md",
    "callboard.agents": "agents.md",
    "callboard.calls": "calls.md",
    "callboard.data_urls": "helpers.md",
    "callboard.errors": "errors.md",
    "callboard.extras": "helpers.md",
    "callboard.frameworks": "frameworks.md",
    "callboard.frameworks.agno": "frameworks.md",
    "callboard.frameworks.langgraph": "frameworks.md",
    "callboard.frameworks.openai_agents": "frameworks.md",
    "callboard.frameworks.pydantic_ai": "frameworks.md",
    "callboard.http": "http.md",
    "callboard.models": "models.md",
    "callboard.observers": "observers.md",
    "callboard.openwebui": "openwebui.md",
    "callboard.reading": "reading.md",
    "callboard.redaction": "helpers.md",
    "callboard.runs": "runs.md",
    "callboard.settings": "settings.md",
    "callboard.skills": "skills.md",
    "callboard.sources": "helpers.md",
    "callboard.storage": "storage.md",
    "callboard.testing": "testing.md",
    "callboard.text": "helpers.md",
    "callboard.threads": "helpers.md",
    "callboard.trace_context": "helpers.md",
    "callboard_formats": "formats.md",
    "callboard_protocol": "protocol.md",
}
"""The public modules, each with the page that documents it."""

_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_SNIPPET = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --------------------------------------------------------------------------------------------------- reference


def test_the_reference_is_as_the_code_has_it() -> None:
    assert [name_of(page) for page, _ in reference.outdated()] == []


def test_a_reference_that_is_outdated_is_named_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in reference.GENERATED:
        (tmp_path / name).write_text(f"# Before\n\n{reference.BEGIN}\n{reference.END}\n\nAfter.\n")
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    for page, wanted in list(reference.outdated()):
        page.write_text(wanted)
    assert list(reference.outdated()) == []
    text = (tmp_path / "settings.md").read_text()
    assert text.startswith("# Before\n")
    assert text.endswith("\n\nAfter.\n")
    assert "| `CALLBOARD_PORT` | `8700` |" in text


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("settings.md", "| `CALLBOARD_MAX_RUNS` | `100` |"),
        (
            "settings.md",
            "## Seerr\n\n| setting | default | description |\n| --- | --- | --- |\n| `CALLBOARD_SEERR_URL` |",
        ),
        ("valves.md", "| `RENDERING` | `details` | How tool calls are drawn. One of `details`, `native` |"),
        ("routes.md", "| `POST /v1/runs/{run_id}/cancel` | Cancel a run"),
        ("routes.md", "| `GET /v1/tool-calls/{tool_call_id}` |"),
        ("events.md", "| `data.progress` | number from 0 to 100 or null | `null` |"),
    ],
)
def test_the_reference_has_what_a_reader_looks_up(page: str, expected: str) -> None:
    assert expected in (DOCS / "reference" / page).read_text()


def test_nothing_in_the_reference_is_left_without_words() -> None:
    for page in reference.GENERATED:
        rows = [line for line in (DOCS / "reference" / page).read_text().splitlines() if line.startswith("| ")]
        assert rows
        assert [row for row in rows if re.search(r"\|\s*\|", row)] == []


@pytest.mark.parametrize("module", API)
def test_every_module_that_others_import_from_has_a_page(module: str) -> None:
    assert f"\n::: {module}\n" in (DOCS / "reference" / "api" / API[module]).read_text()


def test_every_public_module_is_in_the_reference() -> None:
    assert {f"callboard.{name}" for name in RANK if not name.startswith("_")} <= set(API)


def test_every_framework_has_its_place_in_the_reference() -> None:
    packages = (ROOT / "server" / "callboard" / "frameworks").glob("*/__init__.py")
    assert {f"callboard.frameworks.{package.parent.name}" for package in packages} <= set(API)


# ------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.name)
def test_a_table_says_what_the_tests_or_the_code_have(table: Table) -> None:
    assert table.written() == table.text().strip(), "python -m tests.tables writes it"


# ------------------------------------------------------------------------------------------------------- README


def commands(heading: str) -> list[str]:
    """The lines of the `sh` blocks below a heading of the README."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for found in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in found.splitlines()]


def test_the_readme_begins_with_the_ways_to_run_it() -> None:
    assert commands("Try it") == ["scripts/up"]
    assert commands("You have an Open WebUI already?") == [
        "python3 -m venv venv",
        ". venv/bin/activate",
        "pip install .",
        "callboard serve",
        ". venv/bin/activate",
        "callboard install-pipe --url http://localhost:3000 --email you@example.org",
    ]
    assert README.index("\n## You have an Open WebUI already?") < README.index("\n## What you get")


def test_the_readmes_command_for_all_tests_is_what_ci_runs() -> None:
    quick, everything = commands("Test it")
    assert quick == "scripts/test"
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == everything
    assert README.index("\n## Try it") < README.index("\n## Test it") < README.index("\n## What you get")


def test_the_readmes_agent_is_the_example() -> None:
    example = (ROOT / "server" / "examples" / "painter.py").read_text()
    assert f"```python\n{example}```" in README


def test_the_screenshot_of_the_readme_is_there() -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG")


def test_every_page_of_the_readers_own_is_named_in_the_readme() -> None:
    told = set(_LINK.findall(README))
    for folder in ("tutorial", "how-to"):
        for page in (DOCS / folder).glob("*.md"):
            assert name_of(page) in told


# ------------------------------------------------------------------------------------------------- architecture


def test_every_package_of_the_server_is_in_the_architecture() -> None:
    for package in (ROOT / "server" / "callboard").iterdir():
        if (package / "__init__.py").exists():
            assert f"`{package.name}/`" in ARCHITECTURE


@cache
def code_words() -> frozenset[str]:
    """The words of the code, of the names of files and folders, and of the settings."""
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".html")]
    names = [name_of(path) for path in [*files, *ROOT.glob("*/*"), *(ROOT / "tests").rglob("*")]]
    settings = [name.upper() for name in known_settings()]
    return frozenset(re.findall(r"\w+", "\n".join([*texts, *names, *settings])))


@pytest.mark.parametrize("page", [page for page in PAGES if ABOUT_CODE.search(name_of(page))], ids=name_of)
def test_every_name_in_a_page_about_the_code_exists(page: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", _FENCE.sub("", page.read_text()))
    words = {word.removeprefix("CALLBOARD_") for span in spans for word in re.findall(r"\w+", span)}
    assert sorted(words - code_words() - {""}) == []


def test_every_test_that_the_table_of_endpoints_names_exists() -> None:
    text = (DOCS / "compatibility.md").read_text()
    table = text.partition("<!-- endpoints")[2].partition("<!-- /endpoints -->")[0]
    named = set(re.findall(r"`(test_\w+)`", table))
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_code_that_the_page_of_endings_names_exists() -> None:
    told = (DOCS / "reference" / "endings.md").read_text()
    codes = {cls.code for cls in _tree(CallboardError)} | {"cancelled", "interrupted"}
    named = {word for word in re.findall(r"\(`(\w+)`\)|`(\w+)`[,)]", told) for word in word if word}
    assert named <= codes
    assert {"storage", "timeout", "interrupted"} <= named


def _tree(cls: type[CallboardError]) -> list[type[CallboardError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _tree(sub))]


# -------------------------------------------------------------------------------------------- links and examples


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, including those of included files."""
    text = whole(page)
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


def whole(page: Path) -> str:
    """A page's text with included files."""
    return _SNIPPET.sub(lambda found: (ROOT / found[1]).read_text(), page.read_text())


def links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_of_the_site_links_out_of_it(page: Path) -> None:
    if page.is_relative_to(DOCS):
        outside = [link for link in links(page) if not (page.parent / link).resolve().is_relative_to(DOCS)]
        assert outside == []
    included = {ROOT / name for one in DOCS.rglob("*.md") for name in _SNIPPET.findall(one.read_text())}
    if page in included:
        # On the site it is in another folder, where its links would be broken.
        assert list(links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_example_in_python_can_be_read(page: Path) -> None:
    for source in re.findall(r"^```python\n(.*?)^```", whole(page), re.MULTILINE | re.DOTALL):
        # A decorator is shown alone if only the decorator changes.
        ast.parse(f"{source}def tool(): ...\n" if source.startswith("@") and "def " not in source else source)


def test_every_page_is_in_the_navigation_once() -> None:
    told = list(_paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(told) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def _paths(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for one in nav:
                yield from _paths(one)
        case dict():
            for one in nav.values():
                yield from _paths(one)


def test_the_settings_that_a_page_names_are_there() -> None:
    known = {f"CALLBOARD_{name.upper()}" for name in known_settings()} | {"CALLBOARD_URL"}
    for page in PAGES:
        named = set(re.findall(r"CALLBOARD_[A-Z_]*[A-Z]", page.read_text()))
        assert named <= known, name_of(page)


def test_the_script_that_writes_the_reference_finds_nothing_to_do() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference.py", "--check"], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
