"""The documentation site, built as `scripts/docs` builds it: whole, strict, and asking no other host for anything."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_every_page_is_built_and_asks_no_other_host_and_a_link_to_nowhere_fails_the_build(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    ended = build(folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    site = folder / "site"
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / (place.parent if place.name == "index" else place) / "index.html").exists(), place
    assert "callboard.Agent" in (site / "reference" / "api" / "callboard" / "index.html").read_text("utf-8")
    for file in (*site.rglob("*.html"), *site.rglob("*.css")):
        loads = (
            r"<(?:script|img|iframe|link rel=\"?(?:stylesheet|icon))[^>]* (?:src|href)=\"?|url\([\"']?|@import [\"']?"
        )
        assert not re.search(rf"(?:{loads})(?:https?:)?//", file.read_text("utf-8")), file
    with (folder / "docs" / "index.md").open("a") as index:
        index.write("\n[a](nowhere.md)\n")
    ended = build(folder)
    assert ended.returncode != 0
    assert "page does not exist" in ended.stderr


def test_an_outdated_reference_is_not_built(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    page = folder / "docs" / "reference" / "settings.md"
    page.write_text(page.read_text().replace("`8700`", "`8701`"))
    ended = build(folder)
    assert ended.returncode != 0
    assert "docs/reference/settings.md differs from the code" in ended.stderr
