"""How many answers outlive a server that is killed in the middle of them: Callboard, AgentOS and hayhooks side by side.

The same agent everywhere: text in rounds, each of which ends with a tool that changes something, and counts itself. The
answers begin one after the other, so that the server is killed (SIGKILL) with each of them somewhere else, and started
again at once. Of two servers the first has all answers, and the second takes over.

"Done twice" and "not done" count what the tools should have done once. Where it is not known whether a call that was
cut took effect, one side makes it again, and may do it twice; the other tells the model, and may not have done it.
"""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.bench.durable_clients import Client
from tests.bench.durable_model import ANSWER_SECONDS, ROUNDS, is_whole, script
from tests.bench.durable_products import LEASE_SECONDS, Product, Server, Stores, products
from tests.bench.report import Target, print_table, say
from tests.bench.size import FULL, SMOKE, Size
from tests.fakes.openai_server import OpenAIServer
from tests.faults.balancer import Balancer
from tests.storage.postgres import throw_away_cluster
from tests.storage.redis_servers import throw_away_redis

ANSWERS = {FULL: 20, SMOKE: 2}
END_SECONDS = 150
"""The longest that an answer may take, its server's end and all."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of the answers of one product: `cut` of them were under way when the server was killed.

    `placed` are the orders that the tool carried out, `seconds` those from the kill to the last end.
    """

    product: Product
    clients: Sequence[Client]
    cut: int
    stored: int
    placed: Counter[str]
    killed_at: float
    seconds: float

    @property
    def whole(self) -> int:
        """How many of those who asked have read the whole answer."""
        return sum(client.is_whole and is_whole(client.question, client.text) for client in self.clients)

    @property
    def doubled(self) -> int:
        return sum(count > 1 for count in self.placed.values())

    def row(self) -> tuple[object, ...]:
        streamed = sum(client.is_streamed and is_whole(client.question, client.text) for client in self.clients)
        ends = [client.times[-1] - self.killed_at for client in self.clients if client.times]
        return (
            self.product.name,
            self.product.servers,
            self.cut,
            self.whole,
            streamed,
            self.stored,
            sum(bool(client.lost) for client in self.clients),
            self.doubled,
            len(self.clients) * ROUNDS - len(self.placed),
            f"{statistics.median(ends):.1f}",
            f"{self.seconds:.1f}",
        )


async def measure_finishing(folder: Path, size: Size) -> list[Target]:
    """Prints the table; every answer of Callboard's must be whole in the end, and no effect of its tools be doubled."""
    answers = ANSWERS[size]
    results = []
    for number, product in enumerate(products(size)):
        say(f"{product.name}, {product.servers} …")
        results.append(await _measure(product, folder / str(number), answers))
    print_table(
        f"{answers} answers with {ROUNDS} calls each, their server killed in the middle; "
        f"leases of {LEASE_SECONDS[size]} s",
        (
            "product",
            "servers",
            "cut",
            "whole",
            "streamed",
            "stored",
            "failed",
            "done twice",
            "not done",
            "ended p50 s",
            "all ended s",
        ),
        [result.row() for result in results],
    )
    for result in results:
        for reason, count in Counter(client.lost for client in result.clients if client.lost).most_common(2):
            say(f"{result.product.name}: {count} × {reason[:300]}")
    return [
        target
        for result in results
        if result.product.name.startswith("Callboard")
        for target in (
            Target(f"{result.product.name}: whole answers", result.whole, answers, "answers", at_least=True),
            Target(f"{result.product.name}: effects that happened twice", result.doubled, 0, "effects"),
        )
    ]


async def _measure(product: Product, folder: Path, answers: int) -> Result:
    """Let all ask, kill the server that has their answers, start it again, and look when all have ended."""
    async with AsyncExitStack() as closing:
        stores = Stores(closing.enter_context(throw_away_cluster()), closing.enter_context(throw_away_redis()).url)
        model = await closing.enter_async_context(OpenAIServer(script))
        balancer = await closing.enter_async_context(Balancer(random.Random(0)).listening())
        placed = folder / "placed"
        shared = {
            "BENCH_MODEL": model.base_url,
            "BENCH_PLACED": str(placed),
            "CALLBOARD_MODEL_BASE_URL": model.base_url,
        }
        servers = [
            Server(f"server {number}", product, folder / str(number), stores, shared)
            for number in range(product.servers)
        ]
        for server in servers:
            closing.callback(server.kill)
            await asyncio.to_thread(server.start)
        for server in reversed(servers):
            # What is imported and connected with the first answer.
            await product.client(f"http://127.0.0.1:{server.port}", f"warm{server.port}").ask()
        placed.unlink()
        first, *others = servers
        balancer.add(first.name, first.port)
        clients = [product.client(balancer.url, f"q{number}") for number in range(answers)]
        asking = []
        for client in clients:
            asking.append(asyncio.create_task(client.ask()))
            await asyncio.sleep(ANSWER_SECONDS / answers)
        cut = sum(not task.done() for task in asking)
        killed_at = time.monotonic()
        await asyncio.to_thread(first.kill)
        for server in others:
            balancer.add(server.name, server.port)
        balancer.drop(first.name)
        await asyncio.to_thread(first.start)
        balancer.add(first.name, first.port)
        _, late = await asyncio.wait(asking, timeout=END_SECONDS)
        seconds = time.monotonic() - killed_at
        for task in late:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for task in asking:
            if task not in late:
                task.result()
        async with httpx.AsyncClient(base_url=balancer.url, timeout=60) as http:
            stored = [is_whole(client.question, await client.read_stored(http)) for client in clients]
        counted = Counter(placed.read_text().splitlines())
        return Result(product, clients, cut, sum(stored), counted, killed_at, seconds)
