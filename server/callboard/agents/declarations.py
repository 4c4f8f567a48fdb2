"""Checks of the declaration of an agent, whose errors say how to fix it."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast, get_args

from callboard.agents.context import check_on_owner_loss
from callboard.calls import Limits, Tool, tool
from callboard.errors import AgentError
from callboard.openwebui.offered_tools import OpenWebUITools
from callboard.settings import ToolFormat
from callboard.skills import Skill

AGENT_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
# No SVG: it may contain scripts, and Open WebUI does not show it.
_ICON_PATTERN = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*|https?://\S+")

_OTHER_NAMES = {
    "base_prompt": "prompt",
    "instructions": "prompt",
    "system": "prompt",
    "system_message": "prompt",
    "system_prompt": "prompt",
    "functions": "tools",
    "id": "agent_id",
    "title": "name",
    "llm": "model",
}
"""The parameters of `Agent`, by their names in other frameworks and in earlier versions."""

_ADAPTERS = {
    "agno": "callboard.frameworks.agno.from_agno",
    "pydantic_ai": "callboard.frameworks.pydantic_ai.from_pydantic_ai",
    "langgraph": "callboard.frameworks.langgraph.from_langgraph",
    "agents": "callboard.frameworks.openai_agents.from_openai_agents",
}
"""The adapter of each framework, by the package of the framework's agents."""


def check_parameters(unknown: Iterable[str], known: Sequence[str]) -> None:
    """Raise `AgentError` for an argument that `Agent` does not have; `known` are the names of its arguments."""
    for name in unknown:
        close = get_close_matches(name, known, n=1)
        meant = _OTHER_NAMES.get(name) or (close[0] if close else "")
        fix = f"call it {meant}" if meant else f"it takes {', '.join(known)}"
        raise AgentError(f"Agent takes no argument '{name}': {fix}.")


def check_id(agent_id: object) -> None:
    """Raise `AgentError` for an id that does not match `AGENT_ID_PATTERN`."""
    if not isinstance(agent_id, str) or not AGENT_ID_PATTERN.fullmatch(agent_id):
        raise AgentError(
            f"An agent cannot have the id {agent_id!r:.160}: use 1 to 128 letters, digits and any of _ . : / -"
        )


def check_texts(agent_id: str, **texts: object) -> None:
    """Raise `AgentError` unless all of these arguments are texts."""
    for name, value in texts.items():
        if not isinstance(value, str):
            raise AgentError(f"The agent '{agent_id}' needs its {name} as a text, not {value!r:.80}: {name}=\"…\".")


def check_model(model: object, where: str) -> None:
    """Raise `AgentError` unless `model` is None or a model; `where` is the subject of the error message."""
    if model is None or (callable(getattr(model, "stream", None)) and not isinstance(model, type)):
        return
    if isinstance(model, str):
        raise AgentError(
            f"{where} has model={model!r}, which is a name: give the endpoint too, as "
            f'OpenAICompatible("http://127.0.0.1:11434/v1", model={model!r}).'
        )
    raise AgentError(
        f"{where} has model={model!r:.80}, which is no model: give OpenAICompatible(base_url, model=…), or an object "
        "with the methods of callboard.ChatModel."
    )


def check_limits(agent_id: str, limits: object) -> None:
    """Raise `AgentError` unless `limits` is None or a `Limits`."""
    if limits is not None and not isinstance(limits, Limits):
        raise AgentError(f"The agent '{agent_id}' has limits={limits!r:.80}: give Limits(max_tool_calls=…).")


def check_tool_format(agent_id: str, tool_format: object) -> None:
    """Raise `AgentError` for an unknown format."""
    if tool_format is not None and tool_format not in get_args(ToolFormat):
        raise AgentError(
            f"The agent '{agent_id}' has tool_format={tool_format!r:.80}: give one of "
            f"{', '.join(get_args(ToolFormat))}."
        )


def check_text_list(agent_id: str, name: str, given: object) -> tuple[str, ...]:
    """Return a list argument as a tuple. Raises `AgentError` unless it is a list of texts."""
    listed = check_list(agent_id, name, given)
    for text in listed:
        check_texts(agent_id, **{name: text})
    return listed


def check_list(agent_id: str, name: str, given: object) -> tuple[Any, ...]:
    """Return a list argument as a tuple. Raises `AgentError` if it is not a list."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        shown = getattr(given, "__name__", None) or f"{given!r:.80}"
        raise AgentError(f"The agent '{agent_id}' needs {name} as a list: {name}=[{shown}].")
    return tuple(given)


def check_icon(agent_id: str, icon: object) -> str:
    """Return the icon. Raises `AgentError` unless it is "" or the URL of a picture that browsers show."""
    if isinstance(icon, str) and (not icon or _ICON_PATTERN.fullmatch(icon)):
        return icon
    raise AgentError(
        f"The agent '{agent_id}' has icon={icon!r:.80}: give a picture as data:image/png;base64,…, "
        "or its address, https://…."
    )


def check_openwebui_tools(agent_id: str, given: object) -> OpenWebUITools:
    """Return the value of `openwebui_tools`. Raises `AgentError` for an invalid value."""
    if given in ("attached", "all", "none"):
        return cast(OpenWebUITools, given)
    if isinstance(given, str):
        raise AgentError(
            f"The agent '{agent_id}' cannot have openwebui_tools={given!r:.80}: say 'attached', 'all' or 'none', or "
            "give a list of name patterns."
        )
    return check_text_list(agent_id, "openwebui_tools", given)


def check_skills(agent_id: str, skills: object) -> tuple[Skill, ...]:
    """Return the skills. Raises `AgentError` unless they are a list of `Skill`s."""
    if isinstance(skills, Skill):
        raise AgentError(f"The agent '{agent_id}' needs skills as a list: skills=[{skills.name}].")
    given = (skills,) if isinstance(skills, str) else check_list(agent_id, "skills", skills)
    for skill in given:
        _check_skill(agent_id, skill)
    return given


def make_tools(agent_id: str, tools: Sequence[Tool | Callable[..., Any]]) -> list[Tool]:
    """Return the tools; a function becomes a `Tool`. Raises `AgentError` for any other object."""
    if isinstance(tools, Tool):
        raise AgentError(f"The agent '{agent_id}' needs tools as a list: tools=[{tools.name}].")
    made: list[Tool] = []
    for given in check_list(agent_id, "tools", tools):
        if isinstance(given, Skill):
            raise AgentError(f"The agent '{agent_id}' lists the skill '{given.name}' in tools: give it as skills=[…].")
        if isinstance(given, Tool):
            made.append(given)
        elif callable(given) and not isinstance(given, type):
            made.append(tool(given))
        else:
            raise AgentError(
                f"The agent '{agent_id}' lists {given!r:.80} in tools, which is no tool: give a function with a "
                "docstring and type annotations, or a Tool."
            )
    return made


def check_agent(agent: object) -> None:
    """Raise `AgentError` unless `agent` has the attributes and the `run` of `AgentLike`."""
    if isinstance(agent, type):
        raise AgentError(f"{agent.__name__} is a class: give an agent that is made of it, {agent.__name__}(…).")
    what = f"{type(agent).__name__} {getattr(agent, '__name__', '') or ''}".strip()
    if isinstance(agent, str):
        raise AgentError(f"{agent!r:.80} is a name: the server takes an agent, not str. callboard.Agent(…) makes one.")
    adapter = _ADAPTERS.get(type(agent).__module__.partition(".")[0])
    if adapter and not hasattr(agent, "agent_id"):
        raise AgentError(f"This {what} is an agent of another framework: give {adapter}(agent).")
    if not callable(getattr(agent, "run", None)):
        raise AgentError(f"This {what} is no agent, since it has no run(): callboard.Agent(…) makes one.")
    check_id(getattr(agent, "agent_id", None))
    for name, meaning in (("name", "people read in the model list"), ("description", "it is for, in one sentence")):
        if not isinstance(getattr(agent, name, None), str):
            raise AgentError(
                f"The agent '{getattr(agent, 'agent_id', '')}' has no {name}: give it an attribute `{name}`, a text "
                f"that says what {meaning}."
            )
    agent_id = getattr(agent, "agent_id", "")
    check_on_owner_loss(agent_id, getattr(agent, "on_owner_loss", "end"))
    check_text_list(agent_id, "suggestions", getattr(agent, "suggestions", ()))
    check_icon(agent_id, getattr(agent, "icon", ""))
    _check_run(agent)


def _check_run(agent: Any) -> None:
    """Raise `AgentError` for a `run` that does not yield events or does not take a context."""
    where = f"run() of the agent '{agent.agent_id}'"
    run = agent.run
    if inspect.iscoroutinefunction(run):
        raise AgentError(f"{where} yields nothing: write `yield Message(content=…)` in it where it returns a text.")
    if inspect.isgeneratorfunction(run):
        raise AgentError(f"{where} is a plain generator: write `async def run(self, context)`.")
    try:
        signature = inspect.signature(run)
    except ValueError:
        return  # Some callables have no signature.
    try:
        signature.bind(None)
    except TypeError:
        raise AgentError(f"{where} must take the context and nothing else: write run(self, context).") from None
    yields = inspect.isasyncgenfunction(inspect.unwrap(run))
    if inspect.isroutine(run) and not yields and "Async" not in str(signature.return_annotation):
        raise AgentError(
            f"{where} is a plain function: write `async def run(self, context)` and yield the events in it, or declare "
            "the AsyncIterator that it returns."
        )


def _check_skill(agent_id: str, skill: object) -> None:
    if isinstance(skill, Skill):
        return
    where = f"The agent '{agent_id}' lists {getattr(skill, '__name__', None) or repr(skill):.80} in its skills"
    if isinstance(skill, Tool):
        raise AgentError(
            f"The agent '{agent_id}' lists the tool {skill.name} in its skills: give it as tools=[{skill.name}]."
        )
    if isinstance(skill, str):
        raise AgentError(f"{where}, which is a name: give the skill itself, such as Clock() of callboard.skills.")
    if hasattr(skill, "get_tools") and hasattr(skill, "_execute"):
        made = "Skill(name, description, tools=old.get_tools(), execute=old._execute)"
        raise AgentError(f"{where}, which is no Skill: make one of it as {made}.")
    if isinstance(skill, type):
        raise AgentError(f"{where}, which is a class: give a skill that is made of it, {skill.__name__}(…).")
    if callable(skill):
        raise AgentError(f"{where}, which is a function: give it as tools=[{getattr(skill, '__name__', '…')}].")
    raise AgentError(f"{where}, which is no Skill of callboard.skills.")
