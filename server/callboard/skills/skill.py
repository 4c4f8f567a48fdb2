"""The class of all skills: an ability of an agent, as a piece of prompt and tools, and facts about the user."""

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from callboard.calls import Services, Tool, ToolContext
from callboard.calls.tool import refuse_special_parameter
from callboard.errors import AgentError

if TYPE_CHECKING:
    # Files of agents import this module, and must not load a web framework.
    from starlette.routing import BaseRoute

Execute = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[object]]
"""Runs any tool of a skill: takes the tool's name, its arguments and the call's context, and returns a tool result."""

Prompt = str | Callable[[], str]
"""A text, or a function that returns the current text."""

RECALLED_LINE_CHARS = 400
"""The longest recalled memory, value or note in a prompt. The skill's tool returns the whole text."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """Facts about the user for the prompt.

    `lines` are made by `format_recalled`, best first. `singular` and `plural` name the facts, for example `memory` and
    `memories`.
    """

    singular: str
    plural: str
    lines: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """The number of facts in words, for example `3 memories`."""
        return f"{len(self.lines)} {self.singular if len(self.lines) == 1 else self.plural}"


Recall = Callable[[Services, str, str], Awaitable[Recalled]]
"""Returns the facts about a user, by user id and agent id. Raises `StorageError`."""


def format_recalled(text: str) -> str:
    """Return the text, shortened and quoted."""
    return quote(text if len(text) <= RECALLED_LINE_CHARS else text[: RECALLED_LINE_CHARS - 1] + "…")


def quote(text: str) -> str:
    """Return an untrusted text as one JSON string, so that no text can end its line in the prompt.

    `<` is written as its code point, so that the text contains no tag and no special token of a model.
    """
    return json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")


Tools = Sequence[Tool | Mapping[str, Any]] | Callable[[], Sequence[Tool]]


Conditions = Callable[[], Sequence[str]]
"""Returns a line about each dependency of a skill and its current state. The lines are for people, not for the
model."""


@dataclass(frozen=True, slots=True)
class SkillState:
    """The state of a skill in one running application, yielded by the skill's lifespan.

    Each value that is not None replaces the skill's field of the same name.
    """

    tools: Tools | None = None
    prompt_fragment: Prompt | None = None
    recall: Recall | None = None
    routes: "Sequence[BaseRoute] | None" = None
    conditions: Conditions | None = None


Lifespan = Callable[[Services], AbstractAsyncContextManager[SkillState | None]]


# No slots and no equality by fields: the server's own skills are subclasses, and each application stores its opened
# skills by the skill object.
@dataclass(frozen=True, eq=False)
class Skill:
    """A named ability of an agent.

    A skill is created once and may be given to several agents and applications. Its open resources belong to an
    application.

    Attributes:
        name: The skill's name.
        description: A description for people.
        prompt_fragment: A text for the agent's system prompt, or a function that returns the current text.
        tools: `Tool`s, or OpenAI function schemas that `execute` runs, or a function that returns the current tools.
        execute: Runs the tools that are given as schemas.
        max_tool_calls: The most calls of its tools in a turn, within the turn's own limit.
        lifespan: Entered when an application starts and left when it stops. May yield a `SkillState`.
        missing: A line for each tool that is not available, with the remedy, for example
            "web_fetch: pip install 'callboard[web]'". The lines are for people, not for the model.
        recall: Returns facts about the user for the prompt.
        routes: Routes that the application serves under `/skills/<name>/`, for those who may use the server.
        secrets: The skill's keys, which must not appear in logs, events or the database.
        conditions: Returns a line about each dependency and its current state, for example "files: ready, 4 tools".
        tool_prefix: The beginning of all its tools' names, if others name its tools: `git` for `git_…`.

    Raises:
        AgentError: An entry of `tools` is not a tool, or `max_tool_calls` is below 1.
    """

    name: str
    description: str
    prompt_fragment: Prompt = ""
    tools: Tools = ()
    execute: Execute | None = field(default=None, repr=False)
    max_tool_calls: int | None = None
    lifespan: Lifespan | None = field(default=None, repr=False)
    missing: Sequence[str] = ()
    recall: Recall | None = field(default=None, repr=False)
    routes: "Sequence[BaseRoute]" = field(default=(), repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    conditions: Conditions | None = field(default=None, repr=False)
    tool_prefix: str = ""

    def __post_init__(self) -> None:
        if self.max_tool_calls is not None and self.max_tool_calls < 1:
            raise AgentError(f"The skill '{self.name}' needs max_tool_calls of 1 or more, not {self.max_tool_calls}.")
        if self.execute is not None:
            self._check_execute(self.execute)
        object.__setattr__(self, "missing", (self.missing,) if isinstance(self.missing, str) else tuple(self.missing))
        object.__setattr__(self, "routes", tuple(self.routes))
        object.__setattr__(self, "secrets", tuple(self.secrets))
        if not callable(self.tools):
            object.__setattr__(self, "tools", tuple(self._to_tool(item) for item in self.tools))

    @asynccontextmanager
    async def open(self, services: Services) -> AsyncIterator["Skill"]:
        """Open the skill for one running application, and yield it with its state."""
        services.redaction.add(*self.secrets)
        if self.lifespan is None:
            yield self
            return
        async with self.lifespan(services) as state:
            given = {} if state is None else {item.name: getattr(state, item.name) for item in fields(state)}
            yield self.copy(lifespan=None, **{name: value for name, value in given.items() if value is not None})

    def copy(self, **changes: Any) -> "Skill":
        """Return the same skill with some fields changed: `WebSearch().copy(max_tool_calls=3)`."""
        return Skill(**{item.name: getattr(self, item.name) for item in fields(Skill)} | changes)

    def current_tools(self) -> tuple[Tool, ...]:
        """Return the current tools."""
        tools = self.tools() if callable(self.tools) else self.tools
        return tuple(tool for tool in tools if isinstance(tool, Tool))

    def current_prompt(self) -> str:
        """Return the current piece of prompt."""
        return self.prompt_fragment() if callable(self.prompt_fragment) else self.prompt_fragment

    def current_conditions(self) -> tuple[str, ...]:
        """Return the current state of the skill's dependencies."""
        return tuple(self.conditions()) if self.conditions else ()

    def _to_tool(self, given: object) -> Tool:
        if isinstance(given, Tool):
            if given.is_method:
                raise AgentError(
                    f"The skill '{self.name}' lists the method '{given.name}': take it from an instance, as self.tool."
                )
            return given
        function = given.get("function") if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping) or "name" not in function:
            named = getattr(given, "__name__", repr(given))
            raise AgentError(f"The skill '{self.name}' lists {named}, which is not a tool: write @tool above it.")
        name = str(function["name"])
        if self.execute is None:
            raise AgentError(f"The skill '{self.name}' lists '{name}' as a schema: give it `execute`, which runs it.")
        execute = self.execute

        async def serve(callboard_context: ToolContext, **arguments: Any) -> object:
            return await execute(name, arguments, callboard_context)

        return Tool(name, str(function.get("description", "")), function.get("parameters", {}), serve)

    def _check_execute(self, execute: Execute) -> None:
        signature = inspect.signature(execute)
        for name in signature.parameters:
            refuse_special_parameter(name, f"`execute` of the skill '{self.name}'")
        try:
            signature.bind("name", {}, None)
        except TypeError:
            raise AgentError(
                f"`execute` of the skill '{self.name}' must take a name, arguments and a ToolContext."
            ) from None


def find_clash(prefix: str, others: Sequence[str]) -> str | None:
    """Return one of the other prefixes that starts with this prefix, or None.

    Otherwise a server `git` could list a tool `hub_delete`, which would look like the tool `delete` of `git_hub`.
    """
    return next((other for other in others if f"{other}_".startswith(f"{prefix}_")), None)
