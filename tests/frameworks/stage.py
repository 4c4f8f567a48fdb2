"""Runs scenarios with an agent in a real run, with recorder, log and store. Observed events become one line each."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from callboard.agents import AgentLike
from callboard.agents.registry import Registry
from callboard.calls import Services
from callboard.models import ScriptedModel
from callboard.observers import ModelAsked, Observation
from callboard.redaction import Redaction
from callboard.runs import Run, Runs
from callboard.runs.links import Links
from callboard.settings import Settings
from callboard.storage import Store
from callboard.storage.values import GivenAnswer
from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    RunRequest,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
    User,
    decode,
)
from tests.fakes.openai_server import Body, OpenAIServer
from tests.frameworks.scenario import MAX_TOOL_CALLS, Scenario
from tests.frameworks.toolbox import Toolbox
from tests.runs import promises

CHAT_ID = "chat_1"
USER = User(id="u1")
SILENCE_SECONDS = 0.05
PATIENCE_SECONDS = 200.0
SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Deviation:
    """A scenario in which a framework necessarily differs from the others.

    `reason` is a short explanation. `expected` are the observed events, None if they are the same. `sent` are the
    model's messages if they differ. With `own_ids` the model gets other call ids than the store.
    """

    reason: str
    expected: Sequence[str] | None = None
    sent: Sequence[str] | None = None
    own_ids: bool = False


class Framework(Protocol):
    """Creates the agent of a test."""

    def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AbstractAsyncContextManager[AgentLike]:
        """An agent with the id `agent`, whose model is `m` at `base_url`, without retries and with these tools.

        Its connections are closed at the end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """An agent that a test creates with its framework's model of the endpoint."""

    make: Callable[[Any], AgentLike]
    model_at: Callable[[str], AbstractAsyncContextManager[Any]]

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with self.model_at(base_url) as model:
            yield self.make(model)


@dataclass(slots=True)
class Performance:
    """The record of a scenario: the events of each turn, the observers' notifications, and the model requests."""

    turns: list[list[Event]] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    stored: list[Any] = field(default_factory=list)
    """The chat's messages in the store, after the last turn."""

    @property
    def events(self) -> list[Event]:
        return [event for turn in self.turns for event in turn]

    @property
    def asked(self) -> list[ModelAsked]:
        """The requests that observers were notified of."""
        return [what for what in self.observed if isinstance(what, ModelAsked)]

    @property
    def received(self) -> list[ModelAsked]:
        """The requests at the model's endpoint, in the form of the observers' notifications."""
        return [ModelAsked("m", len(body["messages"]), len(body.get("tools") or ())) for body in self.requests]

    def lines(self, *, in_order: bool) -> list[str]:
        """The events in the notation of the scenarios."""
        lines = [line for turn in self.turns for line in self._lines(_joined(turn))]
        if in_order:
            return lines
        grouped = groupby(lines, lambda line: line.split()[0] in ("result", "failed"))
        return [line for ends, group in grouped for line in (sorted(group) if ends else group)]

    def _lines(self, events: Sequence[Event]) -> list[str]:
        return [line for event in events for line in self._line(event)]

    def _line(self, event: Event) -> list[str]:
        match event:
            case Message() | Reasoning() | Rewind():
                return [_said(event)]
            case ToolCallStart():
                number = self.numbers.setdefault(event.tool_call_id, len(self.numbers) + 1)
                inside = f" in {self.numbers[event.parent_call_id]}" if event.parent_call_id in self.numbers else ""
                return [f"call {number}{inside} {event.tool_name} {event.tool_args}"]
            case ToolStatus(data=data):
                progress = "" if data.progress is None else f" {data.progress:g}"
                return [f"status {self.numbers[event.tool_call_id]} {data.status} {data.message}{progress}"]
            case InputRequest():
                return [f"ask {self.numbers[event.tool_call_id or '']} {event.title}"]
            case ToolCallComplete():
                number = self.numbers[event.tool_call_id]
                long = event.result_chars > SHOWN_CHARS
                result = f"<{event.result_chars} characters>" if long else event.result
                files = [f"files {number} {' '.join(file['type'] for file in event.files)}"] if event.files else []
                return [f"result {number} {result}", *files]
            case ToolCallError():
                return [f"failed {self.numbers[event.tool_call_id]} {event.code}"]
            case Done():
                return [f"done {event.finish_reason}"]
            case Error():
                return [f"error {event.code} {event.upstream_code or ''}".rstrip()]
            case _:
                return []

    def left(self) -> str:
        """The answer's text, without the parts that were taken back."""
        kept = ""
        draft = ""
        for event in self.events:
            match event:
                case Message():
                    draft += event.content
                case Rewind():
                    draft = ""
                case ToolCallStart() | ToolCallComplete() | ToolCallError():
                    kept = kept + draft
                    draft = ""
                case _:
                    pass
        return kept + draft

    @property
    def started(self) -> list[str]:
        """The ids of the calls, in the order of their starts."""
        return [event.tool_call_id for event in self.events if isinstance(event, ToolCallStart)]

    def sent(self) -> list[str]:
        """The last request's messages, in the notation of the scenarios."""
        first, *others = self.requests[-1]["messages"]
        return [_message(one) for one in ([] if is_system(first) else [first]) + others]


def is_system(message: Body) -> bool:
    """Whether the message has instructions; newer models of OpenAI call its role `developer`."""
    return message["role"] in ("system", "developer")


def openai_client(base_url: str) -> AsyncOpenAI:
    """OpenAI's own client, without retries and timeouts; it does not read the system's certificates, which is slow."""
    http_client = DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0, timeout=None, http_client=http_client)


async def perform(
    framework: Framework,
    scenario: Scenario,
    folder: Path,
    *,
    confirm_tools: Sequence[str] = (),
    secrets: Sequence[str] = (),
    tool_timeout_seconds: float = 120,
) -> tuple[Performance, Toolbox]:
    """Run the scenario in its own folder, and check the promises for every run."""
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'callboard.db'}")
    toolbox = Toolbox()
    seen = Performance()
    async with (
        OpenAIServer(scenario.script) as server,
        framework.agent(server.base_url, scenario.tools, toolbox) as agent,
    ):
        settings = Settings(
            max_tool_calls_per_turn=MAX_TOOL_CALLS,
            confirm_tools=tuple(confirm_tools),
            # A user who is silent is not waited for; one who answers may take their time.
            input_timeout_seconds=SILENCE_SECONDS if scenario.reply is None else PATIENCE_SECONDS,
            tool_timeout_seconds=tool_timeout_seconds,
        )
        services = Services(store, ScriptedModel())
        runs = Runs(
            Registry([agent]),
            services,
            settings,
            Redaction(secrets),
            store.stored_runs("server"),
            Links("", 0, b""),
            [lambda _, what: seen.observed.append(what)],
        )
        async with runs.holding_lease():
            said: list[dict[str, Any]] = [*scenario.before]
            for number, asked in enumerate(scenario.turns):
                said.append({"role": "user", "content": asked})
                turn = {"chat_id": CHAT_ID, "message_id": f"m{number}", "user": USER, "task": scenario.task}
                request = RunRequest.model_validate({"agent": "agent", "messages": said, **turn})
                run = await runs.start(request)
                assert isinstance(run, Run)
                seen.turns.append(await _watch(run, scenario, toolbox))
                said += _as_the_client_sends(seen.turns[-1])
            if scenario.stop_at == "text":
                await server.disconnected.wait()
            await runs.close()
        seen.requests = server.requests
    await _check_stored(store, seen)
    seen.stored = [] if scenario.task else await store.chats(USER.id).messages(CHAT_ID)
    await store.close()
    return seen, toolbox


async def _watch(run: Run, scenario: Scenario, toolbox: Toolbox) -> list[Event]:
    """Read the run's events, and perform the user's actions."""
    numbered: list[tuple[int, Event]] = []
    asked: list[InputRequest] = []
    decoder = Decoder()
    async for chunk in run.listen():
        for frame in decoder.feed(chunk):
            event = decode(frame)
            assert event is not None
            numbered.append((int(frame.id), event))
            if isinstance(event, InputRequest) and scenario.reply is not None:
                asked.append(event)
            if len(asked) >= scenario.asked_at_once:
                for question in asked:
                    reply = scenario.reply(question) if callable(scenario.reply) else scenario.reply
                    await run.answer(question.request_id, GivenAnswer(reply))
                asked.clear()
            _act(event, run, scenario, toolbox)
    promises.check(numbered)
    return [event for _, event in numbered]


def _act(event: Event, run: Run, scenario: Scenario, toolbox: Toolbox) -> None:
    match event:
        case ToolCallComplete():
            toolbox.gate.set()
        case ToolStatus() if scenario.stop_at == "call":
            run.cancel()
        case Message() if scenario.stop_at == "text":
            run.cancel()
        case _:
            pass


def _as_the_client_sends(events: Sequence[Event]) -> list[dict[str, Any]]:
    """A turn as the pipe sends it back: each call with its result, and the texts in place."""
    messages: list[dict[str, Any]] = []
    results = {event.tool_call_id: event.result for event in events if isinstance(event, ToolCallComplete)}
    for event in _joined(events):
        match event:
            case Message():
                messages.append({"role": "assistant", "content": event.content})
            case Rewind():
                while messages and messages[-1]["role"] == "assistant":
                    messages.pop()
            case ToolCallStart():
                function = {"name": event.tool_name, "arguments": json.dumps(event.tool_args)}
                call = {"id": event.tool_call_id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                content = results.get(event.tool_call_id, "Error")
                messages.append({"role": "tool", "tool_call_id": event.tool_call_id, "content": content})
            case _:
                pass
    return messages


async def _check_stored(store: Store, seen: Performance) -> None:
    """Every call is stored with its whole result."""
    stored = {record.tool_call_id: record for record in (await store.chats(USER.id).history(CHAT_ID)).calls}
    # An earlier performance in this folder belongs to the same chat.
    assert list(stored)[len(stored) - len(seen.started) :] == seen.started
    for event in seen.events:
        match event:
            case ToolCallComplete():
                result = stored[event.tool_call_id].result
                assert result is not None
                assert len(result) == event.result_chars
            case ToolCallError():
                result = stored[event.tool_call_id].result
                assert result is not None
                assert event.error in result
            case _:
                pass


def _joined(events: Sequence[Event]) -> list[Event]:
    """Join neighbouring texts, and leave out events that never differ between frameworks."""
    joined: list[Event] = []
    for event in events:
        if isinstance(event, RunStart | ToolCallArgsDelta | Usage):
            continue
        before = joined[-1] if joined else None
        if isinstance(event, Message | Reasoning) and type(before) is type(event):
            assert isinstance(before, Message | Reasoning)
            joined[-1] = before.model_copy(update={"content": before.content + event.content})
        else:
            joined.append(event)
    return joined


def _said(event: Message | Reasoning | Rewind) -> str:
    match event:
        case Message():
            return f"say {event.content}"
        case Reasoning():
            return f"think {event.content}"
        case Rewind():
            return "rewind"


def _message(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part["text"] if part["type"] == "text" else part["image_url"]["url"] for part in content)
    calls = [
        f"calls {call['function']['name']} {json.loads(call['function']['arguments'])}"
        for call in message.get("tool_calls") or ()
    ]
    return " ".join([message["role"], *([content] if content else []), *calls])
