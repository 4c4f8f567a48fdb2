"""Checks the settings; those that are wrong keep no other check from being made."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from pydantic import SecretStr

from callboard.cli.doctor.findings import Finding, broken, well
from callboard.errors import SettingsError
from callboard.settings import ENV_FILE, PREFIX, Settings, load_settings, read_environment, unknown_settings
from callboard.skills.web import AllowList

SUBJECT = "settings"


@dataclass(frozen=True, slots=True)
class Read:
    """What could be read: wrong settings have their defaults. `settings` is None where that does not help.

    `api_key` is what this server asks for, be it set or made.
    """

    settings: Settings | None
    api_key: SecretStr | None
    variables: Mapping[str, str] = field(repr=False)
    findings: tuple[Finding, ...]


def read_settings() -> Read:
    """Return the settings as far as they can be read, and a finding for each that is wrong."""
    findings: list[Finding] = []
    try:
        variables = read_environment()
    except SettingsError as error:
        findings += _lines(error)
        variables = {name: value for name, value in os.environ.items() if value}
    settings, wrong = _load(variables)
    findings += wrong
    api_key = None
    if settings is not None:
        try:
            AllowList.read(settings.allowed_hosts)
            api_key = settings.api_key
        except SettingsError as error:
            findings += _lines(error)
    for name in unknown_settings(variables):
        [*near] = get_close_matches(name, [PREFIX + known.upper() for known in Settings.model_fields], 1)
        findings.append(broken(SUBJECT, f"{name} is no setting", f"write {near[0]}" if near else "remove it"))
    if not findings:
        origin = "the environment and .env" if ENV_FILE.is_file() else "the environment"
        findings.append(well(SUBJECT, f"read from {origin}"))
    return Read(settings, api_key, variables, tuple(findings))


def _load(variables: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    """Load again with the default of each setting that is wrong, until no more are."""
    findings: list[Finding] = []
    defaults: dict[str, object] = {}
    while True:
        try:
            return load_settings(variables, **defaults), findings
        except SettingsError as error:
            findings += _lines(error)
            # Each line begins with the setting that it is about.
            named = {_first_setting(line) for line in str(error).splitlines()} - {None, *defaults}
            if not named:
                return None, findings
            defaults |= {
                name: Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})
                for name in named
                if name is not None
            }


def _lines(error: SettingsError) -> list[Finding]:
    return [broken(SUBJECT, line) for line in str(error).splitlines()]


def _first_setting(line: str) -> str | None:
    found = re.search(rf"{PREFIX}([A-Z_]+)", line)
    name = found[1].lower() if found else None
    return name if name in Settings.model_fields else None
