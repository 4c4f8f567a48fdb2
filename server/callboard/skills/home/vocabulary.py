"""The commands and settings of each kind of entity, and Home Assistant's services for them.

Other changes are impossible: a model cannot call a service of its own choice.
"""

from dataclasses import dataclass
from typing import Literal

Command = Literal[
    "on",
    "off",
    "toggle",
    "open",
    "close",
    "stop",
    "lock",
    "unlock",
    "play",
    "pause",
    "next",
    "previous",
    "mute",
    "unmute",
    "start",
    "dock",
    "activate",
]

SettingName = Literal["level_percent", "color", "color_temperature_kelvin", "temperature", "option", "value"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The service and argument that change a setting.

    `choices` is the attribute that lists the possible values. `feature` is the bit of `supported_features` that an
    entity needs for the setting.
    """

    service: str
    argument: str
    choices: str = ""
    feature: int = 0


_SWITCH: dict[Command, str] = {"on": "turn_on", "off": "turn_off", "toggle": "toggle"}

COMMANDS: dict[str, dict[Command, str]] = {
    "button": {"activate": "press"},
    "climate": _SWITCH,
    # Only open and close: "on" does not say whether a blind should be up or down.
    "cover": {"open": "open_cover", "close": "close_cover", "stop": "stop_cover", "toggle": "toggle"},
    "fan": _SWITCH,
    "humidifier": _SWITCH,
    "input_boolean": _SWITCH,
    "input_button": {"activate": "press"},
    "lawn_mower": {"start": "start_mowing", "pause": "pause", "dock": "dock"},
    "light": _SWITCH,
    "lock": {"lock": "lock", "unlock": "unlock"},
    "media_player": {
        **_SWITCH,
        "play": "media_play",
        "pause": "media_pause",
        "stop": "media_stop",
        "next": "media_next_track",
        "previous": "media_previous_track",
        "mute": "volume_mute",
        "unmute": "volume_mute",
    },
    "remote": _SWITCH,
    "scene": {"activate": "turn_on"},
    "script": {"activate": "turn_on"},
    "siren": _SWITCH,
    "switch": _SWITCH,
    "vacuum": {"start": "start", "pause": "pause", "stop": "stop", "dock": "return_to_base"},
    "valve": {"open": "open_valve", "close": "close_valve", "stop": "stop_valve", "toggle": "toggle"},
    "water_heater": {"on": "turn_on", "off": "turn_off"},
}
"""By domain: the service of each command."""

# In the order of execution: a thermostat's mode is set before its temperature.
SETTINGS: dict[str, dict[SettingName, Setting]] = {
    "climate": {
        "option": Setting("set_hvac_mode", "hvac_mode", "hvac_modes"),
        "temperature": Setting("set_temperature", "temperature"),
    },
    "cover": {"level_percent": Setting("set_cover_position", "position", feature=4)},
    "fan": {
        "option": Setting("set_preset_mode", "preset_mode", "preset_modes", feature=8),
        "level_percent": Setting("set_percentage", "percentage", feature=1),
    },
    "humidifier": {
        "option": Setting("set_mode", "mode", "available_modes"),
        "level_percent": Setting("set_humidity", "humidity"),
    },
    "input_number": {"value": Setting("set_value", "value")},
    "input_select": {"option": Setting("select_option", "option", "options")},
    "light": {
        "level_percent": Setting("turn_on", "brightness_pct"),
        "color": Setting("turn_on", "rgb_color"),
        "color_temperature_kelvin": Setting("turn_on", "color_temp_kelvin"),
    },
    "media_player": {
        "option": Setting("select_source", "source", "source_list", feature=2048),
        "level_percent": Setting("volume_set", "volume_level", feature=4),
    },
    "number": {"value": Setting("set_value", "value")},
    "select": {"option": Setting("select_option", "option", "options")},
    "valve": {"level_percent": Setting("set_valve_position", "position", feature=4)},
    "water_heater": {
        "option": Setting("set_operation_mode", "operation_mode", "operation_list"),
        "temperature": Setting("set_temperature", "temperature"),
    },
}
"""The settings by domain."""

COLORS = {
    "red": (255, 0, 0),
    "orange": (255, 165, 0),
    "yellow": (255, 255, 0),
    "green": (0, 255, 0),
    "cyan": (0, 255, 255),
    "blue": (0, 0, 255),
    "purple": (128, 0, 128),
    "violet": (238, 130, 238),
    "magenta": (255, 0, 255),
    "pink": (255, 105, 180),
    "white": (255, 255, 255),
}
"""The color names that are accepted. Home Assistant would replace a name that it does not know by white."""
