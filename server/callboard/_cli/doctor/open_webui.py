"""Check of the pipe in an Open WebUI: its version, its valves, and whether it reaches this server."""

import re
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from callboard._cli.doctor.settings import Context
from callboard._cli.install_pipe import load_install_pipe
from callboard._named_keys import KeysFile
from callboard._settings import Settings, is_loopback
from callboard._version import __version__
from callboard.errors import CallboardError, SettingsError


async def check_open_webui(context: Context) -> AsyncIterator[str]:
    """Ask Open WebUI's API for the installed pipe, its valves and the models that it lists."""
    if not context.options.open_webui:
        yield "– Open WebUI: not looked at → name its address with --open-webui URL"
        return
    install_pipe = load_install_pipe()
    try:
        # No other check runs by now, so these calls may block the event loop.
        for line in _examine(context, install_pipe):
            yield line
    except install_pipe.InstallFailed as error:
        raise CallboardError(str(error)) from error


def _examine(context: Context, install_pipe: Any) -> Iterator[str]:
    options = context.options
    webui = install_pipe.OpenWebUI(options.open_webui, options.timeout)
    yield f"✓ Open WebUI: version {webui.version()} answers at {webui.url}"
    webui.sign_in(install_pipe.sign_in_options(Namespace(**vars(options), environment=context.variables)))
    update = f"callboard install-pipe --url {webui.url}"
    path = f"/api/v1/functions/id/{options.id}"
    # Open WebUI answers 401 for a function that does not exist.
    status, function = webui.call("GET", path)
    if status != 200 or not isinstance(function, dict):
        yield f"✗ pipe: there is no pipe with the id {options.id!r} → {update}"
        return
    yield _compare_version(str(function.get("content")), update)
    valves = webui.ask("GET", f"{path}/valves", doing="read the pipe's valves")
    valves = valves if isinstance(valves, dict) else {}
    yield _check_url(str(valves.get("CALLBOARD_URL") or ""), context.settings)
    yield _check_key(str(valves.get("CALLBOARD_API_KEY") or ""), context.settings)
    if not function.get("is_active"):
        yield f"✗ pipe: it is turned off there → turn it on under Functions, or {update}"
        return
    models: Mapping[str, str] = install_pipe.list_models(webui, options.id)
    problem = install_pipe.Installed("", False, models).problem
    listed = {model.partition(".")[2] for model in models}
    if problem is not None:
        # The pipe lists its problem in the place of agents.
        yield (
            f"✗ Open WebUI: it does not reach this server; its pipe says: {problem} → start the server, or set the "
            "valves to the address and the key with which Open WebUI reaches it"
        )
    elif others := sorted(listed - {agent.agent_id for agent in context.loaded.registry}):
        yield (
            f"✗ Open WebUI: it reaches a server whose agents are not all of this one: {', '.join(others)} "
            "→ restart this server, or set the valve CALLBOARD_URL to it"
        )
    else:
        yield f"✓ Open WebUI: it reaches the server, and lists {', '.join(sorted(listed))}"


def _compare_version(source: str, update: str) -> str:
    found = re.search(r"^version: *(\S+)", source, re.MULTILINE)
    if found is None:
        return "✗ pipe: the function of that id is not Callboard's pipe → name the pipe's with --id"
    if found[1] == __version__:
        return f"✓ pipe: version {found[1]}, as this server"
    there, here = ([int(number) for number in re.findall(r"\d+", version)] for version in (found[1], __version__))
    if there > here:
        return f"✗ pipe: version {found[1]} is newer than this server, {__version__} → update the server"
    return f"✗ pipe: version {found[1]} is older than this server, {__version__} → {update}"


def _check_url(address: str, settings: Settings) -> str:
    subject = "valve CALLBOARD_URL"
    if not address:
        return f"– {subject}: not set, so the pipe takes its default"
    own = settings.own_url
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        return f"✗ {subject}: it is not an address → set it to {own}"
    # The address may have a password.
    shown = f"{parts.scheme}://{parts.hostname}:{port}"
    # Another host may be right: Open WebUI may run in a container, or behind a proxy.
    if own and is_loopback(str(parts.hostname)) and port != settings.port:
        return f"✗ {subject}: it is {shown}, and this server listens on {settings.port} → set it to {own}"
    return f"✓ {subject}: {shown}"


def _check_key(key: str, settings: Settings) -> str:
    subject = "valve CALLBOARD_API_KEY"
    if not settings.has_key:
        return f"✓ {subject}: {'set; this server asks for none' if key else 'not set, and this server asks for none'}"
    if not key:
        return f"✗ {subject}: not set, and this server asks for a key → callboard install-pipe sets it"
    if settings.api_key and key == settings.api_key.get_secret_value():
        return f"✓ {subject}: set, to this server's key"
    try:
        name = KeysFile(settings.api_keys_file).find_name(key) if settings.api_keys_file else None
    except SettingsError:
        # The check of the keys reports this.
        name = None
    if name:
        return f"✓ {subject}: set, to the key {name!r}"
    return f"✗ {subject}: set, and not to a key of this server → callboard install-pipe sets it"
