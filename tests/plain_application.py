"""An application for ASGI's servers as they come: by itself, and below a prefix of another. Its tool waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from callboard import Agent, Callboard, Skill, tool
from callboard.testing import Call, FakeModel


@tool
async def wait() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


@asynccontextmanager
async def tell_of_the_end(_: Starlette) -> AsyncIterator[None]:
    yield
    print("left in order", flush=True)


board = Callboard(
    [Agent("clerk", skills=(Skill("waiting", "Waits.", tools=(wait,)),))],
    model=FakeModel([Call("wait")]),
    lifespan=tell_of_the_end,
)
app = board.asgi()
mounted = Starlette(routes=[Mount("/board", app)], lifespan=app.lifespan)
