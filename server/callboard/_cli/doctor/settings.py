"""Check of the settings, and the context that all other checks get."""

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


class Read(NamedTuple):
    """The settings, the variables without wrong settings, the secrets in all variables, and a line for each finding."""

    settings: Settings
    variables: Mapping[str, str]
    secrets: tuple[str, ...]
    lines: list[str]


def read_settings() -> Read:
    """Read the settings, with defaults for wrong ones, so that the other checks can run."""
    problems: list[str] = []
    try:
        given = read_environment()
    except SettingsError as error:
        problems += str(error).splitlines()
        given = dict(os.environ)
    variables = dict(given)
    # Values for wrong settings, because `Settings` also reads the environment, and the key from its file.
    defaults: dict[str, Any] = {}
    wrong: set[str] = set()
    while True:
        try:
            settings = load_settings(variables, **defaults)
            for kind in SkillSettings.__subclasses__():
                kind.load(variables)
            break
        except SettingsError as error:
            # Each line begins with the variable that is wrong.
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
        problems.append(f"{name} is no setting → {f'write {near[0]}' if near else 'remove it'}")
    well = f"✓ settings: read from the environment{' and .env' if ENV_FILE.is_file() else ''}"
    lines = [f"✗ settings: {problem}" for problem in problems] or [well]
    return Read(settings, variables, (*secrets_in(given), *settings.secrets), lines)
