"""A stand-in for Open WebUI's HTTP API: the calls that installing a function needs, in Open WebUI's own shapes.

Paths, statuses and the words of its errors are those of Open WebUI 0.12.4. A real server on the loopback interface,
so that the scripts are run as they are; the end-to-end tests run them against the real thing.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ADMIN = "admin@example.com"
PASSWORD = "right-password"
USER = "user@example.com"
API_KEY = "sk-right-key"
SHUTDOWN_POLL_SECONDS = 0.02
VALVES = ("CALLBOARD_URL", "CALLBOARD_API_KEY", "RESULT_CHARS", "RENDERING", "ACCESS", "INSPECTOR_URL")

UNREACHABLE = "Callboard: cannot use http://there:8700 (valve CALLBOARD_URL)"
NOT_FOUND = "We could not find what you're looking for :/"
INVALID_CRED = "The email or password provided is incorrect. Please check for typos and try logging in again."
ACCESS_PROHIBITED = (
    "You do not have permission to access this resource. Please contact your administrator for assistance."
)
INVALID_TOKEN = "Your session has expired or the token is invalid. Please sign in again."
API_KEY_NOT_ALLOWED = "Use of API key is not enabled in the environment."
ACTION_PROHIBITED = "The requested action has been restricted as a security measure."
RATE_LIMIT_EXCEEDED = "API rate limit exceeded"
ID_TAKEN = "Uh-oh! This id is already registered. Please choose another id string."


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail


@dataclass
class StandIn:
    """The data in Open WebUI's database, and the settings of its admin."""

    url: str = ""
    version: str = "0.12.4"
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    valves: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    api_keys_on: bool = True
    passwords_on: bool = True
    rate_limited: bool = False
    second_factor: bool = False
    functions_on: bool = True
    server_reachable: bool = True
    source_error: str | None = None
    agents: dict[str, str] = field(default_factory=lambda: {"demo": "Demo"})
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=lambda: {"Family": []})
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: str = "I remember no tool call in this chat yet."

    def answer(self, method: str, path: str, authorization: str, body: Any) -> Any:
        """Return Open WebUI's answer, or raise `Refused`."""
        self.calls.append(f"{method} {path}")
        match method, path.strip("/").split("/"):
            case "GET", ["health"]:
                return {"status": True}
            case "GET", ["api", "version"]:
                return {"version": self.version, "deployment_id": ""}
            case "POST", ["api", "v1", "auths", "signin"]:
                return self._sign_in(body)
            case "POST", ["api", "v1", "auths", "signup"]:
                raise Refused(403, ACCESS_PROHIBITED)
        token = authorization.removeprefix("Bearer ")
        if token in self.users:
            return self._answer_user(method, path, self.users[token], body)
        self._require_admin(authorization)
        return self._answer_admin(method, path, body)

    def _answer_admin(self, method: str, path: str, body: Any) -> Any:
        match method, path.strip("/").split("/"):
            case "GET", ["api", "models"]:
                return {"data": self._models()}
            case verb, ["api", "v1", *rest] if rest[0] in ("models", "groups", "auths", "users"):
                return self._answer_of_access(verb, rest, body)
            case "GET", ["api", "v1", "functions", "export"]:
                return list(self.functions.values())
            case "POST", ["api", "v1", "functions", "create"]:
                return self._create(body)
            case verb, ["api", "v1", "functions", "id", id_, *rest]:
                return self._function(verb, id_, rest, body)
        raise Refused(404, "Not Found")

    def _answer_of_access(self, method: str, path: list[str], body: Any) -> Any:
        match method, path:
            case "GET", ["models", "base"]:
                return list(self.entries.values())
            case "POST", ["models", "model", "access", "update"]:
                entry = self.entries.setdefault(body["id"], {"id": body["id"], "name": body["name"]})
                entry["access_grants"] = body["access_grants"]
                return entry
            case "GET", ["groups"]:
                return [{"id": f"id-of-{name}", "name": name} for name in self.groups]
            case "POST", ["groups", "id", id_, "users", "add"]:
                self.groups[id_.removeprefix("id-of-")] += body["user_ids"]
                return {"id": id_}
            case "POST", ["auths", "add"]:
                user = {"id": f"id-of-{body['email']}", "role": body["role"], "token": f"session of {body['email']}"}
                self.users[user["token"]] = user
                return {name: user[name] for name in user if name != "token" or not self.second_factor}
            case "DELETE", ["users", id_]:
                self.users = {token: user for token, user in self.users.items() if user["id"] != id_}
                return True
        raise Refused(404, "Not Found")

    def _sign_in(self, body: Any) -> Any:
        if not self.passwords_on:
            raise Refused(403, ACTION_PROHIBITED)
        if self.rate_limited:
            raise Refused(429, RATE_LIMIT_EXCEEDED)
        if body["email"] not in (ADMIN, USER) or body["password"] != PASSWORD:
            raise Refused(400, INVALID_CRED)
        if self.second_factor:
            return {"next_step": "mfa", "challenge_id": "c"}
        role = "admin" if body["email"] == ADMIN else "user"
        return {"token": f"session of {role}", "token_type": "Bearer", "email": body["email"], "role": role}

    def _require_admin(self, authorization: str) -> None:
        token = authorization.removeprefix("Bearer ")
        if token == API_KEY and not self.api_keys_on:
            raise Refused(403, API_KEY_NOT_ALLOWED)
        if token == "session of user":
            raise Refused(401, ACCESS_PROHIBITED)
        if token not in ("session of admin", API_KEY):
            raise Refused(401, INVALID_TOKEN)

    def _create(self, body: Any) -> Any:
        if body["id"] in self.functions:
            raise Refused(400, ID_TAKEN)
        self._load()
        kinds = {"event": "\nclass Event:", "filter": "\nclass Filter:"}
        kind = next((kind for kind, line in kinds.items() if line in body["content"]), "pipe")
        self.functions[body["id"]] = {**body, "type": kind, "is_active": False}
        return self.functions[body["id"]]

    def _load(self) -> None:
        if self.source_error:
            raise Refused(400, self.source_error)

    def _function(self, verb: str, id_: str, rest: list[str], body: Any) -> Any:
        if id_ not in self.functions:
            raise Refused(401, NOT_FOUND)
        function = self.functions[id_]
        match verb, rest:
            case "GET", []:
                return function
            case "POST", ["update"]:
                self._load()
                function.update(body)
                return function
            case "POST", ["toggle"]:
                function["is_active"] = not function["is_active"]
                return function
            case "POST", ["toggle", "global"]:
                function["is_global"] = not function.get("is_global")
                return function
            case "GET", ["valves"]:
                return self.valves.get(id_)
            case "GET", ["valves", "spec"]:
                return {"properties": {name: {"title": name} for name in VALVES}, "type": "object"}
            case "POST", ["valves", "update"]:
                self.valves[id_] = {name: value for name, value in body.items() if name in VALVES}
                return self.valves[id_]
        raise Refused(404, "Not Found")

    def _answer_user(self, method: str, path: str, user: dict[str, Any], body: Any) -> Any:
        groups = [f"id-of-{name}" for name, members in self.groups.items() if user["id"] in members]
        seen = [
            model["id"]
            for model in self._models()
            for grant in self.entries.get(model["id"], {}).get("access_grants", [])
            if grant["principal_id"] in ("*", *groups)
        ]
        if (method, path) == ("GET", "/api/models"):
            return {"data": [{"id": model} for model in seen]}
        if (method, path) == ("POST", "/api/chat/completions") and body["model"] in seen:
            return {"choices": [{"message": {"role": "assistant", "content": self.said}}]}
        raise Refused(403, "Model not found")

    def _add_entries(self, function_id: str) -> None:
        """The pipe's answer to a request for its models."""
        access = self.valves.get(function_id, {}).get("ACCESS")
        if not access:
            return
        who = {"everyone": ["*"], "admins": []}.get(access, [f"id-of-{access.partition(':')[2]}"])
        for agent, name in self.agents.items():
            id_ = f"{function_id}.{agent}"
            grants = [
                {"principal_type": "user" if one == "*" else "group", "principal_id": one, "permission": "read"}
                for one in who
            ]
            self.entries.setdefault(id_, {"id": id_, "name": name, "access_grants": grants})

    def _models(self) -> list[dict[str, Any]]:
        entries = self.agents if self.server_reachable else {"unreachable": UNREACHABLE}
        pipes = [id_ for id_, function in self.functions.items() if function["type"] == "pipe"]
        active = [id_ for id_ in pipes if self.functions[id_]["is_active"] and self.functions_on]
        for id_ in active:
            self._add_entries(id_)
        other = {"id": "other.model", "name": "Other", "object": "model"}
        return [
            other,
            *({"id": f"{id_}.{e}", "name": n, "object": "model"} for id_ in active for e, n in entries.items()),
        ]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer(None)

    def do_DELETE(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null"))

    def _answer(self, body: Any) -> None:
        path = self.path.partition("?")[0]
        try:
            status = 200
            answer = self.server.stand_in.answer(self.command, path, self.headers.get("Authorization", ""), body)
        except Refused as refused:
            status = refused.status
            answer = {"detail": refused.detail}
        encoded = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stand_in: StandIn


@contextlib.contextmanager
def serving() -> Iterator[StandIn]:
    """A stand-in with no functions, until the block ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.stand_in = StandIn(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(SHUTDOWN_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server.stand_in
        finally:
            server.shutdown()
            thread.join()
