"""Skills: something an agent can do, as a piece of prompt and the tools for it, and what it knows of a user."""

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from callboard.calls import Services, Tool, ToolContext, refuse_special_parameter
from callboard.errors import AgentError

if TYPE_CHECKING:
    # An agent's file imports this module, and need not load a web framework to do so.
    from starlette.routing import BaseRoute

Execute = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[object]]
"""Serves every tool of a skill: the tool's name, its arguments, the call's context; returns as a tool does."""

ExecuteWithoutContext = Callable[[str, Mapping[str, Any]], Awaitable[object]]
"""The same for tools that need no context."""

Prompt = str | Callable[[], str]
"""A text, or a function that gives it for the moment."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

RECALLED_LINE_CHARS = 400
"""Of one memory, value or note; the tool that keeps it has the whole."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """`lines` of what is known, the best first, each made by `format_recalled`; `one` and `many` are their names."""

    one: str
    many: str
    lines: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The amount in words: `3 memories`."""
        return f"{len(self.lines)} {self.one if len(self.lines) == 1 else self.many}"


Recall = Callable[[Services, str, str], Awaitable[Recalled]]
"""Returns what is known of the user of that id, by the agent of that id. Raises `StorageError`."""


def format_recalled(text: str) -> str:
    """Return the text as one JSON string, cut: whatever it holds, it cannot end the line that it is.

    `<` is written as its code point, so that no tag and no model's own token stands in it.
    """
    shown = text if len(text) <= RECALLED_LINE_CHARS else text[: RECALLED_LINE_CHARS - 1] + "…"
    return json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c")


Tools = Sequence[Tool | Mapping[str, Any]] | Callable[[], Sequence[Tool]]


Conditions = Callable[[], Sequence[str]]
"""Gives a line on each thing that a skill depends on, as it is at the moment: people are told, the model is not."""


@dataclass(frozen=True, slots=True)
class SkillState:
    """State of a skill in one running application: what its lifespan yields, and gone with it.

    What is given takes the place of the skill's own field of that name; None leaves that as it is.
    """

    tools: Tools | None = None
    prompt_fragment: Prompt | None = None
    recall: Recall | None = None
    routes: "Sequence[BaseRoute] | None" = None
    conditions: Conditions | None = None


Lifespan = Callable[[Services], AbstractAsyncContextManager[SkillState | None]]


# No slots, and equal to itself alone: skills that come with the server are made by classes of their own, and each
# application keeps what it has opened by the skill.
@dataclass(frozen=True, eq=False)
class Skill:
    """A named ability of an agent.

    `prompt_fragment` joins the agent's system prompt. `tools` are offered to the model: `Tool`s, or
    OpenAI function schemas that `execute` serves, or a function that gives the tools there are at
    the moment. `max_tool_calls`: how many executions of them a turn may have, below what the whole
    turn may. `missing`: a line for each tool that is not there and what to do, such as
    "web_fetch: pip install 'callboard[web]'"; people are told, the model is not. `recall` gives what
    it knows of the user, for the prompt.

    A skill is made once and may be given to several agents and applications; what it keeps open
    belongs to an application. `lifespan` is entered when that starts and left when it stops, and
    yields a `SkillState` or nothing. `routes` are served by it under `/skills/<name>/`, to those who
    may use the server. `secrets` are the keys that it was given, which no log, event or row may hold. `conditions`
    gives a line on each thing that it depends on, as it is at the moment: "files: ready, 4 tools". `tool_prefix` begins
    the names of all tools of a skill whose tools others name: `git` for `git_…`.

    Raises `AgentError` where one of the tools is none, and for a limit below 1.
    """

    name: str
    description: str
    prompt_fragment: Prompt = ""
    tools: Tools = ()
    execute: Execute | ExecuteWithoutContext | None = field(default=None, repr=False)
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
            object.__setattr__(self, "execute", self._give_context(self.execute))
        object.__setattr__(self, "missing", (self.missing,) if isinstance(self.missing, str) else tuple(self.missing))
        object.__setattr__(self, "routes", tuple(self.routes))
        object.__setattr__(self, "secrets", tuple(self.secrets))
        if not callable(self.tools):
            object.__setattr__(self, "tools", tuple(self._as_tool(one) for one in self.tools))

    @asynccontextmanager
    async def open(self, services: Services) -> AsyncIterator["Skill"]:
        """Yield the skill as it is in one running application, for as long as that runs."""
        services.redaction.add(*self.secrets)
        if self.lifespan is None:
            yield self
            return
        async with self.lifespan(services) as state:
            given = {} if state is None else {one.name: getattr(state, one.name) for one in fields(state)}
            yield self.copy(lifespan=None, **{name: value for name, value in given.items() if value is not None})

    def copy(self, **changes: Any) -> "Skill":
        """Return the same skill with other values of some fields: `WebSearch().copy(max_tool_calls=3)`."""
        return Skill(**{one.name: getattr(self, one.name) for one in fields(Skill)} | changes)

    def current_tools(self) -> tuple[Tool, ...]:
        """Return the tools there are now."""
        tools = self.tools() if callable(self.tools) else self.tools
        return tuple(tool for tool in tools if isinstance(tool, Tool))

    def current_prompt(self) -> str:
        """Return the piece of prompt that holds now."""
        return self.prompt_fragment() if callable(self.prompt_fragment) else self.prompt_fragment

    def current_conditions(self) -> tuple[str, ...]:
        """Return how what it depends on is now."""
        return tuple(self.conditions()) if self.conditions else ()

    def _as_tool(self, given: object) -> Tool:
        if isinstance(given, Tool):
            if given.is_method:
                raise AgentError(
                    f"The skill '{self.name}' lists the method '{given.name}': take it from an instance, as self.tool."
                )
            return given
        function = given.get("function") if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping) or "name" not in function:
            named = getattr(given, "__name__", repr(given))
            raise AgentError(f"The skill '{self.name}' lists {named}, which is no tool: write @tool above it.")
        name = str(function["name"])
        if self.execute is None:
            raise AgentError(f"The skill '{self.name}' lists '{name}' as a schema: give it `execute`, which serves it.")
        execute: Any = self.execute

        async def serve(callboard_context: ToolContext, **arguments: Any) -> object:
            return await execute(name, arguments, callboard_context)

        return Tool(name, str(function.get("description", "")), function.get("parameters", {}), serve)

    def _give_context(self, execute: Any) -> Execute:
        """Return `execute` with a parameter for the call's context. Raises `AgentError` if it takes anything else."""
        parameters = inspect.signature(execute).parameters.values()
        for parameter in parameters:
            refuse_special_parameter(parameter.name, f"`execute` of the skill '{self.name}'")
        positional = [one for one in parameters if one.kind in _POSITIONAL]
        needed = sum(one.default is one.empty for one in positional)
        takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        names_context = any("ToolContext" in str(one.annotation) for one in positional[2:3])
        if needed == 3 or takes_any or (names_context and needed < 3):
            served: Execute = execute
            return served
        if needed > 3 or len(positional) < 2:
            raise AgentError(f"`execute` of the skill '{self.name}' must take a name, arguments and a ToolContext.")

        async def without_context(name: str, arguments: Mapping[str, Any], _context: ToolContext) -> object:
            result: object = await execute(name, arguments)
            return result

        return without_context


def find_clash(prefix: str, others: Sequence[str]) -> str | None:
    """Return one of the other prefixes that begins with this one.

    The server `git` could list a tool `hub_delete`, and so offer one that passes for the tool `delete` of `git_hub`.
    """
    return next((other for other in others if f"{other}_".startswith(f"{prefix}_")), None)
