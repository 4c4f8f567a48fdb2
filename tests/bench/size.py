"""How much the benchmarks do; each has its numbers for both sizes at its top."""

from enum import Enum


class Size(Enum):
    """`FULL` measures and is judged. `SMOKE` only shows that the benchmarks run, and downloads nothing."""

    FULL = "full"
    SMOKE = "smoke"


FULL = Size.FULL
SMOKE = Size.SMOKE
