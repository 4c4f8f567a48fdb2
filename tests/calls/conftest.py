"""What runs a tool as the loop does, and keeps what it reports."""

from collections.abc import Callable
from typing import Any

import pytest

from callboard.calls import StatusChannel, StatusReport, Tool, ToolContext, ToolResult
from callboard_protocol import User
from tests.calls.calling import run_tool


class Stage:
    """Runs tools; `reports` holds what they said, in order."""

    def __init__(self) -> None:
        self.reports: list[StatusReport] = []

    def context(self, tool: Tool) -> ToolContext:
        channel = StatusChannel(self.reports.append)
        return ToolContext("call_1", tool.name, "chat_1", User(id="u1"), channel)

    async def run(self, tool: Tool, timeout_seconds: float = 20, /, **arguments: Any) -> ToolResult:
        return await run_tool(tool, self.context(tool), timeout_seconds, **arguments)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def by_hand() -> Callable[..., Tool]:
    """A tool around any function, with a schema that takes anything."""

    def make(function: Callable[..., Any], **fields: Any) -> Tool:
        return Tool("by_hand", "Made by hand.", {"type": "object"}, function, **fields)

    return make
