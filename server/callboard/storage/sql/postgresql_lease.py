"""The word of one server to the others of a PostgreSQL database that it is there, and the news that it hears of them.

In a thread with a connection of its own: a tool that holds up the event loop must not cost the server its runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog
from anyio.from_thread import start_blocking_portal
from sqlalchemy import ColumnElement, Executable, and_, delete, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncEngine

from callboard.errors import StorageError
from callboard.storage.company import Company
from callboard.storage.sql import database
from callboard.storage.sql.tables import servers

CHANNEL = "callboard_runs"
"""The channel of `NOTIFY`; what is told there is the id of a server, and of the run that it has written of."""
RENEWALS_A_LEASE = 3
RETRY_SECONDS = 1.0
FORGET_SERVER_SECONDS = 86_400

_log = structlog.get_logger(__name__)


class PostgresqlLease:
    """The lease of a server. `make_engine` makes an engine for the thread's own event loop, `now` is its clock."""

    def __init__(
        self,
        make_engine: Callable[[], AsyncEngine],
        now: ColumnElement[float],
        server_id: str,
        lease_seconds: float,
    ) -> None:
        self._make_engine = make_engine
        self._server_id = server_id
        self._lease_seconds = lease_seconds
        lease = {"lease_until": now + lease_seconds}
        row = postgresql.insert(servers).values(id=server_id, **lease)
        self._renew: Executable = row.on_conflict_do_update(index_elements=["id"], set_=lease)
        is_old = servers.c.lease_until < now - FORGET_SERVER_SECONDS
        self._give_back: Executable = delete(servers).where((servers.c.id == server_id) | is_old)
        is_another = and_(servers.c.id != server_id, servers.c.lease_until > now)
        self._find_another = select(servers.c.id).where(is_another).limit(1)
        self._company = Company(lease_seconds)

    @property
    def was_alone(self) -> bool:
        """Return whether no other server was there when the lease was last renewed, nor a while before that."""
        return self._company.is_missing

    @asynccontextmanager
    async def held(self, on_news: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold the lease until the block ends, and call `on_news` in this event loop with what others tell.

        Raises `StorageError` where the database cannot be reached at the beginning.
        """
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not begun.done():
                begun.set_result(None)

        with start_blocking_portal() as thread:
            keeping = thread.start_task_soon(
                self._keep,
                lambda: loop.call_soon_threadsafe(settle),
                lambda run_id: loop.call_soon_threadsafe(on_news, run_id),
            )
            try:
                await asyncio.wait({begun}, timeout=database.PATIENCE_SECONDS)
                if not begun.done():
                    raise StorageError("the database cannot be written: its server did not answer in time")
                yield
            finally:
                keeping.cancel()
                await asyncio.wait({asyncio.wrap_future(keeping)})

    async def _keep(self, on_held: Callable[[], object], on_news: Callable[[str], object]) -> None:
        engine = self._make_engine()
        while True:
            try:
                await self._keep_by(engine, on_held, on_news)
            except Exception as error:  # noqa: BLE001 - without a lease others take what runs here
                # The driver's own errors too, which nobody translates where it listens.
                _log.warning("lease_not_renewed", error=str(error), error_type=type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)

    async def _keep_by(
        self, engine: AsyncEngine, on_held: Callable[[], object], on_news: Callable[[str], object]
    ) -> None:
        """Renew the lease by one connection until that is lost; give it back where this is cancelled."""

        def hear(_connection: object, _process: int, _channel: str, news: str) -> None:
            server_id, _, run_id = news.partition(" ")
            # What this one says itself it knows.
            if server_id != self._server_id:
                on_news(run_id)

        async with engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.add_listener(CHANNEL, hear)
            try:
                while True:
                    await connection.execute(self._renew)
                    another = await connection.scalar(self._find_another)
                    self._company.note(are_others_there=another is not None)
                    await connection.commit()
                    on_held()
                    await asyncio.sleep(self._lease_seconds / RENEWALS_A_LEASE)
            except asyncio.CancelledError:
                with anyio.move_on_after(database.CONNECT_SECONDS, shield=True):
                    await connection.execute(self._give_back)
                    await connection.commit()
                raise
