"""What Home Assistant answers over REST and WebSocket, as far as it is read, whatever else it holds."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """One object of an answer."""

    model_config = ConfigDict(frozen=True)


class State(Wire):
    """An entity as `GET /api/states` has it; `state` is always text, `attributes` are its integration's own."""

    entity_id: str
    state: str
    attributes: dict[str, Any] = {}
    last_changed: str = ""


class AreaEntry(Wire):
    """An area of `config/area_registry/list`."""

    area_id: str
    name: str
    aliases: tuple[str | None, ...] = ()
    floor_id: str | None = None


class FloorEntry(Wire):
    """A floor of `config/floor_registry/list`."""

    floor_id: str
    name: str
    aliases: tuple[str | None, ...] = ()


class DeviceEntry(Wire):
    """A device of `config/device_registry/list`; most have several entities."""

    id: str
    area_id: str | None = None


class Exposure(Wire):
    """Whether an entity is shown to assistants; None where its owner never said."""

    should_expose: bool | None = None


class EntityOptions(Wire):
    """What is set of an entity, by who reads it."""

    conversation: Exposure = Exposure()


class EntityEntry(Wire):
    """An entity of `config/entity_registry/get_entries`, which has the aliases that `list` leaves out.

    Without an area of its own it is in its device's. A null among the aliases stands for its name.
    """

    area_id: str | None = None
    device_id: str | None = None
    hidden_by: str | None = None
    entity_category: str | None = None
    aliases: tuple[str | None, ...] = ()
    options: EntityOptions = EntityOptions()


class Fault(Wire):
    """Why a command failed."""

    code: str | int = ""
    message: str = ""


class Answer(Wire):
    """A message over the WebSocket: of the handshake without an id, or the result of a command."""

    type: str
    id: int | None = None
    success: bool = False
    result: Any = None
    error: Fault = Fault()
