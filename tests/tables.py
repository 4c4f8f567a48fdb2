"""The tables of docs/compatibility.md that say what was tested, as the tests themselves have them.

`python -m tests.tables` writes them into the page, `tests/test_docs.py` compares. Those that end-to-end tests find are
`tests.e2e.tables`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.clients.table import table as clients
from tests.formats.corpus import table as formats
from tests.frameworks.table import table as frameworks

PAGE = Path(__file__).parent.parent / "docs" / "compatibility.md"

TABLES: Mapping[str, Callable[[], str]] = {"formats": formats, "frameworks": frameworks, "clients": clients}
"""What writes each table, by the name of its block."""


def block(name: str) -> str:
    """The table as it stands in the page."""
    return _found(name, PAGE.read_text("utf-8"))[1].strip()


def write() -> None:
    """Write every table into its block."""
    text = PAGE.read_text("utf-8")
    for name, table in TABLES.items():
        found = _found(name, text)
        text = f"{text[: found.start(1)]}{table().strip()}\n{text[found.end(1) :]}"
    PAGE.write_text(text, "utf-8")


def _found(name: str, text: str) -> re.Match[str]:
    found = re.search(rf"<!-- {name}:[^\n]*-->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found, f"{PAGE.name} has no block for the {name}"
    return found


if __name__ == "__main__":
    write()
