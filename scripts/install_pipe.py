#!/usr/bin/env python3
"""Install or update Callboard's pipe in an Open WebUI, set its valves, activate it, and check that its models appear.

    python scripts/install_pipe.py --url http://localhost:8080 --email admin@example.com

It needs an admin's account, and uses Open WebUI's API. Valves that were changed in Open WebUI are kept, unless an
option sets them. This file needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import argparse
import getpass
import ipaddress
import json
import os
import re
import secrets
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PIPE = Path(__file__).resolve().parent.parent / "pipe" / "callboard_pipe.py"
EVENTS = PIPE.with_name("callboard_events.py")
FUNCTION_ID = "callboard"
FILTER = PIPE.with_name("callboard_filter.py")
FILTER_ENDING = "_approvals"
OLDEST = (0, 11, 4)  # Of Open WebUI, as in the pipe.
# If the pipe cannot reach the server, it lists one model with this id instead of the agents.
UNREACHABLE = "unreachable"
CALL_SECONDS = 60.0
# The values of the valve ACCESS.
ACCESS_PATTERN = re.compile(r"everyone|admins|group:.+")
ACCESS_WORDS = "everyone, admins or group:NAME"
# The demo agent answers it at once, because of the word `remember`.
CHECK_QUESTION = "Do you remember me? One word will do."
# The beginning of an answer in which the pipe reports a problem.
NOTICE = "> **Callboard:**"

Complete = Callable[[Mapping[str, Any]], Mapping[str, str]]


class InstallFailed(Exception):
    """The pipe could not be installed; the message is one line that says what to do."""


@dataclass(frozen=True)
class Credentials:
    """Credentials for the sign-in: an API key, or an email with its password."""

    email: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Function:
    """A function for Open WebUI.

    `kind` is Open WebUI's name of its type, `noun` its name in messages. The id of a function beside the pipe ends with
    `ending`. `is_global`: active for all models.
    """

    file: Path
    kind: str
    name: str
    description: str
    noun: str
    ending: str = ""
    is_global: bool = False


BESIDE = (
    _Function(
        EVENTS,
        "event",
        "Callboard events",
        "Restores answers after a restart of Open WebUI, and forgets deleted chats.",
        "function for events",
        ending="_events",
    ),
    _Function(
        FILTER,
        "filter",
        "Callboard approvals",
        "Runs a tool call whose card a user approves minutes or days later; tells other models in a chat of its calls.",
        "function for approvals",
        ending=FILTER_ENDING,
        is_global=True,
    ),
)


@dataclass(frozen=True)
class Installed:
    """The outcome of an installation.

    Attributes:
        open_webui_version: The version of Open WebUI.
        created: Whether the pipe was installed for the first time.
        models: The models that Open WebUI lists for the pipe: names by id.
        beside: A sentence about each function beside the pipe: what it does, or why it could not be installed.
        audience: A description of who sees the models; empty if Open WebUI does not report it.
        checked: A description of what a new user sees; empty if this was not checked.
        check_problem: Why a new user cannot use the agents.
    """

    open_webui_version: str
    created: bool
    models: Mapping[str, str]
    beside: Sequence[str] = ()
    audience: str = ""
    checked: str = ""
    check_problem: str = ""

    @property
    def problem(self) -> str | None:
        """The pipe's message if it cannot use its server; it lists the message in the place of models."""
        return next((name for model, name in self.models.items() if model.partition(".")[2] == UNREACHABLE), None)


def install(
    url: str,
    credentials: Credentials,
    valves: Mapping[str, str] | None = None,
    function_id: str = FUNCTION_ID,
    source: Path = PIPE,
    complete: Complete | None = None,
) -> Installed:
    """Install or update the pipe in the Open WebUI at `url`; raises `InstallFailed`.

    `complete` is called with the stored valves, and returns more valves to set. The values in `valves` come first.
    """
    webui = OpenWebUI(url)
    version = webui.version()
    if (0, 0, 0) < _read_release(version) < OLDEST:
        raise InstallFailed(f"Callboard needs Open WebUI {'.'.join(map(str, OLDEST))} or later; this is {version}.")
    webui.sign_in(credentials)
    function_id = function_id.lower()  # as Open WebUI stores it
    description = "The agents of a Callboard server, with every tool call shown live."
    pipe = _Function(source, "pipe", "Callboard", description, "pipe")
    created, active = _put_function(webui, function_id, pipe)
    stored = _set_valves(webui, function_id, valves or {}, complete)
    if not active:
        webui.ask("POST", f"/api/v1/functions/id/{function_id}/toggle", doing="activate the pipe")
    models = list_models(webui, function_id)
    beside = [_install_beside(webui, function_id, function) for function in BESIDE]
    installed = Installed(version, created, models, beside)
    if installed.problem is not None:
        return installed
    if given := (valves or {}).get("ACCESS"):
        _put_access(webui, models, given)
    return _check_access(webui, installed, str(stored.get("ACCESS") or ""))


# ------------------------------------------------------------------------------------------------------------ access


def _list_grants(webui: OpenWebUI, access: str) -> list[dict[str, str]]:
    """Return Open WebUI's grants for an access; raises `InstallFailed` for an invalid access or an unknown group."""
    if not ACCESS_PATTERN.fullmatch(access):
        raise InstallFailed(f"{access!r} does not say who sees the agents: give {ACCESS_WORDS}.")
    if access == "admins":
        return []
    principals = [("user", "*")]
    if access != "everyone":
        groups = _list_groups(webui)
        name = access.partition(":")[2]
        principals = [("group", id_) for id_, known in groups.items() if known == name]
        if not principals:
            there = ", ".join(sorted(groups.values())) or "no group"
            raise InstallFailed(f"Open WebUI has no group {name!r}; it has {there}.")
    return [{"principal_type": kind, "principal_id": id_, "permission": "read"} for kind, id_ in principals]


def _list_groups(webui: OpenWebUI) -> dict[str, str]:
    """Return the names of Open WebUI's groups by their ids."""
    groups = webui.ask("GET", "/api/v1/groups/", doing="list its groups")
    return {str(group["id"]): str(group["name"]) for group in groups}


def _put_access(webui: OpenWebUI, models: Mapping[str, str], access: str) -> None:
    """Set who sees the models, whatever was set before; their names and other settings stay."""
    grants = _list_grants(webui, access)
    for model, name in models.items():
        body = {"id": model, "name": name, "access_grants": grants}
        webui.ask("POST", "/api/v1/models/model/access/update", body, doing=f"set who sees {name}")


def _check_access(webui: OpenWebUI, installed: Installed, access: str) -> Installed:
    """Return the outcome with its audience; if not only admins see the agents, check them as a new user."""
    status, entries = webui.call("GET", "/api/v1/models/base")
    if status != 200 or not isinstance(entries, list):
        return installed
    names = installed.models
    grants = {entry["id"]: entry.get("access_grants") or [] for entry in entries if entry["id"] in names}
    groups = _list_groups(webui) if any(grants.values()) else {}
    seen_by = {model: _name_audience(grants.get(model, []), groups) for model in names}
    audiences = sorted(set(seen_by.values()))
    by_model = "; ".join(f"{names[model]}: {audience}" for model, audience in seen_by.items())
    installed = replace(installed, audience=audiences[0] if len(audiences) == 1 else by_model)
    if access in ("", "admins"):
        return installed
    wanted = _list_grants(webui, access)
    # An admin may since have hidden some models, which is not an error.
    shown = [model for model in names if any(_is_among(grant, grants.get(model, [])) for grant in wanted)]
    if not shown:
        return installed
    try:
        answering = _check_as_user(
            webui, shown, [grant["principal_id"] for grant in wanted if grant["principal_id"] != "*"]
        )
    except InstallFailed as error:
        return replace(installed, check_problem=str(error))
    listed = ", ".join(names[model] for model in shown)
    return replace(installed, checked=f"a new user with the role 'user' sees {listed}, and {names[answering]} answers")


def _is_among(grant: Mapping[str, str], grants: Sequence[Mapping[str, Any]]) -> bool:
    return any(all(other.get(name) == value for name, value in grant.items()) for other in grants)


def _name_audience(grants: Sequence[Mapping[str, Any]], groups: Mapping[str, str]) -> str:
    """Return a description of who sees a model with these grants."""
    ids = {
        kind: [grant["principal_id"] for grant in grants if grant["principal_type"] == kind]
        for kind in ("user", "group")
    }
    if "*" in ids["user"]:
        return "everyone"
    some = [f"the group {groups.get(id_, id_)}" for id_ in ids["group"]] + (["some users"] if ids["user"] else [])
    return " and ".join(some) or "only admins"


def _check_as_user(webui: OpenWebUI, models: Sequence[str], group_ids: Sequence[str]) -> str:
    """Create a user with the role "user", return a model that answers this user, and remove the user.

    Raises `InstallFailed` if the user does not see all of the models, or none of them answers.
    """
    email = f"check-{secrets.token_hex(6)}@callboard.invalid"
    # Open WebUI may require letters of both cases, a digit and a sign.
    body = {"name": "Callboard's check", "email": email, "password": f"Aa1!{secrets.token_urlsafe(24)}", "role": "user"}
    user = webui.ask("POST", "/api/v1/auths/add", body, doing="add a user to check with")
    try:
        for group_id in group_ids:
            members = {"user_ids": [user["id"]]}
            webui.ask("POST", f"/api/v1/groups/id/{group_id}/users/add", members, doing="add the user to the group")
        if "token" not in user:
            raise InstallFailed(
                "It is not checked whether users see the agents, because Open WebUI requires a second factor."
            )
        return _ask_as_user(OpenWebUI(webui.url, token=user["token"]), models)
    finally:
        doing = f"remove {email}, the user of the check: remove it under Admin Panel, Users"
        webui.ask("DELETE", f"/api/v1/users/{user['id']}", doing=doing)


def _ask_as_user(webui: OpenWebUI, models: Sequence[str]) -> str:
    answer = webui.ask("GET", "/api/models", doing="list the models for a user")
    listed = [model["id"] for model in answer["data"]]
    if hidden := [model for model in models if model not in listed]:
        raise InstallFailed(f"A user with the role 'user' does not see {', '.join(hidden)}.")
    reply = ""
    for model in sorted(models, key=lambda model: not model.endswith(".demo")):
        question = {"model": model, "messages": [{"role": "user", "content": CHECK_QUESTION}], "stream": False}
        status, answer = webui.call("POST", "/api/chat/completions", question)
        try:
            reply = str(answer["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError):
            reply = _reason(answer)
        else:
            if status == 200 and reply and not reply.startswith(NOTICE):
                return model
    raise InstallFailed(f"A user with the role 'user' sees the agents, but none answers: {reply.removeprefix(NOTICE)}")


def _install_beside(webui: OpenWebUI, pipe_id: str, function: _Function) -> str:
    """Install or update a function beside the pipe, and return a sentence about it.

    If an admin has turned it off, it stays off.
    """
    function_id = f"{pipe_id}{function.ending}"
    path = f"/api/v1/functions/id/{function_id}/toggle"
    try:
        created, _ = _put_function(webui, function_id, function)
        if created:
            webui.ask("POST", path, doing=f"activate the {function.noun}")
        if created and function.is_global:
            webui.ask("POST", f"{path}/global", doing=f"activate the {function.noun} globally")
    except InstallFailed as error:
        return f"Without the {function.noun}: {error}"
    return f"Beside it: {function_id}. {function.description}"


def _read_release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _put_function(webui: OpenWebUI, function_id: str, function: _Function) -> tuple[bool, bool]:
    """Create or update a function; returns whether it was created, and whether it is active."""
    content = _read(function.file, f"source of the {function.noun}")
    meta = {"description": function.description}
    body: dict[str, Any] = {"id": function_id, "name": function.name, "content": content, "meta": meta}
    status, existing = webui.call("GET", f"/api/v1/functions/id/{function_id}")
    if status == 200 and isinstance(existing, dict):
        if existing.get("type") != function.kind or "callboard" not in str(existing.get("content")).lower():
            raise InstallFailed(
                f"The function id {function_id!r} belongs to another function there, {existing.get('name')!r}; "
                "choose another with --id."
            )
        body["name"] = existing.get("name") or body["name"]
        webui.ask("POST", f"/api/v1/functions/id/{function_id}/update", body, doing=f"update the {function.noun}")
        return False, bool(existing.get("is_active"))
    # Open WebUI answers 401 for a missing function. It refuses to create a second function with an id, so this is safe.
    webui.ask("POST", "/api/v1/functions/create", body, doing=f"create the {function.noun}")
    return True, False


def _set_valves(
    webui: OpenWebUI, function_id: str, given: Mapping[str, str], complete: Complete | None
) -> Mapping[str, Any]:
    """Set the given valves and return all valves. Open WebUI replaces all stored valves at once."""
    path = f"/api/v1/functions/id/{function_id}/valves"
    kept = webui.ask("GET", path, doing="read the pipe's valves") or {}
    wanted = {**(complete(kept) if complete else {}), **given}
    if not wanted:
        return kept
    spec = webui.ask("GET", f"{path}/spec", doing="read the pipe's valves")
    known = list(spec.get("properties", {})) if isinstance(spec, dict) else []
    for name in given:
        if name not in known:
            raise InstallFailed(f"The pipe has no valve {name!r}; it has {', '.join(known)}.")
    if wanted.get("ACCESS"):
        _list_grants(webui, wanted["ACCESS"])
    webui.ask("POST", f"{path}/update", {**kept, **wanted}, doing="set the pipe's valves")
    return {**kept, **wanted}


def list_models(webui: OpenWebUI, function_id: str) -> dict[str, str]:
    answer = webui.ask("GET", "/api/models?refresh=true", doing="list the models")
    listed = answer.get("data", []) if isinstance(answer, dict) else []
    models = {model["id"]: str(model.get("name", model["id"])) for model in listed}
    ours = {id_: name for id_, name in models.items() if id_.partition(".")[0] == function_id}
    if not ours:
        raise InstallFailed(
            "The pipe is installed and active, but Open WebUI lists no model of it: its log says why "
            "(functions may be turned off there with ENABLE_FUNCTIONS or SAFE_MODE)."
        )
    return ours


class OpenWebUI:
    """A client of Open WebUI's API at one address, for one account."""

    def __init__(self, url: str, timeout_seconds: float = CALL_SECONDS, token: str | None = None) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError:
            parts = urllib.parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InstallFailed(f"{url!r} is not an address of an Open WebUI: it must begin with http:// or https://.")
        self.url = url.rstrip("/")
        self.token = token
        self._timeout_seconds = timeout_seconds
        # The environment's proxy is for other machines.
        handlers = [urllib.request.ProxyHandler({})] if _is_local(parts.hostname) else []
        self._opener = urllib.request.build_opener(*handlers)

    def version(self) -> str:
        """Return the version of Open WebUI; raises `InstallFailed` if another program answers at the address."""
        status, answer = self.call("GET", "/api/version")
        if status != 200 or not isinstance(answer, dict) or "version" not in answer:
            raise InstallFailed(f"The program at {self.url} is not an Open WebUI. Check the address.")
        return str(answer["version"])

    def sign_in(self, credentials: Credentials) -> None:
        """Sign in, and check that the account may install functions."""
        if credentials.api_key:
            self.token = credentials.api_key
            # An API key cannot read its own account, but an admin's can read this list.
            status, answer = self.call("GET", "/api/v1/functions/export")
            if status == 403:
                raise InstallFailed(
                    f"Open WebUI does not accept this API key: {_reason(answer)} (An admin turns on 'API Keys' without "
                    "endpoint restrictions in its settings; or sign in with email and password.)"
                )
            if status != 200:
                raise InstallFailed(
                    f"Open WebUI does not accept this API key, or it is not an admin's: {_reason(answer)}"
                )
        else:
            self.token = self._token_for(credentials.email or "", credentials.password or "")

    def _token_for(self, email: str, password: str) -> str:
        status, answer = self.call("POST", "/api/v1/auths/signin", {"email": email, "password": password})
        if status == 403:
            raise InstallFailed("Open WebUI does not allow sign-ins with a password; use an API key instead.")
        if status == 429:
            raise InstallFailed(f"Open WebUI refuses more sign-ins of {email} for now; wait a few minutes.")
        if status != 200 or not isinstance(answer, dict):
            raise InstallFailed(f"Open WebUI refused the sign-in of {email}: {_reason(answer)}")
        if "token" not in answer:
            raise InstallFailed(f"Open WebUI requires a second factor of {email}; use an API key instead.")
        if answer.get("role") != "admin":
            role = answer.get("role")
            raise InstallFailed(f"{email} is not an admin there (role {role!r}): only an admin can install functions.")
        return str(answer["token"])

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, doing: str) -> Any:
        """Return the answer to a call; raises `InstallFailed`, with `doing` in its message, if it does not succeed."""
        status, answer = self.call(method, path, body)
        if status != 200:
            raise InstallFailed(f"Open WebUI could not {doing} ({status}): {_reason(answer)}")
        return answer

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return the status and the body of the answer, as JSON if it is JSON."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                return response.status, _decoded(response.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, _decoded(refusal.read())
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise InstallFailed(f"No Open WebUI answers at {self.url}: {reason}. Is it running there?") from None


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def _read(file: Path, noun: str) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise InstallFailed(f"The {noun} cannot be read: {error}.") from None


def _reason(answer: Any) -> str:
    """Return Open WebUI's error message on one line."""
    detail = answer.get("detail", answer) if isinstance(answer, dict) else answer
    return " ".join(str(detail).split())[:300]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns 0 only if the pipe is installed and reaches its server."""
    return run(parse(arguments))


def run(options: argparse.Namespace, complete: Complete | None = None) -> int:
    """Install the pipe, print the outcome, and return the exit code; `complete` is for `install`."""
    try:
        credentials = sign_in_options(options)
        valves = _valves(options)

        def fill(stored: Mapping[str, Any]) -> dict[str, str]:
            access = valves.get("ACCESS") or stored.get("ACCESS") or _ask_access()
            return {**(complete(stored) if complete else {}), **({"ACCESS": access} if access else {})}

        installed = install(options.url, credentials, valves, options.id, options.file, fill)
    except InstallFailed as error:
        return _fail(options, str(error))
    done = "Installed" if installed.created else "Updated"
    print(f"{done} the pipe in Open WebUI {installed.open_webui_version} at {options.url}. Its models:")
    for model, name in installed.models.items():
        print(f"  {model}  {name}")
    for sentence in installed.beside:
        print(sentence)
    if installed.audience:
        print(f"Who sees them: {installed.audience} (--access {ACCESS_WORDS} changes it).")
    if installed.checked:
        print(f"Checked: {installed.checked}.")
    if installed.check_problem:
        return _fail(options, installed.check_problem)
    if installed.problem is None:
        return 0
    return _fail(
        options,
        f"The pipe is installed, but it reports {installed.problem!r}. Start the server, or set the valves "
        "(--callboard-url, --callboard-api-key) to the address and the key with which Open WebUI can reach it.",
    )


def _ask_access() -> str:
    """Ask at the terminal who may see the agents; empty without a terminal or an answer."""
    question = f"Who may see the agents: {ACCESS_WORDS}? (Enter: no change; at first only admins see them) "
    while sys.stdin.isatty():
        try:
            asked = input(question).strip()
        except EOFError:
            break
        if not asked or ACCESS_PATTERN.fullmatch(asked):
            return asked
    return ""


def _fail(options: argparse.Namespace, line: str) -> int:
    print(f"{options.prog}: {line}", file=sys.stderr)
    return 1


def parse(
    arguments: Sequence[str] | None, prog: str | None = None, environment: Mapping[str, str] = os.environ
) -> argparse.Namespace:
    """Parse the command line; `environment` has defaults of options."""
    own = {"prog": prog or "install_pipe", "environment": environment}
    return build_parser(prog, environment).parse_args(arguments, argparse.Namespace(**own))


def build_parser(prog: str | None = None, environment: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=(__doc__ or "").split("\n\n")[0],
        epilog="The defaults are OPEN_WEBUI_URL, OPEN_WEBUI_EMAIL, OPEN_WEBUI_PASSWORD and OPEN_WEBUI_API_KEY in the "
        "environment.",
    )
    add = parser.add_argument
    add("--url", default=environment.get("OPEN_WEBUI_URL", "http://localhost:8080"), help="Open WebUI's address")
    add("--email", help="email of an admin")
    add("--password", help="the admin's password (default: you are asked for it)")
    add("--api-key", help="an admin's API key instead of both")
    add("--callboard-url", metavar="URL", help="the server's address for Open WebUI (valve CALLBOARD_URL)")
    add("--callboard-api-key", metavar="KEY", help="the server's key (valve CALLBOARD_API_KEY)")
    add("--callboard-api-key-file", metavar="FILE", type=Path, help="file with the server's key")
    add("--access", metavar="WHO", help=f"who sees the agents: {ACCESS_WORDS} (valve ACCESS; also of existing entries)")
    add("--valve", action="append", default=[], metavar="NAME=VALUE", help="set a valve; may be repeated")
    add("--id", default=FUNCTION_ID, help="the function's id in Open WebUI (default: %(default)s)")
    add("--file", type=Path, default=PIPE, help="the pipe's source (default: the one next to this script)")
    return parser


def sign_in_options(options: argparse.Namespace) -> Credentials:
    """Return the credentials of the options, or otherwise of the environment; raises `InstallFailed` without any."""
    environment = options.environment
    api_key = options.api_key or (None if options.email else environment.get("OPEN_WEBUI_API_KEY"))
    if api_key:
        return Credentials(api_key=api_key)
    email = options.email or environment.get("OPEN_WEBUI_EMAIL")
    if not email:
        raise InstallFailed("Say who signs in: --email (and --password) of an admin, or --api-key.")
    password = options.password or environment.get("OPEN_WEBUI_PASSWORD")
    if not password and not sys.stdin.isatty():
        raise InstallFailed("There is no terminal to ask for the password: give --password or OPEN_WEBUI_PASSWORD.")
    return Credentials(email, password or getpass.getpass(f"Password of {email}: "))


def _valves(options: argparse.Namespace) -> dict[str, str]:
    valves = {
        "CALLBOARD_URL": options.callboard_url,
        "CALLBOARD_API_KEY": options.callboard_api_key,
        "ACCESS": options.access,
    }
    if options.callboard_api_key_file and not options.callboard_api_key:
        valves["CALLBOARD_API_KEY"] = _read(options.callboard_api_key_file, "server's key").strip()
    for pair in options.valve:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InstallFailed(f"--valve takes NAME=VALUE, not {name!r}.")
        valves[name.strip()] = value
    return {name: value for name, value in valves.items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())
