"""Check of the port: free, or used by a server of ours."""

import errno
from collections.abc import AsyncIterator

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._cli.health import ask_health
from callboard._cli.serve import bind
from callboard._version import __version__
from callboard.errors import SettingsError

SUBJECT = "port"


async def check_port(context: Context) -> AsyncIterator[Finding]:
    """Try to listen where the server would; ask who does, where that is taken."""
    settings = context.settings
    try:
        bind(settings).close()
    except SettingsError as error:
        url = settings.own_url
        taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        yield await _find_listener(url, error, context.timeout_seconds) if taken and url else broken(SUBJECT, error)
        return
    yield well(SUBJECT, f"{settings.port} is free" if settings.port else "any that is free")


async def _find_listener(url: str, taken: SettingsError, timeout_seconds: float) -> Finding:
    health = await ask_health(url, timeout_seconds)
    if health is None:
        return broken(SUBJECT, taken)
    running = f"a server of ours runs at {url}, version {health.version}"
    if health.status != "ok":
        return broken(SUBJECT, f"{running}, and it is not well: {health.reason}")
    if health.version != __version__:
        return unset(SUBJECT, running, f"restart it to have {__version__}")
    return well(SUBJECT, running)
