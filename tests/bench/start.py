"""How long the commands take to start: an import, `--help`, `doctor`, and a server until it listens."""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table
from tests.processes import COMMAND, address, environment

TOOLS = 200
"""The tools of a large team."""
REPETITIONS = {FULL: 5, SMOKE: 1}
IMPORT = "from callboard import Agent, Callboard"

_HEAD = "from callboard import Agent, Skill, ToolContext, register, tool\n"
_TOOL = '''
@tool
async def tool_{number}(context: ToolContext, city: str, days: int = 3, units: list[str] | None = None) -> str:
    """Looks number {number} up.

    Args:
        city: Where.
        days: How many days.
        units: In which units.
    """
    return city
'''


@dataclass(frozen=True, slots=True)
class Start:
    """One thing that is started again and again; `max_seconds` holds on an idle machine."""

    run: Callable[[], None]
    max_seconds: float
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Run it once."""
        processor = _children_seconds()
        started = time.perf_counter()
        self.run()
        self.seconds.append(time.perf_counter() - started)
        self.processor_seconds.append(_children_seconds() - processor)


async def measure(folder: Path, size: Size) -> list[Target]:
    """Prints the table; the target is the median."""
    agents = folder / "agents.py"
    tools = "".join(_TOOL.format(number=number) for number in range(TOOLS))
    names = ", ".join(f"tool_{number}" for number in range(TOOLS))
    skill = f'register(Agent("large", skills=[Skill("all", "All of them.", tools=[{names}])]))\n'
    agents.write_text(f"{_HEAD}{tools}\n{skill}")
    clean = environment(folder)
    starts = {
        IMPORT: Start(partial(_run, [sys.executable, "-c", IMPORT], clean), 0.6),
        "callboard --help": Start(partial(_run, [*COMMAND, "--help"], clean), 0.5),
        "callboard doctor": Start(partial(_run, [*COMMAND, "doctor"], clean), 4),
        "callboard serve": Start(partial(_serve, clean), 1.5),
        f"callboard serve, {TOOLS} tools": Start(partial(_serve, environment(folder, AGENTS=str(agents))), 2),
    }
    if size is SMOKE:
        starts = {name: starts[name] for name in ("callboard --help", "callboard serve")}
    # In turn, so that what else the machine does falls on all alike.
    for _ in range(REPETITIONS[size]):
        for start in starts.values():
            start.measure()
    rows = [
        (
            name,
            *(milliseconds(pick(start.seconds)) for pick in (statistics.median, min, max)),
            milliseconds(statistics.median(start.processor_seconds)),
            milliseconds(start.max_seconds),
        )
        for name, start in starts.items()
    ]
    print_table(
        "From the start of the process until it ends, a server's until it listens",
        ("command", "median ms", "fastest", "slowest", "processor ms", "at most"),
        rows,
    )
    return [Target(name, statistics.median(start.seconds), start.max_seconds, "s") for name, start in starts.items()]


def _run(command: list[str], variables: Mapping[str, str]) -> None:
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)


def _serve(variables: Mapping[str, str]) -> None:
    process = subprocess.Popen([*COMMAND, "serve"], env=variables, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address(process.stderr)
    finally:
        process.kill()
        process.communicate()


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
