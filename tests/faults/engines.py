"""The stores that servers share, and how each is disturbed: one more is one more class, and a line of `ENGINES`."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from callboard.storage import Store
from tests.faults.store_proxy import StoreProxy
from tests.storage.postgres import throw_away_cluster
from tests.storage.redis_servers import PASSWORD, throw_away_redis
from tests.storage.trouble import locked_by_another_program

DATABASE = "faults"


class Engine(ABC):
    """A store, and what its servers are given to find it.

    `servers` share it, to `faults_at_once` of which something happens at one time. `store` is the way to it of whoever
    looks at the end, which is not disturbed. `disturbances` are its faults by name, each for the server of a number,
    and each lasts as long as its context.
    """

    servers: int
    faults_at_once: int

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store, once it is there."""

    @property
    @abstractmethod
    def disturbances(self) -> Mapping[str, Callable[[int], AbstractAsyncContextManager[object]]]:
        """What can go wrong with it."""

    @abstractmethod
    def settings(self, number: int) -> dict[str, str]:
        """The settings of a server."""

    @abstractmethod
    def folder(self, number: int) -> Path:
        """The folder of a server's data."""


@dataclass
class Sqlite(Engine):
    """One server and its file."""

    base: Path
    looking: Store
    servers = 1
    faults_at_once = 1

    @property
    def store(self) -> Store:
        return self.looking

    @property
    def disturbances(self) -> Mapping[str, Callable[[int], AbstractAsyncContextManager[object]]]:
        return {"locked store": lambda _: locked_by_another_program(_database(self.base))}

    def settings(self, number: int) -> dict[str, str]:
        return {}

    def folder(self, number: int) -> Path:
        return self.base / "data"


@dataclass
class Postgresql(Engine):
    """Three servers and a PostgreSQL, each with a way to it of its own."""

    base: Path
    looking: Store
    url: str
    proxies: list[StoreProxy]
    servers = 3
    faults_at_once = 2

    @property
    def store(self) -> Store:
        return self.looking

    @property
    def disturbances(self) -> Mapping[str, Callable[[int], AbstractAsyncContextManager[object]]]:
        return {"dropped connections": self._cut, "lost notifications": self._lose_notifications}

    def settings(self, number: int) -> dict[str, str]:
        port = self.proxies[number].port
        return {"DATABASE_URL": f"postgresql+asyncpg://postgres@127.0.0.1:{port}/{DATABASE}?ssl=disable"}

    def folder(self, number: int) -> Path:
        return self.base / f"data{number}"

    @asynccontextmanager
    async def _cut(self, number: int) -> AsyncIterator[None]:
        self.proxies[number].cut()
        try:
            yield
        finally:
            self.proxies[number].mend()

    @asynccontextmanager
    async def _lose_notifications(self, number: int) -> AsyncIterator[None]:
        self.proxies[number].lose_notifications()
        try:
            yield
        finally:
            self.proxies[number].mend()


@dataclass
class Redis(Postgresql):
    """Three servers with a PostgreSQL and a Redis as their bus, each with a way of its own to either."""

    redis_proxies: list[StoreProxy] = field(default_factory=list)

    @property
    def disturbances(self) -> Mapping[str, Callable[[int], AbstractAsyncContextManager[object]]]:
        return {"dropped connections": self._cut, "Redis dropped": self._cut_redis}

    def settings(self, number: int) -> dict[str, str]:
        port = self.redis_proxies[number].port
        return {**super().settings(number), "REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:{port}"}

    @asynccontextmanager
    async def _cut_redis(self, number: int) -> AsyncIterator[None]:
        self.redis_proxies[number].cut()
        try:
            yield
        finally:
            self.redis_proxies[number].mend()


@asynccontextmanager
async def sqlite(base: Path) -> AsyncIterator[Engine]:
    (base / "data").mkdir()
    store = await Store.open(f"sqlite:///{_database(base)}")
    try:
        yield Sqlite(base, store)
    finally:
        await store.close()


@asynccontextmanager
async def postgresql(base: Path) -> AsyncIterator[Engine]:
    async with AsyncExitStack() as closing:
        cluster = closing.enter_context(throw_away_cluster())
        await _create_database(cluster)
        proxies = [
            await closing.enter_async_context(StoreProxy(cluster / ".s.PGSQL.5432").listening())
            for _ in range(Postgresql.servers)
        ]
        url = f"postgresql+asyncpg://postgres@/{DATABASE}?host={cluster}"
        store = await Store.open(url)
        closing.push_async_callback(store.close)
        yield Postgresql(base, store, url, proxies)


@asynccontextmanager
async def redis(base: Path) -> AsyncIterator[Engine]:
    async with AsyncExitStack() as closing:
        server = closing.enter_context(throw_away_redis())
        shared = await closing.enter_async_context(postgresql(base))
        assert isinstance(shared, Postgresql)
        proxies = [
            await closing.enter_async_context(StoreProxy(server.socket).listening()) for _ in range(Postgresql.servers)
        ]
        yield Redis(base, shared.store, shared.url, shared.proxies, proxies)


ENGINES: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Engine]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "redis": redis,
}


def _database(base: Path) -> Path:
    return base / "data" / "callboard.db"


async def _create_database(cluster: Path) -> None:
    engine = create_async_engine(
        f"postgresql+asyncpg://postgres@/postgres?host={cluster}", isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {DATABASE}"))
    await engine.dispose()
