"""`scripts/faults N`: a campaign on each engine, and what came of it. Ends with 1 where a promise was not kept."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import run_campaign
from tests.faults.engines import ENGINES
from tests.needs import OF_ENGINES, require


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("faults", type=int, nargs="?", default=60, help="how many, shared out among the engines")
    parser.add_argument("--engine", action="append", choices=[*ENGINES], help="on this one alone; may be given again")
    parser.add_argument("--only", action="append", default=[], help="faults of this kind alone; may be given again")
    parser.add_argument("--seed", type=int, help="the one that a campaign printed, to have its faults again")
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs, kept afterwards")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    engines = options.engine or [*ENGINES]
    require(parser, {need for engine in engines for need in OF_ENGINES[engine]})
    is_well = True
    for engine in engines:
        folder = options.logs / engine if options.logs else Path(tempfile.mkdtemp(prefix=f"callboard-faults-{engine}-"))
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{engine}: seed {seed}, logs in {folder}", flush=True)
        report = asyncio.run(run_campaign(engine, options.faults // len(engines), seed, folder, options.only))
        print(report, flush=True)
        is_well = is_well and not report.problems
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
