"""The way from one server to its PostgreSQL or Redis: it can be cut, go silent, and lose what PostgreSQL says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.relays import PIECE_BYTES, listening_on_a_port, pass_on

NOTIFICATION = b"A"
HEAD_BYTES = 5
"""A message of PostgreSQL's server: a byte that says of which kind, and the length of what follows, itself included."""


class StoreProxy:
    """Passes on what a server (`ssl=disable`) and the store at a Unix socket say to each other."""

    def __init__(self, socket: Path) -> None:
        self.port = 0
        self.lost_notifications = 0
        self.refused_connections = 0
        self._socket = socket
        self._is_cut = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._loses_notifications = False
        self._lost_answers: list[bytes] = []
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Break every connection, and take none until `mend`."""
        self._is_cut = True
        for end in tuple(self._ends):
            end.transport.abort()

    def silence(self) -> None:
        """Accept connections and data, but pass on nothing between a server and PostgreSQL, until `mend`."""
        self._passes.clear()

    def mend(self) -> None:
        """Be as before the faults, beginning with the data that came meanwhile."""
        self._is_cut = self._loses_notifications = False
        self._passes.set()

    def lose_notifications(self) -> None:
        """Pass on everything but what PostgreSQL notifies of, until `mend`."""
        self._loses_notifications = True

    def lose_answers(self, *statements: str) -> None:
        """Break the connection on which a statement is sent once it is done, before anybody is told: once for each."""
        self._lost_answers += [statement.encode() for statement in statements]

    @property
    def has_lost_answers(self) -> bool:
        """Return whether all answers that were to be lost are."""
        return not self._lost_answers

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["StoreProxy"]:
        """Listen on a free port of this machine, until the end."""
        async with listening_on_a_port(self._serve, self._tasks) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._is_cut:
            self.refused_connections += 1
            writer.transport.abort()
            return
        database_reader, database = await asyncio.open_unix_connection(str(self._socket))
        ends = {writer, database}
        self._ends |= ends
        is_done_in_silence = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as both:
                if self._socket.name.startswith(".s.PGSQL."):
                    both.create_task(self._pass_on_statements(reader, database, is_done_in_silence))
                    both.create_task(self._pass_on_messages(database_reader, writer, is_done_in_silence))
                else:
                    both.create_task(pass_on(reader, database))
                    both.create_task(pass_on(database_reader, writer))
        finally:
            self._ends -= ends

    async def _pass_on_statements(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_done_in_silence: asyncio.Event
    ) -> None:
        try:
            while piece := await source.read(PIECE_BYTES):
                if self._lost_answers and self._lost_answers[0] in piece:
                    self._lost_answers.pop(0)
                    is_done_in_silence.set()
                await self._passes.wait()
                target.write(piece)
                await target.drain()
        except OSError:
            target.transport.abort()
        finally:
            target.close()

    async def _pass_on_messages(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_done_in_silence: asyncio.Event
    ) -> None:
        try:
            while True:
                head = await source.readexactly(HEAD_BYTES)
                if is_done_in_silence.is_set():
                    target.transport.abort()
                    return
                message = head + await source.readexactly(int.from_bytes(head[1:]) - HEAD_BYTES + 1)
                if self._loses_notifications and head[:1] == NOTIFICATION:
                    self.lost_notifications += 1
                    continue
                await self._passes.wait()
                target.write(message)
                await target.drain()
        except (asyncio.IncompleteReadError, OSError):
            target.transport.abort()
        finally:
            target.close()
