"""`callboard doctor`: checks the settings, the database, the model and Open WebUI, and prints a line for each finding.

A line has a mark, a subject, the finding, and advice after an arrow. The mark ✓ means correct, ✗ means broken, and –
means not set up, or a note. The checks change nothing, and run one after another.
"""

import argparse
import asyncio
import io
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import callboard.agents.builtin  # noqa: F401 - registers the settings of skills
from callboard._cli.install_pipe import load_install_pipe
from callboard._formats import FormatChoice
from callboard._logging import set_up_logging
from callboard._version import __version__
from callboard.agents import Agent
from callboard.agents.loading import BUILT_IN, load_all_agents
from callboard.errors import CallboardError, ModelError, ModelRefused, SettingsError
from callboard.models import ModelRequest, OpenAICompatible, ToolCallDelta, ToolsRefused
from callboard.models.local_endpoints import LOCAL_ENDPOINTS, LocalEndpoint, find_local_model
from callboard.redaction import Redaction
from callboard.settings import (
    ENV_FILE,
    Settings,
    SkillSettings,
    known_settings,
    load_settings,
    read_environment,
    secrets_in,
    unknown_settings,
    variable_of,
)
from callboard.storage import Store

NAMES_SHOWN = 8

WEATHER = {
    "name": "get_weather",
    "description": "Looks up the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PROBE = ModelRequest(
    messages=[{"role": "user", "content": "Use the tool to look up the weather in Paris."}],
    tools=[{"type": "function", "function": WEATHER}],
)
"""Offers a tool without forcing a call, because the check is whether the model calls the tool by itself."""


def run(options: argparse.Namespace, endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS) -> int:
    """Run the checks and print their lines. Return 1 if something is broken."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Some terminals cannot print a check mark.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Log messages below this level would repeat the printed lines.
    set_up_logging("error")
    variables: Mapping[str, str] = dict(os.environ)
    settings: Settings | None = None
    problems: list[str] = []
    try:
        variables = read_environment()
        settings = load_settings(variables)
    except SettingsError as error:
        problems = str(error).splitlines()
    webui_secrets = (
        options.password,
        options.api_key,
        *map(variables.get, ("OPEN_WEBUI_PASSWORD", "OPEN_WEBUI_API_KEY")),
    )
    redact = Redaction((*secrets_in(variables), *(settings.secrets if settings else ()), *filter(None, webui_secrets)))
    marks: set[str] = set()

    def show(line: str) -> None:
        # Error messages of other programs may contain control characters, which would change the terminal.
        print("".join(char if char.isprintable() else " " for char in redact(line)), flush=True)
        marks.add(line[0])

    for line in _check_settings(settings, variables, problems):
        show(line)
    if settings:
        checks = {
            "database": _check_database(settings, options.timeout),
            "model": _check_model(settings, options.timeout, endpoints, variables),
            "Open WebUI": _check_open_webui(settings, options, variables),
        }
        for subject, check in checks.items():
            asyncio.run(_show_check(subject, check, show))
    else:
        show("– database, model, Open WebUI: not checked → correct the settings first")
    return int("✗" in marks)


async def _show_check(subject: str, check: AsyncIterator[str], show: Callable[[str], None]) -> None:
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


def _check_settings(settings: Settings | None, variables: Mapping[str, str], problems: list[str]) -> Iterator[str]:
    """Name each wrong or misspelt setting, and each source of agents that cannot be loaded."""
    for kind in SkillSettings.__subclasses__():
        try:
            kind.load(variables)
        except SettingsError as error:
            problems += str(error).splitlines()
    if settings and not problems:
        # Before `unknown_settings`, because agent files may declare their own settings.
        problems += map(str, load_all_agents(settings, variables).problems)
    for name in unknown_settings(variables):
        near = get_close_matches(name, map(variable_of, known_settings()), 1)
        problems.append(f"{name} is not a setting → {f'write {near[0]}' if near else 'remove it'}")
    correct = f"✓ settings: read from the environment{' and .env' if ENV_FILE.is_file() else ''}"
    yield from [f"✗ settings: {problem}" for problem in problems] or [correct]
    if settings and not settings.has_key:
        yield "– settings: no key is set: every program on this machine may use the server → callboard key"
    if settings and not settings.open_webui_jwt_secret:
        secret = variable_of("open_webui_jwt_secret")
        yield f"– settings: a client with a key may act for any user → to prevent that, set {secret}"


async def _check_database(settings: Settings, timeout_seconds: float) -> AsyncIterator[str]:
    """Open the database, check its integrity, and count the migrations that it lacks."""
    database = Store(settings.resolved_database_url).database
    file = database.file
    if file and not file.exists():
        if problem := _find_obstacle(file.parent.absolute()):
            yield f"✗ database: {problem} → correct that, or set CALLBOARD_DATA_DIR to another folder"
        else:
            yield f"– database: {file} does not exist yet → callboard serve creates it"
        return
    try:
        async with asyncio.timeout(timeout_seconds):
            missing = await database.missing_migrations()
            await database.check_integrity()
    finally:
        await database.close()
    if missing:
        yield f"– database: it lacks {missing} migrations of this version → callboard serve runs them when it starts"
    else:
        yield "✓ database: it can be opened, and its tables are up to date"


def _find_obstacle(folder: Path) -> str:
    """Return why the folder, or its nearest existing parent, is not writable; "" if it is writable."""
    existing = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        return f"{existing} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing} is not writable ({error.strerror})"


async def _check_model(
    settings: Settings, timeout_seconds: float, endpoints: Sequence[LocalEndpoint], variables: Mapping[str, str]
) -> AsyncIterator[str]:
    """Ask the endpoint for its models, ask the model for one tool call, and offer it the tools of the user's agents."""
    base_url, name, secret = settings.model_base_url, settings.model, settings.model_api_key
    if not base_url:
        found = await find_local_model(endpoints, name) if settings.find_model else None
        if found is None:
            yield "– model: none is set; the demo needs none → set CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL"
            return
        base_url, name, secret = found.endpoint.base_url, found.name, None
        yield (
            f"– model: none is set; {found.endpoint.program} on this machine serves {name} "
            "→ callboard serve uses it; choose another with CALLBOARD_MODEL_BASE_URL"
        )
    key = secret.get_secret_value() if secret else None
    endpoint = OpenAICompatible(base_url, api_key=key, model=name, timeout_seconds=timeout_seconds, max_retries=0)
    async with aclosing(endpoint) as model:
        yield await _check_list(model)
        has_called = await asyncio.wait_for(_call_tool(model), timeout_seconds)
        formats = FormatChoice(settings.tool_format, settings.react_models)
        tool_format = formats.for_name(model.name).name
        if has_called:
            yield "✓ model: the key is accepted; calls a tool natively: yes"
        elif tool_format not in ("auto", "native"):
            yield f"✓ model: the key is accepted; calls a tool natively: no, but {tool_format} needs no native calls"
        else:
            yield (
                "✗ model: calls a tool natively: no, in one probe "
                f"→ set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS={model.name}"
            )
        if has_called:
            loaded = load_all_agents(settings, variables)
            for agent in loaded.registry:
                if isinstance(agent, Agent) and not agent.model and loaded.sources[agent.agent_id] != BUILT_IN:
                    asked = formats.for_name(model.name, agent.tool_format).request(PROBE.messages, agent.tools)
                    for name, reason in (await asyncio.wait_for(_offer_tools(model, asked), timeout_seconds)).items():
                        yield f"✗ model: it refuses the tool {name} of {agent.agent_id}: {reason} → simplify its schema"


async def _check_list(model: OpenAICompatible) -> str:
    """Return a line about the endpoint's list of models. Raises `ModelError` if the list lacks the model."""
    try:
        names = await model.list_names()
    except ModelError as error:
        if model.name and _is_refusal(error):
            return f"– model: the endpoint does not list its models: {error}"
        raise
    if model.name and not names:
        return "– model: the endpoint lists no model"
    name = await model.find_name()
    if name not in names and f"{name}:latest" not in names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        raise ModelError(f"the endpoint does not serve {name} → set CALLBOARD_MODEL to one of these: {shown}")
    return f"✓ model: the endpoint answers and serves {name}"


def _is_refusal(error: ModelError) -> bool:
    """Return whether the endpoint refused only this request, so that another request may succeed."""
    return type(error) in (ModelError, ModelRefused)


async def _call_tool(model: OpenAICompatible) -> bool:
    """Send `PROBE`, and return whether the model calls its tool natively."""
    try:
        async with aclosing(model.stream(PROBE)) as deltas:  # type: ignore[type-var] # a generator, declared as an iterator
            async for delta in deltas:
                if isinstance(delta, ToolCallDelta):
                    return True
    except ModelError as error:
        # Each server has another message for this, for example "… does not support tools".
        if not _is_refusal(error) or "tool" not in str(error).lower():
            raise
    return False


async def _offer_tools(model: OpenAICompatible, request: ModelRequest) -> Mapping[str, str]:
    """Send a request, and return the endpoint's words about each tool of it that it refuses."""
    if not request.tools:
        return {}
    async with aclosing(model.stream(request)) as deltas:  # type: ignore[type-var] # a generator, declared as an iterator
        first = await anext(deltas)
    return first.reasons if isinstance(first, ToolsRefused) else {}


async def _check_open_webui(
    settings: Settings, options: argparse.Namespace, variables: Mapping[str, str]
) -> AsyncIterator[str]:
    """Ask Open WebUI's API for the installed functions, and for the models that its pipe lists."""
    if not options.open_webui:
        yield "– Open WebUI: not checked → give its address with --open-webui URL"
        return
    install_pipe = load_install_pipe()
    try:
        # No other check runs now, so these calls may block the event loop.
        webui = install_pipe.OpenWebUI(options.open_webui, options.timeout)
        version = webui.version()
        yield f"✓ Open WebUI: version {version} answers at {webui.url}"
        webui.sign_in(install_pipe.sign_in_options(argparse.Namespace(**vars(options), environment=variables)))
        update = f"callboard install-pipe --url {webui.url}"
        yield (pipe := _check_function(webui, "pipe", options.id, update))
        if pipe.startswith("✗"):
            return
        approvals_id = f"{options.id}{install_pipe.FILTER_ENDING}"
        yield _check_function(webui, "function for approvals", approvals_id, update, is_global=True)
        models = install_pipe.list_models(webui, options.id)
        # If the pipe has a problem, it lists the problem as a model.
        if problem := install_pipe.Installed("", False, models).problem:
            url = settings.own_url or "URL"
            advice = f"start the server, or set the pipe's address and key: {update} --callboard-url {url}"
            yield f"✗ Open WebUI: it does not reach this server; its pipe reports: {problem} → {advice}"
        else:
            agents = ", ".join(sorted(model.partition(".")[2] for model in models))
            yield f"✓ Open WebUI: it reaches a server with the agents {agents}"
    except install_pipe.InstallFailed as error:
        yield f"✗ Open WebUI: {error}"


def _check_function(webui: Any, subject: str, function_id: str, update: str, *, is_global: bool = False) -> str:
    """Return a line about a function of Callboard in Open WebUI."""
    # For a function that does not exist, Open WebUI answers 401.
    status, function = webui.call("GET", f"/api/v1/functions/id/{function_id}")
    if status != 200 or not isinstance(function, dict):
        return f"✗ {subject}: there is no function with the id {function_id!r} → {update}"
    if not function.get("is_active") or (is_global and not function.get("is_global")):
        place = " for all models" if is_global else ""
        return f"✗ {subject}: it is not active{place} → turn it on{place} under Functions, or {update}"
    found = re.search(r"^version: *(\S+)", str(function.get("content")), re.MULTILINE)
    if found is None:
        return f"✗ {subject}: the function with this id is not Callboard's {subject} → set the pipe's id with --id"
    if found[1] == __version__:
        return f"✓ {subject}: version {found[1]}, the same as this server"
    there, here = ([int(number) for number in re.findall(r"\d+", version)] for version in (found[1], __version__))
    order, advice = ("newer", "update the server") if there > here else ("older", update)
    return f"✗ {subject}: version {found[1]} is {order} than this server, {__version__} → {advice}"
