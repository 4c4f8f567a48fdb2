"""Starts a server process, waits until it is healthy, watches and stops it.

`openwebui`, `up` and the end-to-end tests use it. It knows only a command and a health address of the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAST_LINES = 20
POLL_SECONDS = 0.2
STOP_SECONDS = 15.0

# The environment's proxies are for other machines, and these servers are on this one.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServiceError(Exception):
    """A server did not start, or ended; the message has the last lines of its log."""


@dataclass
class Service:
    """A server process.

    `environment` is the whole environment of the process, `log` the file for its output, and `health` the URL that
    answers with 200 when the server is ready.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    health: str
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process; `wait_until_healthy` returns when it is ready."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # Only the owner may read logs, because they may have private data. An existing file may have other permissions.
        with open(self.log, "wb", opener=_private) as log:
            os.fchmod(log.fileno(), 0o600)
            # A new session, so that Ctrl-C does not reach the server and `stop` can end its children too.
            self._process = subprocess.Popen(
                list(self.command),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_healthy(self, seconds: float) -> None:
        """Return when the server is healthy; raises `ServiceError` if the process ends or does not answer in time."""
        deadline = time.monotonic() + seconds
        while not answers(self.health):
            if self.exit_code is not None:
                raise self.failure(f"{self.name} ended with exit code {self.exit_code} before it was ready.")
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} did not answer at {self.health} within {seconds:.0f} s.")
            time.sleep(POLL_SECONDS)

    @property
    def exit_code(self) -> int | None:
        """The process's exit code; None if it runs or was not started."""
        return None if self._process is None else self._process.poll()

    def failure(self, message: str) -> ServiceError:
        """Return an error with the message and the end of the log."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        shown = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return ServiceError(f"{message} The last lines of {self.log}:\n{shown}")

    def stop(self) -> None:
        """End the process and its children, with SIGKILL after `STOP_SECONDS`; does nothing if it has ended."""
        process = self._process
        if process is None:
            return
        self._signal_all(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._signal_all(signal.SIGKILL)
            process.wait()

    def kill(self) -> None:
        """End the process and its children with SIGKILL, like a crash."""
        self._signal_all(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def answers(url: str, seconds: float = 2.0) -> bool:
    """Return whether `GET url` is answered with 200 within `seconds`."""
    try:
        with _DIRECT.open(url, timeout=seconds) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def port_is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on this address now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
