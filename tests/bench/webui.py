"""The real Open WebUI that is measured: started, given pipes and a connection, asked, watched.

When an answer is saved is read from its database file: it takes no time of Open WebUI's event
loop, as requests to its API would, and it is exact to a millisecond.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

import install_pipe
import openwebui
from service import free_port
from tests.bench.report import FULL, Size, leave_out, say

CREDENTIALS = install_pipe.Credentials("admin@localhost", "password-of-the-benchmark")
ANSWER_SECONDS = 300.0
LOOK_SECONDS = 0.001
SAVED = "SELECT 1 FROM chat_message WHERE chat_id = ? AND role = 'assistant' AND done"

# What Open WebUI asks a model for beside the answer would be measured with it.
QUIET = {f"ENABLE_{asked}_GENERATION": "false" for asked in ("TITLE", "TAGS", "FOLLOW_UP")}

# Put below the source of a pipe: notes when Open WebUI calls it, and how many updates it then yields.
NOTES = """

import functools, inspect, os, pathlib, time
_untimed, _notes = Pipe.pipe, pathlib.Path(os.environ["CALLBOARD_BENCH_NOTES"])

@functools.wraps(_untimed)
async def _timed(self, *given, **named):
    (_notes / "started").write_text(repr(time.time()))
    answer = await _untimed(self, *given, **named)
    return _counted(answer) if inspect.isasyncgen(answer) else answer

async def _counted(answer):
    count = 0
    async for update in answer:
        count += 1
        yield update
    (_notes / "updates").write_text(str(count))

Pipe.pipe = _timed
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """`seconds` from the start of what answers, the pipe or the endpoint, until the answer is saved.

    `updates` is how many strings or dicts the pipe yielded; None where none did. `whole_seconds` are those from the
    question until the answer is saved, and `output` has the items of the answer as JSON.
    """

    seconds: float
    whole_seconds: float
    updates: int | None
    content: str
    output: str


@dataclass(frozen=True, slots=True)
class OpenWebUI:
    """One that runs at `url`; in the folder `notes` the start of an answer is noted."""

    url: str
    notes: Path
    token: str
    http: httpx.AsyncClient
    database: sqlite3.Connection

    def note_start(self) -> None:
        """Something begins to answer now."""
        (self.notes / "started").write_text(repr(time.time()))

    async def install(self, function_id: str, source: Path, valves: Mapping[str, str] | None = None) -> None:
        """Install a pipe."""
        # In a thread: Open WebUI lists the models at once, and a feed must be able to answer it.
        await asyncio.to_thread(self._install, function_id, source, valves)

    def _install(self, function_id: str, source: Path, valves: Mapping[str, str] | None) -> None:
        noting = self.notes / f"{function_id}.py"
        noting.write_text(source.read_text("utf-8") + NOTES, "utf-8")
        installed = install_pipe.install(self.url, CREDENTIALS, valves, function_id, noting)
        if installed.problem:
            raise AssertionError(f"{function_id}: {installed.problem}")

    async def connect(self, base_url: str, model: str) -> None:
        """Give it an OpenAI-compatible endpoint with this model."""
        config = {
            "ENABLE_OPENAI_API": True,
            "OPENAI_API_BASE_URLS": [base_url],
            "OPENAI_API_KEYS": ["key"],
            "OPENAI_API_CONFIGS": {"0": {"enable": True, "model_ids": [model]}},
        }
        await self._call("POST", "/openai/config/update", config)
        await self._call("GET", "/api/models?refresh=true")

    async def add_tool(self, tool_id: str, source: str) -> None:
        """A tool of Open WebUI's own, with this source."""
        tool = {"id": tool_id, "name": "Reader", "content": source, "meta": {"description": "Reads files."}}
        await self._call("POST", "/api/v1/tools/create", tool)

    async def add_model(self, model_id: str, base_model_id: str, tool_ids: Sequence[str]) -> None:
        """A model of Open WebUI's own, over another, with these of its tools."""
        body = {"id": model_id, "base_model_id": base_model_id, "name": model_id, "is_active": True}
        extras = {"meta": {"toolIds": list(tool_ids)}, "params": {"function_calling": "native"}, "access_grants": []}
        await self._call("POST", "/api/v1/models/create", {**body, **extras})
        await self._call("GET", "/api/models?refresh=true")

    async def ask(self, model: str, text: str, tool_ids: Sequence[str] = ()) -> Answer:
        """A question in a new chat, and its answer once it is saved; as the page, with the ids of the model's tools."""
        question_id = str(uuid4())
        message_id = str(uuid4())
        question = {"id": question_id, "parentId": None, "childrenIds": list[str](), "role": "user", "content": text}
        history = {"currentId": question_id, "messages": {question_id: question}}
        chat = {"title": "Benchmark", "models": [model], "history": history}
        chat_id = (await self._call("POST", "/api/v1/chats/new", {"chat": chat}))["id"]
        asked = {
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": text}],
            "user_message": question,
            "chat_id": chat_id,
            "id": message_id,
            "session_id": str(uuid4()),
            "tool_ids": list(tool_ids),
        }
        for note in ("started", "updates"):
            (self.notes / note).unlink(missing_ok=True)
        # Side by side: Open WebUI may answer the request only after it has saved a fast answer.
        asked_at = time.time()
        _, saved = await asyncio.gather(self._call("POST", "/api/chat/completions", asked), self._saved(chat_id))
        stored = await self._call("GET", f"/api/v1/chats/{chat_id}")
        await self._idle(chat_id)
        noted = self.notes / "started"
        started = float(noted.read_text()) if noted.exists() else asked_at
        updates = self.notes / "updates"
        count = int(updates.read_text()) if updates.exists() else None
        message = stored["chat"]["history"]["messages"][message_id]
        output = json.dumps(message.get("output"))
        return Answer(saved - started, saved - asked_at, count, message["content"], output)

    async def _saved(self, chat_id: str) -> float:
        async with asyncio.timeout(ANSWER_SECONDS):
            while self.database.execute(SAVED, (chat_id,)).fetchone() is None:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(LOOK_SECONDS)
        return time.time()

    async def _idle(self, chat_id: str) -> None:
        """What follows an answer must not fall into the next measurement."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while (await self._call("GET", f"/api/tasks/chat/{chat_id}"))["task_ids"]:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = await self.http.request(method, path, json=body)
        if response.is_error:
            raise AssertionError(f"{method} {path}: {response.status_code}: {response.text}")
        return response.json()


def _client(url: str, token: str) -> httpx.AsyncClient:
    # Open WebUI closes a connection that was idle for 5 s, and a request that is sent in that moment fails.
    unkept = httpx.Limits(max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=unkept, trust_env=False)


def at_hand(versions: Sequence[str], size: Size) -> list[str]:
    """Return the versions of Open WebUI that may be used: at the smallest size only those that are installed."""
    missing = [] if size is FULL else [version for version in versions if not openwebui.installed(version)]
    for version in missing:
        leave_out(f"Open WebUI {version}", "it is not installed; `scripts/bench` without `--smoke` installs it")
    return [version for version in versions if version not in missing]


@asynccontextmanager
async def running(folder: Path, version: str = openwebui.VERSION) -> AsyncIterator[OpenWebUI]:
    """A fresh Open WebUI of that version with an admin and nothing else."""
    port = free_port()
    notes = folder / "notes"
    notes.mkdir()
    service = openwebui.service(openwebui.install(version, say=say), folder / "open-webui", port, secret_key="bench")
    service = replace(service, environment={**service.environment, **QUIET, "CALLBOARD_BENCH_NOTES": str(notes)})
    say(f"Starting Open WebUI {version} (up to a minute) …")
    try:
        service.start()
        service.wait_until_healthy(openwebui.START_SECONDS)
        url = f"http://127.0.0.1:{port}"
        token = openwebui.first_admin(url, str(CREDENTIALS.email), str(CREDENTIALS.password))
        database = sqlite3.connect(f"file:{folder / 'open-webui' / 'webui.db'}?mode=ro", uri=True, isolation_level=None)
        async with _client(url, token) as http:
            await _hide_release_notes(http, version)
            yield OpenWebUI(url, notes, token, http, database)
        database.close()
    finally:
        service.stop()


async def _hide_release_notes(http: httpx.AsyncClient, version: str) -> None:
    """They would cover the page."""
    response = await http.post("/api/v1/users/user/settings/update", json={"ui": {"version": version}})
    response.raise_for_status()
