"""Who listens to a run as the pipe does: resumes where the stream is cut, waits longer each time, answers questions."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from callboard_protocol import (
    Decoder,
    Event,
    InputRequest,
    Parked,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    decode,
)
from callboard_protocol.events import APPROVAL_PREFIX, TERMINAL
from tests.faults.plans import WAYS, PlannedCall

RESUME_WAITS_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0)
RESUME_JITTER = 0.25
TIMES_SECONDS = httpx.Timeout(60, connect=5)
"""These are as in the pipe."""
RESUME_SECONDS = 60.0
"""The pipe gives up after 20 s; here servers start on a busy machine, several times in a row."""
MAY_PASS = (408, 425, 429)
ANSWER_PAUSE_SECONDS = 0.2
LATER_SECONDS = (0.0, 0.3, 1.5, 6.0)
"""How long a call waits for its answer; meanwhile servers that were killed are back."""
STEPS = ("asked", "parked", "answered", "call ended")
"""The steps of a run that `on_step` gets, with the run's id."""

Send = Callable[[httpx.AsyncClient], Awaitable[bool]]


class LostAnswer(Exception):
    """People would see an error: a server says that there is no such run, or none is there for too long."""


@dataclass
class Listener:
    """A reader of one run; `frames` are the bytes as they came, `times` when they did (monotonic seconds).

    `planned` has how the user answers the question about a call, by its argument `order`; without it nobody answers.
    """

    url: str
    body: dict[str, Any]
    planned: Mapping[str, PlannedCall] | None = None
    on_step: Callable[[str, str], None] | None = None
    frames: list[bytes] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    asked: set[str] = field(default_factory=set)
    _orders: dict[str, str] = field(default_factory=dict)
    _answering: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the last event was seen."""
        return bool(self.events) and isinstance(self.events[-1], TERMINAL)

    @property
    def is_parked(self) -> bool:
        """Whether the run waits, as far as was seen."""
        return bool(self.events) and isinstance(self.events[-1], Parked)

    @property
    def run_url(self) -> str:
        return f"{self.url}/v1/runs/{self.body['run_id']}"

    @property
    def user(self) -> dict[str, str]:
        return {"user_id": self.body["user"]["id"]}

    async def start(self) -> None:
        """Start the run, and listen to its end; raises `LostAnswer`."""
        try:
            await self._listen(is_new=True)
        finally:
            for task in self._answering.values():
                task.cancel()

    async def hop_after(self, other: "Listener", chance: random.Random) -> None:
        """Listen to what another has begun, each time to a few events and then at any server again."""
        await other.has_begun.wait()
        while not self.ended:
            await self._listen(at_most=chance.randint(1, 5))

    async def _listen(self, *, is_new: bool = False, at_most: int = 0) -> None:
        tries = 0
        lost_at = time.monotonic()
        enough = len(self.frames) + at_most if at_most else 0
        while not self.ended:
            before = len(self.frames)
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(timeout=TIMES_SECONDS, verify=False) as client:
                    # A run is started once, however often it is asked for by the same id.
                    sending = self._start(client) if is_new and not self.frames else self._resume(client)
                    await self._read(sending, enough)
            if self.ended or (enough and len(self.frames) >= enough):
                return
            if len(self.frames) > before or self.is_parked:
                tries = int(self.is_parked)
                lost_at = time.monotonic()
            wait_seconds = RESUME_WAITS_SECONDS[min(tries, len(RESUME_WAITS_SECONDS) - 1)]
            if time.monotonic() + wait_seconds > lost_at + RESUME_SECONDS:
                raise LostAnswer(f"no server for {RESUME_SECONDS:g} s after event {len(self.frames)}")
            await asyncio.sleep(wait_seconds * random.uniform(1 - RESUME_JITTER, 1 + RESUME_JITTER))
            tries += 1

    def _start(self, client: httpx.AsyncClient) -> Any:
        return client.stream("POST", f"{self.url}/v1/runs", json=self.body)

    def _resume(self, client: httpx.AsyncClient) -> Any:
        headers = {"Last-Event-ID": str(len(self.frames))}
        return client.stream("GET", f"{self.run_url}/events", headers=headers, params=self.user)

    async def _read(self, sending: Any, enough: int) -> None:
        async with sending as response:
            status = response.status_code
            if 400 <= status < 500 and status not in MAY_PASS:
                answer = (await response.aread()).decode(errors="replace")
                raise LostAnswer(f"{status} after event {len(self.frames)}: {answer}")
            if status == 200:
                async for frame in _split(response):
                    self._take(frame)
                    if enough and len(self.frames) >= enough:
                        return

    def _take(self, frame: bytes) -> None:
        [parsed] = Decoder().feed(frame)
        event = decode(parsed)
        assert event is not None
        if int(parsed.id) != len(self.frames) + 1:
            self.problems.append(f"event {parsed.id} follows event {len(self.frames)}")
        if self.ended:
            self.problems.append(f"event {parsed.id} follows the last")
        self.frames.append(frame)
        self.events.append(event)
        self.times.append(time.monotonic())
        self.has_begun.set()
        match event:
            case ToolCallStart(tool_call_id=call_id, tool_args=dict(arguments)):
                self._orders[call_id] = arguments["order"]
            case InputRequest(tool_call_id=str(call_id)) if self.planned:
                self._tell_step("asked")
                self.asked.add(self._orders[call_id])
                self._stop_answering(call_id)
                answering = self._answer(event.request_id, self.planned[self._orders[call_id]])
                self._answering[call_id] = asyncio.create_task(answering)
            case Parked():
                self._tell_step("parked")
            case ToolCallComplete() | ToolCallError():
                self._tell_step("call ended")
                self._stop_answering(event.tool_call_id)
            case _:
                pass

    def _stop_answering(self, call_id: str) -> None:
        if task := self._answering.pop(call_id, None):
            task.cancel()

    def _tell_step(self, step: str) -> None:
        if self.on_step:
            self.on_step(step, self.body["run_id"])

    async def _answer(self, request_id: str, call: PlannedCall) -> None:
        """Answer a question as it is planned."""
        at_once, _later, in_inspector, at_two_places = WAYS
        if call.way != at_once:
            unasked = {"request_id": request_id, "value": None, "asked": False}
            await self._send(partial(self._post_answer, unasked), lambda: self.is_parked)
            await asyncio.sleep(random.choice(LATER_SECONDS))
        async with asyncio.TaskGroup() as sending:
            if call.way in (in_inspector, at_two_places):
                presses_allow = call.is_agreed == (call.way == in_inspector)
                press = partial(self._press, request_id, "yes" if presses_allow else "no")
                sending.create_task(self._send(press))
            if call.way != in_inspector:
                answer = {"request_id": request_id, "value": call.is_agreed}
                sending.create_task(self._send(partial(self._post_answer, answer)))

    async def _send(self, send: Send, is_enough: Callable[[], bool] = bool) -> None:
        """Send an answer until a server takes it, it `is_enough`, or the question is asked anew."""
        while not is_enough():
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(timeout=TIMES_SECONDS, verify=False) as client:
                    if await send(client):
                        return
            await asyncio.sleep(ANSWER_PAUSE_SECONDS)

    async def _post_answer(self, answer: dict[str, Any], client: httpx.AsyncClient) -> bool:
        sent = await client.post(f"{self.run_url}/input", json=answer, params=self.user)
        is_taken = sent.status_code == httpx.codes.ACCEPTED
        if is_taken and answer["value"] is not None:
            self._tell_step("answered")
        return is_taken

    async def _press(self, request_id: str, value: str, client: httpx.AsyncClient) -> bool:
        """Press *Allow* or *Deny* in the inspector: again as long as it lists the call."""
        page = (await client.get(f"{self.url}/inspect/")).text
        if request_id.removeprefix(APPROVAL_PREFIX) in page:
            [token] = set(re.findall('name="token" value="([^"]+)"', page))
            query = {"run": self.body["run_id"], "of": self.user["user_id"], "question": request_id, "value": value}
            sent = await client.post(f"{self.url}/inspect/approve", params=query, data={"token": token})
            if sent.has_redirect_location:
                self._tell_step("answered")
        return False


async def _split(response: httpx.Response) -> AsyncIterator[bytes]:
    """The frames of a stream as they were sent, without pings."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n\n")
        for frame in whole:
            if not frame.startswith(b":"):
                yield frame + b"\n\n"
