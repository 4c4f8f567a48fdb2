"""The tables of the documents whose every cell is what an end-to-end test found.

All stand in docs/compatibility.md. `versions`: a row for each version of Open WebUI and rendering; a test says which
columns it proves, `@pytest.mark.cell("live")`. `features`: a row for each version, `@pytest.mark.feature("plan")`.
`endings`: a row for each way an answer can end, `@pytest.mark.ending("stop")`, a column for each rendering. Where
something else is shown, a test records it: `record_property("instead", "in words")`. A run keeps what it found among
the artefacts, once every cell of a version has been proven.
`python -m tests.e2e.tables` takes what is there into `tables.json` and the documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("tables.json")
FOUND = ROOT / "artifacts" / "e2e"
RENDERINGS = ("details", "native")
PROVEN = "✓"
BROKEN = "✗"

Cells = dict[str, dict[str, str]]
"""What was found: by row, then by column."""


@dataclass(frozen=True)
class Table:
    """A table between two marks of a document."""

    name: str
    document: str
    row_heading: str
    columns: tuple[str, ...]

    def render(self, cells: Mapping[str, Mapping[str, str]]) -> str:
        """The table; a cell that nothing is known of is a `KeyError`."""
        rows = [[row, *(found[column] for column in self.columns)] for row, found in cells.items()]
        lines = [[self.row_heading, *self.columns], ["---"] * (len(self.columns) + 1), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def of_document(self) -> str:
        """The table as it stands in the document."""
        return self._split()[1].strip()

    def put(self, cells: Mapping[str, Mapping[str, str]]) -> None:
        """Write the table into the document."""
        before, _, after = self._split()
        (ROOT / self.document).write_text(f"{before}{self.render(cells)}\n{after}", "utf-8")

    def _split(self) -> tuple[str, str, str]:
        text = (ROOT / self.document).read_text("utf-8")
        found = re.search(rf"<!-- {self.name}:[^\n]*-->\n(.*?)<!-- /{self.name} -->", text, re.DOTALL)
        assert found, f"{self.document} has no block for the {self.name}"
        return text[: found.start(1)], found[1], text[found.end(1) :]


VERSIONS = Table(
    "versions",
    "docs/compatibility.md",
    "Open WebUI, rendering",
    (
        "live",
        "in place",
        "progress",
        "status line",
        "parallel",
        "result",
        "failing",
        "after reload",
        "reload in mid-run",
        "next turn",
        "stop",
        "hostile text",
    ),
)
FEATURES = Table(
    "features",
    "docs/compatibility.md",
    "Open WebUI",
    ("forms", "approvals that wait", "its own tools", "files of tools", "plan"),
)
ENDINGS = Table("endings", "docs/compatibility.md", "ending", RENDERINGS)
TABLES = (VERSIONS, FEATURES, ENDINGS)


class Recorder:
    """A pytest plugin that collects what one version shows; what is broken in one test stays broken."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.found: dict[str, Cells] = {table.name: {} for table in TABLES}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reports know nothing of markers and parameters; they carry these properties."""
        for item in items:
            rendering = getattr(item, "callspec", None) and item.callspec.params.get("rendering")  # type: ignore[attr-defined] # of a function that has parameters
            for mark in item.iter_markers("cell"):
                item.user_properties += [("versions", (f"{self._version} {rendering}", cell)) for cell in mark.args]
            for mark in item.iter_markers("feature"):
                item.user_properties += [("features", (self._version, feature)) for feature in mark.args]
            for mark in item.iter_markers("ending"):
                item.user_properties += [("endings", (ending, rendering)) for ending in mark.args]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed and report.when != "call":
            return
        told = dict(report.user_properties)
        shown = str(told.get("instead", PROVEN)) if report.passed else BROKEN
        for table in TABLES:
            for name, place in report.user_properties:
                if name != table.name or not isinstance(place, tuple):
                    continue
                row, column = place
                assert column in table.columns, f"the table of {table.name} has no column {column!r}"
                cells = self.found[table.name].setdefault(row, {})
                if shown == BROKEN or cells.get(column, PROVEN) == PROVEN:
                    cells[column] = shown

    def pytest_sessionfinish(self) -> None:
        if len(rows := self.found["versions"]) == len(RENDERINGS) and all(map(_is_whole, rows.values())):
            FOUND.mkdir(parents=True, exist_ok=True)
            file = FOUND / f"tables-{self._version}.json"
            # A run of some of the tests takes nothing away from what another has found.
            before = json.loads(file.read_text("utf-8")) if file.exists() else {}
            file.write_text(
                _as_json({name: before.get(name, {}) | cells for name, cells in self.found.items()}), "utf-8"
            )


def _is_whole(cells: Mapping[str, str]) -> bool:
    return set(cells) == set(VERSIONS.columns)


def kept() -> dict[str, Cells]:
    """What the tables in the documents stand for: the cells of each table."""
    return _read([KEPT])


def update() -> None:
    """Takes what the tests have found, of whichever versions they ran, into the kept results and the documents."""
    tables = _read([KEPT, *sorted(FOUND.glob("tables-*.json"))])
    for name in ("versions", "features"):
        tables[name] = {row: tables[name][row] for row in sorted(tables[name], key=_newest_first)}
    KEPT.write_text(_as_json(tables), "utf-8")
    for table in TABLES:
        table.put(tables[table.name])


def _read(files: Iterable[Path]) -> dict[str, Cells]:
    tables: dict[str, Cells] = {table.name: {} for table in TABLES}
    for file in files:
        found = json.loads(file.read_text("utf-8"))
        for table in TABLES:
            for row, cells in found.get(table.name, {}).items():
                tables[table.name][row] = {column: cells[column] for column in table.columns}
    return tables


def _as_json(tables: Mapping[str, Cells]) -> str:
    return json.dumps(tables, indent=2, ensure_ascii=False) + "\n"


def _newest_first(row: str) -> tuple[Sequence[int], str]:
    version, _, rendering = row.partition(" ")
    return [-int(number) for number in version.split(".")], rendering


if __name__ == "__main__":
    update()
