"""What a skill is: something an agent can do, as a piece of prompt and the tools for it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from callboard.errors import AgentError
from callboard.skills.recall import Recall
from callboard.tools import Services, Tool, ToolContext

Execute = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[object]]
"""Serves every tool of a skill: the tool's name, its arguments, the call's context; returns as a tool does."""

Tools = Sequence[Tool | Mapping[str, Any]] | Callable[[], Sequence[Tool]]


@dataclass(frozen=True, slots=True)
class Skill:
    """A named ability of an agent.

    `prompt_fragment`, a text or a function that gives it for the moment, joins the agent's system
    prompt. `tools` are offered to the model: `Tool`s, or OpenAI function schemas that `execute`
    serves, or a function that gives the tools there are at the moment. `max_tool_calls`: how many
    executions of them a turn may have, below what the whole turn may. `lifespan` is entered when
    the server starts and left when it stops. `missing`: a line for each tool that is not there and
    what to do, such as "web_fetch: pip install 'callboard[web]'"; people are told, the model is not.
    `recall` gives what it knows of the user, for the prompt.
    Raises `AgentError` where one of the tools is none, and for a limit below 1.
    """

    name: str
    description: str
    prompt_fragment: str | Callable[[], str] = ""
    tools: Tools = ()
    execute: Execute | None = field(default=None, repr=False)
    max_tool_calls: int | None = None
    lifespan: Callable[[Services], AbstractAsyncContextManager[None]] | None = field(default=None, repr=False)
    missing: Sequence[str] = ()
    recall: Recall | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.max_tool_calls is not None and self.max_tool_calls < 1:
            raise AgentError(f"The skill '{self.name}' needs max_tool_calls of 1 or more, not {self.max_tool_calls}.")
        object.__setattr__(self, "missing", (self.missing,) if isinstance(self.missing, str) else tuple(self.missing))
        if not callable(self.tools):
            object.__setattr__(self, "tools", tuple(self._tool(one) for one in self.tools))

    def current_tools(self) -> tuple[Tool, ...]:
        """The tools there are now."""
        tools = self.tools() if callable(self.tools) else self.tools
        return tuple(tool for tool in tools if isinstance(tool, Tool))

    def current_prompt(self) -> str:
        """The piece of prompt that holds now."""
        return self.prompt_fragment() if callable(self.prompt_fragment) else self.prompt_fragment

    def _tool(self, given: object) -> Tool:
        if isinstance(given, Tool):
            return given
        function = given.get("function") if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping) or "name" not in function:
            named = getattr(given, "__name__", repr(given))
            raise AgentError(f"The skill '{self.name}' lists {named}, which is no tool: write @tool above it.")
        name = str(function["name"])
        if self.execute is None:
            raise AgentError(f"The skill '{self.name}' lists '{name}' as a schema: give it `execute`, which serves it.")
        return Tool(
            name, str(function.get("description", "")), function.get("parameters", {}), _served(self.execute, name)
        )


def _served(execute: Execute, name: str) -> Callable[..., Awaitable[object]]:
    async def serve(callboard_context: ToolContext, **arguments: Any) -> object:
        return await execute(name, arguments, callboard_context)

    return serve
