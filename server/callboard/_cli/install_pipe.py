"""`callboard install-pipe`: runs `scripts/install_pipe.py`, and sets the valves to this server's address and key."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from callboard._bundled_files import load_bundled_module
from callboard._keys import make_api_key
from callboard.settings import Settings, load_settings, read_environment


def run(command: argparse.Namespace) -> int:
    """Install the pipe. Return 0 only if it is installed and reaches its server."""
    install_pipe = load_install_pipe()
    variables = read_environment()
    options = install_pipe.parse(command.rest, prog="callboard install-pipe", environment=variables)
    settings = load_settings(variables)

    def make_valves(stored: Mapping[str, Any]) -> dict[str, str]:
        valves = {}
        # An address that is set is kept: if Open WebUI runs on another machine, this server's own URL would be wrong.
        if (url := settings.own_url) and not stored.get("CALLBOARD_URL"):
            valves["CALLBOARD_URL"] = url
        if options.callboard_api_key is None:
            valves["CALLBOARD_API_KEY"] = _get_or_make_key(settings)
        return valves

    exit_code: int = install_pipe.run(options, make_valves)
    return exit_code


def load_install_pipe() -> Any:
    """Return the module `scripts/install_pipe.py`, which also runs as a script without this package."""
    return load_bundled_module("scripts/install_pipe.py")


def _get_or_make_key(settings: Settings) -> str:
    """Return the key of this server. If there is none, make it first."""
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    made = make_api_key(settings.data_dir)
    print(
        f"Made a key for the server, in {settings.data_dir / 'api_key'}: restart a server that is running, "
        "so that it requires the key.",
        file=sys.stderr,
    )
    return made
