"""What the servers of this folder share; each runs with its framework's own Python: `python langgraph_server.py URL`.

URL is the address of the model. Each call of `wipe` leaves a line in the file `wiped` of the working directory.
"""

import sys
from pathlib import Path
from typing import Any

import uvicorn

MODEL_URL = sys.argv[1]


async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}"


async def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


def wipe(disk: str) -> str:
    """Wipe a disk."""
    with Path("wiped").open("a") as wiped:
        wiped.write(f"{disk}\n")
    return f"wiped {disk}"


class _Server(uvicorn.Server):
    async def startup(self, *args: Any, **more: Any) -> None:
        await super().startup(*args, **more)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def listen(app: Any) -> None:
    """Serve the application on a free port, and print the port."""
    _Server(uvicorn.Config(app, port=0, log_level="warning")).run()
