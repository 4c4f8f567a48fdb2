"""Several worker processes on one port: another worker continues the runs of one that has ended."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard_protocol import TERMINAL, Done, Event, Message, ToolCallStart
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.processes import COMMAND, environment, run
from tests.runs.promises import check, read
from tests.scraping import Scrape
from tests.serving import request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

on_postgresql = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)

AGENT = str(Path(__file__).with_name("careful_agent.py"))
RUNS = 12
SALES = 3


@dataclass
class Workers:
    """A `callboard serve --workers` and its log so far."""

    process: asyncio.subprocess.Process
    lines: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    log_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_log(self) -> None:
        assert self.process.stderr
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                async with self.changed:
                    self.lines.append(json.loads(line))
                    self.changed.notify_all()
        self.log_ended.set()

    def logged(self, event: str, **values: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event and values.items() <= line.items()]

    async def wait_for(self, event: str, count: int = 1, **values: Any) -> list[dict[str, Any]]:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.logged(event, **values)) >= count)
        return self.logged(event, **values)


@asynccontextmanager
async def serving(folder: Path, count: int, **settings: str) -> AsyncIterator[tuple[str, Workers]]:
    """Wait until all workers serve, and return the address."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--workers",
        str(count),
        cwd=folder,
        env=environment(folder, **settings),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    workers = Workers(process)
    reading = asyncio.create_task(workers.read_log())
    try:
        served = await workers.wait_for("listening", count)
        assert len({line["url"] for line in served}) == 1
        assert len({line["pid"] for line in served}) == count
        yield served[0]["url"], workers
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await reading


async def listen(url: str, name: str, on_event: Any = lambda _: None) -> list[tuple[int, Event]]:
    """Return all events of a run, resuming after each lost connection."""
    asked = request(agent="careful", run_id=name, chat_id=name, messages=[{"role": "user", "content": name}])
    seen = b""
    method = "POST"
    path = "/v1/runs"
    options: dict[str, Any] = {"json": asked}
    while True:
        # A connection of its own, as the pipe's: any worker may take it.
        async with httpx.AsyncClient(timeout=None) as client:
            try:
                async with client.stream(method, url + path, **options) as response:
                    assert response.status_code == 200, await response.aread()
                    async for chunk in response.aiter_bytes():
                        seen += chunk
                        on_event(chunk)
            except httpx.TransportError:
                pass  # It was with the worker that was killed.
        # What was cut in the middle of a frame comes again.
        seen = seen[: seen.rfind(b"\n\n") + 2]
        events = read(seen)
        if events and isinstance(events[-1][1], TERMINAL):
            return events
        method = "GET"
        path = f"/v1/runs/{name}/events"
        options = {"params": {"after": events[-1][0] if events else 0}}


def settings_for(folder: Path, model: OpenAIServer, database_url: str, **more: str) -> dict[str, str]:
    shared = {"DATABASE_URL": database_url, "AGENTS": AGENT, "TEST_RAN": str(folder / "ran")}
    return {**shared, "MODEL_BASE_URL": model.base_url, "MODEL": "m", **more}


@on_postgresql
async def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on_at_the_same_address(
    tmp_path: Path, database_url: str
) -> None:
    script = [
        chunks(text("I sell it. "), call("sell", '{"seat": 7}', call_id="c1"), finish("tool_calls")),
        chunks(text("Seat 7 is"), ending="hang"),
        chunks(text("Seat 7 is yours."), finish("stop")),
    ]
    async with OpenAIServer(script) as model:
        async with serving(tmp_path, 2, **settings_for(tmp_path, model, database_url)) as (url, workers):
            half_said = asyncio.Event()
            listening = asyncio.create_task(
                listen(url, "run", lambda chunk: half_said.set() if b'"content":"Seat 7 is"' in chunk else None)
            )
            await half_said.wait()
            [started] = await workers.wait_for("run_started")
            os.kill(started["pid"], signal.SIGKILL)
            seen = await listening
            [carried_on] = await workers.wait_for("run_continued")
            assert carried_on["run_id"] == "run"
            assert carried_on["pid"] != started["pid"]
            await workers.wait_for("listening", 3)
            assert (await asyncio.to_thread(httpx.get, f"{url}/ready")).status_code == 200
    check(seen)
    assert isinstance(seen[-1][1], Done)
    assert (tmp_path / "ran").read_text() == "sell 7\n"


@on_postgresql
async def test_workers_lose_no_answer_and_run_no_tool_twice_when_one_is_killed(
    tmp_path: Path, database_url: str
) -> None:
    half_way = asyncio.Event()
    asked = 0

    def script(body: Body) -> Answer:
        nonlocal asked
        asked += 1
        if asked == RUNS * SALES // 2:
            half_way.set()
        [name] = [message["content"] for message in body["messages"] if message["role"] == "user"]
        sold = sum(message["role"] == "tool" for message in body["messages"])
        if sold == SALES:
            return chunks(text(f"All of {name}."), finish("stop"))
        seat = int(name) * SALES + sold
        return chunks(text("Next. "), call("sell", f'{{"seat": {seat}}}', call_id=f"s{seat}"), finish("tool_calls"))

    async with OpenAIServer(script) as model:
        async with serving(tmp_path, 3, **settings_for(tmp_path, model, database_url)) as (url, workers):
            listening = [asyncio.create_task(listen(url, str(number))) for number in range(RUNS)]
            await half_way.wait()
            runs_of = Counter(line["pid"] for line in workers.logged("run_started"))
            [(busiest, _)] = runs_of.most_common(1)
            os.kill(busiest, signal.SIGKILL)
            for number, seen in enumerate(await asyncio.gather(*listening)):
                check(seen)
                assert isinstance(seen[-1][1], Done)
                said = [event.content for _, event in seen if isinstance(event, Message)]
                assert said[-1] == f"All of {number}."
                assert len([event for _, event in seen if isinstance(event, ToolCallStart)]) == SALES
    ran = Counter((tmp_path / "ran").read_text().splitlines())
    assert set(ran.values()) == {1}


@on_postgresql
async def test_metrics_include_all_workers_and_killed_ones(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    script = [
        chunks(text("Sold out."), finish("stop")),
        chunks(text("Seat 7 is"), ending="hang"),
        chunks(text("Seat 7 is yours."), finish("stop")),
    ]
    async with OpenAIServer(script) as model, httpx.AsyncClient() as client:
        async with serving(tmp_path, 3, **settings_for(tmp_path, model, database_url)) as (url, workers):

            async def scraped() -> Scrape:
                # A connection of its own: any worker may take it.
                return Scrape.read((await client.get(f"{url}/metrics", headers={"Connection": "close"})).text)

            async def wait_until_told(ended: int, under_way: int) -> None:
                """Return once ten scrapes in a row say so, whichever worker answers."""
                in_a_row = 0
                async with asyncio.timeout(60):
                    while in_a_row < 10:
                        seen = await scraped()
                        assert seen.sum("callboard_runs_total") <= ended
                        told = (seen.sum("callboard_runs_total"), seen.sum("callboard_runs_open"))
                        in_a_row = in_a_row + 1 if told == (ended, under_way) else 0
                    assert seen.sum("callboard_info") == 1

            await listen(url, "run")
            await wait_until_told(ended=1, under_way=0)
            listening = asyncio.create_task(listen(url, "another"))
            await wait_until_told(ended=1, under_way=1)
            [_, started] = await workers.wait_for("run_started", 2)
            os.kill(started["pid"], signal.SIGKILL)
            await listening
            await wait_until_told(ended=2, under_way=0)
            assert list(shared.glob("callboard-*/counter_*.db"))
            workers.process.send_signal(signal.SIGTERM)
            await workers.process.wait()
            assert list(shared.iterdir()) == []


@on_postgresql
async def test_stopped_workers_drain_whichever_process_gets_the_signal(tmp_path: Path, database_url: str) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([waiting, chunks(text("I do not know."), finish("stop"))]) as model:
        options = settings_for(tmp_path, model, database_url, DRAIN_SECONDS="3600")
        begun = asyncio.Event()
        async with serving(tmp_path, 2, **options) as (url, workers):
            listening = asyncio.create_task(
                listen(url, "run", lambda chunk: begun.set() if b"tool_call_start" in chunk else None)
            )
            await begun.wait()
            # As systemd does: each process of the service gets it.
            os.killpg(workers.process.pid, signal.SIGTERM)
            await workers.wait_for("draining", 2)
            async with httpx.AsyncClient() as client:
                is_cancelled = False
                while not is_cancelled:
                    # The worker that had nothing to do may take the connection, and end before it answers.
                    with suppress(httpx.RemoteProtocolError):
                        is_cancelled = (await client.post(f"{url}/v1/runs/run/cancel")).status_code == 202
            seen = await listening
            assert seen[-1][1] == Done(finish_reason="cancelled")
            assert await workers.process.wait() == 0


@on_postgresql
async def test_workers_whose_own_process_is_killed_leave_their_runs_and_end(tmp_path: Path, database_url: str) -> None:
    async with OpenAIServer([]) as model:
        async with serving(tmp_path, 2, **settings_for(tmp_path, model, database_url)) as (url, workers):
            workers.process.kill()
            await workers.wait_for("draining", 2)
            # Their log is at its end once they are gone.
            await workers.log_ended.wait()
            with pytest.raises(httpx.ConnectError):
                await asyncio.to_thread(httpx.get, f"{url}/health")


NOWHERE = "postgresql+asyncpg://callboard@127.0.0.1:1/callboard"


@pytest.mark.parametrize("settings", [{}, {"DATABASE_URL": "sqlite://"}])
def test_workers_on_sqlite_are_refused_with_a_hint_to_postgresql(tmp_path: Path, settings: dict[str, str]) -> None:
    refused = run(tmp_path, "serve", "--workers", "2", **settings)
    assert refused.returncode == 1
    assert "--workers needs PostgreSQL" in refused.stderr


def test_workers_that_could_not_check_each_others_links_are_refused(tmp_path: Path) -> None:
    links = {"RESULT_LINK_SECONDS": "60", "PUBLIC_URL": "https://callboard.example.org"}
    refused = run(tmp_path, "serve", "--workers", "2", DATABASE_URL=NOWHERE, **links)
    assert refused.returncode == 1
    assert "callboard key" in refused.stderr


@on_postgresql
def test_workers_of_which_none_can_serve_end_with_the_reason(tmp_path: Path, database_url: str) -> None:
    url = re.sub(r"/\w+\?", "/nowhere?", database_url)
    ended = subprocess.run(
        [*COMMAND, "serve", "--workers", "2"],
        cwd=tmp_path,
        env=environment(tmp_path, DATABASE_URL=url),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert 'database "nowhere" does not exist' in ended.stderr


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_of_workers_is_a_number(tmp_path: Path, number: str) -> None:
    assert "--workers" in run(tmp_path, "serve", "--workers", number).stderr
