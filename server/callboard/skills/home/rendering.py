"""Texts for the model about a home and its entities."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from callboard.skills.actions import one_line
from callboard.skills.home.change import list_abilities
from callboard.skills.home.snapshot import Entity

MAX_LISTED = 60
MAX_ATTRIBUTE_CHARS = 300
NO_AREA = "No area"

OPEN = ("open", "closed")
STATE_WORDS = {
    "battery": ("low", "normal"),
    "cold": ("cold", "normal"),
    "connectivity": ("connected", "disconnected"),
    "door": OPEN,
    "garage_door": OPEN,
    "gas": ("gas detected", "clear"),
    "carbon_monoxide": ("carbon monoxide detected", "clear"),
    "heat": ("hot", "normal"),
    "light": ("light detected", "no light"),
    "lock": ("unlocked", "locked"),
    "moisture": ("wet", "dry"),
    "motion": ("motion detected", "clear"),
    "moving": ("moving", "still"),
    "occupancy": ("occupied", "clear"),
    "opening": OPEN,
    "plug": ("plugged in", "unplugged"),
    "power": ("power detected", "no power"),
    "presence": ("home", "away"),
    "problem": ("problem", "ok"),
    "running": ("running", "not running"),
    "safety": ("unsafe", "safe"),
    "smoke": ("smoke detected", "clear"),
    "sound": ("sound detected", "clear"),
    "tamper": ("tampering detected", "clear"),
    "update": ("update available", "up to date"),
    "vibration": ("vibration detected", "clear"),
    "window": OPEN,
}
"""The words for on and off of a binary sensor, by device class."""

# An allow list, because other attributes contain tokens (cameras), the locations of people, or long data.
SHOWN_ATTRIBUTES = (  # noqa: SIM905 - with one per line the list would fill a page
    "brightness rgb_color color_temp_kelvin effect current_position current_tilt_position current_temperature "
    "temperature target_temp_high target_temp_low hvac_action hvac_modes preset_mode preset_modes fan_mode humidity "
    "current_humidity available_modes mode percentage media_title media_artist media_album_name app_name source "
    "source_list volume_level is_volume_muted operation_mode operation_list options min max step min_temp max_temp "
    "min_color_temp_kelvin max_color_temp_kelvin battery_level fan_speed device_class unit_of_measurement message "
    "start_time end_time location description installed_version latest_version last_triggered wind_speed pressure "
    "temperature_unit wind_speed_unit pressure_unit entity_id"
).split()
"""The attributes that the model sees."""


def render_list(entities: Sequence[Entity]) -> str:
    """Return a line for each entity, by area. Beyond `MAX_LISTED` only the number is given."""

    def order(entity: Entity) -> tuple[bool, str, str, str]:
        place = _area_name(entity)
        return place == NO_AREA, place, entity.domain, entity.name.casefold()

    ordered = sorted(entities, key=order)
    lines: list[str] = []
    for place, group in groupby(ordered[:MAX_LISTED], _area_name):
        lines += [f"{place}:", *(f"- {entity}: {render_state(entity)}" for entity in group)]
    if (more := len(entities) - MAX_LISTED) > 0:
        lines.append(f"{more} more are not shown: narrow it down by area, kind or targets.")
    return "\n".join(lines)


def render_overview(entities: Sequence[Entity]) -> str:
    """Return the number of entities of each kind in each area."""
    lines = []
    for place in sorted({_area_name(entity) for entity in entities}, key=lambda name: (name == NO_AREA, name)):
        kinds = Counter(entity.domain for entity in entities if _area_name(entity) == place)
        lines.append(f"{place}: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))
    return "\n".join([f"There are {len(entities)} entities. Ask again with area, kind or targets.", *lines])


def render_state(entity: Entity) -> str:
    """Return an entity's state, with the attribute that matters most for its kind."""
    state = one_line(entity.state.state)
    attributes = entity.attributes
    match entity.domain:
        case "light" if isinstance(brightness := attributes.get("brightness"), int):
            return f"{state}, {round(brightness / 2.55)} %"
        case "cover" | "valve" if (position := attributes.get("current_position")) is not None:
            return f"{state}, position {position} %"
        case "fan" if (speed := attributes.get("percentage")) is not None:
            return f"{state}, {speed} %"
        case "climate" | "water_heater":
            set_to = attributes.get("temperature")
            measured = attributes.get("current_temperature")
            return f"{state}, set to {set_to}, measured {measured}"
        case "media_player" if title := attributes.get("media_title"):
            return f"{state}, {one_line(str(title))}"
        case "binary_sensor" if state in ("on", "off") and (meaning := STATE_WORDS.get(entity.device_class)):
            return f"{state} ({meaning[0] if state == 'on' else meaning[1]})"
        case "text" if attributes.get("mode") == "password":
            return "a password, not shown"
        case _:
            unit = attributes.get("unit_of_measurement")
            return f"{state} {unit}" if unit else state


def render_details(entity: Entity) -> str:
    """Return an entity's state, its attributes, and the commands and settings that it accepts."""
    lines = [f"{entity}: {render_state(entity)}", f"  area: {_area_name(entity)}"]
    if entity.state.last_changed:
        lines.append(f"  last changed: {entity.state.last_changed}")
    for name in SHOWN_ATTRIBUTES:
        if (value := entity.attributes.get(name)) not in (None, "", []):
            text = json.dumps(value, ensure_ascii=False, default=str)
            lines.append(f"  {name}: {text if len(text) <= MAX_ATTRIBUTE_CHARS else text[:MAX_ATTRIBUTE_CHARS] + '…'}")
    if able := list_abilities(entity):
        lines.append(f"  takes: {', '.join(able)}")
    return "\n".join(lines)


def _area_name(entity: Entity) -> str:
    return entity.area.name if entity.area else NO_AREA
