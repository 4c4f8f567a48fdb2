"""A runner of the web skill's tools that works like the loop, and a resolver with scripted answers."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.calls import Services, SourceNumbers, StatusChannel, StatusReport, ToolContext, ToolResult
from callboard.skills.web import WebSearch
from tests.calls.calling import run_tool


class Web:
    """Runs the tools of a skill. `reports` are their statuses."""

    def __init__(self, skill: WebSearch, services: Services, last_source: int) -> None:
        self.skill = skill
        self.reports: list[StatusReport] = []
        self._services = services
        self._sources = SourceNumbers(last_source)

    @property
    def context(self) -> ToolContext:
        channel = StatusChannel(self.reports.append)
        return ToolContext("call_1", "tool", "chat_1", None, channel, self._sources, lent=self._services)

    async def run(self, name: str, **arguments: Any) -> ToolResult:
        [tool] = [tool for tool in self.skill.current_tools() if tool.name == name]
        return await run_tool(tool, self.context, **arguments)


class Names:
    """A resolver that returns the next answer for a name each time, and repeats the last. `asked` are the queries."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self.asked: list[str] = []
        self._answers = {name: list(given) for name, given in answers.items()}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        given = self._answers[host]
        return given.pop(0) if len(given) > 1 else given[0]
