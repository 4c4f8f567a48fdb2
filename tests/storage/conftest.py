"""Tests with `store` run on SQLite and, if it is installed, a real PostgreSQL."""

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from callboard.storage import Store
from tests.storage.postgres import throw_away_cluster
from tests.storage.redis_servers import RedisProcess, throw_away_redis

_numbers = count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    with throw_away_cluster() as folder:
        yield folder


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def database_url(request: pytest.FixtureRequest, database: Path) -> str:
    """The URL of a new and empty database."""
    return await new_database(request, request.param, database)


async def new_database(request: pytest.FixtureRequest, kind: str, database: Path) -> str:
    """Create a database and return its URL."""
    if kind == "sqlite":
        return f"sqlite+aiosqlite:///{database}"
    folder: Path = request.getfixturevalue("cluster")
    name = f"callboard_{next(_numbers)}"
    engine = create_async_engine(_url(folder, "postgres"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
    await engine.dispose()
    return _url(folder, name)


def _url(folder: Path, name: str) -> str:
    return f"postgresql+asyncpg://postgres@/{name}?host={folder}"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(database_url, os.environ.get("CALLBOARD_REDIS_URL"))
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def running_redis() -> Iterator[RedisProcess]:
    with throw_away_redis() as server:
        yield server


@pytest.fixture
def redis_url(running_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a Redis; it is also in the environment of the servers that the test starts."""
    monkeypatch.setenv("CALLBOARD_REDIS_URL", running_redis.url)
    return running_redis.url
