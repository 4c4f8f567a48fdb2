"""The bus through `LISTEN` and `NOTIFY` of PostgreSQL.

`NOTIFY` runs in its own transaction after the write: PostgreSQL serialises the commits of transactions that notify, so
every such write would wait for the disk syncs of the others.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from callboard.storage.bus import ConnectedBus, Send

CHANNEL = "callboard_runs"
NOTIFY = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message"


class PostgresqlBus(ConnectedBus):
    """The bus in the database of an engine without a pool."""

    def __init__(self, name: str, engine: AsyncEngine) -> None:
        super().__init__(name)
        self._engine = engine

    @asynccontextmanager
    async def _connect(self, receive: Callable[[bytes], None]) -> AsyncIterator[Send]:
        def on_message(_connection: object, _process: int, _channel: str, payload: str) -> None:
            receive(payload.encode())

        async with self._engine.connect() as connection:
            # SQLAlchemy has no interface for notifications.
            driver: Any = (await connection.get_raw_connection()).driver_connection
            driver.add_termination_listener(lambda _: self._wake.set())
            await driver.add_listener(CHANNEL, on_message)

            async def send(messages: Sequence[bytes]) -> None:
                await driver.execute(NOTIFY, CHANNEL, [message.decode() for message in messages])

            try:
                yield send
            finally:
                # Not `close`, which would wait for a server that does not answer.
                driver.terminate()
