"""The servers whose runs outlive them: Callboard, AgentOS and hayhooks, each as its own documentation sets it up.

AgentOS 3.1 has three ways. With `checkpoint` a run is kept after each round of calls, and the client asks it to go on
(`/continue`). With `QueueConfig(durable=True)` background runs are jobs in PostgreSQL, which a worker in each server
takes: one attempt by default, after which a run whose server is gone has failed; with more it is begun anew. With
`QueueConfig(redis=…)` the events of background runs are in streams of Redis, for several servers. hayhooks 2.1 keeps
executions of its durable mode in Redis and goes on from the last checkpoint, which is after a round of calls.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from service import free_port
from tests.bench.durable_clients import AgentosClient, CallboardClient, Client, HayhooksClient
from tests.bench.environments import agentos_python, hayhooks_python
from tests.bench.served import start
from tests.bench.size import FULL, SMOKE, Size
from tests.processes import COMMAND, environment

LEASE_SECONDS = {FULL: 10, SMOKE: 3}
"""10 is Callboard's own default; those of AgentOS and hayhooks are 60 and 30. AgentOS takes no less than 3."""
RUNS_AT_ONCE = 32
"""AgentOS' default; hayhooks' is 1, with which runs would wait for each other."""
ROOT = Path(__file__).parents[2]
SERVERS = Path(__file__).parent / "durable_servers"


@dataclass(frozen=True, slots=True)
class Stores:
    """What servers may keep their runs in: the folder of a PostgreSQL's socket, and the URL of a Redis."""

    postgresql: Path
    redis: str


@dataclass(frozen=True, slots=True)
class Product:
    """A product in one of its set-ups.

    `variables` are the environment of a server, by its stores and its port; `health` answers once it is up. `client`
    makes one by the servers' address and the question. `in_smoke`: the smallest size has it too.
    """

    name: str
    servers: int
    command: Sequence[str]
    variables: Callable[[Stores, int], Mapping[str, str]]
    client: Callable[[str, str], Client]
    health: str = "/health"
    in_smoke: bool = False


@dataclass
class Server:
    """A server of a product, in one life after another."""

    name: str
    product: Product
    folder: Path
    stores: Stores
    shared: Mapping[str, str]
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Return once it answers."""
        self.port = free_port()
        variables = environment(self.folder, PORT=str(self.port))
        variables |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        variables |= {**self.product.variables(self.stores, self.port), **self.shared}
        health = f"http://127.0.0.1:{self.port}{self.product.health}"
        self._process = start(self.product.command, self.folder, variables, health)

    def kill(self) -> None:
        """Return when it is gone."""
        if self._process:
            self._process.kill()
            self._process.wait()


def products(size: Size) -> list[Product]:
    """All set-ups, in the order of the table; at the smallest size some of those that are installed."""
    found = _callboards(LEASE_SECONDS[size])
    if python := agentos_python(size):
        found += _agentoses(python, LEASE_SECONDS[size])
    if python := hayhooks_python(size):
        found += _hayhookses(python, LEASE_SECONDS[size])
    return [product for product in found if size is FULL or product.in_smoke]


def _callboards(lease: int) -> list[Product]:
    command = [*COMMAND, "serve"]
    alone = partial(_callboard, lease=lease)
    shared = partial(alone, has_database=True)
    redis = partial(shared, has_redis=True)
    agno = partial(shared, agents="callboards_of_agno.py")
    return [
        Product("Callboard, SQLite", 1, command, alone, CallboardClient, in_smoke=True),
        Product("Callboard, PostgreSQL", 2, command, shared, CallboardClient),
        Product("Callboard, PostgreSQL and Redis", 2, command, redis, CallboardClient, in_smoke=True),
        Product("Callboard, PostgreSQL, Agno's agent", 2, command, agno, CallboardClient),
    ]


def _agentoses(python: Path, lease: int) -> list[Product]:
    command = [str(python), "-m", "tests.bench.durable_servers.agentos"]
    checkpoints = partial(_agentos, lease=lease)
    once = partial(checkpoints, attempts=1)
    thrice = partial(checkpoints, attempts=3)
    streams = partial(thrice, has_redis=True)
    continuing = partial(AgentosClient, continues=True)
    return [
        Product("AgentOS, checkpoints", 1, command, checkpoints, continuing, in_smoke=True),
        Product("AgentOS, PostgreSQL queue", 1, command, once, AgentosClient),
        Product("AgentOS, PostgreSQL queue, 3 attempts", 1, command, thrice, AgentosClient),
        Product("AgentOS, the same with Redis streams", 2, command, streams, AgentosClient),
    ]


def _hayhookses(python: Path, lease: int) -> list[Product]:
    command = [str(python.with_name("hayhooks")), "run"]
    variables = partial(_hayhooks, lease=lease)
    return [
        Product("hayhooks, Redis", 1, command, variables, HayhooksClient, "/status", in_smoke=True),
        Product("hayhooks, Redis", 2, command, variables, HayhooksClient, "/status"),
    ]


def _callboard(
    stores: Stores,
    port: int,
    *,
    lease: int,
    agents: str = "callboards.py",
    has_database: bool = False,
    has_redis: bool = False,
) -> dict[str, str]:
    variables = {
        "CALLBOARD_AGENTS": str(SERVERS / agents),
        "CALLBOARD_LEASE_SECONDS": str(lease),
        "CALLBOARD_MODEL": "clerk",
    }
    if has_database:
        variables["CALLBOARD_DATABASE_URL"] = f"postgresql+asyncpg://postgres@/postgres?host={stores.postgresql}"
    if has_redis:
        variables["CALLBOARD_REDIS_URL"] = stores.redis
    return variables


def _agentos(stores: Stores, port: int, *, lease: int, attempts: int = 0, has_redis: bool = False) -> dict[str, str]:
    variables = {
        "BENCH_DATABASE": f"postgresql+psycopg://postgres@/postgres?host={stores.postgresql}",
        "BENCH_LEASE_SECONDS": str(lease),
        "BENCH_PORT": str(port),
    }
    if attempts:
        variables["BENCH_ATTEMPTS"] = str(attempts)
    if has_redis:
        variables["BENCH_REDIS"] = stores.redis
    return variables


def _hayhooks(stores: Stores, port: int, *, lease: int) -> dict[str, str]:
    return {
        "HAYHOOKS_DURABLE_MODE": "true",
        "HAYHOOKS_DURABLE_REDIS_URL": stores.redis,
        "HAYHOOKS_DURABLE_LEASE_DURATION_MS": str(lease * 1000),
        "HAYHOOKS_DURABLE_WORKER_CONCURRENCY": str(RUNS_AT_ONCE),
        "HAYHOOKS_PIPELINES_DIR": str(SERVERS / "pipelines"),
        "HAYHOOKS_HOST": "127.0.0.1",
        "HAYHOOKS_PORT": str(port),
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }
