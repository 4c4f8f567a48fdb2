"""Calls a tool as the loop does: arguments checked, services lent, the result as the model reads it."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from callboard._history import Turn
from callboard.calls import Services, StatusChannel, ToolContext
from callboard.models import ChatModel, ScriptedModel
from callboard.skills import Skill
from callboard.storage import Store
from callboard_protocol import User
from tests.calls.calling import run_tool
from tests.storage.turns import StoredSteps


@dataclass(frozen=True)
class Caller:
    """The caller: a user, a chat and an agent, None if the client sends none."""

    store: Store
    model: ChatModel = field(default_factory=ScriptedModel)
    user_id: str | None = "ann"
    chat_id: str | None = "chat"
    agent_id: str = "assistant"

    def but(self, **fields: Any) -> "Caller":
        return replace(self, **fields)

    async def call(self, skill: Skill, **arguments: Any) -> Any:
        """Return the result of the skill's only tool. Raises `ToolError`."""
        [tool] = skill.current_tools()
        user = User(id=self.user_id) if self.user_id else None
        channel = StatusChannel(lambda _: None)
        services = Services(self.store, self.model)
        context = ToolContext("call_1", tool.name, self.chat_id, user, channel, agent_id=self.agent_id, lent=services)
        # Through JSON, like a model's arguments.
        result = await run_tool(tool, context, **json.loads(json.dumps(arguments)))
        return json.loads(result.text)

    async def say(self, text: str, answer: str = "Fine.") -> None:
        """Store a turn of the chat."""
        assert self.chat_id is not None
        journal = StoredSteps(self.store, Turn(self.chat_id, f"run-{text}", None, self.user_id, text))
        await journal.begin()
        await journal.finish(answer, is_answered=True)
