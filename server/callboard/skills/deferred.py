"""Skills that exist once the server runs: what they are depends on its settings."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from callboard.skills.skill import Skill
from callboard.tools import Services, Tool

Build = Callable[[Services], Sequence[Skill]]


class _Deferred:
    def __init__(self, build: Build) -> None:
        self._build = build
        self._skills: Sequence[Skill] = ()

    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for skill in self._skills for tool in skill.current_tools())

    def prompt(self) -> str:
        return "\n\n".join(part for skill in self._skills if (part := skill.current_prompt().strip()))

    @asynccontextmanager
    async def lifespan(self, services: Services) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._skills = self._build(services)
            lifespans = [skill.lifespan(services) for skill in self._skills if skill.lifespan]
            # Side by side: one that is slow to start holds up no other.
            await asyncio.gather(*map(stack.enter_async_context, lifespans))
            yield
        self._skills = ()


def deferred(name: str, description: str, build: Build) -> Skill:
    """A skill with the tools and prompts of those that `build` makes when the server starts; until then without any."""
    later = _Deferred(build)
    return Skill(name, description, later.prompt, later.tools, lifespan=later.lifespan)
