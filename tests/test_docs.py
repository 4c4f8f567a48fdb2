"""The documents are correct: their links, commands and examples, and what is generated from code and tests."""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import reference
from callboard._cli import build_parser
from callboard.settings import known_settings
from tests.tables import TABLES, Table

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("*.md", "pipe/*.md", "server/**/*.md", ".github/**/*.md", "docs/**/*.md")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(folder))
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


def test_the_readmes_agent_is_the_example() -> None:
    example = (ROOT / "server" / "examples" / "painter.py").read_text()
    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()
