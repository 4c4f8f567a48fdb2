"""The Callboard server of the end-to-end tests, and a scripted model behind it that keeps every request it is sent.

The model does what the user's words say: "look up apple and pear" is two parallel calls, "look up apple, then look up
pear" two rounds, "look up apple, then say so and look up pear" has text between them, and `use NAME {arguments}` is a
call of any tool; "fall silent" is an answer that never ends, and other words get text. It
is as strict as the real endpoints: a call without its answer, or an answer without its call, is refused. Like many
local ones it numbers its calls anew in each answer: the ids repeat.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from service import Service
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Refusal, call, chunks, finish, text
from tests.gates import Gate
from tests.processes import environment

AGENTS = ("agents.py", "held_demo.py")
START_SECONDS = 60.0
HALF = "Once upon a time"
"""How an answer begins that does not come to its end."""
NASTY_PLAY = (
    "<img src=x onerror=\"document.title='pwned'\"> **bold** [link](http://a.example) `tick` {{user}} </pre>"
    ' &lt;b&gt; "quoted" \u202ereversed\u202c \u2028\nsecond line'
)
"""What is sold as "Nastiness"."""

_TOOLS = {
    "look up": ("look_up", "word"),
    "read": ("read_book", "title"),
    "borrow": ("borrow_book", "title"),
    "search for": ("search_shelves", "subject"),
    "walk to": ("walk", "place"),
    "listen for": ("listen", "subject"),
    "sell": ("sell", "play"),
}
_ORDER = re.compile(rf"\b({'|'.join(_TOOLS)}) (\w+(?: and \w+)*)")
_USE = re.compile(r"\buse (\w+)(?: (\{.*?\}))?(?= and use |$)")


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
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "\n".join(part.get("text", "") for part in content)
        return cls(message["role"], content, calls, message.get("tool_call_id", ""))


def spaced_anew(messages: Sequence[Told]) -> list[Told]:
    """The messages with all arguments in one spacing, where no server knows which they had."""
    return [
        replace(one, calls=tuple(replace(call, arguments=json.dumps(json.loads(call.arguments))) for call in one.calls))
        for one in messages
    ]


@dataclass
class Turn:
    """One answer to a user: what the model was sent before each of its rounds, and what it said in the end."""

    bodies: list[Body] = field(default_factory=list)
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
        return [one for message in self.requests[-1][len(self.told) :] for one in message.calls]

    @property
    def results(self) -> list[str]:
        """What came back, in the order of the calls."""
        return [message.content for message in self.requests[-1][len(self.told) :] if message.role == "tool"]

    @property
    def offered(self) -> list[str]:
        """The names of the tools that the model could call."""
        return [tool["function"]["name"] for tool in self.bodies[-1].get("tools") or ()]


class Server:
    """The server at `url`, with all it keeps in `data`; its tools wait at the `gate` while that is closed."""

    def __init__(self, data: Path, port: int, key: str, endpoint: OpenAIServer, script: Script) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.endpoint = endpoint
        self.gate = Gate(data)
        self.gate.open()
        self._key = key
        self._script = script
        self._sold = data / "sold"
        settings = {
            "PORT": str(port),
            "API_KEY": key,
            "DRAIN_SECONDS": "0",
            "DETACH_GRACE_SECONDS": "600",
            "MODEL_BASE_URL": endpoint.base_url,
            "MODEL": "scripted",
            "AGENTS": ",".join(str(Path(__file__).with_name(name)) for name in AGENTS),
        }
        self.service = Service(
            name="The Callboard server",
            command=[str(Path(sys.executable).with_name("callboard")), "serve"],
            environment=environment(data, **settings),
            log=data / "callboard.log",
            health=f"{self.url}/health",
        )

    @property
    def turns(self) -> list[Turn]:
        """The turns of the test, in their order; background tasks are none."""
        return self._script.turns

    @property
    def sold(self) -> list[str]:
        """The plays for which a ticket was sold."""
        return [json.loads(line) for line in self._sold.read_text().splitlines()] if self._sold.exists() else []

    def forget(self) -> None:
        """Begin with no turns, nothing sold and an open gate."""
        self._script.turns = []
        self._sold.unlink(missing_ok=True)
        self.gate.open()

    async def start(self) -> None:
        """Start the server that was killed: same address, same data."""
        self.service.start()
        await asyncio.to_thread(self.service.wait_until_healthy, START_SECONDS)

    async def kill(self) -> None:
        """End the server as a crash does."""
        await asyncio.to_thread(self.service.kill)

    async def get(self, path: str, user_id: str) -> httpx.Response:
        """The server's answer for that user."""
        return await self._request("GET", path, user_id)

    async def list_waiting(self, user_id: str) -> dict[str, str]:
        """The addresses to answer the user's waiting calls at, by their arguments."""
        listed = (await self._request("GET", "/v1/approvals", user_id)).json()["approvals"]
        return {one["arguments"]: f"/v1/runs/{one['run_id']}/input?{one['request_id']}" for one in listed}

    async def answer(self, waiting: str, user_id: str, value: object) -> None:
        """Answer a waiting call as another client of the server does."""
        path, _, request_id = waiting.partition("?")
        answer = {"request_id": request_id, "value": value}
        (await self._request("POST", path, user_id, answer)).raise_for_status()

    async def say(self, chat_id: str, user_id: str, content: str) -> None:
        """Send a message to the run of the chat's newest answer, as another client does."""
        rows = (await self._request("GET", f"/v1/chats/{chat_id}/messages", user_id)).json()["messages"]
        path = f"/v1/runs/{rows[-1]['run_id']}/messages"
        (await self._request("POST", path, user_id, {"content": content})).raise_for_status()

    async def _request(self, method: str, path: str, user_id: str, body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, headers=headers, timeout=60) as client:
            return await client.request(method, path, params={"user_id": user_id}, json=body)


class Script:
    """The model: its answer to a request, and the turns it was in."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._answers = 0

    def __call__(self, body: Body) -> Answer:
        messages: list[dict[str, Any]] = [message for message in body["messages"] if message["role"] != "system"]
        if str(messages[-1]["content"]).startswith("### Task:") and not body.get("tools"):
            answer = json.dumps({"title": "In the library", "tags": ["books"], "follow_ups": []})
            return chunks(text(answer), finish("stop"))
        if problem := _problem(messages):
            return Refusal(400, problem)
        told = [Told.read(message) for message in messages]
        if told[-1].role != "tool":
            self.turns.append(Turn())
        turn = self.turns[-1]
        turn.bodies.append(body)
        turn.requests.append(told)
        asked = max(index for index, message in enumerate(told) if message.role == "user")
        rounds = sum(message.role == "assistant" for message in told[asked:])
        # A question that got no answer stands before the next one in the same message.
        question = told[asked].content.split("\n\n")[-1]
        step = [*question.split(", then "), *[""] * (rounds + 1)][rounds]
        if step == "fall silent":
            return chunks(text(HALF), ending="hang")
        if calls := list(_calls(step)):
            before = [text(f"Now I {step.removeprefix('say so and ')}.")] if step.startswith("say so") else []
            return chunks(*before, *calls, finish("tool_calls"))
        self._answers += 1
        turn.said = Told("assistant", f"That is my answer number {self._answers}.")
        return chunks(text(turn.said.content), finish("stop"))


def _calls(step: str) -> Iterator[Body]:
    # A question may be in the middle of what Open WebUI says about the files that are attached to it.
    if not step.startswith(("say so", "use ", *_TOOLS)):
        return
    orders = [(_TOOLS[verb], word) for verb, words in _ORDER.findall(step) for word in words.split(" and ")]
    for index, ((name, parameter), word) in enumerate(orders):
        # Spaced as no serialiser here does it: what was sent comes back byte for byte.
        arguments = f'{{ "{parameter}":{json.dumps(NASTY_PLAY if word == "Nastiness" else word)} }}'
        yield call(name, arguments, index=index, call_id=f"call_{index}")
    for index, (name, arguments) in enumerate(_USE.findall(step)):
        yield call(name, arguments or "{}", index=index, call_id=f"call_{index}")


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
