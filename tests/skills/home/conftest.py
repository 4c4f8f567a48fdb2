"""A room in which the skill `home` is used, with a fake Home Assistant."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from callboard.calls.context import Quotas
from callboard.skills import HomeAssistant
from callboard.storage import Store
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer
from tests.skills.calling import ToolRunner


class Room(ToolRunner[HomeAssistant]):
    """Runs `home`."""

    async def home(self, action: str, *targets: str, **arguments: Any) -> str:
        """Return the text for the model. Raises `ToolError`."""
        if targets:
            arguments["targets"] = list(targets)
        return await self.text("home", action=action, **arguments)

    def next_turn(self) -> None:
        """Begins another turn."""
        self.quotas = Quotas()


@pytest.fixture
async def assistant() -> AsyncIterator[HomeAssistantServer]:
    async with HomeAssistantServer() as server:
        yield server


@pytest.fixture
def room(assistant: HomeAssistantServer, store: Store) -> Room:
    return Room(HomeAssistant(assistant.url, TOKEN), store)
