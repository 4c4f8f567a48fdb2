"""Combines the writes that wait at the same time into one transaction, because a commit costs more than a statement."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection

MAX_TOGETHER = 100
"""The most writes in one transaction."""

T = TypeVar("T")
Work = Callable[[Connection], T]
"""A read or write; it may run in a thread, and runs again if its transaction was rolled back."""


class Transaction:
    """Runs several works in one transaction; `begin` begins it and takes its locks."""

    def __init__(self, begin: Work[object], works: Sequence[Work[Any]]) -> None:
        self._begin = begin
        self._works = works
        self.has_begun = False
        """True after `begin` has returned in the last attempt."""

    def run(self, connection: Connection) -> list[Any]:
        """Run the works and commit; return their results."""
        self._begin(connection)
        self.has_begun = True
        results = [work(connection) for work in self._works]
        connection.commit()
        return results


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A queued write, and the future for its result."""

    work: Work[Any]
    done: "asyncio.Future[Any]"


class WriteQueue:
    """The writes of one database.

    `transact` runs a transaction, which `begin` begins for one write, and `begin_group` for several.
    """

    def __init__(
        self,
        transact: Callable[[Transaction], Awaitable[list[Any]]],
        begin: Work[object],
        begin_group: Work[object],
    ) -> None:
        self._transact = transact
        self._begin = begin
        self._begin_group = begin_group
        self._waiting: list[_Write] = []
        self._writer: asyncio.Task[None] | None = None
        self._single_writes: set[asyncio.Task[bool]] = set()

    def __len__(self) -> int:
        """Return the number of writes that wait for the current transaction to end."""
        return len(self._waiting)

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result after the commit."""
        writing = _Write(work, asyncio.get_running_loop().create_future())
        self._waiting.append(writing)
        if self._writer is None:
            # An empty context, so that its log lines are not attributed to the request that happened to start it.
            self._writer = asyncio.create_task(self._write_all(), name="write", context=Context())
        result: T = await writing.done
        return result

    async def finish(self) -> None:
        """Wait for the writes that have begun or wait."""
        if writers := {task for task in (self._writer, *self._single_writes) if task}:
            await asyncio.wait(writers)

    async def _write_all(self) -> None:
        # Let the tasks that are ready add their writes to the same transaction.
        await asyncio.sleep(0)
        try:
            while self._waiting:
                # Skip writes that were cancelled while they waited.
                waiting = [writing for writing in self._waiting if not writing.done.done()]
                group = waiting[:MAX_TOGETHER]
                self._waiting = waiting[MAX_TOGETHER:]
                if group and not await self._write_group(group):
                    # Concurrently, so that a write that waits for a lock does not delay the others.
                    for writing in group:
                        task = asyncio.create_task(self._write_group([writing]), name="single write")
                        self._single_writes.add(task)
                        task.add_done_callback(self._single_writes.discard)
        finally:
            self._writer = None

    async def _write_group(self, group: Sequence[_Write]) -> bool:
        """Run a group of writes in one transaction and set their results.

        Returns False, without setting results, if one write of several failed: the caller runs each of them alone.
        """
        begin = self._begin if len(group) == 1 else self._begin_group
        transaction = Transaction(begin, [writing.work for writing in group])
        written = asyncio.ensure_future(self._transact(transaction))
        await asyncio.wait({written})
        error = written.exception()
        if error and transaction.has_begun and len(group) > 1:
            return False
        for place, writing in enumerate(group):
            if writing.done.done():
                continue
            if error:
                writing.done.set_exception(error)
            else:
                writing.done.set_result(written.result()[place])
        return True
