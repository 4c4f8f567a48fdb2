"""`callboard audit`: prints which user ran which tool with which arguments, who approved it, and when."""

import argparse
import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime

from callboard._logging import set_up_logging
from callboard.settings import load_settings
from callboard.storage import AuditFilter, Store
from callboard.text import write_json_line


def run(options: argparse.Namespace) -> int:
    """Print the selected entries as JSON Lines, oldest first. Return 1 if the audit is off."""
    set_up_logging("warning")
    wanted = AuditFilter(
        kind=options.kind,
        user_id=options.user,
        agent_id=options.agent,
        chat_id=options.chat,
        run_id=options.run,
        tool_name=options.tool,
        since=options.since,
        until=options.until,
    )
    settings = load_settings()
    asyncio.run(_print(wanted, settings.resolved_database_url))
    if settings.audit:
        return 0
    print(
        "callboard: the audit is off, so calls are not recorded: set CALLBOARD_AUDIT=true and restart the server. "
        "Only entries from a time when it was on are printed.",
        file=sys.stderr,
    )
    return 1


async def _print(wanted: AuditFilter, database_url: str) -> None:
    store = await Store.open(database_url)
    try:
        async for entries in store.audit().read(wanted):
            for entry in entries:
                at = datetime.fromtimestamp(entry.at or 0, UTC).isoformat(timespec="milliseconds")
                sys.stdout.write(write_json_line({**asdict(entry), "at": at}))
    finally:
        await store.close()
