"""A change of an entity, as calls of Home Assistant's services, and the limit of changes in a turn."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

from callboard.calls import ToolContext
from callboard.errors import ToolError, ToolLimit
from callboard.skills.home.snapshot import Entity
from callboard.skills.home.vocabulary import COLORS, COMMANDS, SETTINGS, Command, Setting, SettingName

COLOR_MODES = frozenset({"hs", "rgb", "rgbw", "rgbww", "xy"})
WHITE_MODES = frozenset({"color_temp", "rgbww"})
FLAT_MODES = frozenset({"onoff", "unknown"})
"""The color modes of lights that can be neither dimmed nor colored."""

MAX_CHANGES_PER_TURN = 3
"""The limit for all tools that change the house, so that a misunderstanding changes little."""

_QUOTA = "home changes"


@dataclass(frozen=True, slots=True)
class Change:
    """A command, settings, or both. Percentages are 0 to 100, temperatures in the unit of the house."""

    command: Command | None
    settings: Mapping[SettingName, int | float | str]

    @classmethod
    def from_arguments(cls, command: Command | None, settings: Mapping[SettingName, int | float | str | None]) -> Self:
        """Return the change.

        A 0 beside any other value counts as missing, because some models fill in every argument.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        if command is not None or any(given.values()):
            given = {name: value for name, value in given.items() if value != 0}
        return cls(command, given)

    def is_supported_by(self, entity: Entity) -> bool:
        """Return whether entities of this kind take the command and all settings."""
        domain = entity.domain
        taken = self.command is None or self.command in COMMANDS.get(domain, {})
        return taken and self._effective_settings(entity).keys() <= SETTINGS.get(domain, {}).keys()

    def find_unsupported(self, entity: Entity) -> list[str]:
        """Return the command and the settings that the entity itself does not support."""
        able = list_abilities(entity)
        requested = [*([self.command] if self.command else []), *self._effective_settings(entity)]
        return [word for word in requested if word not in able]

    def plan(self, entity: Entity) -> dict[str, dict[str, Any]]:
        """Return the arguments of each service (`light.turn_on`) to call, in order.

        Each service is called once: a light is switched on, dimmed and colored in one call. Raises `ToolError`, with
        the possible commands and settings, if the entity does not support the change.
        """
        self._refuse_contradictions()
        self._refuse_unsupported(entity)
        settings = self._effective_settings(entity)
        calls: dict[str, dict[str, Any]] = {}
        if self.command is not None:
            muting = {"is_volume_muted": self.command == "mute"} if self.command in ("mute", "unmute") else {}
            calls[f"{entity.domain}.{COMMANDS[entity.domain][self.command]}"] = muting
        for name, setting in SETTINGS.get(entity.domain, {}).items():
            if (value := settings.get(name)) is not None:
                data = calls.setdefault(f"{entity.domain}.{setting.service}", {})
                data[setting.argument] = _convert(entity, name, setting, value)
        return calls

    def _effective_settings(self, entity: Entity) -> Mapping[SettingName, int | float | str]:
        """Return the settings to apply: if several settings are all 0, only those that the entity supports."""
        if len(self.settings) < 2 or any(self.settings.values()):
            return self.settings
        able = list_abilities(entity)
        return {name: value for name, value in self.settings.items() if name in able} or self.settings

    def _refuse_contradictions(self) -> None:
        if self.command is None and not self.settings:
            raise ToolError(f"Nothing to set: give a command, or one of {', '.join(get_args(SettingName))}.")
        if self.settings and self.command in ("off", "toggle", "open", "close", "stop"):
            raise ToolError(f"Give either the command {self.command} or {', '.join(self.settings)}, not both.")
        if {"color", "color_temperature_kelvin"} <= self.settings.keys():
            raise ToolError("Give either color or color_temperature_kelvin, not both.")

    def _refuse_unsupported(self, entity: Entity) -> None:
        able = list_abilities(entity)
        if not able:
            raise ToolError(f"{entity} is a {entity.domain}: it can only be read, not set.")
        if wrong := self.find_unsupported(entity):
            raise ToolError(f"{entity} is a {entity.domain}: it takes {', '.join(able)}, not {', '.join(wrong)}.")


def list_abilities(entity: Entity) -> tuple[str, ...]:
    """Return the commands and settings that the entity supports, none if it can only be read."""
    features = int(entity.attributes.get("supported_features") or 0)
    known = SETTINGS.get(entity.domain, {}).items()
    settings = [name for name, setting in known if features & setting.feature == setting.feature]
    if entity.domain == "light":
        # Home Assistant silently ignores settings that a light does not support.
        modes = frozenset(entity.attributes.get("supported_color_modes") or ())
        able = {"level_percent": modes - FLAT_MODES, "color": modes & COLOR_MODES}
        able["color_temperature_kelvin"] = modes & WHITE_MODES
        settings = [name for name in settings if able[name]]
    return (*COMMANDS.get(entity.domain, {}), *settings)


def _convert(entity: Entity, name: SettingName, setting: Setting, given: int | float | str) -> object:
    match name:
        case "color":
            return _parse_color(str(given))
        case "option":
            return _find_choice(entity, setting, str(given))
        case "level_percent" if setting.argument == "volume_level":
            return float(given) / 100
        case _:
            return given


def _parse_color(color: str) -> tuple[int, ...]:
    if (known := COLORS.get(color.strip().casefold())) is not None:
        return known
    if hexadecimal := re.fullmatch(r"#?([0-9a-f]{6})", color.strip(), re.IGNORECASE):
        return tuple(bytes.fromhex(hexadecimal[1]))
    raise ToolError(f"'{color}' is not a known color: give it as #rrggbb, or one of {', '.join(COLORS)}.")


def _find_choice(entity: Entity, setting: Setting, given: str) -> str:
    choices = [str(choice) for choice in entity.attributes.get(setting.choices) or ()]
    for choice in choices:
        if choice.casefold() == given.strip().casefold():
            return choice
    raise ToolError(f"{entity} has no option '{given}'. It has: {', '.join(choices) or 'none at present'}.")


def reserve_changes(context: ToolContext, number: int) -> None:
    """Count changes against the turn's limit. Raises `ToolLimit` if they exceed it, and counts none then."""
    if not context.quotas.take(_QUOTA, number, MAX_CHANGES_PER_TURN):
        raise ToolLimit(
            f"Not done: a turn may make {MAX_CHANGES_PER_TURN} changes in the house, and these would exceed the limit. "
            "Tell the user what was changed and ask whether to continue."
        )


def correct_changes(context: ToolContext, taken: int, made: int) -> None:
    """Replace the number of reserved changes by the number of changes that were made."""
    context.quotas.correct(_QUOTA, made - taken)
