"""Checks the settings, and defines the context that all other checks get."""

import argparse
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import callboard.agents.builtin  # noqa: F401 - registers the settings of skills
from callboard.agents import LoadedAgents
from callboard.errors import SettingsError
from callboard.models import LocalEndpoint
from callboard.settings import (
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


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that the checks need.

    Attributes:
        settings: The settings, with defaults for wrong ones.
        variables: The variables of the environment and of `.env`, without wrong settings.
        loaded: The loaded agents.
        options: The options of the command. `timeout` limits each step of a check, in seconds.
        endpoints: The addresses at which a local model may run.
    """

    settings: Settings = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    loaded: LoadedAgents
    options: argparse.Namespace = field(repr=False)
    endpoints: Sequence[LocalEndpoint]


Check: TypeAlias = Callable[[Context], AsyncIterator[str]]


class ReadSettings(NamedTuple):
    """The settings, the variables without wrong settings, all secrets, and a line for each finding."""

    settings: Settings
    variables: Mapping[str, str]
    secrets: tuple[str, ...]
    lines: list[str]


def read_settings() -> ReadSettings:
    """Read the settings. Wrong settings get their defaults, so that the other checks can run."""
    problems: list[str] = []
    try:
        given = read_environment()
    except SettingsError as error:
        problems += str(error).splitlines()
        given = dict(os.environ)
    variables = dict(given)
    # Defaults are passed for wrong settings, because `Settings` also reads the environment and the file of the key.
    defaults: dict[str, Any] = {}
    wrong: set[str] = set()
    while True:
        try:
            settings = load_settings(variables, **defaults)
            for kind in SkillSettings.__subclasses__():
                kind.load(variables)
            break
        except SettingsError as error:
            # Each line of the message begins with the name of a wrong variable.
            found = set(re.findall(rf"^{PREFIX}[A-Z0-9_]+", str(error), re.MULTILINE)) - wrong
            if not found:
                raise
            problems += str(error).splitlines()
            wrong |= found
            variables = {name: value for name, value in given.items() if name not in wrong}
            blank = Settings.model_construct()
            defaults = {name: getattr(blank, name) for name in Settings.model_fields if variable_of(name) in wrong}
    for name in unknown_settings(given):
        near = get_close_matches(name, map(variable_of, known_settings()), 1)
        problems.append(f"{name} is not a setting → {f'write {near[0]}' if near else 'remove it'}")
    correct = f"✓ settings: read from the environment{' and .env' if ENV_FILE.is_file() else ''}"
    lines = [f"✗ settings: {problem}" for problem in problems] or [correct]
    return ReadSettings(settings, variables, (*secrets_in(given), *settings.secrets), lines)
