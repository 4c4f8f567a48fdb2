"""Servers of one database and their leases: a run has one owner, and a busy server keeps its runs."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from callboard.storage import Store, StoredRun

pytestmark = pytest.mark.timeout(60)

on_postgresql = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)

RUN = StoredRun("run", "agent", "chat", "message", "ann")


async def test_each_run_of_a_dead_server_is_taken_over_by_one_of_several(store: Store) -> None:
    ids = {f"left-{number}" for number in range(30)}
    gone = store.stored_runs("gone")
    async with gone.open(60, print):
        for run_id in ids:
            await gone.begin(replace(RUN, run_id=run_id))
    takers = [store.stored_runs(f"taker-{number}") for number in range(5)]
    async with AsyncExitStack() as there:
        for taker in takers:
            await there.enter_async_context(taker.open(60, print))
        taken = [run for runs in await asyncio.gather(*(taker.take_over() for taker in takers)) for run in runs]
        assert sorted(run.run_id for run in taken) == sorted(ids)
        assert {run.epoch for run in taken} == {2}
        assert [run for taker in takers for run in await taker.take_over()] == []


@on_postgresql
async def test_a_lease_is_renewed_while_the_event_loop_is_busy(store: Store) -> None:
    busy = store.stored_runs("busy")
    async with busy.open(1.5, print):
        await busy.begin(RUN)
        time.sleep(2)  # noqa: ASYNC251 - as a tool may that blocks the event loop
        assert await store.stored_runs("heir").take_over() == []


@on_postgresql
async def test_a_server_notices_the_start_and_the_end_of_another(store: Store) -> None:
    first = store.stored_runs("first")
    async with first.open(0.3, print):
        assert await first.is_alone()
        # A log has the lease of its store's database, so each server needs a store.
        other = await Store.open(store.database.where)
        second = other.stored_runs("second")
        async with second.open(0.3, print):
            # Both wait, because a busy machine may let a lease of either expire for a moment.
            for server in (first, second):
                while await server.is_alone():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
        while not await first.is_alone():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        await other.close()
