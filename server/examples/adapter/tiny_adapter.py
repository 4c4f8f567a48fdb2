"""Runs agents of `tiny_framework.py` as agents of Callboard, with Callboard's public interface only."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
from tiny_framework import Message, TinyAgent, TinyHooks

from callboard.calls import ToolCall, ToolResult
from callboard.frameworks import AdapterTurn, FrameworkAgent, model_error, tool_error
from callboard.models import with_valid_arguments


class TurnHooks(TinyHooks):
    """Reports a run of the framework to the turn, and applies the turn's limits and approvals to its calls."""

    def __init__(self, turn: AdapterTurn) -> None:
        self.turn = turn

    def on_text(self, text: str) -> None:
        """Show a text of the model."""
        self.turn.add_text(text)

    def offer(self, schemas: list[Message]) -> list[Message]:
        """Offer no tools once the turn's limit of calls is reached, so that the model answers."""
        self.turn.note_tools(schemas)
        return [] if self.turn.calls.is_over_limit else schemas

    async def run_tool(self, call: Message, perform: Callable[[], Awaitable[str]]) -> str:
        """Run a tool, and return its result or its error for the model."""
        # The model's messages, the events and the store need the same id: the next turn finds the call by it.
        call["id"] = self.turn.claim_call_id(call["id"])
        calls = self.turn.calls
        shown = ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        # Returns when the start is recorded: a tool must not run earlier.
        await calls.start(shown)
        try:
            text = await calls.run(shown, perform)
        except Exception as raised:  # noqa: BLE001 - a tool may raise anything, and its error is not the run's
            error = tool_error(raised)
            calls.fail(shown.id, error)
            return str(error)
        calls.complete(shown.id, ToolResult(text))
        return text


class TinyAdapter(FrameworkAgent[TinyAgent]):
    """An agent of Callboard that runs a `TinyAgent`."""

    agent_classes = (TinyAgent,)
    agent_noun = "a TinyAgent"

    async def run_turn(self, agent: TinyAgent, turn: AdapterTurn) -> None:
        """Run one turn; the messages include the calls and results of earlier turns."""
        messages = with_valid_arguments(turn.context.messages)
        try:
            await agent.run(messages, TurnHooks(turn))
        except httpx.HTTPError as error:
            raise model_error(error, self.agent_id, always=True) or error from error

    async def run_task(self, agent: TinyAgent, turn: AdapterTurn) -> None:
        """Run a background task, such as a chat's title, without tools."""
        await self.run_turn(replace(agent, tools={}, schemas=()), turn)


def from_tiny(agent: TinyAgent, **options: Any) -> TinyAdapter:
    """Return the agent for Callboard; `options` are arguments of `FrameworkAgent`, for example `on_owner_loss`."""
    return TinyAdapter(lambda _: agent, agent.name, agent.name.title(), "Made with a tiny framework.", **options)
