"""How long the server takes from its start until it listens, with as many tools as a large team has, and an import."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.report import Target, milliseconds, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.processes import COMMAND, address, environment

TOOLS = 200
REPETITIONS = {FULL: 5, SMOKE: 1}
MAX_SECONDS = 2.0
MAX_IMPORT_SECONDS = 0.6
IMPORT = "from callboard import Agent, Skill, ToolContext, register, tool"

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


async def measure_starting(folder: Path, size: Size) -> list[Target]:
    """Prints the table; the target is the median."""
    agents = folder / "agents.py"
    tools = "".join(_TOOL.format(number=number) for number in range(TOOLS))
    names = ", ".join(f"tool_{number}" for number in range(TOOLS))
    skill = f'register(Agent("large", skills=[Skill("all", "All of them.", tools=[{names}])]))\n'
    agents.write_text(f"{_HEAD}{tools}\n{skill}")
    with_tools = [_seconds(folder, AGENTS=str(agents)) for _ in range(REPETITIONS[size])]
    without = [_seconds(folder) for _ in range(REPETITIONS[size])]
    rows = [
        (what, milliseconds(statistics.median(seconds)), milliseconds(min(seconds)), milliseconds(max(seconds)))
        for what, seconds in ((f"with {TOOLS} tools", with_tools), ("with the built-in agents alone", without))
    ]
    print_table("From the start of the process until it listens", ("server", "median ms", "fastest", "slowest"), rows)
    imported = statistics.median(_import_seconds() for _ in range(REPETITIONS[size]))
    return [
        Target(f"start with {TOOLS} tools", statistics.median(with_tools), MAX_SECONDS, "s"),
        Target("import of what an agent's file needs", imported, MAX_IMPORT_SECONDS, "s"),
    ]


def _seconds(folder: Path, **settings: str) -> float:
    started = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, "serve"], env=environment(folder, **settings), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    address(process.stderr)
    seconds = time.perf_counter() - started
    process.kill()
    process.communicate()
    return seconds


def _import_seconds() -> float:
    code = f"import time; began = time.perf_counter(); {IMPORT}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
