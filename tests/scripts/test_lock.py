"""scripts/lock: that the committed locks fit pyproject.toml, and that each thing that does not fit is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the files that the check reads."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


def test_the_locks_fit_the_project() -> None:
    assert list(lock.problems()) == []


def test_each_lock_holds_the_narrower_ones() -> None:
    dev, everything, server = (set(lock.read_lock(scope.file.read_text()).pins) for scope in lock.SCOPES)
    assert server < everything < dev
    assert {"trafilatura", "websockets", "mcp", "hatchling"} <= server


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        text = (project / file).read_text()
        assert old in text
        (project / file).write_text(text.replace(old, new, 1))

    return change


def without_a_lock(project: Path) -> None:
    (project / "requirements" / "all.txt").unlink()


BROKEN = {
    "a requirement that is new": (
        replaced("pyproject.toml", '"structlog>=', '"left-pad>=1",\n    "structlog>='),
        "server.txt: left-pad is missing",
    ),
    "a requirement of an extra that is new": (
        replaced("pyproject.toml", 'reload = ["', 'reload = ["left-pad", "'),
        "all.txt: left-pad is missing",
    ),
    "a bound that has moved": (
        replaced("pyproject.toml", "starlette>=1.3,<2", "starlette>=999"),
        "starlette>=999",
    ),
    "a requirement that has gone": (
        replaced("pyproject.toml", '    "docstring-parser>=0.17",\n', ""),
        "docstring-parser is no longer required",
    ),
    "a lock that is not there": (without_a_lock, "all.txt is missing"),
    "an entry without a hash": (
        replaced("requirements/server.txt", "alembic==", "unhashed==1.0\nalembic=="),
        "'unhashed==1.0' is not a version with hashes",
    ),
    "an address": (
        replaced("requirements/dev.txt", "alembic==", "--index-url https://example.org/simple\nalembic=="),
        "dev.txt has a URL or an option",
    ),
    "a version of its own": (
        replaced("requirements/server.txt", "\nannotated-types==", "\nannotated-types==0.0.1+"),
        "different versions of annotated-types",
    ),
}


@pytest.mark.parametrize(("change", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_every_misfit_is_named(project: Path, change: Callable[[Path], None], told: str) -> None:
    change(project)
    found = list(lock.problems(project))
    assert any(told in line for line in found), found
