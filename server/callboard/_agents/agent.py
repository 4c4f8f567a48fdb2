"""Agents: something with an id that turns a conversation into protocol events.

`AgentLike` is all that a run needs; `Agent` is the built-in kind, a prompt and skills over
the tool loop. Knows nothing of storage or HTTP.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Never, Protocol

import structlog

from callboard._agents.context import OnOwnerLoss, RunContext, TurnContext, check_on_owner_loss
from callboard._agents.declarations import (
    check_icon,
    check_id,
    check_limits,
    check_list,
    check_model,
    check_parameters,
    check_skills,
    check_suggestions,
    check_texts,
    check_tool_format,
    make_tools,
)
from callboard._agents.recalling import recall
from callboard._settings import ToolFormat
from callboard.calls import Allowance, Limits, Tool
from callboard.errors import AgentError
from callboard.models import ChatDict, ChatModel, ModelEndpoint, content_text
from callboard.skills import Skill
from callboard.skills.skill import find_clash
from callboard_protocol import Event

if TYPE_CHECKING:
    from callboard._formats import Format, FormatChoice

_log = structlog.get_logger(__name__)


class AgentLike(Protocol):
    """The one interface of built-in agents and of every framework adapter.

    It may have an `on_owner_loss` too. Without one it is `end`: an agent that is called once more in a turn, with
    messages that end in the results of its tools, may not read them, and do all anew.
    """

    @property
    def agent_id(self) -> str:
        """The name that the `model` field of a request gives."""
        ...

    @property
    def name(self) -> str:
        """The name that people read in the model list."""
        ...

    @property
    def description(self) -> str:
        """One sentence on what it is for."""
        ...

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the run's events. The recorder adds what is missing: start, ids, rounds, durations, ends."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Agent:
    """The built-in kind of agent: a prompt, skills and tools, run by the tool loop.

    `description` is what people read about it, `name` what they read in the model list: the id if there is none.
    `prompt` is the system prompt; what the skills add to it comes after it. `tools` are functions or `Tool`s beside
    those of the skills. `model`, `limits` and `tool_format` override the server's; for a model of its own
    `tool_format` is `auto` unless it is set. `confirm`: name patterns (`request_*`) of tools that ask the user before
    they run, beside those that always do. `on_owner_loss`: whether another server goes on with a run whose own is
    gone, or ends it. `suggestions` are first questions that
    a client may offer, such as "What is on in the kitchen?", and `icon` is a picture, as a `data:image/png;base64,…`
    URL or a web address.

    Raises `AgentError`, with the fix, for an argument that the agent could not run with, for an id that a model list
    cannot hold, for two tools of one name, and for MCP servers whose names begin each other.
    """

    agent_id: str
    description: str
    skills: Sequence[Skill]
    prompt: str
    name: str
    model: ChatModel | None = field(repr=False)
    limits: Limits | None
    tool_format: ToolFormat | None
    confirm: Sequence[str]
    on_owner_loss: OnOwnerLoss
    suggestions: Sequence[str]
    icon: str = field(repr=False)

    def __init__(
        self,
        agent_id: str,
        description: str = "",
        skills: Sequence[Skill] = (),
        prompt: str = "",
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        name: str = "",
        model: ChatModel | None = None,
        limits: Limits | None = None,
        tool_format: ToolFormat | None = None,
        confirm: Sequence[str] = (),
        on_owner_loss: OnOwnerLoss = "continue",
        suggestions: Sequence[str] = (),
        icon: str = "",
        **unknown: Never,
    ) -> None:
        check_parameters(unknown)
        check_id(agent_id)
        check_texts(agent_id, description=description, prompt=prompt, name=name)
        check_model(model, f"The agent '{agent_id}'")
        check_limits(agent_id, limits)
        check_tool_format(agent_id, tool_format)
        check_on_owner_loss(agent_id, on_owner_loss)
        own = make_tools(agent_id, tools)
        values = {
            "agent_id": agent_id,
            "description": description,
            "skills": (*check_skills(agent_id, skills), *([Skill("tools", "Its own.", tools=own)] if own else ())),
            "prompt": prompt,
            "name": name or agent_id,
            "model": model,
            "limits": limits,
            "tool_format": tool_format,
            "confirm": check_list(agent_id, "confirm", confirm),
            "on_owner_loss": on_owner_loss,
            "suggestions": check_suggestions(agent_id, suggestions),
            "icon": check_icon(agent_id, icon),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        self._refuse_doubles()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that all skills have now, in their order; of tools that share a name none."""
        listed = self._list_tools()
        doubles = _find_doubles(listed)
        for name, skills in doubles.items():
            _warn_of_double(self.agent_id, name, skills)
        return tuple(tool for _, tool in listed if tool.name not in doubles)

    @property
    def missing(self) -> tuple[str, ...]:
        """The things that it lacks, and what to do: a line for each, in the order of its skills."""
        doubles = [
            f"{name}: {' and '.join(skills)} have a tool of this name each, and none is offered; rename one of them"
            for name, skills in _find_doubles(self._list_tools()).items()
        ]
        return tuple(dict.fromkeys([*(line for skill in self.skills for line in skill.missing), *doubles]))

    def bind(self, opened: Mapping[Skill, Skill]) -> "Agent":
        """Return the agent with what its skills are in a running application."""
        # Not `replace`: what an open skill offers changes, and names that meet by then are no fault of the agent's.
        bound = copy(self)
        object.__setattr__(bound, "skills", tuple(opened[skill] for skill in self.skills))
        return bound

    def build_system_prompt(self) -> str:
        """Return the prompt and the skills' fragments; tools add nothing to it. Empty where there is none."""
        parts = (self.prompt, *(skill.current_prompt() for skill in self.skills))
        return "\n\n".join(part.strip() for part in parts if part.strip())

    async def run(self, context: RunContext) -> AsyncGenerator[Event, None]:
        """Play one turn by the tool loop; for a background task one plain answer of the model. Raises `ModelError`."""
        context = TurnContext.of(context)
        # To declare an agent takes none of the formats. A server has imported the loop before its first run.
        from callboard._agents.tool_loop import run_completion, run_tool_loop
        from callboard._formats import ProviderDetails, model_key

        model = self.model or context.model
        context = replace(context, model=context.observers.watch(model))
        if context.task is not None:
            events = run_completion(context)
        else:
            known = await recall(self.skills, context, self.agent_id)
            if known.status is not None:
                yield known.status
            prompt = "\n\n".join(part for part in (self.build_system_prompt(), known.prompt) if part)
            model_name = await model.find_name() if isinstance(model, ModelEndpoint) else model.name
            limits = self.limits.without(len(context.calls_made)) if self.limits else None
            allowances = self._list_allowances(context.calls_made)
            events = run_tool_loop(
                replace(context, messages=with_system_prompt(prompt, context.messages)),
                self.tools,
                calls=context.make_call_context(self.agent_id, self.confirm, limits, allowances),
                tool_format=await self._choose_format(model, model_name, context.formats),
                details=ProviderDetails(model_key(model, model_name), context.provider_details),
            )
        async with aclosing(events):
            async for event in events:
                yield event

    async def _choose_format(self, model: ChatModel, model_name: str, server: "FormatChoice") -> "Format":
        if self.tool_format is None and self.model is None:
            return await server.of_model(model, model_name)
        # The server's setting is about the server's model.
        return await server.of_model(model, model_name, self.tool_format or "auto")

    def _list_allowances(self, calls_made: Sequence[str]) -> list[Allowance]:
        allowances: list[Allowance] = []
        for skill in self.skills:
            if skill.max_tool_calls is not None:
                tools = frozenset(tool.name for tool in skill.current_tools())
                made = sum(name in tools for name in calls_made)
                allowances.append(Allowance(skill.name, tools, skill.max_tool_calls, made))
        return allowances

    def _list_tools(self) -> list[tuple[str, Tool]]:
        """Return every tool with the name of its skill."""
        return [(skill.name, tool) for skill in self.skills for tool in skill.current_tools()]

    def _refuse_doubles(self) -> None:
        for name, skills in _find_doubles(self._list_tools()).items():
            raise AgentError(
                f"The agent '{self.agent_id}' has two tools named '{name}': one of the skill "
                f"'{skills[0]}', one of '{skills[1]}'. Give one of them another name."
            )
        prefixes = [skill.tool_prefix for skill in self.skills if skill.tool_prefix]
        for index, prefix in enumerate(prefixes):
            if (other := find_clash(prefix, [*prefixes[:index], *prefixes[index + 1 :]])) is not None:
                raise AgentError(
                    f"The agent '{self.agent_id}' has tools whose names begin with '{prefix}_', and others with "
                    f"'{other}_', for which they could pass. Give one of the MCP servers another name."
                )


class BuiltInAgent(Agent):
    """An agent that every server has and that answers with the server's model."""

    __slots__ = ()


def _find_doubles(listed: Sequence[tuple[str, Tool]]) -> dict[str, tuple[str, ...]]:
    """Return the names that several tools have, each with the skills of those tools.

    None of them can be offered: the wrong one would run, with the wrong rule on who is asked first.
    """
    owners: dict[str, list[str]] = {}
    for skill, tool in listed:
        owners.setdefault(tool.name, []).append(skill)
    return {name: tuple(skills) for name, skills in owners.items() if len(skills) > 1}


@cache
def _warn_of_double(agent_id: str, tool_name: str, skills: tuple[str, ...]) -> None:
    """Log that tools of one name are not offered: once, and not with each run."""
    _log.warning("tools_of_one_name_left_out", agent=agent_id, tool=tool_name, skills=skills)


def left_out(agent: AgentLike, functions: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the names of what a client asks for of calls and the agent does not do.

    An agent of another kind has its framework's tools alone, and calls them as that has it, several at
    once too; one of our own runs its own tool where a function has the same name.
    """
    if not isinstance(agent, Agent):
        return [*functions, *(["parallel_tool_calls"] if options.get("parallel_tool_calls") is False else [])]
    own = {tool.name for tool in agent.tools}
    return [name for name in functions if name in own]


def with_system_prompt(prompt: str, messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages with `prompt` first and what the client itself put there after it.

    One system message in all: many chat templates refuse a second.
    """
    own = list(takewhile(lambda message: message.get("role") in ("system", "developer"), messages))
    parts = [prompt, *(content_text(message.get("content")) for message in own)]
    merged = "\n\n".join(part for part in parts if part.strip())
    rest = list(messages[len(own) :])
    return [{"role": "system", "content": merged}, *rest] if merged else rest
