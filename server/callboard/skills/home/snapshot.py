"""A snapshot of a home: its areas and entities, with their states and names at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field

from callboard.skills.actions import one_line


class Wire(BaseModel):
    """An object in an answer of Home Assistant, with only the fields that are read."""

    model_config = ConfigDict(frozen=True)


class State(Wire):
    """An entity in `GET /api/states`. `state` is always text, and `attributes` depend on the integration."""

    entity_id: str
    state: str
    attributes: dict[str, Any] = {}
    last_changed: str = ""


class AreaEntry(Wire):
    """An area in `config/area_registry/list`."""

    area_id: str
    name: str
    aliases: tuple[str | None, ...] = ()
    floor_id: str | None = None


class FloorEntry(Wire):
    """A floor in `config/floor_registry/list`."""

    floor_id: str
    name: str
    aliases: tuple[str | None, ...] = ()


class DeviceEntry(Wire):
    """A device in `config/device_registry/list`. Most devices have several entities."""

    id: str
    area_id: str | None = None


class EntityEntry(Wire):
    """An entity in `config/entity_registry/get_entries`, which unlike `list` includes aliases.

    An entity without an area is in its device's area. A null among the aliases stands for the entity's name.
    `should_expose` (to Home Assistant's assistants) is None if the owner has not decided.
    """

    area_id: str | None = None
    device_id: str | None = None
    hidden_by: str | None = None
    entity_category: str | None = None
    aliases: tuple[str | None, ...] = ()
    should_expose: bool | None = Field(
        default=None, validation_alias=AliasPath("options", "conversation", "should_expose")
    )


class HomeMessage(Wire):
    """A message on the WebSocket: part of the handshake, without an id, or the result of a command.

    `error_code` and `error_message` are the reason of a failure.
    """

    type: str
    id: int | None = None
    success: bool = False
    result: Any = None
    error_code: str | int = Field(default="", validation_alias=AliasPath("error", "code"))
    error_message: str = Field(default="", validation_alias=AliasPath("error", "message"))


UNAVAILABLE = "unavailable"
"""The state of an entity that Home Assistant cannot reach. Commands to it are silently dropped."""


@dataclass(frozen=True, slots=True)
class Area:
    """A room or another area. `floor` has the names of its floor."""

    area_id: str
    name: str
    aliases: tuple[str, ...] = ()
    floor: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return self.name, *self.aliases


@dataclass(frozen=True, slots=True)
class Entity:
    """An object with a state: a light, a sensor, a scene.

    Attributes:
        state: The state from Home Assistant.
        name: The name that users see.
        area: The area that it is in.
        aliases: Its other names.
        is_secondary: It is a setting or diagnosis of a device.
        is_hidden: The owner of the house has hidden it.
        is_exposed: The owner exposes it to Home Assistant's own assistants.
    """

    state: State
    name: str
    area: Area | None = None
    aliases: tuple[str, ...] = ()
    is_secondary: bool = False
    is_hidden: bool = False
    is_exposed: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return self.name, *self.aliases

    @property
    def entity_id(self) -> str:
        """Home Assistant's id, such as `light.kitchen`."""
        return self.state.entity_id

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The state's attributes."""
        return self.state.attributes

    @property
    def domain(self) -> str:
        """The kind of entity: `light`, `cover`, `sensor`."""
        return self.entity_id.partition(".")[0]

    @property
    def device_class(self) -> str:
        """The kind within its domain (`garage`, `temperature`), empty if it has none."""
        return str(self.attributes.get("device_class") or "")

    @property
    def is_named(self) -> bool:
        """Whether it is found by name: it is neither hidden nor a setting or diagnosis of a device."""
        return not (self.is_hidden or self.is_secondary)

    def __str__(self) -> str:
        return f"{self.name} ({self.entity_id})"


@dataclass(frozen=True, slots=True)
class HomeSnapshot:
    """All areas, and all entities that have a state."""

    areas: tuple[Area, ...]
    entities: tuple[Entity, ...]


def build_snapshot(
    states: Sequence[State],
    areas: Sequence[AreaEntry],
    devices: Sequence[DeviceEntry],
    entries: Mapping[str, EntityEntry | None],
    floors: Sequence[FloorEntry] = (),
) -> HomeSnapshot:
    """Combine the registries and the states of Home Assistant."""
    floors_by_id = {
        floor.floor_id: (floor.floor_id, one_line(floor.name), *_clean_names(floor.aliases)) for floor in floors
    }
    areas_by_id = {
        area.area_id: Area(
            area.area_id, one_line(area.name), _clean_names(area.aliases), floors_by_id.get(area.floor_id or "", ())
        )
        for area in areas
    }
    devices_by_id = {device.id: device for device in devices}
    entities = [_build_entity(state, entries.get(state.entity_id), devices_by_id, areas_by_id) for state in states]
    return HomeSnapshot(tuple(areas_by_id.values()), tuple(entities))


def _build_entity(
    state: State, entry: EntityEntry | None, devices_by_id: Mapping[str, DeviceEntry], areas_by_id: Mapping[str, Area]
) -> Entity:
    entry = entry or EntityEntry()  # entities without a unique id are in no registry
    device = devices_by_id.get(entry.device_id or "")
    area_id = entry.area_id or (device.area_id if device else None)
    name = str(state.attributes.get("friendly_name") or state.entity_id.partition(".")[2].replace("_", " "))
    return Entity(
        state=state,
        name=one_line(name),
        area=areas_by_id.get(area_id or ""),
        aliases=_clean_names(entry.aliases),
        is_secondary=entry.entity_category is not None,
        is_hidden=entry.hidden_by is not None,
        is_exposed=entry.should_expose is not False,
    )


def _clean_names(aliases: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(one_line(alias) for alias in aliases if alias)
