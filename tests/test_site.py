"""The documentation site, built as `scripts/docs` builds it: whole, strict, and asking no other host for anything."""

import importlib
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.test_architecture import list_public
from tests.test_docs import API

ROOT = Path(__file__).parent.parent
SOURCES = ("docs", "server", "shared", "pipe", "deploy", "scripts")

pytestmark = pytest.mark.timeout(180)


def copy_project(folder: Path) -> Path:
    """The sources of the site in a separate folder, with this environment as `.venv`."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, folder)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / "scripts" / "docs"], capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_project(tmp_path_factory.mktemp("project"))
    ended = build(folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "site"


class Tags(HTMLParser):
    """The ids of a page, and the files that a browser loads for it."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if found := given.get("id"):
            self.ids.add(found)
        loads = tag in ("script", "img", "iframe") or (tag == "link" and given.get("rel") in ("stylesheet", "icon"))
        if loads and (address := given.get("src") or given.get("href")):
            self.loaded.append(address)


def read(page: Path) -> Tags:
    tags = Tags()
    tags.feed(page.read_text("utf-8"))
    return tags


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("")
        built = site / (place.parent if place.name == "index" else place) / "index.html"
        assert built.exists(), place


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    for module, page in API.items():
        ids = read(site / "reference" / "api" / Path(page).stem / "index.html").ids
        imported = importlib.import_module(module)
        for name in list_public(module):
            # A function with the name of its module is documented where it is defined.
            defined = f"{getattr(getattr(imported, name), '__module__', module)}.{name}"
            assert ids & {f"{module}.{name}", defined}, f"{module}.{name}"


@pytest.mark.slow
def test_what_is_included_stands_in_the_page(site: Path) -> None:
    assert "The way of an event" in (site / "explanation" / "architecture" / "index.html").read_text("utf-8")
    assert "generate_image" in (site / "tutorial" / "first-agent" / "index.html").read_text("utf-8")


@pytest.mark.slow
def test_a_page_asks_no_other_host_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        foreign = [address for address in read(page).loaded if re.match(r"(?:[a-z]+:)?//", address)]
        assert foreign == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text("utf-8")), style


@pytest.mark.slow
def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path) -> None:
    ended = build_with(copy_project(tmp_path), "index.md", "[a](nowhere.md) [b](compatibility.md#nothing)")
    assert ended.returncode != 0
    assert "page does not exist" in ended.stderr
    assert "anchor does not exist" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("text", ["::: callboard.nothing", '--8<-- "no/such/file.py"'], ids=["name", "file"])
def test_what_is_not_there_cannot_be_included(tmp_path: Path, text: str) -> None:
    assert build_with(copy_project(tmp_path), "reference/api/callboard.md", text).returncode != 0


def test_an_outdated_reference_is_not_built(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    page = folder / "docs" / "reference" / "settings.md"
    page.write_text(page.read_text().replace("`8700`", "`8701`"))
    ended = build(folder)
    assert ended.returncode != 0
    assert "docs/reference/settings.md differs from the code" in ended.stderr


def build_with(folder: Path, page: str, text: str) -> subprocess.CompletedProcess[str]:
    with (folder / "docs" / page).open("a") as file:
        file.write(f"\n{text}\n")
    return build(folder)
