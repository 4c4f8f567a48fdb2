"""Workers of uvicorn on one port: another worker continues the runs of one that was killed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard_protocol import Done, Event
from callboard_protocol.events import TERMINAL
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.processes import environment
from tests.runs.promises import check, read
from tests.serving import request

pytestmark = pytest.mark.slow

AGENT = str(Path(__file__).with_name("careful_agent.py"))
KEY = "the-key-of-all-workers"
UVICORN = [sys.executable, "-m", "uvicorn", "--factory", "callboard:make_app", "--workers", "2", "--port", "0"]


@dataclass
class Workers:
    """uvicorn with its workers, and the log so far."""

    process: asyncio.subprocess.Process
    lines: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

    async def read_log(self) -> None:
        assert self.process.stderr
        async for line in self.process.stderr:
            if found := re.search(rb"Uvicorn running on (\S+)", line):
                self.url = found[1].decode()
            elif line.startswith(b"{"):
                async with self.changed:
                    self.lines.append(json.loads(line))
                    self.changed.notify_all()

    def logged(self, event: str, **values: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event and values.items() <= line.items()]

    async def wait_for(self, event: str, count: int = 1, **values: Any) -> list[dict[str, Any]]:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.logged(event, **values)) >= count)
        return self.logged(event, **values)


@asynccontextmanager
async def serving(folder: Path, **settings: str) -> AsyncIterator[Workers]:
    """Wait until both workers serve."""
    process = await asyncio.create_subprocess_exec(
        *UVICORN,
        "--timeout-worker-healthcheck=60",
        cwd=folder,
        env=environment(folder, **settings),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    workers = Workers(process)
    reading = asyncio.create_task(workers.read_log())
    try:
        served = await workers.wait_for("listening", 2)
        assert len({line["pid"] for line in served}) == 2
        yield workers
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
        async with httpx.AsyncClient(timeout=None, headers={"Authorization": f"Bearer {KEY}"}) as client:
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


@pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True
)
async def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on_at_the_same_address(
    tmp_path: Path, database_url: str
) -> None:
    script = [
        chunks(text("I sell it. "), call("sell", '{"seat": 7}', call_id="c1"), finish("tool_calls")),
        chunks(text("Seat 7 is"), ending="hang"),
        chunks(text("Seat 7 is yours."), finish("stop")),
    ]
    async with OpenAIServer(script) as model:
        settings = {"DATABASE_URL": database_url, "API_KEY": KEY, "AGENTS": AGENT, "TEST_RAN": str(tmp_path / "ran")}
        async with serving(tmp_path, MODEL_BASE_URL=model.base_url, MODEL="m", **settings) as workers:
            half_said = asyncio.Event()
            listening = asyncio.create_task(
                listen(workers.url, "run", lambda chunk: half_said.set() if b'"content":"Seat 7 is"' in chunk else None)
            )
            await half_said.wait()
            [started] = await workers.wait_for("run_started")
            os.kill(started["pid"], signal.SIGKILL)
            seen = await listening
            [carried_on] = await workers.wait_for("run_continued")
            assert carried_on["run_id"] == "run"
            assert carried_on["pid"] != started["pid"]
            await workers.wait_for("listening", 3)
            assert (await asyncio.to_thread(httpx.get, f"{workers.url}/ready")).status_code == 200
    check(seen)
    assert isinstance(seen[-1][1], Done)
    assert (tmp_path / "ran").read_text() == "sell 7\n"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"API_KEY": KEY}, "workers need PostgreSQL"),
        ({"DATABASE_URL": "postgresql+asyncpg://callboard@127.0.0.1:1/callboard"}, "run `callboard key`"),
    ],
)
def test_workers_that_cannot_share_a_database_or_have_no_key_are_refused(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    refused = subprocess.run(
        UVICORN, cwd=tmp_path, env=environment(tmp_path, **settings), capture_output=True, text=True
    )
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
