"""Check of the settings, and the context that all other checks get.

Wrong settings get their defaults, so that the other checks can run.
"""

import argparse
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias, TypeVar

import callboard._agents.builtin  # noqa: F401 - registers the settings of skills
from callboard._agents import LoadedAgents
from callboard._settings import (
    ENV_FILE,
    PREFIX,
    Settings,
    SkillSettings,
    known_settings,
    load_settings,
    read_environment,
    secrets_in,
    unknown_settings,
    variable_of,
)
from callboard.errors import SettingsError
from callboard.models import LocalEndpoint


@dataclass(frozen=True, slots=True)
class Read:
    """The settings, with defaults for wrong ones; None if defaults do not help. `variables` lack the wrong ones."""

    settings: Settings | None
    variables: Mapping[str, str] = field(repr=False)
    lines: list[str]
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Context:
    """The settings, the loaded agents, the options of the command, and the addresses where a local model may run.

    `variables` are the environment's, without wrong settings. `options.timeout` bounds each step of a check, in
    seconds.
    """

    settings: Settings = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    loaded: LoadedAgents
    options: argparse.Namespace = field(repr=False)
    endpoints: Sequence[LocalEndpoint]


Check: TypeAlias = Callable[[Context], AsyncIterator[str]]


def read_settings() -> Read:
    """Return the settings as far as they can be read, and a line for each that is wrong."""
    lines: list[str] = []
    variables: Mapping[str, str]
    try:
        variables = read_environment()
    except SettingsError as error:
        lines += map(_describe, str(error).splitlines())
        variables = {name: value for name, value in os.environ.items() if value}
    secrets = secrets_in(variables)
    wrong: set[str] = set()

    def load_server(given: Mapping[str, str]) -> Settings:
        # Defaults are given because `Settings` also reads the environment, and the key from its file.
        fields = {name: field for name, field in Settings.model_fields.items() if variable_of(name) in wrong}
        defaults = {
            name: field.get_default(call_default_factory=True, validated_data={}) for name, field in fields.items()
        }
        return load_settings(given, **defaults)

    settings = _load(load_server, variables, wrong, lines)
    for kind in SkillSettings.__subclasses__():
        _load(kind.load, variables, wrong, lines)
    for name in unknown_settings(variables):
        near = get_close_matches(name, map(variable_of, known_settings()), 1)
        lines.append(_describe(f"{name} is no setting → {f'write {near[0]}' if near else 'remove it'}"))
    if not lines:
        lines.append(f"✓ settings: read from the environment{' and .env' if ENV_FILE.is_file() else ''}")
    kept = {name: value for name, value in variables.items() if name not in wrong}
    return Read(settings, kept, lines, secrets + (settings.secrets if settings else ()))


S = TypeVar("S", Settings, SkillSettings)


def _load(
    load: Callable[[Mapping[str, str]], S], variables: Mapping[str, str], wrong: set[str], lines: list[str]
) -> S | None:
    """Return the result of `load` without wrong variables, whose names go to `wrong`; None if that does not help."""
    while True:
        try:
            return load({name: value for name, value in variables.items() if name not in wrong})
        except SettingsError as error:
            found_lines = [line for line in map(_describe, str(error).splitlines()) if line not in lines]
            lines += found_lines
            # Each line begins with the variable that is wrong.
            named = {found[0] for line in found_lines if (found := re.search(rf"{PREFIX}[A-Z0-9_]+", line))} - wrong
            if not named:
                return None
            wrong |= named


def _describe(text: str) -> str:
    return f"✗ settings: {text}"
