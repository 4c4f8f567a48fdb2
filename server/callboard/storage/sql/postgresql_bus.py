"""The bus by `LISTEN` and `NOTIFY` of PostgreSQL.

It notifies in a transaction of its own, after the one that wrote: PostgreSQL lets only one transaction that notifies
commit at a time, and each would hold up the others until the disk has it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from callboard.storage.bus import ConnectedBus, Notification, Send

CHANNEL = "callboard_runs"
MAX_PAYLOAD_BYTES = 7_999
"""The most that PostgreSQL takes; frames of text are some hundred bytes."""
NOTIFY = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message"


class PostgresqlBus(ConnectedBus):
    """The bus in the database that `make_engine` makes a connection to."""

    def __init__(self, name: str, make_engine: Callable[[], AsyncEngine]) -> None:
        super().__init__(name)
        self._make_engine = make_engine

    def _fit(self, notification: Notification) -> bytes:
        message = notification.encode()
        return message if len(message) <= MAX_PAYLOAD_BYTES else replace(notification, frames=b"").encode()

    @asynccontextmanager
    async def _connect(self, hear: Callable[[bytes], None]) -> AsyncIterator[Send]:
        def on_message(_connection: object, _process: int, _channel: str, payload: str) -> None:
            hear(payload.encode())

        async with self._make_engine().connect() as connection:
            # SQLAlchemy has no interface for notifications.
            driver: Any = (await connection.get_raw_connection()).driver_connection
            driver.add_termination_listener(lambda _: self._is_due.set())
            await driver.add_listener(CHANNEL, on_message)

            async def send(messages: Sequence[bytes]) -> None:
                await driver.execute(NOTIFY, CHANNEL, [message.decode() for message in messages])

            try:
                yield send
            finally:
                # Of a server that is silent nothing is waited for.
                driver.terminate()
