"""The word of one server to the others of a Redis that it is there.

In a thread with a connection of its own: a tool that holds up the event loop must not cost the server its runs.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from typing import Any

import structlog

from callboard.storage.company import Company
from callboard.storage.redis.scripts import LEAVE, RENEW, Script, keys_of_server
from callboard.storage.redis.server import FAILURES, RedisServer, SynchronousClient

RENEWALS_A_LEASE = 3
RETRY_SECONDS = 0.5

_log = structlog.get_logger(__name__)


class RedisLease:
    """The lease of a server, by the clock of Redis; it is lost where it is not renewed for `lease_seconds`."""

    def __init__(self, server: RedisServer, server_id: str, lease_seconds: float) -> None:
        self._server = server
        self._server_id = server_id
        self._keys = keys_of_server(server_id)
        self._lease_seconds = lease_seconds
        self._company = Company(lease_seconds)
        self._ending = threading.Event()

    @property
    def was_alone(self) -> bool:
        """Return whether no other server was there when the lease was last renewed, nor a while before that."""
        return self._company.is_missing

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lease until the block ends; raises `StorageError` where Redis cannot be written at the beginning."""
        try:
            client = await asyncio.to_thread(self._begin)
        except FAILURES as error:
            raise self._server.complain(error) from None
        thread = threading.Thread(target=self._keep, args=[client], name="lease of runs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            await asyncio.to_thread(thread.join)

    def _begin(self) -> SynchronousClient:
        with ExitStack() as unless_begun:
            client = self._server.connect_in_thread(self._lease_seconds / RENEWALS_A_LEASE)
            unless_begun.callback(client.close)
            self._renew(client)
            unless_begun.pop_all()
        return client

    def _keep(self, client: SynchronousClient) -> None:
        is_in_trouble = False
        pause_seconds = self._lease_seconds / RENEWALS_A_LEASE
        with closing(client):
            while not self._ending.wait(RETRY_SECONDS if is_in_trouble else pause_seconds):
                try:
                    self._renew(client)
                except FAILURES as error:
                    if not is_in_trouble:
                        _log.warning("lease_not_renewed", error=self._server.say(error))
                    is_in_trouble = True
                else:
                    is_in_trouble = False
            # Else it runs out by itself.
            with suppress(*FAILURES):
                self._run(client, LEAVE, self._server_id)

    def _renew(self, client: SynchronousClient) -> None:
        servers = self._run(client, RENEW, self._server_id, self._lease_seconds)
        self._company.note(are_others_there=servers > 1)

    def _run(self, client: SynchronousClient, script: Script, *arguments: str | float) -> Any:
        # As a whole: it is short, and seldom run.
        return client.eval(script.text, len(self._keys), *self._keys, *arguments)
