"""The agent of the tests of calls in text: one tool writes, the other only reads."""

from callboard import Agent, Skill, register, tool


@tool
async def write_line(text: str) -> str:
    """Write a line into the notes.

    Args:
        text: The line.
    """
    return f"written: {text}"


@tool(read_only=True)
async def read_line(number: int) -> str:
    """Read a line of the notes.

    Args:
        number: Which one.
    """
    return f"line {number} of the notes"


register(Agent("scribe", "Keeps notes.", (Skill("notes", "Notes.", tools=(write_line, read_line)),)))
