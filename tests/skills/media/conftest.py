"""A desk at which the media tools are run, with a Seerr behind it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from callboard.calls import Services, StatusChannel, ToolContext
from callboard.models import ScriptedModel
from callboard.skills import Seerr
from callboard.storage import Store
from tests.calls.calling import run_tool
from tests.fakes.seerr import KEY, SeerrServer


@dataclass(frozen=True)
class Desk:
    """Runs tools by name, like the loop."""

    skill: Seerr
    store: Store

    async def run(self, name: str, **arguments: Any) -> str:
        """Return the text for the model. Raises `ToolError`."""
        [tool] = [one for one in self.skill.current_tools() if one.name == name]
        services = Services(self.store, ScriptedModel(lambda _: []))
        context = ToolContext("call_1", name, "chat_1", None, StatusChannel(print), lent=services)
        return (await run_tool(tool, context, **arguments)).text


@pytest.fixture
async def seerr() -> AsyncIterator[SeerrServer]:
    async with SeerrServer() as server:
        yield server


@pytest.fixture
def desk(seerr: SeerrServer, store: Store) -> Desk:
    return Desk(Seerr(seerr.url, KEY), store)
