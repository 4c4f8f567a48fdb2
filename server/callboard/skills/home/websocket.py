"""Home Assistant's WebSocket: its handshake, and commands by number."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import InvalidStatus, WebSocketException

from callboard.errors import ToolError
from callboard.skills.home.faults import REFUSED, STRANGE, refusal, too_slow, unreachable
from callboard.skills.home.wire import Answer

HANDSHAKE_SECONDS = 15.0
CLOSE_SECONDS = 1.0
MAX_MESSAGE_BYTES = 64 * 2**20
"""The registry of a large house is far beyond the 1 MiB that the library would take."""

_logger = logging.getLogger("callboard.home_assistant.websocket")
# At debug level the library logs every frame, and one of them holds the token.
_logger.setLevel(logging.INFO)

T = TypeVar("T")


class Socket:
    """An open WebSocket that has been let in. For one command at a time."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = count(1)

    async def ask(self, kind: type[T], command: str, *, seconds: float, **fields: object) -> T:
        """The result of a command, as a `kind`. Raises `ToolError` and its kin, with what Home Assistant says."""
        number = next(self._numbers)
        async with _speaking(seconds):
            await self._connection.send(json.dumps({"id": number, "type": command, **fields}))
            while (answer := await _receive(self._connection)).id != number:
                pass
        if not answer.success:
            reason = answer.error.message or answer.error.code or "it did not say why"
            raise ToolError(f"Home Assistant refused: {reason}")
        try:
            return TypeAdapter(kind).validate_python(answer.result)
        except ValidationError as error:
            raise ToolError(STRANGE) from error


@asynccontextmanager
async def open_socket(address: str, token: str) -> AsyncIterator[Socket]:
    """The WebSocket of the Home Assistant at `address`. Raises `ToolError` and its kin."""
    url = "ws" + address.removeprefix("http") + "/api/websocket"
    async with _speaking(HANDSHAKE_SECONDS):
        try:
            connection = await _Straight(
                url, max_size=MAX_MESSAGE_BYTES, open_timeout=None, close_timeout=CLOSE_SECONDS, logger=_logger
            )
        except ValueError as error:
            raise unreachable(error) from error  # the address is none
    try:
        await _be_let_in(connection, token)
        yield Socket(connection)
    finally:
        await connection.close()


class _Straight(websocket):
    """Follows no redirect: the token would go along, to wherever it leads."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _be_let_in(connection: ClientConnection, token: str) -> None:
    async with _speaking(HANDSHAKE_SECONDS):
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
async def _speaking(seconds: float) -> AsyncIterator[None]:
    """Turns what can go wrong on the way into a `ToolError`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise too_slow(seconds) from error
    except InvalidStatus as error:
        raise refusal(error.response.status_code) from error
    except (OSError, WebSocketException) as error:
        raise unreachable(error) from error
