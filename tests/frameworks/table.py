"""Generates the table of deviations from the built-in loop for the docs: `python -m tests.frameworks.table`."""

from tests.frameworks.columns import FRAMEWORKS, Column
from tests.frameworks.scenarios import SCENARIOS


def table() -> str:
    """A Markdown table with a row for each scenario, a column for each framework, and a note for each deviation."""
    notes: list[str] = []
    lines = [
        "| " + " | ".join(["scenario", *(framework.name for framework in FRAMEWORKS)]) + " |",
        "| --- |" + " :-: |" * len(FRAMEWORKS),
    ]
    for scenario in SCENARIOS:
        cells = [_cell(framework, scenario.name, notes) for framework in FRAMEWORKS]
        lines.append("| " + " | ".join([scenario.name, *cells]) + " |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))])


def _cell(framework: Column, scenario: str, notes: list[str]) -> str:
    deviation = framework.deviations.get(scenario)
    if deviation is None:
        return "✓"
    note = f"{framework.name}: {deviation.reason}."
    if note not in notes:
        notes.append(note)
    return f"({notes.index(note) + 1})"


if __name__ == "__main__":
    print(table())
