"""A Callboard server with the librarian, and a scripted model behind it that keeps every request it is sent.

What is proven with it is what the *model* was sent: `Library.turns` holds each turn's requests as they came over HTTP.

The model does what the user's words say: "look up apple and pear" is two parallel calls, "look up apple, then look up
pear" two rounds, "look up apple, then say so and look up pear" has text between them; other words get text alone. It
is as strict as the real endpoints: a call without its answer, or an answer without its call, is refused. Like many
local ones it numbers its calls anew in each answer: the ids repeat.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from service import Service
from tests.e2e.callboard_service import callboard_service
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Refusal, call, chunks, finish, text

FUNCTION_ID = "library"
AGENTS = Path(__file__).with_name("librarian.py")
START_SECONDS = 60.0

_TOOLS = {
    "look up": ("look_up", "word"),
    "read": ("read_book", "title"),
    "borrow": ("borrow_book", "title"),
    "search for": ("search_shelves", "subject"),
}
_ORDER = re.compile(rf"\b({'|'.join(_TOOLS)}) (\w+(?: and \w+)*)")


@dataclass(frozen=True)
class ToolCall:
    """A call as the model was told of it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Told:
    """One message as the model was sent it, in what counts: no difference between no text and an empty one."""

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    """The id of the call that a tool message answers."""

    @classmethod
    def user(cls, content: str) -> Told:
        """A user's message."""
        return cls("user", content)

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Told:
        """A message of a request."""
        calls = tuple(
            ToolCall(one["id"], one["function"]["name"], one["function"]["arguments"])
            for one in message.get("tool_calls") or ()
        )
        content = message.get("content")
        assert content is None or isinstance(content, str), content
        return cls(message["role"], content or "", calls, message.get("tool_call_id", ""))


def spaced_anew(messages: Sequence[Told]) -> list[Told]:
    """The messages with all arguments in one spacing, where no server knows which they had."""
    return [
        replace(one, calls=tuple(replace(call, arguments=json.dumps(json.loads(call.arguments))) for call in one.calls))
        for one in messages
    ]


@dataclass
class Turn:
    """One answer to a user: what the model was sent before each of its rounds, and what it said in the end."""

    requests: list[list[Told]] = field(default_factory=list)
    said: Told | None = None

    @property
    def told(self) -> list[Told]:
        """What the model was sent when the turn began, the user's question last, without the system's prompt."""
        return self.requests[0]

    @property
    def own(self) -> list[Told]:
        """What the turn added: the question, its rounds of calls with their results, and the answer."""
        assert self.said, "the turn has no answer"
        return [*self.requests[-1][len(self.told) - 1 :], self.said]

    @property
    def calls(self) -> list[ToolCall]:
        """The turn's calls, in their order."""
        return [one for message in self.own for one in message.calls]

    @property
    def results(self) -> list[str]:
        """What came back, in the order of the calls."""
        return [message.content for message in self.own if message.role == "tool"]


class Library:
    """The server at `url` with what its model was sent since `forget`; `model` is its id in Open WebUI."""

    model = ""

    def __init__(self, service: Service, url: str, key: str, script: Script) -> None:
        self.url = url
        self._service = service
        self._key = key
        self._script = script

    @property
    def turns(self) -> list[Turn]:
        """The turns of the test, in their order; background tasks are none."""
        return self._script.turns

    def forget(self) -> None:
        """Begin with no turns."""
        self._script.turns = []

    async def restart(self) -> None:
        """Stop the server with SIGTERM and start it again: same address, same data."""
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the server that was stopped or killed."""
        self._service.start()
        await asyncio.to_thread(self._service.wait_until_healthy, START_SECONDS)

    async def stop(self) -> None:
        """Stop the server with SIGTERM."""
        await asyncio.to_thread(self._service.stop)

    async def kill(self) -> None:
        """End the server as a crash does."""
        await asyncio.to_thread(self._service.kill)

    async def timeline(self, chat_id: str, user_id: str) -> list[dict[str, Any]]:
        """The chat's calls as the server tells others of them."""
        answer = await self._get(f"/v1/chats/{chat_id}/timeline", user_id)
        assert answer.status_code == 200, answer.text
        calls: list[dict[str, Any]] = answer.json()["tool_calls"]
        return calls

    async def newest_call(self, user_id: str) -> str:
        """Which call is the newest that the server keeps for that user, in whichever chat; empty for none."""
        answer = await self._get("/v1/tool-calls", user_id)
        assert answer.status_code == 200, answer.text
        return next((f"{call['run_id']} {call['tool_call_id']}" for call in answer.json()["tool_calls"]), "")

    async def _get(self, path: str, user_id: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, headers=headers) as client:
            return await client.get(path, params={"user_id": user_id})


@asynccontextmanager
async def endpoint() -> AsyncIterator[tuple[OpenAIServer, Script]]:
    """The scripted model, serving in this event loop."""
    script = Script()
    async with OpenAIServer(script) as server:
        yield server, script


def service(port: int, data: Path, key: str, model_base_url: str) -> Service:
    """The librarian's server, not yet started, with all it keeps under `data`."""
    model = {"MODEL_BASE_URL": model_base_url, "MODEL": "scripted"}
    return callboard_service("The librarian's server", port, data, key, AGENTS=str(AGENTS), **model)


class Script:
    """The model: its answer to a request, and the turns it was in."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._answers = 0

    def __call__(self, body: Body) -> Answer:
        messages: list[dict[str, Any]] = [message for message in body["messages"] if message["role"] != "system"]
        if str(messages[-1]["content"]).startswith("### Task:"):
            answer = json.dumps({"title": "In the library", "tags": ["books"], "follow_ups": []})
            return chunks(text(answer), finish("stop"))
        if problem := _problem(messages):
            return Refusal(400, problem)
        told = [Told.read(message) for message in messages]
        if told[-1].role == "user":
            self.turns.append(Turn())
        turn = self.turns[-1]
        turn.requests.append(told)
        asked = max(index for index, message in enumerate(told) if message.role == "user")
        rounds = sum(message.role == "assistant" for message in told[asked:])
        # A question that got no answer stands before the next one in the same message.
        question = told[asked].content.split("\n\n")[-1]
        step = [*question.split(", then "), *[""] * (rounds + 1)][rounds]
        calls = list(_calls(step))
        if calls:
            before = [text(f"Now I {step.removeprefix('say so and ')}.")] if step.startswith("say so") else []
            return chunks(*before, *calls, finish("tool_calls"))
        self._answers += 1
        turn.said = Told("assistant", f"That is my answer number {self._answers}.")
        return chunks(text(turn.said.content), finish("stop"))


def _calls(step: str) -> Iterator[Body]:
    orders = [(_TOOLS[verb], word) for verb, words in _ORDER.findall(step) for word in words.split(" and ")]
    for index, ((name, parameter), word) in enumerate(orders):
        # Spaced as no serialiser here does it: what was sent comes back byte for byte.
        yield call(name, f'{{ "{parameter}":"{word}" }}', index=index, call_id=f"call_{index}")


def _problem(messages: Sequence[Mapping[str, Any]]) -> str:
    """Why an endpoint that keeps OpenAI's rules refuses these messages; empty where it does not."""
    seen: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"messages[{index}] answers no call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"messages[{index}] comes before the answers to {waiting}"
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
        if seen.intersection(waiting) or len(set(waiting)) < len(waiting):
            return f"messages[{index}] has an id that was there before"
        seen.update(waiting)
    return f"no answers to {waiting}" if waiting else ""
