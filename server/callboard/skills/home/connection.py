"""Client of Home Assistant: states over its REST API, registries and commands over its WebSocket.

Commands go over the WebSocket since there Home Assistant says why it refuses one. Over REST
it is 400 or 500 without a word, and 200 where there is no such entity.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import InvalidStatus, WebSocketException

from callboard._trace_context import headers_of, pass_on
from callboard.errors import ToolError, ToolTimeout
from callboard.skills.home.address import HomeAddress
from callboard.skills.home.snapshot import (
    Answer,
    AreaEntry,
    DeviceEntry,
    EntityEntry,
    FloorEntry,
    HomeSnapshot,
    State,
    build_snapshot,
)

READ_SECONDS = 15.0
COMMAND_SECONDS = 60.0
"""Home Assistant answers a command when it is carried out, which a slow device may take its time for."""

HANDSHAKE_SECONDS = 15.0
CLOSE_SECONDS = 1.0
MAX_MESSAGE_BYTES = 64 * 2**20
"""The registry of a large house is far beyond the 1 MiB that the library would take."""

_logger = logging.getLogger("callboard.home_assistant.websocket")
# At debug level the library logs every frame, and one of them holds the token.
_logger.setLevel(logging.INFO)

REFUSED = (
    "Home Assistant refused the token (401): set CALLBOARD_HOME_ASSISTANT_TOKEN to a long-lived access token of it, "
    "made in its user profile under Security."
)
STRANGE = (
    "What answers at CALLBOARD_HOME_ASSISTANT_URL is not Home Assistant's API: give the address of Home Assistant "
    "itself, such as http://homeassistant.local:8123."
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HomeConnection:
    """An open connection, for one command at a time.

    Every method raises `ToolError` where Home Assistant refuses or cannot be reached.
    """

    client: httpx.AsyncClient
    socket: ClientConnection
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    command_seconds: float = COMMAND_SECONDS

    async def snapshot(self) -> HomeSnapshot:
        """Return all that there is, with its state of now."""
        states = await self._get(tuple[State, ...], "/api/states")
        areas = await self._ask(tuple[AreaEntry, ...], "config/area_registry/list")
        devices = await self._ask(tuple[DeviceEntry, ...], "config/device_registry/list")
        entries = await self._ask(
            dict[str, EntityEntry | None],
            "config/entity_registry/get_entries",
            entity_ids=[state.entity_id for state in states],
        )
        floors: tuple[FloorEntry, ...] = ()
        # Asked for only where an area is on one: versions before 2024.4 have no floors.
        if any(area.floor_id for area in areas):
            floors = await self._ask(tuple[FloorEntry, ...], "config/floor_registry/list")
        return build_snapshot(states, areas, devices, entries, floors)

    async def state(self, entity_id: str) -> State:
        """Return one entity's state of now."""
        return await self._get(State, f"/api/states/{entity_id}")

    async def call(self, service: str, entity_id: str, data: Mapping[str, Any]) -> None:
        """Carry out a service (`light.turn_on`) on an entity; returns once that is done."""
        domain, _, name = service.partition(".")
        fields = {"domain": domain, "service": name, "service_data": dict(data), "target": {"entity_id": entity_id}}
        try:
            await self._ask(object, "call_service", seconds=self.command_seconds, **fields)
        except ToolTimeout as error:
            raise ToolTimeout(
                f"Home Assistant did not say within {self.command_seconds:g} s that it was done, and it may still "
                "happen. See how it is before you try again."
            ) from error

    async def _ask(self, kind: type[T], command: str, *, seconds: float = READ_SECONDS, **fields: object) -> T:
        number = next(self.numbers)
        async with _as_tool_errors(seconds):
            await self.socket.send(json.dumps({"id": number, "type": command, **fields}))
            while (answer := await _receive(self.socket)).id != number:
                pass
        if not answer.success:
            reason = answer.error_message or answer.error_code or "it did not say why"
            raise ToolError(f"Home Assistant refused: {reason}")
        try:
            return TypeAdapter(kind).validate_python(answer.result)
        except ValidationError as error:
            raise ToolError(STRANGE) from error

    async def _get(self, kind: type[T], path: str) -> T:
        try:
            response = await self.client.get(path)
        except httpx.TimeoutException as error:
            raise _too_slow(READ_SECONDS) from error
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if not response.is_success:
            raise _refusal(response.status_code)
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            raise ToolError(STRANGE) from error


@asynccontextmanager
async def connect(address: HomeAddress) -> AsyncIterator[HomeConnection]:
    """Open a connection. Raises `ToolError` and its kin."""
    headers = {"Authorization": f"Bearer {address.token}"}
    try:
        client = httpx.AsyncClient(
            base_url=address.url, headers=headers, timeout=READ_SECONDS, event_hooks={"request": [pass_on]}
        )
    except httpx.InvalidURL as error:
        raise _unreachable(error) from error
    async with client, _open_socket(address) as socket:
        yield HomeConnection(client, socket)


@asynccontextmanager
async def _open_socket(address: HomeAddress) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket that has been let in. Raises `ToolError` and its kin."""
    url = "ws" + address.url.removeprefix("http") + "/api/websocket"
    async with _as_tool_errors(HANDSHAKE_SECONDS):
        try:
            connection = await _NoRedirects(
                url,
                additional_headers=headers_of(),
                max_size=MAX_MESSAGE_BYTES,
                open_timeout=None,
                close_timeout=CLOSE_SECONDS,
                logger=_logger,
            )
        except ValueError as error:
            raise _unreachable(error) from error  # the address is none
    try:
        await _authenticate(connection, address.token)
        yield connection
    finally:
        await connection.close()


class _NoRedirects(websocket):
    """WebSocket connector that follows no redirect: the token would go along, to wherever it leads."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _authenticate(connection: ClientConnection, token: str) -> None:
    async with _as_tool_errors(HANDSHAKE_SECONDS):
        greeting = await _receive(connection)
        if greeting.type == "auth_required":
            await connection.send(json.dumps({"type": "auth", "access_token": token}))
            greeting = await _receive(connection)
    if greeting.type == "auth_invalid":
        raise ToolError(REFUSED)
    if greeting.type != "auth_ok":
        raise ToolError(STRANGE)


async def _receive(connection: ClientConnection) -> Answer:
    try:
        return Answer.model_validate_json(await connection.recv())
    except ValidationError as error:
        raise ToolError(STRANGE) from error


@asynccontextmanager
async def _as_tool_errors(seconds: float) -> AsyncIterator[None]:
    """Turn what can go wrong on the way into a `ToolError`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise _too_slow(seconds) from error
    except InvalidStatus as error:
        raise _refusal(error.response.status_code) from error
    except (OSError, WebSocketException) as error:
        raise _unreachable(error) from error


def _refusal(status: int) -> ToolError:
    """Return what an HTTP status other than success means, in words that say who can do what about it."""
    match status:
        case status if status < 300:
            return ToolError(STRANGE)
        case 401:
            return ToolError(REFUSED)
        case 403:
            return ToolError(
                "Home Assistant does not let this server in (403): it bans an address after too many wrong tokens. "
                "Delete it from ip_bans.yaml there, restart Home Assistant and check CALLBOARD_HOME_ASSISTANT_TOKEN."
            )
        case 400:
            return ToolError(
                "Home Assistant refused the request (400): if CALLBOARD_HOME_ASSISTANT_URL leads through a proxy, name "
                "the proxy in trusted_proxies of Home Assistant's http settings."
            )
        case 404:
            return ToolError(f"{STRANGE} It said 404, not found.")
        case 502 | 503 | 504:
            return ToolError(f"Home Assistant is not ready ({status}): it may be starting. Try again in a minute.")
        case status if 300 <= status < 400:
            # Not followed: the token would go along, to wherever it leads.
            return ToolError(
                f"Home Assistant sends us elsewhere ({status}): set CALLBOARD_HOME_ASSISTANT_URL to its own address "
                "(https://, perhaps)."
            )
        case _:
            return ToolError(f"Home Assistant answered with an error ({status}): look at its log, or try again later.")


def _unreachable(error: Exception) -> ToolError:
    """Return the error for no connection, or one that broke."""
    return ToolError(
        f"Home Assistant cannot be reached ({type(error).__name__}): is it running, and is "
        "CALLBOARD_HOME_ASSISTANT_URL its address?"
    )


def _too_slow(seconds: float) -> ToolTimeout:
    """Return the error for no answer in time."""
    return ToolTimeout(
        f"Home Assistant did not answer within {seconds:g} s: try again later, or see whether it is well."
    )
