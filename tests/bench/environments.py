"""Environments of the servers that stand beside Callboard: each needs much more than the tests do."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions, version
from pathlib import Path

from tests.bench.report import leave_out, say
from tests.bench.size import FULL, Size

HAYHOOKS = "2.1.0"


def agentos_python(size: Size) -> Path | None:
    """The Python of an environment with AgentOS; all that it shares with Callboard's is of the same releases."""
    pins = [f"{one.name}=={one.version}" for one in distributions() if one.name != "callboard"]
    return _python(f"agentos-{version('agno')}", ["agno[os]", "openai", "psycopg[binary]", "redis"], pins, size)


def hayhooks_python(size: Size) -> Path | None:
    """The Python of an environment with hayhooks and its durable engine."""
    return _python(f"hayhooks-{HAYHOOKS}", [f"hayhooks[durable]=={HAYHOOKS}"], [], size)


def _python(name: str, wanted: Sequence[str], pins: Sequence[str], size: Size) -> Path | None:
    """The Python of an environment with what is wanted, installed now if it is missing; at the smallest size None."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callboard"
    home = cache / name
    python = home / "bin" / "python"
    done = home / "installed"
    # What was wanted of it then: an older one may have less.
    if done.exists() and done.read_text() == "\n".join(wanted):
        return python
    if size is not FULL:
        leave_out(name, "it is not installed; `scripts/bench` without `--smoke` installs it")
        return None
    say(f"Installing {name} into {home}. This happens once.")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    constraint = home / "pins.txt"
    constraint.write_text("\n".join(pins))
    for packages in (["--upgrade", "pip"], [*wanted, "--constraint", str(constraint)]):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    done.write_text("\n".join(wanted))
    return python
