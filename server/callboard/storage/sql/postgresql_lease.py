"""The lease of a server in a PostgreSQL database: other servers take over its runs when the lease expires.

A thread with its own connection renews the lease, so that a tool that blocks the event loop does not let it expire.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import structlog
from anyio.from_thread import start_blocking_portal
from sqlalchemy import Executable, and_, delete, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncEngine

from callboard.errors import StorageError
from callboard.storage.sql import database
from callboard.storage.sql.tables import now, servers

RENEWALS_A_LEASE = 3
RETRY_SECONDS = 1.0
FORGET_SERVER_SECONDS = 86_400
ABSENT_LEASES = 3
"""The time, in lease durations, without a lease of another server after which this server counts as alone.

More than one, because another server may be restarting, or temporarily unable to renew its lease.
"""

_log = structlog.get_logger(__name__)


class PeerTracker:
    """Tracks whether other servers hold a lease on this database; `lease_seconds` is how long one lasts."""

    def __init__(self, lease_seconds: float) -> None:
        self.is_alone = True
        """True if the checks of the last `ABSENT_LEASES` lease durations found no other server."""
        self._absent_seconds = ABSENT_LEASES * lease_seconds
        self._missed_from = 0.0

    def note(self, *, are_others_there: bool, now: float | None = None) -> None:
        """Note the result of a check made at `now`, in seconds of the monotonic clock, or at this moment."""
        # Count checks, not elapsed time: a suspended process makes no checks.
        now = time.monotonic() if now is None else now
        if are_others_there:
            self._missed_from = now + self._absent_seconds
        self.is_alone = now >= self._missed_from


class PostgresqlLease:
    """The lease of a server; `engine` has no pool, because it is used in the event loop of a thread."""

    def __init__(self, engine: AsyncEngine, server_id: str, lease_seconds: float) -> None:
        self._engine = engine
        self._lease_seconds = lease_seconds
        lease = {"lease_until": now() + lease_seconds}
        row = postgresql.insert(servers).values(id=server_id, **lease)
        self._renew: Executable = row.on_conflict_do_update(index_elements=["id"], set_=lease)
        is_old = servers.c.lease_until < now() - FORGET_SERVER_SECONDS
        self._release: Executable = delete(servers).where((servers.c.id == server_id) | is_old)
        is_another = and_(servers.c.id != server_id, servers.c.lease_until > now())
        self._find_another = select(servers.c.id).where(is_another).limit(1)
        self.peers = PeerTracker(lease_seconds)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lease until the block ends; raises `StorageError` if it cannot be written at first."""
        loop = asyncio.get_running_loop()
        is_held = asyncio.Event()
        with start_blocking_portal() as thread:
            renewing = thread.start_task_soon(self._renew_forever, lambda: loop.call_soon_threadsafe(is_held.set))
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(database.PATIENCE_SECONDS):
                        await is_held.wait()
                if not is_held.is_set():
                    raise StorageError("the database cannot be written: its server did not answer in time")
                yield
            finally:
                renewing.cancel()
                await asyncio.wait({asyncio.wrap_future(renewing)})

    async def _renew_forever(self, on_held: Callable[[], object]) -> None:
        while True:
            try:
                await self._renew_until_disconnected(on_held)
            except Exception as error:  # noqa: BLE001 - without a lease other servers take over the runs of this one
                _log.warning("lease_not_renewed", error=str(error), error_type=type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)

    async def _renew_until_disconnected(self, on_held: Callable[[], object]) -> None:
        """Renew the lease with one connection until the connection is lost; release the lease when cancelled."""
        async with self._engine.connect() as connection:
            try:
                while True:
                    await connection.execute(self._renew)
                    # Two servers that start at the same time do not both believe that they are alone.
                    await connection.commit()
                    another = await connection.scalar(self._find_another)
                    self.peers.note(are_others_there=another is not None)
                    await connection.commit()
                    on_held()
                    await asyncio.sleep(self._lease_seconds / RENEWALS_A_LEASE)
            except asyncio.CancelledError:
                with anyio.move_on_after(database.CONNECT_SECONDS, shield=True):
                    await connection.execute(self._release)
                    await connection.commit()
                raise
