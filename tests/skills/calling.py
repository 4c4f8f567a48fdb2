"""Calls tools of a skill as the loop does: arguments checked, services lent, the result as the model reads it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from callboard import Agent
from callboard._history import Turn
from callboard.calls import Services, StatusChannel, StatusReport, ToolContext, ToolResult
from callboard.calls.context import Quotas, SourceNumbers
from callboard.models import ChatModel, ScriptedModel
from callboard.skills import Skill
from callboard.storage import Store
from callboard_protocol import User
from tests.calls.calling import run_tool
from tests.fakes.openai_server import OpenAIServer, Script
from tests.serving import Service, serving
from tests.storage.turns import StoredSteps

S = TypeVar("S", bound=Skill)


@dataclass
class ToolRunner(Generic[S]):
    """Runs the tools of a skill. All calls belong to one turn; `reports` are their statuses."""

    skill: S
    store: Store
    last_source: int = -1
    quotas: Quotas = field(default_factory=Quotas)
    reports: list[StatusReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sources = SourceNumbers(self.last_source)

    @property
    def context(self) -> ToolContext:
        services = Services(self.store, ScriptedModel(lambda _: []))
        channel = StatusChannel(self.reports.append)
        return ToolContext(
            "call_1", "tool", "chat_1", None, channel, self._sources, given_services=services, quotas=self.quotas
        )

    async def run(self, name: str, /, **arguments: Any) -> ToolResult:
        """Raises `ToolError`."""
        [tool] = [tool for tool in self.skill.current_tools() if tool.name == name]
        return await run_tool(tool, self.context, **arguments)

    async def text(self, name: str, /, **arguments: Any) -> str:
        """Return the text for the model. Raises `ToolError`."""
        return (await self.run(name, **arguments)).text


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
        context = ToolContext(
            "call_1", tool.name, self.chat_id, user, channel, agent_id=self.agent_id, given_services=services
        )
        # Through JSON, like a model's arguments.
        result = await run_tool(tool, context, **json.loads(json.dumps(arguments)))
        return json.loads(result.text)

    async def say(self, text: str, answer: str = "Fine.") -> None:
        """Store a turn of the chat."""
        assert self.chat_id is not None
        journal = StoredSteps(self.store, Turn(self.chat_id, f"run-{text}", None, self.user_id, text))
        await journal.begin()
        await journal.finish(answer, is_answered=True)


@asynccontextmanager
async def serving_model(
    folder: Path, answers: Script, agent: Agent, **settings: Any
) -> AsyncIterator[tuple[Service, OpenAIServer]]:
    """A server with this agent, and the endpoint of its model, which gives these answers."""
    async with OpenAIServer(answers) as model:
        async with serving(folder, agent, model_base_url=model.base_url, model="m", **settings) as service:
            yield service, model
