"""A room in which the skill `home` is used, with a fake Home Assistant."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from callboard.calls import Quotas, Services, StatusChannel, StatusReport, ToolContext
from callboard.models import ScriptedModel
from callboard.skills import HomeAssistant
from callboard.storage import Store
from tests.calls.calling import run_tool
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer


@dataclass
class Room:
    """Runs `home` like the loop. All calls belong to one turn."""

    skill: HomeAssistant
    store: Store
    quotas: Quotas = field(default_factory=Quotas)
    reports: list[StatusReport] = field(default_factory=list)

    async def home(self, action: str, *targets: str, **arguments: Any) -> str:
        """Return the text for the model. Raises `ToolError`."""
        [tool] = self.skill.current_tools()
        services = Services(self.store, ScriptedModel(lambda _: []))
        channel = StatusChannel(self.reports.append)
        context = ToolContext("call_1", "home", "chat_1", None, channel, lent=services, quotas=self.quotas)
        if targets:
            arguments["targets"] = list(targets)
        return (await run_tool(tool, context, action=action, **arguments)).text

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
