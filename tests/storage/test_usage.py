"""A user's calls and tokens are counted once for each day."""

import asyncio

from sqlalchemy import update

from callboard.storage import Store
from callboard.storage.sql.tables import usage

LIMIT = 20


async def to_yesterday(store: Store) -> None:
    """Move the stored usage to the day before."""
    assert isinstance(store, Store)
    await store.database.execute(update(usage).values(day=usage.c.day - 1))


async def used(store: Store, user: str) -> tuple[int, int]:
    today = await store.usage(user).today()
    assert 0 < today.ends_in_seconds <= 86_400
    return today.calls, today.tokens


async def test_concurrent_calls_are_counted_up_to_the_limit_and_tokens_beside_them(store: Store) -> None:
    taken = await asyncio.gather(*(store.usage("ann").take_call(LIMIT) for _ in range(LIMIT * 3)))
    await asyncio.gather(*(store.usage("ann").add_tokens(3) for _ in range(10)))
    assert sum(taken) == LIMIT
    assert await used(store, "ann") == (LIMIT, 30)
    assert await used(store, "bob") == (0, 0)
    assert await store.usage("bob").take_call(LIMIT)


async def test_a_new_day_begins_at_zero(store: Store) -> None:
    await store.usage("ann").add_tokens(5)
    assert await store.usage("ann").take_call(1)
    await to_yesterday(store)
    assert await used(store, "ann") == (0, 0)
    assert await store.usage("ann").take_call(1)
    assert not await store.usage("ann").take_call(1)
    assert await used(store, "ann") == (1, 0)


async def test_past_days_are_deleted_and_today_is_kept_even_for_a_forgotten_user(store: Store) -> None:
    await store.usage("old").add_tokens(5)
    await to_yesterday(store)
    await store.usage("ann").take_call(1)
    await store.forget_user("ann")
    assert await store.drop_usage() == 1
    assert not await store.usage("ann").take_call(1)
    assert [line["kind"] async for page in store.read_user("ann") for line in page] == ["usage"]
    assert [line async for page in store.read_user("old") for line in page] == []
