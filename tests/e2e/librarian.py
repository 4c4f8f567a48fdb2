"""The agent of the memory and branch tests, in a file as users write theirs: `CALLBOARD_AGENTS` names it."""

import asyncio
import secrets

from callboard import Agent, Skill, ToolContext, ToolError, register, tool

BOOK_CHARS = 100_000
"""More than the pipe shows (10,000) and more than the protocol carries in one event (65,536)."""
SEEN_SECONDS = 0.5
"""How long a step of progress is there, so that the page draws it before the next one takes its place."""


def book(title: str) -> str:
    """The whole text of a book; no part of it is like another."""
    lines = "\n".join(f"{line:05d} {title}: „Wer spricht?“ – <em>& so on</em>" for line in range(BOOK_CHARS // 20))
    return lines[:BOOK_CHARS]


@tool
async def look_up(word: str) -> str:
    """Look a word up. No two answers are the same, so that each tells which call it came from.

    Args:
        word: The word.
    """
    return f"{word}: entry {secrets.token_hex(4)}"


@tool
async def read_book(title: str) -> str:
    """Read a long book.

    Args:
        title: Its title.
    """
    return book(title)


@tool
async def borrow_book(context: ToolContext, title: str) -> str:
    """Ask for a book that somebody else has: seen to make progress, then to fail.

    Args:
        title: Its title.
    """
    await context.status("processing", "Asking the cellar", progress=30)
    await asyncio.sleep(SEEN_SECONDS)
    await context.status("processing", "Looking at the cards", progress=70)
    await asyncio.sleep(SEEN_SECONDS)
    raise ToolError(f"{title} is lent to somebody else")


@tool
async def search_shelves(context: ToolContext, subject: str) -> str:
    """Search until somebody stops it.

    Args:
        subject: What to look for.
    """
    await context.status("processing", "Searching", progress=10)
    await asyncio.Event().wait()
    return subject


reading = Skill("reading", "Finds words and books.", "", tools=(look_up, read_book, borrow_book, search_shelves))
register(Agent("librarian", "Looks words and books up.", (reading,), prompt="You are a librarian."))
