"""The documents' tables say what the end-to-end tests found, for every version that they run against."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import openwebui
from tests.e2e import tables
from tests.e2e.tables import BROKEN, ENDINGS, PROVEN, RENDERINGS, TABLES, Recorder, Table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_documents_table_is_what_the_tests_found_with_no_cell_empty_or_broken(table: Table) -> None:
    found = tables.kept()[table.name]
    assert table.of_document() == table.render(found)
    for cells in found.values():
        assert tuple(cells) == table.columns
        assert all(cells.values())
        assert BROKEN not in cells.values()


def test_every_version_that_is_tested_has_a_row_for_each_rendering_the_newest_first() -> None:
    older = re.search(r'older="([\d. ]+)"', (ROOT / "scripts" / "test").read_text())
    assert older
    versions = [openwebui.VERSION, *older[1].split()]
    assert list(tables.kept()["versions"]) == [f"{version} {kind}" for version in versions for kind in RENDERINGS]
    assert list(tables.kept()["features"]) == versions


def test_every_ending_that_is_tested_has_a_row() -> None:
    source = (ROOT / "tests" / "e2e" / "test_every_ending.py").read_text()
    assert len(tables.kept()["endings"]) >= len(re.findall(r"mark\.ending\(", source)) >= 12


def test_a_table_with_an_empty_cell_cannot_be_written() -> None:
    with pytest.raises(KeyError):
        ENDINGS.render({"stop": {"details": PROVEN}})


def test_a_cell_is_broken_when_one_of_its_tests_fails() -> None:
    recorder = Recorder("0.0.0")
    live = ("0.0.0 native", "live")
    stop = ("0.0.0 native", "stop")
    for cell, outcome in ((live, "passed"), (live, "failed"), (live, "passed"), (stop, "passed")):
        recorder.pytest_runtest_logreport(report(outcome, ("versions", cell)))
    recorder.pytest_runtest_logreport(
        report("passed", ("versions", ("0.0.0 native", "failing")), ("instead", "in words"))
    )
    recorder.pytest_runtest_logreport(report("passed", ("features", ("0.0.0", "plan"))))
    recorder.pytest_runtest_logreport(report("passed", ("endings", ("stop", "details"))))
    assert recorder.found == {
        "versions": {"0.0.0 native": {"live": BROKEN, "stop": PROVEN, "failing": "in words"}},
        "features": {"0.0.0": {"plan": PROVEN}},
        "endings": {"stop": {"details": PROVEN}},
    }


def report(outcome: str, *properties: tuple[str, object]) -> pytest.TestReport:
    return pytest.TestReport("test", ("", 0, ""), {}, outcome, None, "call", user_properties=list(properties))  # type: ignore[arg-type] # outcome is one of its words
