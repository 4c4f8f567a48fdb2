"""A client of Home Assistant: states through its REST API, registries and commands through its WebSocket.

Commands use the WebSocket because it gives the reason of a failure. REST answers 400 or 500 without a reason, and 200
for an unknown entity.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import InvalidStatus, WebSocketException

from callboard.errors import ToolError, ToolTimeout
from callboard.skills.home.address import HomeAddress
from callboard.skills.home.snapshot import (
    AreaEntry,
    DeviceEntry,
    EntityEntry,
    FloorEntry,
    HomeMessage,
    HomeSnapshot,
    State,
    build_snapshot,
)

READ_SECONDS = 15.0
COMMAND_SECONDS = 60.0
"""Home Assistant answers a command after it has been carried out, and some devices are slow."""

HANDSHAKE_SECONDS = 15.0
CLOSE_SECONDS = 1.0
MAX_MESSAGE_BYTES = 64 * 2**20
"""The registry of a large house exceeds the library's default of 1 MiB."""

_logger = logging.getLogger("callboard.home_assistant.websocket")
# At debug level the library would log every frame, and one frame contains the token.
_logger.setLevel(logging.INFO)

UNAUTHORIZED = (
    "Home Assistant refused the token (401): set CALLBOARD_HOME_ASSISTANT_TOKEN to a long-lived access token, "
    "made in a user's profile there under Security."
)
NOT_HOME_ASSISTANT = (
    "CALLBOARD_HOME_ASSISTANT_URL does not answer with Home Assistant's API: set it to the address of Home Assistant "
    "itself, such as http://homeassistant.local:8123."
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HomeConnection:
    """An open connection, which runs one command at a time.

    Every method raises `ToolError` if Home Assistant refuses the request or cannot be reached.
    """

    client: httpx.AsyncClient
    socket: ClientConnection
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    command_seconds: float = COMMAND_SECONDS

    async def snapshot(self) -> HomeSnapshot:
        """Return all areas and entities with their current states."""
        states = await self._read(tuple[State, ...], "/api/states")
        areas = await self._send_command(tuple[AreaEntry, ...], "config/area_registry/list")
        devices = await self._send_command(tuple[DeviceEntry, ...], "config/device_registry/list")
        entries = await self._send_command(
            dict[str, EntityEntry | None],
            "config/entity_registry/get_entries",
            entity_ids=[state.entity_id for state in states],
        )
        floors: tuple[FloorEntry, ...] = ()
        # Requested only if an area has a floor, because versions before 2024.4 have no floors.
        if any(area.floor_id for area in areas):
            floors = await self._send_command(tuple[FloorEntry, ...], "config/floor_registry/list")
        return build_snapshot(states, areas, devices, entries, floors)

    async def state(self, entity_id: str) -> State:
        """Return the current state of one entity."""
        return await self._read(State, f"/api/states/{entity_id}")

    async def call(self, service: str, entity_id: str, data: Mapping[str, Any]) -> None:
        """Call a service (`light.turn_on`) for an entity, and return when it has been carried out."""
        domain, _, name = service.partition(".")
        fields = {"domain": domain, "service": name, "service_data": dict(data), "target": {"entity_id": entity_id}}
        try:
            await self._send_command(object, "call_service", seconds=self.command_seconds, **fields)
        except ToolTimeout as error:
            raise ToolTimeout(
                f"Home Assistant did not confirm the change within {self.command_seconds:g} s. It may still happen: "
                "check the state before you try again."
            ) from error

    async def _send_command(self, kind: type[T], command: str, *, seconds: float = READ_SECONDS, **fields: object) -> T:
        number = next(self.numbers)
        with _as_tool_errors(seconds):
            async with asyncio.timeout(seconds):
                await self.socket.send(json.dumps({"id": number, "type": command, **fields}))
                while (answer := await _receive(self.socket)).id != number:
                    pass
            if not answer.success:
                reason = answer.error_message or answer.error_code or "it gave no reason"
                raise ToolError(f"Home Assistant refused: {reason}")
            return TypeAdapter(kind).validate_python(answer.result)

    async def _read(self, kind: type[T], path: str) -> T:
        with _as_tool_errors(READ_SECONDS):
            response = await self.client.get(path)
            if not response.is_success:
                raise _status_error(response.status_code)
            return TypeAdapter(kind).validate_json(response.content)


@asynccontextmanager
async def connect(address: HomeAddress) -> AsyncIterator[HomeConnection]:
    """Open a connection. Raises `ToolError` and its subclasses."""
    headers = {"Authorization": f"Bearer {address.token}"}
    with _as_tool_errors(READ_SECONDS):
        client = httpx.AsyncClient(base_url=address.url, headers=headers, timeout=READ_SECONDS)
    async with client, _open_socket(address) as socket:
        yield HomeConnection(client, socket)


@asynccontextmanager
async def _open_socket(address: HomeAddress) -> AsyncIterator[ClientConnection]:
    """Open an authenticated WebSocket. Raises `ToolError` and its subclasses."""
    url = "ws" + address.url.removeprefix("http") + "/api/websocket"
    with _as_tool_errors(HANDSHAKE_SECONDS):
        connection = await _NoRedirects(
            url,
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=HANDSHAKE_SECONDS,
            close_timeout=CLOSE_SECONDS,
            logger=_logger,
        )
    try:
        await _authenticate(connection, address.token)
        yield connection
    finally:
        await connection.close()


class _NoRedirects(websocket):
    """A WebSocket connector that follows no redirects, because their target would receive the token."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _authenticate(connection: ClientConnection, token: str) -> None:
    with _as_tool_errors(HANDSHAKE_SECONDS):
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            greeting = await _receive(connection)
            if greeting.type == "auth_required":
                await connection.send(json.dumps({"type": "auth", "access_token": token}))
                greeting = await _receive(connection)
    if greeting.type == "auth_invalid":
        raise ToolError(UNAUTHORIZED)
    if greeting.type != "auth_ok":
        raise ToolError(NOT_HOME_ASSISTANT)


async def _receive(connection: ClientConnection) -> HomeMessage:
    return HomeMessage.model_validate_json(await connection.recv())


@contextmanager
def _as_tool_errors(seconds: float) -> Iterator[None]:
    """Convert failures of the connection, and answers of other services, to `ToolError`.

    `seconds` is the time limit, which errors name.
    """
    try:
        yield
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ToolTimeout(
            f"Home Assistant did not answer within {seconds:g} s: try again later, or check that it works."
        ) from error
    except InvalidStatus as error:
        raise _status_error(error.response.status_code) from error
    except ValidationError as error:
        raise ToolError(NOT_HOME_ASSISTANT) from error
    except (ValueError, httpx.InvalidURL) as error:
        raise _unreachable_error(error) from error  # an invalid address
    except (OSError, WebSocketException, httpx.HTTPError) as error:
        raise _unreachable_error(error) from error


def _unreachable_error(error: Exception) -> ToolError:
    return ToolError(
        f"Home Assistant cannot be reached ({type(error).__name__}): is it running, and is "
        "CALLBOARD_HOME_ASSISTANT_URL its address?"
    )


def _status_error(status: int) -> ToolError:
    """Return the error for an unsuccessful HTTP status, with advice for the user."""
    match status:
        case status if status < 300:
            return ToolError(NOT_HOME_ASSISTANT)
        case 401:
            return ToolError(UNAUTHORIZED)
        case 403:
            return ToolError(
                "Home Assistant refuses this server (403): it bans an address after too many wrong tokens. "
                "Delete it from ip_bans.yaml there, restart Home Assistant and check CALLBOARD_HOME_ASSISTANT_TOKEN."
            )
        case 400:
            return ToolError(
                "Home Assistant refused the request (400): if CALLBOARD_HOME_ASSISTANT_URL leads through a proxy, name "
                "the proxy in trusted_proxies of Home Assistant's http settings."
            )
        case 404:
            return ToolError(f"{NOT_HOME_ASSISTANT} It answered 404, not found.")
        case 502 | 503 | 504:
            return ToolError(f"Home Assistant is not ready ({status}): it may be starting. Try again in a minute.")
        case status if 300 <= status < 400:
            # Redirects are not followed, because their target would receive the token.
            return ToolError(
                f"Home Assistant redirects to another address ({status}): set CALLBOARD_HOME_ASSISTANT_URL to its own "
                "(https://, perhaps)."
            )
        case _:
            return ToolError(f"Home Assistant answered with an error ({status}): look at its log, or try again later.")
