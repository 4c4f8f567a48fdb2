"""Checks of the declaration of an agent, whose errors say how to fix it."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from callboard.agents.context import OnOwnerLoss
from callboard.calls import Tool
from callboard.calls.limits import Limits
from callboard.errors import AgentError
from callboard.settings import ToolFormat
from callboard.skills import Skill

AGENT_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
# No SVG: it may contain scripts, and Open WebUI does not show it.
_ICON_PATTERN = re.compile(r"(data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*|https?://\S+)?")

_ADAPTERS = {
    "agno": "callboard.frameworks.agno.from_agno",
    "pydantic_ai": "callboard.frameworks.pydantic_ai.from_pydantic_ai",
    "langgraph": "callboard.frameworks.langgraph.from_langgraph",
    "agents": "callboard.frameworks.openai_agents.from_openai_agents",
}
"""The adapter of each framework, by the package of the framework's agents."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_model(value: object) -> bool:
    return callable(getattr(value, "stream", None)) and not isinstance(value, type)


def _is_tool(value: object) -> bool:
    return isinstance(value, Tool) or (callable(value) and not isinstance(value, type))


def _list_of(is_item: Callable[[object], bool]) -> Callable[[object], bool]:
    def is_list(value: object) -> bool:
        return isinstance(value, Collection) and not isinstance(value, str | Mapping) and all(map(is_item, value))

    return is_list


_MODEL = "OpenAICompatible(base_url, model=…), or an object with the methods of callboard.models.ChatModel"
_TEXTS = "a list of texts"
_RULES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "description": (_is_text, "a text"),
    "name": (_is_text, "a text"),
    "prompt": (_is_text, "a text"),
    "skills": (
        _list_of(lambda item: isinstance(item, Skill)),
        "a list of skills, such as skills=[Clock()]; functions and tools belong in tools=[…]",
    ),
    "tools": (_list_of(_is_tool), "a list of functions and tools; skills belong in skills=[…]"),
    "model": (lambda value: value is None or _is_model(value), _MODEL),
    "limits": (lambda value: value is None or isinstance(value, Limits), "Limits(max_tool_calls=…)"),
    "tool_format": (
        lambda value: value is None or value in get_args(ToolFormat),
        f"one of {', '.join(get_args(ToolFormat))}",
    ),
    "confirm": (_list_of(_is_text), _TEXTS),
    "on_owner_loss": (
        lambda value: value in get_args(OnOwnerLoss),
        "'continue' (another server continues a run whose server is lost) or 'end'",
    ),
    "suggestions": (_list_of(_is_text), _TEXTS),
    "icon": (
        lambda value: isinstance(value, str) and _ICON_PATTERN.fullmatch(value) is not None,
        "a picture as data:image/png;base64,…, or its address, https://…",
    ),
    "openwebui_tools": (
        lambda value: value in ("attached", "all", "none") or _list_of(_is_text)(value),
        "'attached', 'all', 'none', or a list of name patterns",
    ),
}
"""For each argument or attribute of an agent: whether a value is valid, and the values that are."""


def check_arguments(agent_id: str, **values: object) -> None:
    """Raise `AgentError` if one of these arguments of an agent is invalid."""
    for name, value in values.items():
        is_valid, expected = _RULES[name]
        if not is_valid(value):
            raise AgentError(f"The agent '{agent_id}' has {name}={value!r:.80}: give {expected}.")


_OTHER_NAMES = {
    **dict.fromkeys(("instructions", "system", "system_message", "system_prompt"), "prompt"),
    **dict.fromkeys(("functions", "toolsets"), "tools"),
    "llm": "model",
}
"""Names of arguments in other frameworks, and the argument of `Agent`."""


def refuse_unknown(agent_id: str, unknown: Collection[str], declared: Callable[..., object]) -> None:
    """Raise `AgentError` if there are arguments that the class does not take."""
    for name in unknown:
        known = [one for one in inspect.signature(declared).parameters if one != "unknown"]
        meant = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, known, n=1)), "")
        advice = f"did you mean {meant}?" if meant else f"it takes {', '.join(known)}."
        raise AgentError(f"The agent '{agent_id}' has no argument {name}: {advice}")


def check_id(agent_id: object) -> None:
    """Raise `AgentError` for an id that does not match `AGENT_ID_PATTERN`."""
    if not isinstance(agent_id, str) or not AGENT_ID_PATTERN.fullmatch(agent_id):
        raise AgentError(
            f"An agent cannot have the id {agent_id!r:.160}: use 1 to 128 letters, digits and any of _ . : / -"
        )


def check_model(model: object, where: str) -> None:
    """Raise `AgentError` unless `model` is None or a model; `where` is the subject of the error message."""
    if model is not None and not _is_model(model):
        raise AgentError(f"{where} has model={model!r:.80}: give {_MODEL}.")


def check_agent(agent: object) -> None:
    """Raise `AgentError` unless `agent` has the attributes and the `run` of `AgentLike`."""
    if isinstance(agent, type):
        raise AgentError(f"{agent.__name__} is a class: give an agent that is made of it, {agent.__name__}(…).")
    what = f"{type(agent).__name__} {getattr(agent, '__name__', '') or ''}".strip()
    adapter = _ADAPTERS.get(type(agent).__module__.partition(".")[0])
    if adapter and not hasattr(agent, "agent_id"):
        raise AgentError(f"This {what} is an agent of another framework: give {adapter}(agent).")
    if not callable(getattr(agent, "run", None)):
        raise AgentError(f"This {what} is no agent, since it has no run(): callboard.Agent(…) makes one.")
    agent_id: Any = getattr(agent, "agent_id", None)
    check_id(agent_id)
    defaults = {"name": None, "description": None, "on_owner_loss": "end", "suggestions": (), "icon": ""}
    check_arguments(agent_id, **{name: getattr(agent, name, default) for name, default in defaults.items()})
    _check_run(agent)


def _check_run(agent: Any) -> None:
    """Raise `AgentError` for a `run` that does not yield events or does not take a context."""
    where = f"run() of the agent '{agent.agent_id}'"
    run = agent.run
    try:
        signature = inspect.signature(run)
    except ValueError:
        return  # Some callables have no signature.
    try:
        signature.bind(None)
    except TypeError:
        raise AgentError(f"{where} must take the context and nothing else: write run(self, context).") from None
    yields = inspect.isasyncgenfunction(inspect.unwrap(run))
    returns_events = "Async" in str(signature.return_annotation) and not inspect.iscoroutinefunction(run)
    if inspect.isroutine(run) and not yields and not returns_events:
        raise AgentError(
            f"{where} must yield events: write `async def run(self, context)` and `yield Message(content=…)` in it, or "
            "declare the AsyncIterator that it returns."
        )
