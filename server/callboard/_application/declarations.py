"""Checks of the arguments of `Callboard`, which report a mistake at its declaration and how to correct it."""

import inspect
from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Any

from callboard.agents.declarations import check_agent
from callboard.errors import AgentError, SettingsError
from callboard.settings import Settings


def list_agents(agents: object) -> tuple[Any, ...]:
    """Return the agents; raises `AgentError` if they are not a list, or one of them is not an agent."""
    if isinstance(agents, str | Mapping) or not isinstance(agents, Iterable):
        shown = getattr(agents, "agent_id", None) or f"{agents!r:.80}"
        raise AgentError(f"Callboard takes a list of agents, not {shown}: write Callboard([agent]).")
    listed = tuple(agents)
    for agent in listed:
        check_agent(agent)
    return listed


def check_authenticate(authenticate: object) -> None:
    """Raise `SettingsError` if it is not an async function of one argument. The value is not shown: it may be a key."""
    if authenticate is None:
        return
    if isinstance(authenticate, str):
        raise SettingsError("authenticate is a string: for a key write authenticate=api_key(…), from callboard.")
    if not callable(authenticate) or isinstance(authenticate, type):
        raise SettingsError(
            f"authenticate is a {type(authenticate).__name__}: give a function, `async def know(connection)`, that "
            "returns a Principal, or None for a caller who may not use the server."
        )
    # A lambda may return a coroutine.
    is_async = inspect.iscoroutinefunction(authenticate) or getattr(authenticate, "__name__", "") == "<lambda>"
    if inspect.isfunction(authenticate) and not is_async:
        raise SettingsError(
            f"authenticate is the plain function {authenticate.__name__}: write `async def {authenticate.__name__}`."
        )
    try:
        inspect.signature(authenticate).bind(None)
    except ValueError:
        return  # some callables have no signature
    except TypeError:
        raise SettingsError(
            "authenticate must take the connection and nothing else: `async def know(connection)`."
        ) from None


def check_store(store: object) -> None:
    """Raise `SettingsError` if it is not a store."""
    if store is None or isinstance(store, EllipsisType):
        return
    if isinstance(store, str):
        raise SettingsError("store is a string: for a database write store=Store(url), with callboard.storage.Store.")
    if isinstance(store, type) or not callable(getattr(store, "start", None)):
        raise SettingsError(f"store={store!r:.80} is not a callboard.Store: give Store(url), or None for memory only.")


def check_settings(settings: object) -> None:
    """Raise `SettingsError` if they are not `Settings`."""
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(
            f"settings is a {type(settings).__name__}: give Settings(max_runs=…), with Settings of callboard."
        )


def check_observers(observers: object) -> None:
    """Raise `SettingsError` if they are not a list of plain functions."""
    if isinstance(observers, str) or not isinstance(observers, Iterable):
        raise SettingsError("observers must be a list of functions: observers=[tell].")
    for observer in observers:
        if not callable(observer) or inspect.iscoroutinefunction(observer):
            raise SettingsError(f"observers lists {observer!r:.80}: give plain functions, `def tell(run, what)`.")
