"""`callboard doctor`: checks everything that a server needs, and prints a line for each finding.

A line has a mark, a subject, the finding, and advice after an arrow. The mark ✓ means correct, ✗ means broken, and –
means not set up, or a note. Checks are functions that yield lines. They run one after another, because the same machine
may have to load the model. A check that fails does not stop the others.
"""

import argparse
import asyncio
import io
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from callboard._cli.doctor import access, data, models, reach
from callboard._cli.doctor.open_webui import check_open_webui
from callboard._cli.doctor.settings import Check, Context, read_settings
from callboard._logging import set_up_logging
from callboard.agents import load_all_agents
from callboard.errors import CallboardError
from callboard.models import LOCAL_ENDPOINTS, LocalEndpoint
from callboard.redaction import Redaction

CHECKS: Mapping[str, Check] = {
    "data folder": data.check_folder,
    "database": data.check_database,
    "SQLite": data.check_sqlite,
    "Redis": data.check_redis,
    "keys": access.check_keys,
    "users": access.check_users,
    "model": models.check_model,
    "agents": reach.check_agents,
    "MCP servers": reach.check_mcp,
    "port": reach.check_port,
    "Open WebUI": check_open_webui,
}
"""The checks. The key is the subject of the line that is printed if the check itself fails."""


def run(
    options: argparse.Namespace,
    endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS,
    checks: Mapping[str, Check] = CHECKS,
) -> int:
    """Run every check and print its lines. Return 1 if something is broken."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Some terminals cannot print a check mark.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Log messages below this level would repeat the printed lines.
    set_up_logging("error")
    settings, variables, secrets, lines = read_settings()
    webui = (options.password, options.api_key, *map(variables.get, ("OPEN_WEBUI_PASSWORD", "OPEN_WEBUI_API_KEY")))
    redact = Redaction((*secrets, *filter(None, webui)))
    marks: set[str] = set()

    def show(line: str) -> None:
        # Error messages of other programs may contain control characters, which would change the terminal.
        print("".join(char if char.isprintable() else " " for char in redact(line)), flush=True)
        marks.add(line[0])

    for line in lines:
        show(line)
    # Outside of the event loop, because agent files may call `asyncio.run`.
    loaded = load_all_agents(settings, variables)
    context = Context(settings, variables, loaded, options, endpoints)
    for subject, check in checks.items():
        asyncio.run(_run_check(subject, check(context), show))
    return int("✗" in marks)


async def _run_check(subject: str, check: AsyncIterator[str], show: Callable[[str], None]) -> None:
    """Show the lines of a check. If an error ends the check, the last line describes the error."""
    try:
        async for line in check:
            show(line)
    except CallboardError as error:
        # These messages say what to do.
        show(f"✗ {subject}: {error}")
    except TimeoutError:
        advice = "check that it runs at the address in the settings, or set a longer --timeout"
        show(f"✗ {subject}: it did not answer in time → {advice}")
    # A defect in one check must not hide the lines of the other checks.
    except Exception as error:  # noqa: BLE001 - checks call other programs and libraries, which may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        # The message is left out because it may contain a secret.
        failure = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        show(f"✗ {subject}: the check itself failed: {failure} → report this")
