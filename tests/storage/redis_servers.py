"""Throw-away Redis servers on this machine, each in a folder of its own, that can be killed."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "let-me-in-4711"


class RedisProcess:
    """A Redis on a socket or, if a port is given, on the port; tests can stop and start it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._command = ["redis-server", "--dir", str(folder), "--save", "", "--requirepass", PASSWORD, *options]
        self._process: subprocess.Popen[str] | None = None
        self.socket = folder / "socket"
        self.url = f"unix://:{PASSWORD}@{self.socket}"
        if "--port" not in options:
            self._command += ["--port", "0", "--unixsocket", str(self.socket)]

    def start(self) -> None:
        """Start Redis and wait until it accepts connections."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "accept connections" in line:
                return
        raise AssertionError("".join(said))

    def kill(self) -> None:
        """Kill Redis and wait for its end; it loses everything that is not on disk."""
        assert self._process
        self._process.kill()
        self._process.communicate()


@contextmanager
def throw_away_redis(*options: str) -> Iterator[RedisProcess]:
    """Run a Redis with these options."""
    # Not pytest's own folder: the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="callboard-redis-", dir="/tmp"))
    server = RedisProcess(folder, *options)
    try:
        server.start()
        yield server
        server.kill()
    finally:
        shutil.rmtree(folder)
