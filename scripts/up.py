"""Start the Callboard server and a real Open WebUI with the pipe in it, until Ctrl-C.

Environment, or `.env` in the working directory:
  CALLBOARD_PORT (8700), CALLBOARD_HOST (127.0.0.1), CALLBOARD_API_KEY and every other setting of the server
  CALLBOARD_URL          the server's address for an Open WebUI on another machine; its host is added to
                         CALLBOARD_TRUSTED_HOSTS
  CALLBOARD_DATA_DIR     folder of all data: databases, logs, and secrets.json with Open WebUI's generated password
  OPEN_WEBUI_PORT (8080) port of the Open WebUI that is started
  OPEN_WEBUI_URL         an Open WebUI that already runs; then none is installed or started
  OPEN_WEBUI_EMAIL, OPEN_WEBUI_PASSWORD or OPEN_WEBUI_API_KEY
                         its admin; for the Open WebUI that is started, its first admin (default: admin@localhost)

Every user of that Open WebUI sees the agents, until an admin changes it there.
The first run downloads Open WebUI (about 3 GB) into the cache folder. Later runs start in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import install_pipe
import openwebui
from callboard._private_files import create_private_file, make_private_folder
from callboard.errors import SettingsError
from callboard.settings import Settings, load_settings, make_server_key, read_environment
from service import Service, ServiceError, port_is_free

SERVER_START_SECONDS = 60.0
WATCH_SECONDS = 0.5
SERVER_LOG = "callboard.log"


class CannotStart(Exception):
    """Something prevents the start; the message names it and the setting that changes it."""


# Errors that are printed as a message; any other error is a defect and keeps its traceback.
EXPLAINED = (CannotStart, SettingsError, ServiceError, openwebui.OpenWebUIError, install_pipe.InstallFailed)


@dataclass(frozen=True)
class Plan:
    """The addresses, ports, secrets and folders of the servers to start; `environment` is that of the server."""

    environment: Mapping[str, str]
    settings: Settings
    data: Path
    own_url: str
    server_url: str
    server_key: str
    open_webui_url: str | None
    open_webui_port: int
    open_webui_secret: str
    credentials: install_pipe.Credentials


# ------------------------------------------------------------------------------------------------- plan


def read_plan() -> Plan:
    """Read the plan from the environment, `.env`, and the files of an earlier run, which are made if missing.

    Raises `CannotStart` or `SettingsError`.
    """
    environment = read_environment()
    setting = {name: value for name, value in environment.items() if value}.get
    server_key = make_server_key()
    settings = load_settings(environment)
    data = settings.data_dir.expanduser().resolve()
    made = _secrets(data / "secrets.json")
    own_url = settings.own_url
    if own_url is None:
        raise CannotStart("CALLBOARD_PORT is 0; it must be a port between 1 and 65535.")
    server_url = setting("CALLBOARD_URL") or own_url
    url = setting("OPEN_WEBUI_URL")
    api_key = setting("OPEN_WEBUI_API_KEY")
    email = setting("OPEN_WEBUI_EMAIL")
    password = setting("OPEN_WEBUI_PASSWORD")
    if url and not api_key and not (email and password):
        raise CannotStart(
            "OPEN_WEBUI_URL is set: set OPEN_WEBUI_EMAIL and OPEN_WEBUI_PASSWORD of an admin there too, or "
            "OPEN_WEBUI_API_KEY."
        )
    own = {
        "CALLBOARD_DATA_DIR": str(data),
        "CALLBOARD_TRUSTED_HOSTS": ",".join([*settings.trusted_hosts, _host_of(server_url)]),
    }
    without_url = {name: value for name, value in environment.items() if name != "CALLBOARD_URL"}
    return Plan(
        environment={"CALLBOARD_DRAIN_SECONDS": "0"} | without_url | own,
        settings=settings,
        data=data,
        own_url=own_url,
        server_url=server_url,
        server_key=server_key,
        open_webui_url=url.rstrip("/") if url else None,
        open_webui_port=_port(setting("OPEN_WEBUI_PORT", "8080"), "OPEN_WEBUI_PORT"),
        open_webui_secret=made["open_webui_secret"],
        credentials=install_pipe.Credentials(
            email or "admin@localhost", password or made["open_webui_password"], api_key if url else None
        ),
    )


def _secrets(file: Path) -> dict[str, str]:
    """Return the generated password and keys of this installation; only the user can read their file."""
    names = ("open_webui_password", "open_webui_secret")
    if not file.exists():
        make_private_folder(file.parent)
        with os.fdopen(create_private_file(file), "w") as new:
            json.dump({name: secrets.token_urlsafe(18) for name in names}, new, indent=2)
    file.chmod(0o600)
    try:
        kept = json.loads(file.read_text("utf-8"))
        return {name: str(kept[name]) for name in names}
    except (ValueError, KeyError, TypeError):
        raise CannotStart(f"{file} is damaged; move it away, and new secrets are made.") from None


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        raise CannotStart(f"CALLBOARD_URL is {url!r}; it must be an address such as http://127.0.0.1:8700.") from None


def _port(value: str, name: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise CannotStart(f"{name} is {value!r}; it must be a port between 1 and 65535.")
    return int(value)


def check_ports(plan: Plan) -> None:
    """Raise `CannotStart` if a port is in use; called before anything is downloaded or started."""
    wanted = [("The Callboard server", plan.settings.host, plan.settings.port, "CALLBOARD_PORT")]
    if plan.open_webui_url is None:
        wanted.append(("Open WebUI", "127.0.0.1", plan.open_webui_port, "OPEN_WEBUI_PORT"))
    for name, host, port, setting in wanted:
        if not port_is_free(host, port):
            raise CannotStart(
                f"{name} needs port {port}, which is in use (by another scripts/up?). Stop that program, or choose "
                f"another port: {setting}={port + 1} scripts/up"
            )


# ------------------------------------------------------------------------------------------------ steps


def start_server(plan: Plan, running: list[Service]) -> None:
    """Start the Callboard server and wait for it."""
    server = Service(
        name="The Callboard server",
        command=[str(Path(sys.executable).with_name("callboard")), "serve"],
        environment=plan.environment,
        log=plan.data / SERVER_LOG,
        health=f"{plan.own_url}/health",
    )
    with step(f"Starting the Callboard server on port {plan.settings.port}"):
        running.append(server)
        server.start()
        server.wait_until_healthy(SERVER_START_SECONDS)


def start_open_webui(plan: Plan, running: list[Service]) -> str:
    """Install and start Open WebUI, sign up its first admin, and return its URL."""
    home = openwebui.installed(openwebui.VERSION)
    if home is None:
        with step(f"Installing Open WebUI {openwebui.VERSION}"):
            home = openwebui.install(openwebui.VERSION, say)
    data = plan.data / "open-webui"
    port = plan.open_webui_port
    webui = openwebui.service(home, data, port, plan.open_webui_secret)
    with step(f"Starting Open WebUI {openwebui.VERSION} on port {port} (up to a minute, longer the first time)"):
        running.append(webui)
        webui.start()
        webui.wait_until_healthy(openwebui.START_SECONDS)
        openwebui.first_admin(f"http://127.0.0.1:{port}", plan.credentials.email or "", plan.credentials.password or "")
    return f"http://localhost:{port}"


def put_pipe(plan: Plan, url: str) -> install_pipe.Installed:
    """Install or update the pipe; every user sees its agents, unless an admin has changed that."""
    with step(f"Installing the pipe in Open WebUI at {url}"):
        valves = {
            "CALLBOARD_URL": plan.server_url,
            "CALLBOARD_API_KEY": plan.server_key,
            "INSPECTOR_URL": f"{plan.own_url}/inspect",
        }
        installed = install_pipe.install(
            url, plan.credentials, valves, complete=lambda stored: {"ACCESS": stored.get("ACCESS") or "everyone"}
        )
        if installed.problem is not None:
            raise CannotStart(
                f"The pipe is installed, but it reports {installed.problem!r}. If Open WebUI runs on another machine, "
                "set CALLBOARD_URL to the address at which it reaches this one, and CALLBOARD_HOST to listen there."
            )
    return installed


def watch(running: list[Service]) -> None:
    """Wait until a server ends, and raise `ServiceError` then."""
    while True:
        for service in running:
            if service.exit_code is not None:
                raise service.failure(f"{service.name} ended by itself with exit code {service.exit_code}.")
        time.sleep(WATCH_SECONDS)


# ------------------------------------------------------------------------------------------ command line


def main() -> int:
    """Start everything, watch it, and stop it."""
    form = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(prog="scripts/up", description=__doc__, formatter_class=form).parse_args()
    # SIGTERM has the same effect as Ctrl-C. A shell that starts this in the background makes it ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    running: list[Service] = []
    try:
        bring_up(running)
        watch(running)
    except KeyboardInterrupt:
        say("Stopping.")
        return 0
    except EXPLAINED as error:
        print(f"scripts/up: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for service in reversed(running):
            service.stop()
    return 0


def bring_up(running: list[Service]) -> None:
    """Take all steps in order, then print the addresses. Started servers are in `running`, even if a step fails."""
    begun = time.monotonic()
    plan = read_plan()
    check_ports(plan)
    start_server(plan, running)
    url = plan.open_webui_url or start_open_webui(plan, running)
    installed = put_pipe(plan, url)
    say(f"\nEverything is up after {time.monotonic() - begun:.0f} s.\n\n  {url}")
    if plan.open_webui_url is None:
        say(f"  sign in as  {plan.credentials.email}\n  password    {plan.credentials.password}")
    # The key itself is not printed.
    key = "the one in CALLBOARD_API_KEY" if plan.environment.get("CALLBOARD_API_KEY") else f"in {plan.data / 'api_key'}"
    say(f"\nInspector, which shows all runs:\n\n  {plan.own_url}/inspect\n  API key     {key}")
    if mistakes := find_agent_mistakes(plan.data / SERVER_LOG):
        say("\n".join(["\nAgents that could not be loaded:\n", *(f"  {mistake}" for mistake in mistakes)]))
    audience = f" Who sees them: {installed.audience}." if installed.audience else ""
    say(f"\nModels: {', '.join(installed.models.values())}.{audience}")
    if installed.checked:
        say(f"Checked: {installed.checked}.")
    if installed.check_problem:
        say(f"Users who are not admins cannot use all of them: {installed.check_problem}")
    if f"{install_pipe.FUNCTION_ID}.naked" not in installed.models:
        say("No language model was found. Assistant and Model are listed once CALLBOARD_MODEL_BASE_URL names one.")
    if plan.open_webui_url is None:
        say(openwebui.KNOWLEDGE)
    say(f"Logs are in {plan.data}. Ctrl-C stops everything.")


def find_agent_mistakes(log: Path) -> list[str]:
    """Return the server's log messages about agents that it could not load."""
    mistakes = []
    for line in log.read_text("utf-8", "replace").splitlines():
        # The files of agents may print other lines into the log.
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and (entry.get("event"), entry.get("level")) == ("agent_left_out", "error"):
                mistakes.append(str(entry.get("reason")))
    return mistakes


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Print the name of a step, and its duration at its end."""
    begun = time.monotonic()
    say(f"{name} …")
    yield
    say(f"  done in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
