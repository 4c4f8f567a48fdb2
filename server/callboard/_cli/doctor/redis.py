"""Check of the Redis through which servers notify each other."""

import asyncio
from collections.abc import AsyncIterator

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._extras import how_to_install, is_installed
from callboard.errors import StorageError

SUBJECT = "Redis"


async def check_redis(context: Context) -> AsyncIterator[Finding]:
    """Connect, subscribe and publish; without a setting there is nothing to check."""
    url = context.settings.redis_url
    if url is None:
        return
    if context.settings.resolved_database_url.startswith("sqlite"):
        yield unset(SUBJECT, "it has no effect with SQLite, which is for one server")
        return
    if not is_installed("redis"):
        yield broken(SUBJECT, "its client is not installed", how_to_install("redis"))
        return
    from callboard.storage.redis_bus import RedisBus, read_address

    try:
        async with asyncio.timeout(context.timeout_seconds):
            await RedisBus(url, read_address(url)).check()
    except StorageError as error:
        yield broken(SUBJECT, error, "see that it runs and lets this server in, or unset CALLBOARD_REDIS_URL")
    except TimeoutError:
        yield broken(SUBJECT, "it does not answer in time", "see that it runs, or unset CALLBOARD_REDIS_URL")
    else:
        yield well(SUBJECT, "it answers")
