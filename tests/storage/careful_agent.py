"""An agent for tests that kill servers: its tools append a line to a file each time they run."""

import asyncio
import os
from pathlib import Path

from callboard import Agent, Skill, register, tool

RAN = Path(os.environ.get("CALLBOARD_TEST_RAN", os.devnull))


def note(line: str) -> None:
    with RAN.open("a") as file:
        file.write(f"{line}\n")


@tool
async def sell(seat: int) -> str:
    """Sell a seat.

    Args:
        seat: Its number.
    """
    note(f"sell {seat}")
    return f"Seat {seat} is sold."


@tool
async def wait_for_ever(seat: int) -> str:
    """Sell a seat, and never say so.

    Args:
        seat: Its number.
    """
    note(f"wait {seat}")
    await asyncio.Event().wait()
    return ""


register(Agent("careful", skills=[Skill("seats", "Sells seats.", tools=[sell, wait_for_ever])]))
