"""What a benchmark says: tables, and targets that were met or missed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A measured value and its bound, which it may not go beyond; `at_least` turns it into a lower bound.

    An `aim` that is missed is told and fails nothing.
    """

    what: str
    measured: float
    bound: float
    unit: str
    at_least: bool = False
    aim: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self) -> str:
        relation = "at least" if self.at_least else "at most"
        verdict = "met   " if self.met else "missed" if self.aim else "MISSED"
        return f"{verdict}  {self.what}: {self.measured:.2f} {self.unit} ({relation} {self.bound:g} {self.unit})"


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people: the first column to the left, numbers to the right."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}\n")
    for index, (first, *others) in enumerate(cells):
        right = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        print(f"  {first:<{widths[0]}}{right}")
        if index == 0:
            print("  " + "-" * (sum(widths) + 2 * len(others)), flush=True)


def leave_out(what: str, why: str) -> None:
    """Print which part of a benchmark does not run."""
    print(f"\nLeft out: {what}: {why}", flush=True)


def say(line: str) -> None:
    """What is being done, beside the tables."""
    print(line, file=sys.stderr, flush=True)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"
