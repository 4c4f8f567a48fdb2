"""`AgentLike`, the interface that a run needs, and `Agent`, the built-in kind: a prompt and skills."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any, ClassVar, Never, Protocol

import structlog

from callboard.agents.context import OnOwnerLoss, RunContext, TurnContext
from callboard.agents.declarations import check_arguments, check_id, refuse_unknown
from callboard.agents.recalling import recall
from callboard.calls import Tool, tool
from callboard.calls.limits import Allowance, Limits
from callboard.errors import AgentError
from callboard.models import ChatDict, ChatModel, ModelEndpoint
from callboard.models.messages import content_text
from callboard.openwebui.requests import OpenWebUITools
from callboard.settings import ToolFormat
from callboard.skills import Skill
from callboard.skills.skill import find_clash
from callboard_protocol import Event

_log = structlog.get_logger(__name__)


class AgentLike(Protocol):
    """The interface of `Agent`s, framework adapters and agents written by hand.

    An agent may also have the attribute `on_owner_loss`. The default is `end`, because an agent that continues a run
    gets messages that end with the results of its tools, and might call these tools again. With the attribute
    `calls_can_wait`, an approval may raise `CallWaits`: the agent ends its other calls, and the run without `Done`.
    """

    @property
    def agent_id(self) -> str:
        """The agent's id, which requests send in their `model` field."""
        ...

    @property
    def name(self) -> str:
        """The agent's name in the model list."""
        ...

    @property
    def description(self) -> str:
        """The purpose of the agent in one sentence."""
        ...

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the events of the run. The recorder adds missing starts, ids, rounds, durations and ends."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Agent:
    """The built-in kind of agent: a prompt, skills and tools, run by the tool loop.

    `description`: a sentence for users. `name`: the name in the model list, by default the id.
    `prompt`: the system prompt, followed by the prompts of the skills.
    `tools`: functions or `Tool`s, in addition to the tools of the skills.
    `model`, `limits` and `tool_format` replace those of the server. If only `model` is set, `tool_format` is `auto`.
    `confirm`: name patterns (`request_*`) of tools that ask the user first, in addition to tools that always ask.
    `on_owner_loss`: whether another server continues a run whose server stops, or the run ends.
    `suggestions`: first questions that a client may offer, such as "What is on in the kitchen?".
    `icon`: a picture, as a `data:image/png;base64,…` URL or a web address.
    `openwebui_tools`: the tools of Open WebUI that the agent gets: `attached` (by the user or a preset), `all`,
    `none`, or name patterns.

    Raises `AgentError`, which says how to fix the declaration: for an invalid argument, for two tools with the same
    name, and if the name of one MCP server begins with the name of another and `_`, such as `git` and `git_hub`.
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
    openwebui_tools: OpenWebUITools
    calls_can_wait: ClassVar[bool] = True

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
        openwebui_tools: OpenWebUITools = "attached",
        **unknown: Never,
    ) -> None:
        check_id(agent_id)
        refuse_unknown(agent_id, unknown, Agent)
        values: dict[str, Any] = {
            "description": description,
            "skills": skills,
            "prompt": prompt,
            "name": name or agent_id,
            "model": model,
            "limits": limits,
            "tool_format": tool_format,
            "confirm": confirm,
            "on_owner_loss": on_owner_loss,
            "suggestions": suggestions,
            "icon": icon,
            "openwebui_tools": openwebui_tools,
        }
        check_arguments(agent_id, tools=tools, **values)
        own = [given if isinstance(given, Tool) else tool(given) for given in tools]
        values |= {
            "skills": (*skills, *([Skill("tools", "Its own.", tools=own)] if own else ())),
            "confirm": tuple(confirm),
            "suggestions": tuple(suggestions),
            "openwebui_tools": openwebui_tools if isinstance(openwebui_tools, str) else tuple(openwebui_tools),
        }
        for key, value in {"agent_id": agent_id, **values}.items():
            object.__setattr__(self, key, value)
        self._check_names()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The current tools of all skills, in order. Tools that share a name are left out."""
        listed = self._list_tools()
        duplicates = _find_duplicates(listed)
        for name, skills in duplicates.items():
            _warn_about_duplicate(self.agent_id, name, skills)
        return tuple(tool for _, tool in listed if tool.name not in duplicates)

    @property
    def missing(self) -> tuple[str, ...]:
        """A line for each thing that the agent lacks, such as a service without settings; the line says the fix."""
        duplicates = [
            f"{name}: {' and '.join(skills)} each have a tool of this name, so none of them is offered: rename one"
            for name, skills in _find_duplicates(self._list_tools()).items()
        ]
        return tuple(dict.fromkeys([*(line for skill in self.skills for line in skill.missing), *duplicates]))

    def bind(self, opened: Mapping[Skill, Skill]) -> "Agent":
        """Return the agent with its opened skills in place of the declared ones."""
        # Not `replace`, which raises an error if two tools have one name: the tools of an open skill may change.
        bound = copy(self)
        object.__setattr__(bound, "skills", tuple(opened[skill] for skill in self.skills))
        return bound

    def build_system_prompt(self) -> str:
        """Return the prompts of the agent and its skills, joined."""
        parts = (self.prompt, *(skill.current_prompt() for skill in self.skills))
        return "\n\n".join(part.strip() for part in parts if part.strip())

    async def run(self, context: RunContext) -> AsyncGenerator[Event, None]:
        """Run one turn in the tool loop, or ask the model once for a background task. Raises `ModelError`."""
        context = TurnContext.of(context)
        # Imported here, so that the file of an agent loads fast. A server has imported it before its first run.
        from callboard._formats import ProviderDetails
        from callboard.agents.tool_loop import run_completion, run_tool_loop

        model = self.model or context.model
        context = replace(context, model=context.observers.watch(model))
        if context.task is not None:
            events = run_completion(context)
        else:
            known, status = await recall(self.skills, context, self.agent_id)
            if status is not None:
                yield status
            prompt = "\n\n".join(part for part in (self.build_system_prompt(), known) if part)
            model_name = await model.find_name() if isinstance(model, ModelEndpoint) else model.name
            # The server's own format is for the server's model.
            own_format = self.tool_format or (None if self.model is None else "auto")
            tool_format = await context.formats.for_model(model, model_name, own_format)
            events = run_tool_loop(
                replace(
                    context,
                    messages=with_system_prompt(prompt, context.messages),
                    agent_id=self.agent_id,
                    approval=replace(context.approval, patterns=(*context.approval.patterns, *self.confirm)),
                    limits=self.limits.without(len(context.calls_made)) if self.limits else context.limits,
                    allowances=self._list_allowances(context.calls_made),
                ),
                lambda: (*self.tools, *context.openwebui_tools),
                tool_format=tool_format,
                details=ProviderDetails(tool_format.model, context.provider_details),
            )
        async with aclosing(events):
            async for event in events:
                yield event

    def _list_allowances(self, calls_made: Sequence[str]) -> list[Allowance]:
        allowances: list[Allowance] = []
        for skill in self.skills:
            if skill.max_tool_calls is not None:
                tools = frozenset(tool.name for tool in skill.current_tools())
                made = sum(name in tools for name in calls_made)
                allowances.append(Allowance(skill.name, tools, skill.max_tool_calls, made))
        return allowances

    def _list_tools(self) -> list[tuple[str, Tool]]:
        """Return every tool with its skill's name."""
        return [(skill.name, tool) for skill in self.skills for tool in skill.current_tools()]

    def _check_names(self) -> None:
        for name, skills in _find_duplicates(self._list_tools()).items():
            raise AgentError(
                f"The agent '{self.agent_id}' has two tools named '{name}': one of the skill "
                f"'{skills[0]}', one of '{skills[1]}'. Give one of them another name."
            )
        prefixes = [skill.tool_prefix for skill in self.skills if skill.tool_prefix]
        for index, prefix in enumerate(prefixes):
            if (other := find_clash(prefix, [*prefixes[:index], *prefixes[index + 1 :]])) is not None:
                raise AgentError(
                    f"The agent '{self.agent_id}' has tools whose names begin with '{prefix}_', and others with "
                    f"'{other}_', so they can be confused. Give one of the MCP servers another name."
                )


class BuiltInAgent(Agent):
    """An agent of every server, which uses the server's model."""

    __slots__ = ()


def _find_duplicates(listed: Sequence[tuple[str, Tool]]) -> dict[str, tuple[str, ...]]:
    """Return the names that several tools have, each with the skills of those tools.

    None of these tools is offered, because the wrong one might run, with the wrong rule for approval.
    """
    owners: dict[str, list[str]] = {}
    for skill, listed_tool in listed:
        owners.setdefault(listed_tool.name, []).append(skill)
    return {name: tuple(skills) for name, skills in owners.items() if len(skills) > 1}


@cache
def _warn_about_duplicate(agent_id: str, tool_name: str, skills: tuple[str, ...]) -> None:
    """Log that tools with the same name are not offered; once in a process, because the agent reads its tools often."""
    _log.warning("tools_of_one_name_left_out", agent=agent_id, tool=tool_name, skills=skills)


def ignored_options(agent: AgentLike, functions: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions and options of a client that the agent does not support.

    An agent of a framework has only its own tools, and may call several at once. An `Agent` runs its own tool
    if a function of the client has the same name.
    """
    if not isinstance(agent, Agent):
        return [*functions, *(["parallel_tool_calls"] if options.get("parallel_tool_calls") is False else [])]
    own = {tool.name for tool in agent.tools}
    return [name for name in functions if name in own]


def with_system_prompt(prompt: str, messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages with one system message: `prompt`, then the client's own instructions.

    Many chat templates refuse a second system message.
    """
    own = list(takewhile(lambda message: message.get("role") in ("system", "developer"), messages))
    parts = [prompt, *(content_text(message.get("content")) for message in own)]
    merged = "\n\n".join(part for part in parts if part.strip())
    rest = list(messages[len(own) :])
    return [{"role": "system", "content": merged}, *rest] if merged else rest
