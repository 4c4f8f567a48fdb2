"""The documents are correct: their links, commands and examples, and what is generated from code and tests."""

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import callboard
import reference
from callboard._cli import build_parser
from callboard.settings import known_settings
from tests.tables import TABLES, Table

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("*.md", "pipe/*.md", "server/**/*.md", ".github/**/*.md", "docs/**/*.md")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(folder))
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


# ---------------------------------------------------------------------------------------------------- generated


def test_the_reference_is_as_the_code_has_it() -> None:
    assert [name_of(page) for page, _ in reference.outdated()] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.name)
def test_a_table_says_what_the_tests_or_the_code_have(table: Table) -> None:
    assert table.written() == table.text().strip(), "python -m tests.tables writes it"


# ----------------------------------------------------------------------------------------------------- commands


def test_the_readmes_command_for_all_tests_is_what_ci_runs() -> None:
    section = (ROOT / "README.md").read_text().split("\n## Test it\n")[1].split("\n## ")[0]
    assert re.findall(r"```sh\n(.*)\n```", section)[-1] == (ROOT / ".ci" / "run").read_text().splitlines()[-1]


def test_the_scripts_and_commands_that_pages_and_workflows_run_exist() -> None:
    [commands] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for page in (*PAGES, *(ROOT / ".github").glob("workflows/*.yml")):
        text = page.read_text()
        for script in re.findall(r"\bscripts/\w+(?:\.py)?", text):
            assert (ROOT / script).exists(), f"{name_of(page)}: {script}"
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for command in re.findall(r"^ *callboard ([a-z-]+)", block, re.MULTILINE):
                assert command in {*commands.choices, "install-pipe"}, f"{name_of(page)}: callboard {command}"


def test_the_settings_that_a_page_names_are_there() -> None:
    known = {f"CALLBOARD_{name.upper()}" for name in known_settings()} | {"CALLBOARD_URL"}
    for page in PAGES:
        named = set(re.findall(r"CALLBOARD_[A-Z_]*[A-Z]", page.read_text()))
        assert named <= known, name_of(page)


def test_the_commands_of_a_release_change_the_version_everywhere(tmp_path: Path) -> None:
    functions = [f"pipe/callboard_{name}.py" for name in ("pipe", "events", "filter")]
    for name in functions:
        assert f"\nversion: {callboard.__version__}\n" in (ROOT / name).read_text()
    for name in ("server/callboard/_version.py", *functions, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    text = (ROOT / "RELEASE.md").read_text()
    steps = [line.strip() for line in text.splitlines() if line.strip().startswith(("version=", "sed "))]
    assert len(steps) == 4
    subprocess.run(["sh", "-euc", "\n".join(steps)], cwd=tmp_path, check=True, timeout=120)
    assert '\n__version__ = "0.2.0"\n' in (tmp_path / "server/callboard/_version.py").read_text()
    for name in functions:
        assert "\nversion: 0.2.0\n" in (tmp_path / name).read_text()
    assert re.search(
        r"^## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d$",
        (tmp_path / "CHANGELOG.md").read_text(),
        re.MULTILINE,
    )


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


def test_the_readmes_agent_is_the_example() -> None:
    example = (ROOT / "server" / "examples" / "painter.py").read_text()
    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()
