"""Loads the agents of a server: the built-in ones, and those of files, folders, modules and installed packages."""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from textwrap import shorten

from callboard.agents.agent import Agent, AgentLike
from callboard.agents.declarations import check_agent
from callboard.agents.registry import Registry
from callboard.errors import AgentError
from callboard.settings import Settings

ENTRY_POINTS = "callboard.agents"
"""The entry point group of packages with agents."""

BUILT_IN = "built in"
"""The source of the agents of every server."""
MAX_MESSAGE_CHARS = 160
_ADVICE = "Correct the mistake and start again; until then the agents of this source are left out."


@dataclass(slots=True)
class LoadedAgents:
    """The agents that were loaded, the source of each by its id, and an error for each source that failed.

    `registry.unavailable` has the built-in agents whose settings are missing.
    """

    registry: Registry = field(default_factory=Registry)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[AgentError] = field(default_factory=list)

    @property
    def lacks(self) -> dict[str, tuple[str, ...]]:
        """The lines of `Agent.missing` of each agent that lacks something, by its id."""
        return {agent.agent_id: agent.missing for agent in self.registry if isinstance(agent, Agent) and agent.missing}


_loading: ContextVar[list[AgentLike] | None] = ContextVar("callboard_loading_agents", default=None)


def register(agent: AgentLike) -> AgentLike:
    """Offer an agent to the server that loads this file (`CALLBOARD_AGENTS`), and return the agent.

    Does nothing if no server loads the file, for example in the file's own tests.
    """
    check_agent(agent)
    if (found := _loading.get()) is not None:
        found.append(agent)
    return agent


def load_all_agents(settings: Settings, variables: Mapping[str, str] | None = None) -> LoadedAgents:
    """Return the built-in agents, the agents of `CALLBOARD_AGENTS` and those of installed packages, in this order.

    `variables` are the settings of skills, by default the environment (`read_environment`). If a source cannot be
    imported, registers no agent or uses an id twice, none of its agents is loaded, and `problems` has the error. Raises
    `SettingsError` for an invalid setting of a skill.
    """
    # Imported here, because it imports every skill; the file of an agent imports this module and needs few skills.
    from callboard.agents.builtin import builtin_agents

    loaded = LoadedAgents()
    agents, loaded.registry.unavailable = builtin_agents(variables)
    _add(agents, BUILT_IN, loaded)
    for given in _expand_folders(settings.agents):
        _load(_find_source(given), loaded)
    for point in entry_points(group=ENTRY_POINTS):
        load = partial(_import_entry_point, point)
        name = f"{point.name} ({point.value})"
        _load(_Source(name, f"entry point of {ENTRY_POINTS}", point.module, load), loaded)
    return loaded


@dataclass(frozen=True, slots=True)
class _Source:
    """Code that registers agents: `load` imports `module`; `name` and `setting` are for error messages."""

    name: str
    setting: str
    module: str
    load: Callable[[], object]


def _load(source: _Source, loaded: LoadedAgents) -> None:
    try:
        found = _collect(source, loaded.registry)
    except AgentError as error:
        loaded.problems.append(error)
    else:
        _add(found, source.name, loaded)


def _add(agents: Sequence[AgentLike], source: str, loaded: LoadedAgents) -> None:
    for agent in agents:
        loaded.registry.add(agent)
        loaded.sources[agent.agent_id] = source


def _expand_folders(given: Sequence[str]) -> Iterator[str]:
    """Yield the sources, with each folder replaced by its Python files."""
    for source in given:
        path = Path(source).expanduser()
        if path.is_dir():
            yield from (str(file) for file in sorted(path.glob("[!_.]*.py")))
        else:
            yield source


def _collect(source: _Source, registry: Registry) -> list[AgentLike]:
    found: list[AgentLike] = []
    token = _loading.set(found)
    try:
        source.load()
        # Raises `AgentError` if an id is taken.
        Registry((*registry, *found))
    # A user's file may raise any exception, and the server must still load the other agents. A script without a main
    # guard may raise SystemExit.
    except (Exception, SystemExit) as error:
        raise AgentError(f"{source.setting}: {_explain(error, source)}. {_ADVICE}") from error
    finally:
        _loading.reset(token)
    if not found:
        raise AgentError(f"{source.setting}: {source.name} registers no agent: call callboard.register(agent) in it.")
    return found


def _find_source(given: str) -> _Source:
    """Return the source for an entry of `CALLBOARD_AGENTS`: a file or a module."""
    if given.endswith(".py") or os.sep in given:
        path = Path(given).expanduser().resolve()
        name = f"callboard_agents_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
        return _Source(given, "CALLBOARD_AGENTS", name, partial(_import_file, path, name))
    return _Source(given, "CALLBOARD_AGENTS", given, partial(_import_module, given))


def _import_module(name: str) -> None:
    # A module that has been imported before would not register its agents again.
    sys.modules.pop(name, None)
    importlib.import_module(name)


def _import_entry_point(point: EntryPoint) -> None:
    loaded = point.load()
    if hasattr(loaded, "agent_id"):
        register(loaded)


def _import_file(path: Path, name: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # The file can import other files of its folder, as a script can. The folder is last in the path, so that its files
    # do not hide installed packages.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look up the module by name while it is executed.
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _explain(error: BaseException, source: _Source) -> str:
    """Return the error on one line, with the file and line of the source's own code that caused it."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = shorten(f"{type(error).__name__}: {message}", MAX_MESSAGE_CHARS, placeholder=" …").rstrip(".: ")
    if isinstance(error, SyntaxError) and error.lineno and Path(error.filename or "").is_file():
        return f"{error.filename}, line {error.lineno}: {message}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if f"{frame.f_globals.get('__name__')}.".startswith(f"{source.module}."):
            return f"{frame.f_code.co_filename}, line {line}: {message}"
    return f"{source.name} cannot be loaded: {message}"
