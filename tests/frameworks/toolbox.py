"""What the agents of the scenarios can do: plain functions, which each framework makes into tools in its own way."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from callboard import report_status

GATE_SECONDS = 2
LARGE_CHARS = 200_000
PICTURE = bytes.fromhex("89504e470d0a1a0a") + b"a picture"
PICTURE_URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"


async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def kaboom(reason: str) -> str:
    """Fails."""
    raise ValueError(f"kaboom: {reason}")


async def interrupt() -> str:
    """Raises what ends processes."""
    raise KeyboardInterrupt("enough")


def interrupt_in_thread() -> str:
    """Raises what ends processes, in a thread."""
    raise KeyboardInterrupt("enough")


async def travel(place: str) -> str:
    """Goes somewhere."""
    report_status("processing", f"half way to {place}", 50)
    # So that the status is sent while the tool runs.
    await asyncio.sleep(0)
    return f"in {place}"


def drive(place: str) -> str:
    """Drives somewhere, in a thread."""
    report_status("processing", f"half way to {place}", 50)
    return f"in {place}"


async def archive() -> str:
    """Gives all there is."""
    return "x" * LARGE_CHARS


class Toolbox:
    """The tools by name, created for each run.

    A tool that waits does so until the stage opens the `gate`. `stopped` is set once `wait` was cancelled. `wipe` needs
    the user's approval, and `paint` returns a picture, both in each framework's own way, so neither is among the plain
    tools.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.stopped = asyncio.Event()
        self.wiped: list[str] = []

        async def slow_add(a: int, b: int) -> int:
            """Adds two numbers, slowly."""
            with suppress(TimeoutError):
                # Times out only if a framework ends calls with their whole batch.
                await asyncio.wait_for(self.gate.wait(), GATE_SECONDS)
            return a + b

        async def held() -> str:
            """Holds until it is let go."""
            await self.gate.wait()
            return "let go"

        async def wait() -> str:
            """Waits for ever."""
            report_status("processing", "waiting")
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
            return "never"

        async def wipe(disk: str) -> str:
            """Wipes a disk."""
            self.wiped.append(disk)
            return f"{disk} is empty"

        tools = (add, archive, drive, held, interrupt, interrupt_in_thread, kaboom, slow_add, travel, wait, wipe)
        self._tools: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in tools}

    def plain(self, name: str) -> Callable[..., Any]:
        """The function of that name, with annotations and a docstring that every framework reads."""
        return self._tools[name]
