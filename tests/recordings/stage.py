"""Plays a scenario on a real server, and says what came of it: frames, rows, and what the model was told.

What differs from run to run (ids made at random, times, ports) is replaced by words and numbers that do not, and
neighbouring pieces of one text are joined, since where a text is cut depends on the machine's speed.
"""

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callboard import Agent, Skill, Tool
from callboard.agents import AgentLike
from callboard_protocol.wire import MAX_FRAME_BYTES
from tests.fakes.openai_server import Body, OpenAIServer, Script
from tests.serving import Service, serving

RUNS = Path(__file__).parent / "runs"
SHOWN_CHARS = 400
TABLES = ("chats", "messages", "tool_events")

TEXT_FIELDS = {"message": "content", "reasoning": "content"}
TIMES = frozenset({"created_at", "updated_at", "started_at", "ended_at", "duration_ms"})
IDS = r"call_x_[0-9a-f]{24,}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
CALL_ID = re.compile(r"[A-Za-z0-9]{9}")
"""An id of a call that Callboard made: none in a scenario is like it."""

Play = Callable[["Stage"], Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A conversation with an agent: by default its `turns`, one after the other, each a text of the user.

    `answers` are the model's. `agent` makes the agent; without it one with `tools` is made, on the server's model.
    `reply` is the user's to every question, `cancel_at` the type of the event at which they press stop. `play` does
    something else than the turns.
    """

    answers: Script = ()
    turns: Sequence[str] = ("go",)
    tools: Callable[[], Sequence[Tool]] = tuple
    agent: Callable[[], AgentLike] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    reply: object = None
    cancel_at: str | None = None
    play: Play | None = None


class Stage:
    """A server with one agent, `agent`, and the chat `chat` as its client sees it."""

    def __init__(self, scenario: Scenario, service: Service, agent_id: str) -> None:
        self.runs: list[list[Body]] = []
        self.history: list[Body] = []
        self._scenario = scenario
        self._service = service
        self._agent_id = agent_id

    async def take_turns(self) -> None:
        """Ask each of the scenario's questions, in one chat."""
        for text in self._scenario.turns:
            self.history.append({"role": "user", "content": text})
            await self.run(messages=self.history)
            self.history = await self.stored_messages()

    async def run(self, **fields: Any) -> list[Body]:
        """Return the events of a run, answering its questions meanwhile; `fields` are those of its request."""
        run_id = f"run-{len(self.runs) + 1}"
        body = {
            "agent": self._agent_id,
            "run_id": run_id,
            "chat_id": "chat",
            "message_id": f"message-{len(self.runs) + 1}",
            "user": {"id": "ada", "name": "Ada"},
            "messages": [{"role": "user", "content": "go"}],
            **fields,
        }
        frames: list[bytes] = []
        async with self._service.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200, await response.aread()
            async for frame in _split(response.aiter_bytes()):
                frames.append(frame)
                await self._act(run_id, _event_of(frame))
        await self._check_resuming(run_id, body["user"], frames)
        events = [_event_of(frame) for frame in frames]
        assert [_seq_of(frame) for frame in frames] == list(range(1, len(frames) + 1))
        self.runs.append(_join_texts(events))
        return events

    async def _act(self, run_id: str, event: Body) -> None:
        params = {"user_id": "ada"}
        if event["type"] == self._scenario.cancel_at:
            await self._service.client.post(f"/v1/runs/{run_id}/cancel", params=params)
        if event["type"] == "input_request" and self._scenario.reply is not None:
            value = {"request_id": event["request_id"], "value": self._scenario.reply}
            answer = await self._service.client.post(f"/v1/runs/{run_id}/input", params=params, json=value)
            assert answer.status_code == 202, answer.text

    async def _check_resuming(self, run_id: str, user: Body | None, frames: Sequence[bytes]) -> None:
        after = len(frames) // 2
        params = {"after": str(after), **({"user_id": user["id"]} if user else {})}
        async with self._service.client.stream("GET", f"/v1/runs/{run_id}/events", params=params) as response:
            assert response.status_code == 200, await response.aread()
            assert [frame async for frame in _split(response.aiter_bytes())] == frames[after:]

    async def stored_messages(self) -> list[Body]:
        """Return the chat as a client sends it back: its results are as they were displayed."""
        answer = await self._service.client.get("/v1/chats/chat/messages", params={"user_id": "ada"})
        if answer.status_code == 404:
            return self.history
        kept = ("role", "content", "tool_calls", "tool_call_id")
        return [
            {"content": None, **{name: message[name] for name in kept if message[name] is not None}}
            for message in answer.json()["messages"]
        ]


async def record(scenario: Scenario, folder: Path, opening: asyncio.Lock | None = None) -> str:
    """Play the scenario, with its database in `folder`, which need not exist; return what was seen, as JSON.

    Who plays several side by side gives them one lock: of a process, one server at a time can migrate its database.
    """
    async with _opened(scenario, folder, opening or asyncio.Lock()) as (stage, endpoint):
        await (scenario.play(stage) if scenario.play else stage.take_turns())
    seen: dict[str, Any] = {"runs": stage.runs}
    seen["model"] = [_request_to_model(request) for request in endpoint.requests]
    seen.update(_rows(folder / "callboard.db"))
    return json.dumps(_Normaliser(seen).normalise(seen), indent=1, ensure_ascii=True) + "\n"


@asynccontextmanager
async def _opened(scenario: Scenario, folder: Path, opening: asyncio.Lock) -> AsyncIterator[tuple[Stage, OpenAIServer]]:
    async with OpenAIServer(scenario.answers, models=["m"]) as endpoint, AsyncExitStack() as stack:
        skill = Skill("tools", "Has the tools.", tools=scenario.tools())
        agent = scenario.agent() if scenario.agent else Agent("agent", skills=(skill,))
        settings = {"model_base_url": endpoint.base_url, "model": "m", "model_api_key": "key-of-the-endpoint"}
        async with opening:
            service = await stack.enter_async_context(serving(folder, agent, **{**settings, **scenario.settings}))
        yield Stage(scenario, service, agent.agent_id), endpoint


async def _split(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream:
        *frames, rest = (rest + chunk).split(b"\n\n")
        for frame in frames:
            if not frame.startswith(b":"):
                yield frame
    assert not rest


def _seq_of(frame: bytes) -> int:
    return int(frame.partition(b"\n")[0].removeprefix(b"id: "))


def _event_of(frame: bytes) -> Body:
    """Return the event of a frame, and fail where its bytes are other than the protocol has them."""
    head, _, data = frame.partition(b"\n")
    event: Body = json.loads(data.removeprefix(b"data: "))
    written = json.dumps(event, ensure_ascii=True, separators=(",", ":"))
    assert frame == head + b"\ndata: " + written.encode()
    assert len(frame) + 2 <= MAX_FRAME_BYTES
    return event


def _join_texts(events: Iterable[Body]) -> list[Body]:
    joined: list[Body] = []
    for event in events:
        if event["type"] == "tool_call_args_delta":
            continue  # time decides how much of the arguments is sent before the call starts
        name = TEXT_FIELDS.get(event["type"])
        if name and joined and {**joined[-1], name: ""} == {**event, name: ""}:
            joined[-1] = {**event, name: joined[-1][name] + event[name]}
        else:
            joined.append(event)
    return joined


def _request_to_model(request: Body) -> Body:
    tools = [tool["function"]["name"] for tool in request.get("tools") or ()]
    return {"messages": request["messages"], "tools": tools}


def _rows(database: Path) -> dict[str, list[Body]]:
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table: [
                {name: value for name, value in dict(row).items() if value is not None}
                for row in connection.execute(f"SELECT * FROM {table}")
            ]
            for table in TABLES
        }


def _find_call_ids(value: Any) -> Iterator[str]:
    match value:
        case dict():
            if CALL_ID.fullmatch(value.get("tool_call_id") or ""):
                yield value["tool_call_id"]
            for one in value.values():
                yield from _find_call_ids(one)
        case list():
            for one in value:
                yield from _find_call_ids(one)


class _Normaliser:
    """Replaces what differs from run to run; the same value has the same replacement everywhere."""

    def __init__(self, seen: Any) -> None:
        self._ids = re.compile("|".join([IDS, *sorted(set(_find_call_ids(seen)))]))
        self._numbers: dict[str, int] = {}

    def normalise(self, value: Any, name: str = "") -> Any:
        """Return the value without what differs."""
        match value:
            case dict():
                return {key: self.normalise(one, key) for key, one in value.items()}
            case list():
                return [self.normalise(one) for one in value]
            case int() | float() if name in TIMES:
                return f"<{name}>"
            case str():
                return self._normalise_text(value)
            case _:
                return value

    def _normalise_text(self, text: str) -> str:
        text = self._ids.sub(lambda match: f"<id {self._numbers.setdefault(match[0], len(self._numbers) + 1)}>", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", text)
        text = re.sub(r"expires=\d+&signature=[\w-]+", "expires=<time>&signature=<signature>", text)
        if len(text) <= SHOWN_CHARS * 10:
            return text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{text[:SHOWN_CHARS]} <{len(text)} characters, SHA-256 {digest}> {text[-SHOWN_CHARS:]}"
