"""`callboard doctor`: checks everything that a server needs, and prints a line for each finding.

A line has a mark (✓ as it should be, ✗ broken, – not set up, or no fault), its subject, the finding, and after an arrow
the advice. Checks are functions that yield lines. They run at the same time; their lines are printed in the order of
`CHECKS`. A check that fails does not stop the others.
"""

import argparse
import asyncio
import io
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from callboard._agents import load_all_agents
from callboard._cli.doctor import access, data, models, reach
from callboard._cli.doctor.open_webui import check_open_webui
from callboard._cli.doctor.settings import Check, Context, Read, read_settings
from callboard._logging import set_up_logging
from callboard._redaction import Redaction
from callboard.errors import CallboardError
from callboard.models import LOCAL_ENDPOINTS, LocalEndpoint

MAX_CHARS = 400
"""Length of a finding, and of an advice: the errors of other programs may be long."""

CHECKS: Mapping[str, Check] = {
    "data folder": data.check_folder,
    "database": data.check_database,
    "SQLite": data.check_sqlite,
    "Redis": data.check_redis,
    "keys": access.check_keys,
    "users": access.check_users,
    "model": models.check_model,
    "embeddings": models.check_embeddings,
    "agents": reach.check_agents,
    "MCP servers": reach.check_mcp,
    "port": reach.check_port,
    "Open WebUI": check_open_webui,
}
"""The checks by the subject under which their own failure is printed."""

IN_TURN = frozenset({"embeddings", "Open WebUI"})
"""Checks that begin when all before them have ended.

One machine may have to load both models, and the check of Open WebUI may ask for a password.
"""


def run(
    options: argparse.Namespace,
    endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS,
    checks: Mapping[str, Check] = CHECKS,
) -> int:
    """Run every check and print its lines; returns 1 if something is broken."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Some terminals have no check mark.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Messages below this level would repeat the lines.
    set_up_logging("error")
    return asyncio.run(_examine(options, endpoints, checks))


async def _examine(options: argparse.Namespace, endpoints: Sequence[LocalEndpoint], checks: Mapping[str, Check]) -> int:
    read = read_settings()
    webui = map(read.variables.get, ("OPEN_WEBUI_PASSWORD", "OPEN_WEBUI_API_KEY"))
    hide = Redaction((*read.secrets, *filter(None, (options.password, options.api_key, *webui))))
    is_broken = False
    async for line in _guard("doctor", _run_checks(read, options, endpoints, checks)):
        print(_format(line, hide), flush=True)
        is_broken = is_broken or line.startswith("✗")
    return 1 if is_broken else 0


async def _run_checks(
    read: Read, options: argparse.Namespace, endpoints: Sequence[LocalEndpoint], checks: Mapping[str, Check]
) -> AsyncIterator[str]:
    for line in read.lines:
        yield line
    if read.settings is None:
        return
    loaded = load_all_agents(read.settings, read.variables)
    context = Context(read.settings, read.variables, loaded, options, endpoints)
    begun = {
        subject: asyncio.create_task(_collect(subject, check(context)))
        for subject, check in checks.items()
        if subject not in IN_TURN
    }
    for subject, check in checks.items():
        for line in await (begun.get(subject) or _collect(subject, check(context))):
            yield line


async def _collect(subject: str, lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in _guard(subject, lines)]


async def _guard(subject: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield the lines of a check, and an error that ends it as its last line."""
    try:
        async for line in lines:
            yield line
    except CallboardError as error:
        # Such messages say what to do.
        yield f"✗ {subject}: {error}"
    except TimeoutError:
        yield f"✗ {subject}: it does not answer in time → see that it runs at the address in the settings"
    # A boundary: a defect in one check must not hide the lines of the others.
    except Exception as error:  # noqa: BLE001 - checks call other programs and libraries, which may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        # The message is left out because it may contain a secret.
        failure = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        yield f"✗ {subject}: the check itself failed: {failure} → report this"


def _format(line: str, hide: Callable[[str], str]) -> str:
    """Return the line within `MAX_CHARS`, without secrets and without control characters, which act on a terminal."""
    finding, arrow, advice = line.partition(" → ")
    if len(finding) > MAX_CHARS:
        finding = f"{finding[:MAX_CHARS]}…"
    shown = hide(f"{finding}{arrow}{advice[:MAX_CHARS]}")
    return "".join(char if char.isprintable() else " " for char in shown)
