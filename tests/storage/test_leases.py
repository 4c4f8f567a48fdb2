"""Servers of one database and their leases: a run has one owner, and a busy server keeps its runs."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from callboard.storage import Store
from callboard.storage.sql.postgresql_lease import PeerTracker
from callboard.storage.values import StoredRun

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


def test_a_server_is_alone_before_it_sees_another_and_again_some_leases_after_the_last() -> None:
    peers = PeerTracker(lease_seconds=10)
    found = [(0.0, False), (3.0, True), (6.0, False), (32.0, False), (33.0, False), (34.0, True), (36.0, False)]
    was_alone = [peers.is_alone]
    for now, are_others_there in found:
        peers.note(are_others_there=are_others_there, now=now)
        was_alone.append(peers.is_alone)
    assert was_alone == [True, True, False, False, False, True, False, False]
