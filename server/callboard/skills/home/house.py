"""A house as Home Assistant knows it: what is in it, how people call it, where it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.skills.home.wire import AreaEntry, DeviceEntry, EntityEntry, FloorEntry, State

UNAVAILABLE = "unavailable"
"""The state of what Home Assistant has lost; it drops commands to it without a word."""


@dataclass(frozen=True, slots=True)
class Area:
    """A room or another place; `floor` has the names of the storey that it is on."""

    area_id: str
    name: str
    aliases: tuple[str, ...] = ()
    floor: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entity:
    """Anything that has a state: a light, a sensor, a scene.

    `aliases` are the other names it goes by. `minor` is a setting or a diagnosis of a device, `hidden` what the
    house's owner does not want to see: neither is found by its name. `exposed` is False for what its owner keeps
    from Home Assistant's own assistants.
    """

    state: State
    name: str
    area: Area | None = None
    aliases: tuple[str, ...] = ()
    minor: bool = False
    hidden: bool = False
    exposed: bool = True

    @property
    def entity_id(self) -> str:
        """Home Assistant's own name for it, such as `light.kitchen`."""
        return self.state.entity_id

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What it says of itself beside its state."""
        return self.state.attributes

    @property
    def domain(self) -> str:
        """What kind of thing it is: `light`, `cover`, `sensor`."""
        return self.entity_id.partition(".")[0]

    @property
    def device_class(self) -> str:
        """What kind of its kind it is (`garage`, `temperature`); empty where it does not say."""
        return str(self.attributes.get("device_class") or "")

    def __str__(self) -> str:
        return f"{self.name} ({self.entity_id})"


@dataclass(frozen=True, slots=True)
class House:
    """All areas and all entities that have a state."""

    areas: tuple[Area, ...]
    entities: tuple[Entity, ...]


def furnished(
    states: Sequence[State],
    areas: Sequence[AreaEntry],
    devices: Sequence[DeviceEntry],
    entries: Mapping[str, EntityEntry | None],
    floors: Sequence[FloorEntry] = (),
) -> House:
    """The house that Home Assistant's registries and states describe together."""
    storeys = {one.floor_id: (one.floor_id, one_line(one.name), *_names(one.aliases)) for one in floors}
    places = {
        one.area_id: Area(one.area_id, one_line(one.name), _names(one.aliases), storeys.get(one.floor_id or "", ()))
        for one in areas
    }
    owners = {device.id: device for device in devices}
    entities = [_entity(state, entries.get(state.entity_id), owners, places) for state in states]
    return House(tuple(places.values()), tuple(entities))


def one_line(text: str) -> str:
    """A name as it can stand within a line."""
    return re.sub(r"\s+", " ", text).strip()


def _entity(
    state: State, entry: EntityEntry | None, owners: Mapping[str, DeviceEntry], places: Mapping[str, Area]
) -> Entity:
    entry = entry or EntityEntry()  # one without a unique id is in no registry
    device = owners.get(entry.device_id or "")
    area_id = entry.area_id or (device.area_id if device else None)
    name = str(state.attributes.get("friendly_name") or state.entity_id.partition(".")[2].replace("_", " "))
    return Entity(
        state=state,
        name=one_line(name),
        area=places.get(area_id or ""),
        aliases=_names(entry.aliases),
        minor=entry.entity_category is not None,
        hidden=entry.hidden_by is not None,
        exposed=entry.options.conversation.should_expose is not False,
    )


def _names(aliases: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(one_line(alias) for alias in aliases if alias)
