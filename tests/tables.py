"""The tables of the documents that say what the tests, or the code, have.

`python -m tests.tables` writes them into their pages, `tests/test_docs.py` compares.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from callboard_formats.formats import MAYBE_UNMARKED, RELATED_FORMATS
from tests.clients.table import table as clients
from tests.formats.corpus import table as formats
from tests.frameworks.table import table as frameworks

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page, between comments that have its name; `text` makes it anew."""

    name: str
    page: Path
    text: Callable[[], str]

    def written(self) -> str:
        """The table as it stands in the page."""
        return self._block(self.page.read_text("utf-8"))[1].strip()

    def write(self) -> None:
        """Write the table into the page."""
        page = self.page.read_text("utf-8")
        block = self._block(page)
        self.page.write_text(f"{page[: block.start(1)]}{self.text().strip()}\n{page[block.end(1) :]}", "utf-8")

    def _block(self, page: str) -> re.Match[str]:
        found = re.search(rf"<!-- {self.name}:[^\n]*-->\n(.*?)<!-- /{self.name} -->", page, re.DOTALL)
        assert found, f"{self.page.name} has no block for the {self.name}"
        return found


def fellows() -> str:
    """What is read of a family besides its own syntax."""
    rows = [
        f"| `{family}` | {', '.join(f'`{one}`' for one in RELATED_FORMATS.get(family, ()))} "
        f"| {'yes' if family in MAYBE_UNMARKED else ''} |"
        for family in sorted({*RELATED_FORMATS, *MAYBE_UNMARKED})
    ]
    head = ("| a model of | also in the syntax of | calls that nothing marks |", "| --- | --- | --- |")
    return "\n".join((*head, *rows))


TABLES = (
    Table("formats", DOCS / "compatibility.md", formats),
    Table("frameworks", DOCS / "compatibility.md", frameworks),
    Table("clients", DOCS / "compatibility.md", clients),
    Table("fellows", DOCS / "reference" / "models.md", fellows),
)

if __name__ == "__main__":
    for one in TABLES:
        one.write()
