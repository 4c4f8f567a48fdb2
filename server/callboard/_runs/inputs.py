"""The questions that a run asks its user, and their answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from callboard.errors import UnknownInput
from callboard.storage import GivenAnswer
from callboard_protocol import InputRequest

ARRIVAL_SECONDS = 5.0
"""The longest wait for an answer that another server has accepted and stored."""


async def _close_locally(_: str) -> bool:
    return True


class Inputs:
    """The open questions of one run, by their request ids."""

    def __init__(self, timeout_seconds: float) -> None:
        self.close: Callable[[str], Awaitable[bool]] = _close_locally
        """Closes a question at other servers; returns False if one of them has accepted an answer already."""
        self._timeout_seconds = timeout_seconds
        self._answers: dict[str, asyncio.Future[GivenAnswer]] = {}
        self._early: dict[str, GivenAnswer] = {}
        self._keys: dict[str, str | None] = {}
        self._not_asked: set[str] = set()
        self._waits: dict[str, list[tuple[float, float | None]]] = {}

    def open(self, request: InputRequest) -> InputRequest | None:
        """Open a question for answers; return it with its time limit.

        Returns None if the question was answered before this server took over the run.
        """
        if request.request_id in self._early:
            return None
        self._answers.setdefault(request.request_id, asyncio.get_running_loop().create_future())
        return request.model_copy(update={"timeout_seconds": request.timeout_seconds or self._timeout_seconds})

    async def wait(self, request: InputRequest) -> Any:
        """Wait for the answer and return it; None if there is none in time."""
        request_id = request.request_id
        if self.open(request) is None:
            return self._take_value(request_id, self._early[request_id])
        answer = self._answers[request_id]
        began_at_seconds = time.monotonic()
        waits = self._waits.setdefault(request.tool_call_id or "", [])
        waits.append((began_at_seconds, None))
        try:
            await asyncio.wait({answer}, timeout=request.timeout_seconds or self._timeout_seconds)
            if not answer.done() and not await self.close(request_id):
                await asyncio.wait({answer}, timeout=ARRIVAL_SECONDS)
            return self._take_value(request_id, answer.result()) if answer.done() else None
        finally:
            waits.remove((began_at_seconds, None))
            waits.append((began_at_seconds, time.monotonic()))
            del self._answers[request_id]

    def find_answer_key(self, request_id: str) -> str | None:
        """Return the name of the API key that a question was answered with; None if unknown."""
        return self._keys.get(request_id)

    def waited_seconds(self, tool_call_id: str) -> float:
        """Return how long a call has waited for answers of the user; `tool_call_id` is the agent's id of the call."""
        now = time.monotonic()
        return sum((now if end is None else end) - begin for begin, end in self._waits.get(tool_call_id, ()))

    def was_asked(self, request: InputRequest) -> bool:
        """Return False if the question was waited for, but could not be shown to anybody."""
        return request.request_id not in self._not_asked

    def answer(self, request_id: str, given: GivenAnswer) -> None:
        """Answer a question. Raises `UnknownInput` if it is not open or already answered."""
        answer = self._answers.get(request_id)
        if answer is None or answer.done():
            raise unknown_input(request_id)
        answer.set_result(given)

    def accept(self, answers: Mapping[str, GivenAnswer]) -> None:
        """Accept answers that other servers stored, also to questions that are not asked yet."""
        for request_id, given in answers.items():
            answer = self._answers.get(request_id)
            if answer is None:
                self._early[request_id] = given
            elif not answer.done():
                answer.set_result(given)

    def _take_value(self, request_id: str, given: GivenAnswer) -> Any:
        self._keys[request_id] = given.key
        if not given.asked:
            self._not_asked.add(request_id)
        return given.value


def unknown_input(request_id: str) -> UnknownInput:
    """Return the error for an answer to a question that is not open."""
    return UnknownInput(f"there is no open question {request_id!r}: it was answered, timed out or never asked")
