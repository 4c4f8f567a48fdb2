"""The questions that a run asks its user with their answers, and the messages that the user sends to the run."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from callboard.calls.approval import CallWaits, is_approval
from callboard.errors import RunEnding, StorageError, UnknownInput
from callboard.runs.call_tracker import CallIds, CallTracker
from callboard.runs.log import EventLog
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GivenAnswer, RunSignals, put_message
from callboard_protocol import InputRequest, ToolRequest, UnreadMessage, UserMessage
from callboard_protocol.events import APPROVAL_PREFIX

ARRIVAL_SECONDS = 5.0
"""The longest wait for an answer that another server has accepted and stored."""

NO_SIGNALS = RunSignals(is_cancelled=False, answers={})


class Inputs:
    """The open questions of one run, by their request ids.

    An approval without an answer in time waits, if its call can wait: the run ends without a result of the call, and
    the answer begins it again.

    Args:
        stored_runs: Where other servers find the questions and store answers; None if the run is not stored.
        calls: The run's calls.
        timeout_seconds: The time for an answer to a question that names none.
        calls_can_wait: Another server could run the calls that wait.
        signals: Answers and messages that clients have sent before this server took over the run, and the questions
            that wait.
        read: The messages that the model has read before.
    """

    def __init__(
        self,
        run_id: str,
        log: EventLog,
        stored_runs: StoredRuns | None,
        calls: CallTracker,
        timeout_seconds: float,
        *,
        calls_can_wait: bool = False,
        signals: RunSignals = NO_SIGNALS,
        read: Collection[str] = (),
    ) -> None:
        self.waiting = set(signals.waiting)
        """The questions that wait for an answer without a time limit."""
        self._calls_can_wait = calls_can_wait
        self._run_id = run_id
        self._log = log
        self._stored_runs = stored_runs
        self._calls = calls
        self._timeout_seconds = timeout_seconds
        self._answers: dict[str, asyncio.Future[GivenAnswer]] = {}
        self._early = dict(signals.answers)
        self._taken: dict[str, GivenAnswer] = {}
        """The answers that the agent has received, without their values."""
        self._messages = dict(signals.messages)
        """The accepted messages, in order."""
        self._read = set(read)
        self._handed = set(read)
        """The messages that the agent has taken in order to give them to its model."""
        self._takes_messages = True

    def open(self, request: InputRequest | ToolRequest) -> InputRequest | ToolRequest | None:
        """Open a question for answers; return it with its time limit.

        Returns None if the question already has an answer, from before a takeover or because the tool is always
        allowed, or if it has waited since before the takeover.
        """
        if request.request_id in self._early:
            return None
        self._answers.setdefault(request.request_id, asyncio.get_running_loop().create_future())
        if request.request_id in self.waiting:
            return None
        update: dict[str, object] = {"timeout_seconds": request.timeout_seconds or self._timeout_seconds}
        if isinstance(request, InputRequest):
            update["can_wait"] = self._can_wait(request)
        return request.model_copy(update=update)

    async def wait(self, request: InputRequest | ToolRequest) -> Any:
        """Wait for the answer and return it; None if there is none in time. Raises `CallWaits`."""
        request_id = request.request_id
        answer = self._answers.setdefault(request_id, asyncio.get_running_loop().create_future())
        if (early := self._early.get(request_id)) is not None:
            answer.set_result(early)
        # The time in which the client runs a tool is a part of the call's duration.
        call = self._calls.find(request.tool_call_id or "") if isinstance(request, InputRequest) else None
        try:
            with call.clock.waiting() if call else nullcontext():
                given = await self._receive(request)
            if given is None:
                return None
            self._taken[request_id] = replace(given, value=None)
            return given.value
        finally:
            del self._answers[request_id]

    async def _receive(self, request: InputRequest | ToolRequest) -> GivenAnswer | None:
        """Return the answer to an open question; None if there is none in time. Raises `CallWaits`."""
        request_id = request.request_id
        answer = self._answers[request_id]
        seconds = 0 if request_id in self.waiting else request.timeout_seconds or self._timeout_seconds
        await asyncio.wait({answer}, timeout=seconds)
        given = answer.result() if answer.done() else None
        if given is not None and given.value is not None:
            return given
        if isinstance(request, InputRequest) and await self._let_wait(request):
            self.waiting.add(request_id)
            raise CallWaits
        if given is None and not await self._close(request_id):
            await asyncio.wait({answer}, timeout=ARRIVAL_SECONDS)
        return answer.result() if answer.done() else given

    def _can_wait(self, request: InputRequest) -> bool:
        is_asked_once = is_approval(request.request_id)
        return self._calls_can_wait and is_asked_once and self._calls.can_wait(request.tool_call_id or "")

    async def _let_wait(self, request: InputRequest) -> bool:
        """Let an approval without an answer in time wait; return False if its call cannot wait."""
        if not self._can_wait(request) or (stored_runs := self._shared) is None:
            return False
        # The question must be stored first.
        await self._log.wait_until_stored()
        try:
            # `StoredRuns.append` finds an answer that another server has accepted in the meantime.
            await stored_runs.let_wait(self._run_id, request.request_id)
        except StorageError:
            return False
        return True

    @property
    def _shared(self) -> StoredRuns | None:
        """Where other servers find the questions and store answers; None if the run is not stored."""
        return self._stored_runs if self._log.is_stored else None

    async def _close(self, request_id: str) -> bool:
        """Close a question on all servers; return False if another server has accepted an answer already."""
        if (stored_runs := self._shared) is None:
            return True
        try:
            return await stored_runs.answer(self._run_id, request_id, GivenAnswer(None))
        except StorageError:
            return True

    async def answer(self, request_id: str, given: GivenAnswer) -> None:
        """Answer a question.

        Raises `UnknownInput` if it is not open, or already answered on any server, and `StorageError` if another server
        may take the run over and would not learn of the answer.
        """
        if stored_runs := self._shared:
            try:
                if not await stored_runs.answer(self._run_id, request_id, given):
                    raise unknown_input(request_id)
            except StorageError:
                if not await stored_runs.is_alone():
                    raise
            else:
                self.accept({request_id: given})
                return
        answer = self._answers.get(request_id)
        if answer is None or answer.done():
            raise unknown_input(request_id)
        answer.set_result(given)

    def accept(self, answers: Mapping[str, GivenAnswer]) -> None:
        """Accept answers that other servers stored, also to questions that are not asked yet."""
        for request_id, given in answers.items():
            answer = self._answers.get(request_id)
            if answer is None:
                # Each read of the database has all answers of the run, also those that the agent has received.
                if request_id not in self._taken:
                    self._early[request_id] = given
            elif not answer.done():
                answer.set_result(given)

    async def add_message(self, content: str) -> str:
        """Accept a message of the user for the model, and return its id.

        Raises `RunEnding`, `RequestTooLarge`, `StorageError`.
        """
        if stored_runs := self._shared:
            # With the earlier ones, which other servers may have accepted.
            message_id, messages = await stored_runs.add_message(self._run_id, content)
            self.accept_messages(messages)
            return message_id
        if self._log.closed or not self._takes_messages:
            raise RunEnding(self._run_id)
        return put_message(self._messages, content, uuid4().hex)

    def accept_messages(self, messages: Mapping[str, str]) -> None:
        """Accept messages of the user, also those that other servers stored."""
        # Each read of the database has all messages of the run.
        self._messages |= messages

    async def take_messages(self, *, is_last: bool = False) -> Sequence[UserMessage]:
        """Return the messages that the agent has not taken, in order; see `TakeMessages`."""
        if is_last and self._takes_messages:
            self.accept_messages(await self._log.close_messages(self._handed))
            self._takes_messages = not self._messages.keys() <= self._handed
        new = [one for one in self._messages if one not in self._handed]
        self._handed.update(new)
        return [UserMessage(message_id=one, content=self._messages[one]) for one in new]

    async def end_messages(self) -> Sequence[UnreadMessage]:
        """Accept no more messages; return those that the model has not read, in order."""
        while await self.take_messages(is_last=True):
            pass
        unread = [one for one in self._messages if one not in self._read]
        return [UnreadMessage(message_id=one, content=self._messages[one]) for one in unread]

    def note_read(self, message_id: str) -> None:
        """Note that the model reads a message."""
        self._read.add(message_id)

    async def answer_early(self, request_id: str, given: GivenAnswer) -> None:
        """Answer a question that is not asked yet, unless the user has answered it: at another server, or before.

        Raises `StorageError`.
        """
        if request_id in self.waiting:
            # Stored, because the question is listed among the waiting approvals until it has an answer.
            with suppress(UnknownInput):
                await self.answer(request_id, given)
            return
        early = self._early.get(request_id)
        if early is None or early.value is None:
            self.accept({request_id: given})

    def list_waiting_calls(self) -> list[str]:
        """Return the ids of the open calls that wait for their approval."""
        return [call.tool_call_id for call in self._calls if f"{APPROVAL_PREFIX}{call.tool_call_id}" in self.waiting]

    def list_asked_approvals(self) -> list[str]:
        """Return the ids of the open approvals, if they can wait."""
        return [one for one in self._answers if is_approval(one)] if self._calls_can_wait else []

    def end(self) -> None:
        """Free the run's calls, because the run has ended here."""
        # The run and its questions stay for `keep_run_seconds`; the calls are not needed any more.
        self._calls = CallTracker(CallIds())

    def was_asked(self, request: InputRequest | ToolRequest) -> bool:
        """Return False if the run waited for an answer, but no user could be shown the question."""
        taken = self._taken.get(request.request_id)
        return taken is None or taken.asked

    def is_from_inspector(self, request: InputRequest) -> bool:
        """Return whether a person in the inspector gave the answer to a question."""
        taken = self._taken.get(request.request_id)
        return taken is not None and taken.in_inspector

    def find_answer_key(self, request_id: str) -> str | None:
        """Return the name of the API key that a question was answered with; None if unknown."""
        taken = self._taken.get(request_id)
        return taken.key if taken else None


def unknown_input(request_id: str) -> UnknownInput:
    """Return the error for an answer to a question that is not open."""
    return UnknownInput(f"there is no open question {request_id!r}: it was answered, timed out or never asked")
