"""Check of the pipe in an Open WebUI: its version, its valves, and whether it reaches this server."""

import asyncio
import re
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from callboard._agents import LoadedAgents
from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._cli.install_pipe import load_install_pipe
from callboard._named_keys import KeysFile
from callboard._settings import Settings, is_loopback
from callboard._version import __version__
from callboard.errors import SettingsError

SUBJECT = "Open WebUI"
PIPE = "pipe"
UPDATE = "callboard install-pipe --url {url}"


async def check_open_webui(context: Context) -> AsyncIterator[Finding]:
    """Ask Open WebUI's own API what is installed there, step by step."""
    options = context.options
    if not options.open_webui:
        yield unset(SUBJECT, "not looked at", "name its address with --open-webui URL")
        return
    install_pipe = load_install_pipe()
    try:
        webui = install_pipe.OpenWebUI(options.open_webui, options.timeout)
        version = await asyncio.to_thread(webui.version)
        yield well(SUBJECT, f"version {version} answers at {webui.url}")
        credentials = install_pipe.sign_in_options(Namespace(**vars(options), environment=context.variables))
        await asyncio.to_thread(webui.sign_in, credentials)
        function = await asyncio.to_thread(_find_function, webui, options.id)
        if function is None:
            yield broken(PIPE, f"there is no pipe with the id {options.id!r}", UPDATE.format(url=webui.url))
            return
        yield _compare_version(function, webui.url)
        stored = await asyncio.to_thread(
            webui.ask, "GET", f"/api/v1/functions/id/{options.id}/valves", doing="read the pipe's valves"
        )
        valves = stored if isinstance(stored, dict) else {}
        yield _check_url_valve(valves, context.settings)
        yield _check_key_valve(valves, context.settings)
        if not function.get("is_active"):
            yield broken(
                PIPE, "it is turned off there", f"turn it on under Functions, or {UPDATE.format(url=webui.url)}"
            )
            return
        models = await asyncio.to_thread(install_pipe.list_models, webui, options.id)
        yield _judge_reach(install_pipe.Installed(version, False, models), context.loaded)
    except install_pipe.InstallFailed as error:
        yield broken(SUBJECT, error)


def _find_function(webui: Any, function_id: str) -> dict[str, Any] | None:
    # A missing function is answered with a 401.
    status, answer = webui.call("GET", f"/api/v1/functions/id/{function_id}")
    return answer if status == 200 and isinstance(answer, dict) else None


def _compare_version(function: Mapping[str, Any], url: str) -> Finding:
    found = re.search(r"^version: *(\S+)", str(function.get("content")), re.MULTILINE)
    if found is None:
        return broken(PIPE, "the function of that id is not Callboard's pipe", "name the pipe's with --id")
    if found[1] == __version__:
        return well(PIPE, f"version {found[1]}, as this server")
    if _read_numbers(found[1]) > _read_numbers(__version__):
        return broken(PIPE, f"version {found[1]} is newer than this server, {__version__}", "update the server")
    return broken(PIPE, f"version {found[1]} is older than this server, {__version__}", UPDATE.format(url=url))


def _read_numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _check_url_valve(valves: Mapping[str, Any], settings: Settings) -> Finding:
    subject = "valve CALLBOARD_URL"
    address = str(valves.get("CALLBOARD_URL") or "")
    if not address:
        return unset(subject, "not set, so the pipe takes its default")
    own = settings.own_url
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return broken(subject, "it is no address", f"set it to {own}")
    shown = f"{parts.scheme}://{parts.hostname}:{port}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return broken(subject, "it is no address", f"set it to {own}")
    # Of another host nothing is known here: Open WebUI may run in a container, or behind a proxy.
    if own and is_loopback(parts.hostname) and port != settings.port:
        return broken(subject, f"it is {shown}, and this server listens on {settings.port}", f"set it to {own}")
    return well(subject, shown)


def _check_key_valve(valves: Mapping[str, Any], settings: Settings) -> Finding:
    subject = "valve CALLBOARD_API_KEY"
    there = str(valves.get("CALLBOARD_API_KEY") or "")
    if not settings.has_key:
        return well(subject, "set; this server asks for none" if there else "not set, and this server asks for none")
    if not there:
        return broken(subject, "not set, and this server asks for a key", "callboard install-pipe sets it")
    if settings.api_key and there == settings.api_key.get_secret_value():
        return well(subject, "set, to this server's key")
    if settings.api_keys_file is not None and (name := _find_name(settings.api_keys_file, there)):
        return well(subject, f"set, to the key {name!r}")
    return broken(subject, "set, and not to a key of this server", "callboard install-pipe sets it")


def _find_name(file: Path, key: str) -> str | None:
    try:
        return KeysFile(file).find_name(key)
    except SettingsError:
        # What is wrong with the file, another check says.
        return None


def _judge_reach(installed: Any, loaded: LoadedAgents) -> Finding:
    """Judge by what Open WebUI lists: the pipe puts its problem in the place of the agents."""
    if installed.problem is not None:
        advice = "start the server, or set the valves to where and how Open WebUI reaches it"
        return broken(SUBJECT, f"it does not reach this server; its pipe says: {installed.problem}", advice)
    listed = {model.partition(".")[2] for model in installed.models}
    strangers = sorted(listed - {agent.agent_id for agent in loaded.registry})
    if strangers:
        text = f"it reaches a server whose agents are not all of this one: {', '.join(strangers)}"
        return broken(SUBJECT, text, "restart this server, or set the valve CALLBOARD_URL to it")
    return well(SUBJECT, f"it reaches the server, and lists {', '.join(sorted(listed))}")
