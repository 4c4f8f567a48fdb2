"""The state of a run of Agno, shared by its models."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from agno.models.message import Message

from callboard.calls import ToolCall
from callboard.errors import ModelError, ToolError
from callboard.frameworks.turn import AdapterTurn


class AgnoHooks:
    """The state of one run.

    `arguments` holds each call's arguments as the model wrote them, by call id. `failure` is how the last request
    failed. `has_failed_answer`: the answering model failed, so if it or a fallback is asked again, its text is taken
    back.
    """

    def __init__(self, turn: AdapterTurn, agent_id: str) -> None:
        self.turn = turn
        self.agent_id = agent_id
        self.question: str | None = None
        """The user's words, as Agno was given them."""
        self.user_messages: list[Message] = []
        """What the user has sent to the run, as Agno was given it."""
        self.arguments: dict[str, str] = {}
        self.iterating: dict[str, asyncio.Task[Any]] = {}
        """Agno's tasks that iterate a tool's generator, by call id."""
        self.refusals: dict[str, ToolError | None] = {}
        """Why calls that the user was asked about may not run, by call id; None if they may."""
        self.failure: ModelError | None = None
        self.has_failed_answer = False
        self.has_dropped_answer = False
        """A failed answer was taken back. Agno may still have its text in the run's content."""

    async def approve(self, calls: Sequence[ToolCall]) -> None:
        """Ask the user about calls that have not been asked about, and note the `refusals`."""
        asked = [call for call in calls if call.id not in self.refusals]
        for call, refused in zip(asked, await self.turn.calls.approve_all(asked), strict=True):
            # Counted, so that a model that asks again and again reaches the limit.
            self.refusals[call.id] = refused and (self.turn.calls.count(call.id, call.name) or refused)


current_hooks: ContextVar[AgnoHooks | None] = ContextVar("callboard_agno_hooks", default=None)
