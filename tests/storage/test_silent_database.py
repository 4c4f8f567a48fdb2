"""PostgreSQL stops answering after the connection was made: every wait for it has a limit."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from callboard._history import Turn
from callboard.agents import RunContext
from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard_protocol import Done, Event, InputRequest, Message, Status
from tests.faults.store_proxy import StoreProxy
from tests.serving import ScriptedAgent, Service, numbered, request, serving
from tests.storage.turns import StoredSteps

pytestmark = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)


@pytest.fixture
async def proxy(
    database_url: str, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[StoreProxy, str]]:
    """A proxy in front of a database, and the database's URL through it."""
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 1)
    monkeypatch.setattr(database_module, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(database_module, "CONNECT_SECONDS", 1)
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as listening:
        name = make_url(database_url).database
        yield listening, f"postgresql+asyncpg://postgres@127.0.0.1:{listening.port}/{name}?ssl=disable"


@pytest.mark.slow
async def test_reads_and_writes_fail_after_the_timeout_and_succeed_after_recovery(
    proxy: tuple[StoreProxy, str],
) -> None:
    silent, url = proxy
    store = await Store.open(url)
    await StoredSteps(store, Turn("chat", "run", None, "ann", "hello")).begin()
    silent.silence()
    with pytest.raises(StorageError, match="cannot be reached"):
        await store.chats("ann").history("chat")
    with pytest.raises(StorageError, match="cannot be reached"):
        await store.chats("ann").messages("chat")
    with pytest.raises(StorageError, match="cannot be reached"):
        await StoredSteps(store, Turn("chat", "later", None, "ann", "and now?")).begin()
    with pytest.raises(StorageError):
        await store.check()
    silent.mend()
    assert [message.content for message in await store.chats("ann").messages("chat")] == ["hello"]
    await store.check()
    silent.silence()
    await store.close()


@pytest.mark.slow
async def test_a_failed_lookup_of_a_run_is_not_reported_as_an_unknown_run(
    proxy: tuple[StoreProxy, str], tmp_path: Path
) -> None:
    silent, url = proxy

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Found it.")

    async with serving(tmp_path, ScriptedAgent(script), database_url=url) as service:
        silent.silence()
        answer = await service.client.get("/v1/runs/run/events")
        # Clients come back after this one, and take the other for the end.
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage")
        silent.mend()
        assert (await service.client.get("/v1/runs/run/events")).status_code == 404


@dataclass(frozen=True)
class Steadfast(ScriptedAgent):
    """An agent whose runs another server can continue."""

    on_owner_loss: str = "continue"


@pytest.mark.parametrize(
    ("path", "given", "text", "last"),
    [
        ("input", {"request_id": "q", "value": "blue"}, "You said blue.", Done()),
        ("cancel", None, "", Done(finish_reason="cancelled")),
    ],
)
async def test_an_answer_or_a_stop_is_refused_by_a_server_whose_run_another_takes_over_and_counts_there(
    proxy: tuple[StoreProxy, str],
    database_url: str,
    tmp_path: Path,
    path: str,
    given: object,
    text: str,
    last: Event,
) -> None:
    lost, url = proxy
    asked, goes_on, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        question = asyncio.create_task(context.ask(InputRequest(request_id="q", kind="input", title="Which?")))
        try:
            if not asked.is_set():
                await goes_on.wait()
                yield Status(content="Waiting")
            yield Message(content=f"You said {await question}.")
        finally:
            stopped.set()
            question.cancel()

    async def send(service: Service) -> int:
        return (await service.client.post(f"/v1/runs/run/{path}", json=given)).status_code

    agent = Steadfast(script)
    async with (
        serving(tmp_path / "other", agent, lease_seconds=2, database_url=database_url) as other,
        serving(tmp_path / "one", agent, lease_seconds=2, database_url=url) as one,
    ):
        async with one.client.stream("POST", "/v1/runs", json=request(run_id="run", chat_id="chat")) as response:
            async for _, event in numbered(response):
                if isinstance(event, InputRequest):
                    break
            asked.set()
            lost.cut()
            assert await send(one) == 503
            if path == "cancel":
                await stopped.wait()
            assert await send(other) == 202
        async with other.client.stream("GET", "/v1/runs/run/events") as response:
            events = [event async for _, event in numbered(response)]
        assert "".join(event.content for event in events if isinstance(event, Message)) == text
        assert events[-1] == last
        lost.mend()


async def test_reads_and_writes_are_repeated_and_wait_until_a_lost_database_is_back(
    database_url: str, cluster: Path
) -> None:
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as proxy:
        name = make_url(database_url).database
        store = await Store.open(f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{name}?ssl=disable")
        profile = store.profile("ann")
        await profile.put("town", "text", "Rome")
        # Its idle connections were lost.
        proxy.cut()
        proxy.mend()
        assert (await profile.attributes())["town"].value == "Rome"
        proxy.cut()
        writing = asyncio.create_task(profile.put("town", "text", "Oslo"))
        while not proxy.refused_connections:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        proxy.mend()
        await writing
        assert (await profile.attributes())["town"].value == "Oslo"
        await store.close()
