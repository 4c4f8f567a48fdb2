"""Checks the pipe in an Open WebUI: its version, and whether it reaches this server."""

import re
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from callboard._cli.doctor.settings import Context
from callboard._cli.install_pipe import load_install_pipe
from callboard._version import __version__


async def check_open_webui(context: Context) -> AsyncIterator[str]:
    """Ask Open WebUI's API for the installed pipe and the models that it lists."""
    if not context.options.open_webui:
        yield "– Open WebUI: not checked → give its address with --open-webui URL"
        return
    install_pipe = load_install_pipe()
    try:
        # No other check runs now, so these calls may block the event loop.
        for line in _examine(context, install_pipe):
            yield line
    except install_pipe.InstallFailed as error:
        yield f"✗ Open WebUI: {error}"


def _examine(context: Context, install_pipe: Any) -> Iterator[str]:
    options = context.options
    webui = install_pipe.OpenWebUI(options.open_webui, options.timeout)
    version = webui.version()
    yield f"✓ Open WebUI: version {version} answers at {webui.url}"
    webui.sign_in(install_pipe.sign_in_options(Namespace(**vars(options), environment=context.variables)))
    update = f"callboard install-pipe --url {webui.url}"
    pipe = _read_function(webui, options.id)
    if pipe is None:
        yield f"✗ pipe: there is no pipe with the id {options.id!r} → {update}"
        return
    yield _compare_version("pipe", pipe, update)
    if install_pipe.has_waiting_cards(version):
        yield _check_filter(webui, f"{options.id}{install_pipe.FILTER_ENDING}", update)
    if not pipe.get("is_active"):
        yield f"✗ pipe: it is turned off there → turn it on under Functions, or {update}"
        return
    models = install_pipe.list_models(webui, options.id)
    listed = {model.partition(".")[2] for model in models}
    own = context.settings.own_url or "URL"
    reset = f"set the pipe's key and the address at which it reaches this server: {update} --callboard-url {own}"
    # If the pipe has a problem, it lists the problem as a model.
    if problem := install_pipe.Installed("", False, models).problem:
        yield f"✗ Open WebUI: it does not reach this server; its pipe reports: {problem} → start the server, or {reset}"
    elif others := sorted(listed - {agent.agent_id for agent in context.loaded.registry}):
        foreign = f"it uses a server whose agents differ from this server's: {', '.join(others)}"
        yield f"✗ Open WebUI: {foreign} → restart this server, or {reset}"
    else:
        yield f"✓ Open WebUI: it reaches the server, and lists {', '.join(sorted(listed))}"


def _read_function(webui: Any, function_id: str) -> Mapping[str, Any] | None:
    # For a function that does not exist, Open WebUI answers 401.
    status, function = webui.call("GET", f"/api/v1/functions/id/{function_id}")
    return function if status == 200 and isinstance(function, dict) else None


def _check_filter(webui: Any, function_id: str, update: str) -> str:
    subject = "function for approvals"
    function = _read_function(webui, function_id)
    if function is None:
        missing = f"there is no function with the id {function_id!r}, so pending cards end with an error"
        return f"✗ {subject}: {missing} → {update}"
    if not (function.get("is_active") and function.get("is_global")):
        return f"✗ {subject}: it is not active for all models → under Functions, turn it on and make it global"
    return _compare_version(subject, function, update)


def _compare_version(subject: str, function: Mapping[str, Any], update: str) -> str:
    found = re.search(r"^version: *(\S+)", str(function.get("content")), re.MULTILINE)
    if found is None:
        return f"✗ {subject}: the function with this id is not Callboard's {subject} → set the pipe's id with --id"
    if found[1] == __version__:
        return f"✓ {subject}: version {found[1]}, the same as this server"
    there, here = ([int(number) for number in re.findall(r"\d+", version)] for version in (found[1], __version__))
    order, advice = ("newer", "update the server") if there > here else ("older", update)
    return f"✗ {subject}: version {found[1]} is {order} than this server, {__version__} → {advice}"
