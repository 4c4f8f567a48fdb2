"""`callboard doctor`: a look at everything that a server needs, with a line for each that says what to do.

Every check is a function that yields findings; a check that fails does not keep the others from being made. Checks run
side by side, so that the doctor takes as long as the slowest, and their findings are printed in the order of `CHECKS`.
"""

import argparse
import asyncio
import io
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from callboard._agents import load_all_agents
from callboard._cli.doctor import agents, database, embeddings, keys, model, open_webui, port, redis, settings
from callboard._cli.doctor.findings import Check, Context, Finding, broken
from callboard._logging import set_up_logging
from callboard._redaction import Redaction
from callboard.errors import SettingsError
from callboard.models import LOCAL_ENDPOINTS, LocalEndpoint

CHECKS: Mapping[str, Check] = {
    database.FOLDER: database.check_data_dir,
    database.DATABASE: database.check_database,
    database.SQLITE: database.check_sqlite,
    redis.SUBJECT: redis.check_redis,
    keys.KEYS: keys.check_keys,
    keys.USERS: keys.check_users,
    model.SUBJECT: model.check_model,
    embeddings.SUBJECT: embeddings.check_embeddings,
    agents.AGENTS: agents.check_agents,
    agents.MCP: agents.check_mcp,
    port.SUBJECT: port.check_port,
    open_webui.SUBJECT: open_webui.check_open_webui,
}
"""The checks after that of the settings, by what each is about."""

IN_TURN = frozenset({embeddings.SUBJECT, open_webui.SUBJECT})
"""The checks that begin when all before them have ended; the others run side by side.

One machine may have to load both models, and the check of Open WebUI may ask for a password.
"""


def run(
    options: argparse.Namespace,
    endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS,
    checks: Mapping[str, Check] = CHECKS,
) -> int:
    """Make every check and print what each found; returns 1 where something is broken."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every terminal has a check mark.
        sys.stdout.reconfigure(errors="backslashreplace")
    # What the parts would log, the findings say.
    set_up_logging("error")
    return asyncio.run(_examine(options, endpoints, checks))


async def _examine(options: argparse.Namespace, endpoints: Sequence[LocalEndpoint], checks: Mapping[str, Check]) -> int:
    read = settings.read_settings()
    given = (options.password, options.api_key, *map(read.variables.get, ("OPEN_WEBUI_PASSWORD", "OPEN_WEBUI_API_KEY")))
    hide = Redaction((*read.secrets, *filter(None, given)))
    is_broken = False
    # Guarded as a whole too: what is between the checks loads files of the user's.
    async with aclosing(_guarded("doctor", _findings(options, read, endpoints, checks))) as findings:
        async for finding in findings:
            print(finding.line(hide), flush=True)
            is_broken = is_broken or finding.is_broken
    return 1 if is_broken else 0


async def _findings(
    options: argparse.Namespace, read: settings.Read, endpoints: Sequence[LocalEndpoint], checks: Mapping[str, Check]
) -> AsyncIterator[Finding]:
    for finding in read.findings:
        yield finding
    if read.settings is None:
        return
    loaded = load_all_agents(read.settings, read.variables)
    context = Context(read.settings, read.variables, loaded, options, endpoints)
    begun = {
        subject: asyncio.create_task(_collect(subject, check(context)))
        for subject, check in checks.items()
        if subject not in IN_TURN
    }
    try:
        for subject, check in checks.items():
            for finding in await (begun.get(subject) or _collect(subject, check(context))):
                yield finding
    finally:
        for task in begun.values():
            task.cancel()
        await asyncio.gather(*begun.values(), return_exceptions=True)


async def _collect(subject: str, findings: AsyncIterator[Finding]) -> list[Finding]:
    async with aclosing(_guarded(subject, findings)) as guarded:
        return [finding async for finding in guarded]


async def _guarded(subject: str, findings: AsyncIterator[Finding]) -> AsyncGenerator[Finding, None]:
    try:
        async for finding in findings:
            yield finding
    except SettingsError as error:
        yield broken(settings.SUBJECT, error)
    # A boundary: a check asks strangers, and a defect of one must not hide what the others find.
    except Exception as error:  # noqa: BLE001 - foreign code: what is asked may raise anything
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f" in {Path(place.tb_frame.f_code.co_filename).name}, line {place.tb_lineno}" if place else ""
        # Its words may hold anything, a secret too.
        yield broken(subject, f"the check itself failed: {type(error).__name__}{where}", "report this")
