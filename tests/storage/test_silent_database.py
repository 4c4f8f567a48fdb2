"""PostgreSQL stops answering after the connection was made: every wait for it has a limit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from callboard._agents import RunContext
from callboard._history import Turn
from callboard._runs.recorder import NOT_REMEMBERED
from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql import postgresql
from callboard_protocol import Done, Event, Message, Status, ToolCallComplete, ToolCallStart
from tests.faults.store_proxy import StoreProxy
from tests.serving import ScriptedAgent, request, serving
from tests.storage.silent_proxy import (
    SilentProxy,
    check_that_no_failure_is_left,
    check_that_nobody_sees_what_is_not_kept,
)
from tests.storage.turns import StoredSteps

pytestmark = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)


@pytest.fixture
async def proxy(
    database_url: str, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SilentProxy, str]]:
    """A proxy in front of a database, and the database's URL through it."""
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 1)
    monkeypatch.setattr(database_module, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(database_module, "CONNECT_SECONDS", 1)
    async with SilentProxy(cluster / ".s.PGSQL.5432").listening() as listening:
        name = make_url(database_url).database
        yield listening, f"postgresql+asyncpg://postgres@127.0.0.1:{listening.port}/{name}?ssl=disable"


async def test_reads_and_writes_fail_after_the_timeout_and_succeed_after_recovery(
    proxy: tuple[SilentProxy, str],
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
    silent.recover()
    assert [message.content for message in await store.chats("ann").messages("chat")] == ["hello"]
    await store.check()
    silent.silence()
    await store.close()


async def test_a_failed_lookup_of_a_run_is_not_reported_as_an_unknown_run(
    proxy: tuple[SilentProxy, str], tmp_path: Path
) -> None:
    silent, url = proxy

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Found it.")

    async with serving(tmp_path, ScriptedAgent(script), database_url=url) as service:
        silent.silence()
        answer = await service.client.get("/v1/runs/run/events")
        # Clients come back after this one, and take the other for the end.
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage")
        silent.recover()
        assert (await service.client.get("/v1/runs/run/events")).status_code == 404


# Time-outs of the driver, one after another.
@pytest.mark.slow
async def test_with_another_server_listeners_do_not_see_unstored_events(
    proxy: tuple[SilentProxy, str], database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent, url = proxy
    behind_it = {"database_url": url}
    beside_it = {"database_url": database_url}
    await check_that_nobody_sees_what_is_not_kept(silent, behind_it, beside_it, tmp_path)
    check_that_no_failure_is_left(caplog)


# As above; the same is tested with a SQLite file that cannot be written.
@pytest.mark.slow
async def test_without_a_database_a_run_is_answered_to_its_end(proxy: tuple[SilentProxy, str], tmp_path: Path) -> None:
    silent, url = proxy

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="search")
        silent.silence()
        yield ToolCallComplete(tool_call_id="a", result="found")
        yield Message(content="Found it.")

    async with serving(tmp_path, ScriptedAgent(script), database_url=url) as service:
        for _ in range(2):
            events = await service.events(request(chat_id="chat"))
            assert [event.content for event in events if isinstance(event, Message)] == ["Found it."]
            assert [event.content for event in events if isinstance(event, Status)] == [NOT_REMEMBERED]
            assert isinstance(events[-1], Done)
        silent.recover()
        events = await service.events(request(chat_id="other"))
        assert isinstance(events[-1], Done)


@pytest.mark.parametrize("rest_seconds", [0, 3600])
async def test_lost_connections_are_replaced(
    database_url: str, cluster: Path, monkeypatch: pytest.MonkeyPatch, rest_seconds: int
) -> None:
    """Idle connections are replaced before use; on others the write is repeated."""
    monkeypatch.setattr(postgresql, "REST_SECONDS", rest_seconds)
    async with StoreProxy(cluster / ".s.PGSQL.5432").listening() as proxy:
        name = make_url(database_url).database
        store = await Store.open(f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{name}?ssl=disable")
        await StoredSteps(store, Turn("chat", "run", None, "ann", "hello")).begin()
        proxy.cut()
        proxy.mend()
        if rest_seconds:
            await StoredSteps(store, Turn("chat", "later", None, "ann", "and now?")).begin()
        said = [message.content for message in await store.chats("ann").messages("chat")]
        assert said == (["hello", "and now?"] if rest_seconds else ["hello"])
        await store.close()
