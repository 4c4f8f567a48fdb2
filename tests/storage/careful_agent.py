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


@tool(read_only=True)
async def look(seat: int) -> str:
    """Look whether a seat is free; at the server that is killed that takes for ever.

    Args:
        seat: Its number.
    """
    note(f"look {seat}")
    if "CALLBOARD_TEST_HANGS" in os.environ:
        await asyncio.Event().wait()
    return f"Seat {seat} is free."


@tool(requires_confirmation=True)
async def refund(seat: int) -> str:
    """Pay a seat back.

    Args:
        seat: Its number.
    """
    note(f"refund {seat}")
    return f"Seat {seat} is paid back."


@tool(requires_confirmation=True)
async def refund_slowly(seat: int) -> str:
    """Pay a seat back, and never say so.

    Args:
        seat: Its number.
    """
    note(f"refund {seat}")
    await asyncio.Event().wait()
    return ""


@tool
async def give(seat: int) -> str:
    """Give whoever sits there a present.

    Args:
        seat: The number of the seat.
    """
    note(f"give {seat}")
    return f"Seat {seat} is happy."


seats = Skill("seats", "Sells seats.", tools=[sell, wait_for_ever, look, refund, refund_slowly])
presents = Skill("presents", "Gives presents.", tools=[give], max_tool_calls=1)
register(Agent("careful", skills=[seats, presents]))
