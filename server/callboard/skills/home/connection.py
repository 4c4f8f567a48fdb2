"""The client of Home Assistant: states over its REST API, registries and commands over its WebSocket.

Commands go over the WebSocket since there Home Assistant says why it refuses one. Over REST
it is 400 or 500 without a word, and 200 where there is no such entity.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from callboard.errors import ToolError, ToolTimeout
from callboard.settings import Settings
from callboard.skills.home.address import whereabouts
from callboard.skills.home.faults import NOT_SET_UP, STRANGE, refusal, too_slow, unreachable
from callboard.skills.home.house import House, furnished
from callboard.skills.home.websocket import Socket, open_socket
from callboard.skills.home.wire import AreaEntry, DeviceEntry, EntityEntry, FloorEntry, State

READ_SECONDS = 15.0
COMMAND_SECONDS = 60.0
"""Home Assistant answers a command when it is carried out, which a slow device may take its time for."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HomeAssistant:
    """An open connection. Every method raises `ToolError` where Home Assistant refuses or cannot be reached."""

    client: httpx.AsyncClient
    socket: Socket
    command_seconds: float = COMMAND_SECONDS

    async def house(self) -> House:
        """All that there is, with its state of now."""
        states = await self._get(tuple[State, ...], "/api/states")
        areas = await self._registry(tuple[AreaEntry, ...], "area_registry/list")
        devices = await self._registry(tuple[DeviceEntry, ...], "device_registry/list")
        entries = await self._registry(
            dict[str, EntityEntry | None],
            "entity_registry/get_entries",
            entity_ids=[state.entity_id for state in states],
        )
        return furnished(states, areas, devices, entries, await self._floors(areas))

    async def _floors(self, areas: Sequence[AreaEntry]) -> Sequence[FloorEntry]:
        # Asked for only where an area is on one: versions before 2024.4 have no floors.
        if not any(area.floor_id for area in areas):
            return ()
        return await self._registry(tuple[FloorEntry, ...], "floor_registry/list")

    async def state(self, entity_id: str) -> State:
        """One entity's state of now."""
        return await self._get(State, f"/api/states/{entity_id}")

    async def call(self, service: str, entity_id: str, data: Mapping[str, Any]) -> None:
        """Carries out a service (`light.turn_on`) on an entity; returns once that is done."""
        domain, _, name = service.partition(".")
        fields = {"domain": domain, "service": name, "service_data": dict(data), "target": {"entity_id": entity_id}}
        try:
            await self.socket.ask(object, "call_service", seconds=self.command_seconds, **fields)
        except ToolTimeout as error:
            raise ToolTimeout(
                f"Home Assistant did not say within {self.command_seconds:g} s that it was done, and it may still "
                "happen. See how it is before you try again."
            ) from error

    async def _registry(self, kind: type[T], command: str, **fields: object) -> T:
        return await self.socket.ask(kind, f"config/{command}", seconds=READ_SECONDS, **fields)

    async def _get(self, kind: type[T], path: str) -> T:
        try:
            response = await self.client.get(path)
        except httpx.TimeoutException as error:
            raise too_slow(READ_SECONDS) from error
        except httpx.HTTPError as error:
            raise unreachable(error) from error
        if not response.is_success:
            raise refusal(response.status_code)
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            raise ToolError(STRANGE) from error


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[HomeAssistant]:
    """A connection to the Home Assistant of the settings. Raises `ToolError` where they name none."""
    if (there := whereabouts(settings)) is None:
        raise ToolError(NOT_SET_UP)
    address, token = there
    try:
        client = httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=READ_SECONDS)
    except httpx.InvalidURL as error:
        raise unreachable(error) from error
    async with client, open_socket(address, token) as socket:
        yield HomeAssistant(client, socket)
