"""The two sizes of the benchmarks, and their output: tables, and targets that were met or missed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Size(Enum):
    """`FULL` measures and is judged. `SMOKE` only shows that a benchmark runs, and downloads nothing."""

    FULL = "full"
    SMOKE = "smoke"


FULL = Size.FULL
SMOKE = Size.SMOKE


@dataclass(frozen=True, slots=True)
class Target:
    """A measured value and its upper bound; with `at_least` a lower bound.

    A missed `aim` is reported, but does not fail.
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
    """Print a table: the first column is aligned left, the others right."""
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
    """Print the progress, apart from the tables."""
    print(line, file=sys.stderr, flush=True)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"
