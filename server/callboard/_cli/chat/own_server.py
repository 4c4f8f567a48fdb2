"""Runs a server in this process, for a chat if no other server runs.

It listens on a Unix socket in a folder that only the user can read, so only this chat can use it. It has its own thread
and event loop. A tool that blocks the loop therefore blocks neither the drawing nor Ctrl-C.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

from anyio.from_thread import start_blocking_portal

import callboard.agents.builtin  # noqa: F401 - registers the settings of skills
from callboard._application import Callboard
from callboard._application.serving import serving
from callboard._cli.serve import choose_local_model, make_default_model
from callboard._logging import set_up_logging
from callboard.agents import load_all_agents
from callboard.models import LOCAL_ENDPOINTS
from callboard.redaction import Redaction
from callboard.settings import Settings, read_environment, secrets_in


@contextmanager
def serve_agents(settings: Settings) -> Iterator[Path]:
    """Serve the agents of the settings until the block ends. Yield the server's Unix socket."""
    variables = read_environment()
    redaction = Redaction((*settings.secrets, *secrets_in(variables)))
    with _log_warnings(redaction):
        settings = asyncio.run(choose_local_model(settings, LOCAL_ENDPOINTS))
        loaded = load_all_agents(settings, variables)
        for problem in loaded.problems:
            print(f"left out: {problem}", file=sys.stderr)
        board = Callboard(
            tuple(loaded.registry), model=make_default_model(settings), settings=settings, redaction=redaction
        )
        with TemporaryDirectory(prefix="callboard-") as folder, start_blocking_portal() as portal:
            socket = Path(folder) / "socket"
            with portal.wrap_async_context_manager(serving(board.asgi(), uds=str(socket), access_log=False)):
                yield socket


@contextmanager
def _log_warnings(redaction: Redaction) -> Iterator[None]:
    """Log warnings to standard error, or to a file if standard error is a terminal.

    On a terminal, lines of the log would interrupt the answer. The path of the file is printed at the end. An empty
    file is deleted.
    """
    logging.captureWarnings(True)
    if not sys.stderr.isatty():
        set_up_logging("warning", redaction)
        yield
        return
    descriptor, path = mkstemp(prefix="callboard-chat-", suffix=".log", text=True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as log:
        set_up_logging("warning", redaction, log)
        try:
            yield
        finally:
            if log.tell():
                print(f"The server's log: {path}", file=sys.stderr)
            else:
                Path(path).unlink()
