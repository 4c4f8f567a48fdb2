"""What a run gives its agent, for tests of agents."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from callboard.agents import AgentLike, RunContext
from callboard.agents.context import TurnContext
from callboard.models import ChatDict, ScriptedModel
from callboard_protocol import Event, Message


class Claims:
    """As a chat hands out ids: never empty, never twice."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._numbers = count()

    def __call__(self, candidate: str) -> str:
        while not candidate or candidate in self._seen:
            candidate = f"new_{next(self._numbers)}"
        self._seen.add(candidate)
        return candidate


ContextFor = Callable[..., RunContext]


@pytest.fixture
def context_for() -> ContextFor:
    claims = Claims()

    def make(prompt: str | Sequence[ChatDict], **fields: Any) -> RunContext:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return TurnContext("run_1", messages, claims, fields.pop("model", ScriptedModel(pace=0)), **fields)

    return make


async def play(agent: AgentLike, context: RunContext) -> list[Event]:
    return [event async for event in agent.run(context)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Message))
