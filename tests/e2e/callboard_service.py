"""A Callboard server of the end-to-end tests: `callboard serve` with these settings and none of the shell's."""

from __future__ import annotations

import sys
from pathlib import Path

from service import Service
from tests.processes import environment


def callboard_service(name: str, port: int, data: Path, key: str, **settings: str) -> Service:
    """The server, not yet started, with all it keeps under `data`; `settings` without their prefix."""
    own = {
        "PORT": str(port),
        "API_KEY": key,
        "DRAIN_SECONDS": "0",
    } | settings
    return Service(
        name=name,
        command=[str(Path(sys.executable).with_name("callboard")), "serve"],
        environment=environment(data, **own),
        log=data / f"{data.name}.log",
        health=f"http://127.0.0.1:{port}/health",
    )
