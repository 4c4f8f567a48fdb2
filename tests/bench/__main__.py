"""Runs the benchmarks, prints their tables, and exits with 1 if a target is missed."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from callboard._logging import set_up_logging
from tests.bench.report import FULL, SMOKE, Size, Target
from tests.needs import OF_BENCHMARKS, require


async def run(names: Sequence[str], size: Size) -> list[Target]:
    """Return the targets of these benchmarks, each of which is measured in a folder of its own.

    A benchmark is the module of this name; only those that run are imported.
    """
    targets: list[Target] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
            targets += await import_module(f"tests.bench.{name}").measure(Path(folder), size)
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=[*OF_BENCHMARKS], help="only this one")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="only show that they run: the smallest sizes, no downloads, nothing is judged",
    )
    arguments = parser.parse_args()
    names = [arguments.benchmark] if arguments.benchmark else [*OF_BENCHMARKS]
    require(parser, {need for name in names for need in OF_BENCHMARKS[name]})
    # The server's line for each run would stand between the tables.
    set_up_logging("warning")
    targets = asyncio.run(run(names, SMOKE if arguments.smoke else FULL))
    if arguments.smoke:
        print(f"\nNo error in {', '.join(names)}, except in parts left out. These figures say nothing about speed.")
        return 0
    print("\nTargets\n")
    for target in targets:
        print(f"  {target}")
    return 0 if all(target.met or target.aim for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
