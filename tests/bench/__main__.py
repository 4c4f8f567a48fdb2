"""Runs the benchmarks, prints their tables, and exits with 1 if a target is missed."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from callboard._logging import set_up_logging
from tests.bench.agentos import measure_agentos
from tests.bench.browsing import measure_browsing
from tests.bench.crowd import measure_crowd
from tests.bench.finishing import measure_finishing
from tests.bench.handing import measure_handing
from tests.bench.hostility import measure_hostility
from tests.bench.memory import measure_memory
from tests.bench.observing import measure_observing
from tests.bench.parsing import measure_parsing
from tests.bench.replaying import measure_replay
from tests.bench.report import Target
from tests.bench.scaling import measure_scaling
from tests.bench.serving_events import measure_events
from tests.bench.sharing import measure_calls, measure_listeners, measure_servers
from tests.bench.size import FULL, SMOKE, Size
from tests.bench.starting import measure_starting
from tests.bench.streaming import measure_streaming
from tests.bench.writing import measure_writing
from tests.needs import NEEDS, OF_BENCHMARKS, describe

Measure = Callable[[Path, Size], Awaitable[list[Target]]]

BENCHMARKS: dict[str, Sequence[Measure]] = {
    "stream": (measure_handing, measure_events, measure_streaming),
    "history": (measure_replay, measure_writing),
    "scale": (measure_scaling, measure_servers, measure_listeners, measure_calls),
    "finish": (measure_finishing,),
    "parsing": (measure_parsing,),
    "hostility": (measure_hostility,),
    "memory": (measure_memory,),
    "observe": (measure_observing,),
    "start": (measure_starting,),
    "frameworks": (measure_agentos,),
    "browser": (measure_browsing, measure_crowd),
}


async def run(names: Sequence[str], size: Size) -> list[Target]:
    """The targets of these benchmarks, with what was measured; each measurement has a folder of its own."""
    targets = []
    for name in names:
        for measure in BENCHMARKS[name]:
            with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
                targets += await measure(Path(folder), size)
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=list(BENCHMARKS), help="only this one")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="only show that they run: the smallest sizes, no downloads, nothing is judged",
    )
    arguments = parser.parse_args()
    names = [arguments.benchmark] if arguments.benchmark else list(BENCHMARKS)
    missing = {need for name in names for need in OF_BENCHMARKS[name] if not NEEDS[need].is_met(may_download=True)}
    if missing:
        parser.error("\n  ".join(["these are missing:", *describe(missing)]))
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
