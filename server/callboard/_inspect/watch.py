"""`RunWatch`, an observer that keeps the runs of this server in memory, for the inspector.

For each run it has the texts and the calls with their times, and the requests that models were sent, which the store
does not have. Memory is bounded: the oldest ended runs are dropped first, then the oldest requests of running runs. It
does not see runs of other servers, and forgets a run that is left to another server.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from callboard._inspect.shown import RunState, SentRequest, ShownCall, ShownRun, read_ending
from callboard._openwebui.requests import strip_context
from callboard._redaction import Redaction, current
from callboard.calls import EndedCall, follow_call
from callboard.errors import StorageError
from callboard.models import ChatDict, ModelRequest, content_text
from callboard.observers import (
    ModelAnswered,
    ModelAsked,
    Observation,
    ObservedRun,
    RunLeft,
    RunPrepared,
    RunTakenOver,
)
from callboard.storage import ANY_USER, OWN_CHAT_PREFIX, Store
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    InputRequest,
    Message,
    Rewind,
    RunStart,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)

LOOK_SECONDS = 1.0
"""The time between two checks for chats that were deleted elsewhere."""
MAX_RUNS = 500
MAX_CHARS = 32 * 1024 * 1024
"""The most characters of all runs together, in texts and in schemas of tools."""
CALL_CHARS = 500
"""The size of a call without its texts, in characters."""
VALUE_CHARS = 40
"""The size of each value in a message or schema without its text, in characters."""
QUESTION_CHARS = 2_000
"""The characters of the question that are kept separately from the messages."""


@dataclass(slots=True)
class WatchedRun:
    """A run that this server has watched from its first event.

    `given` is the conversation that the agent started with; it is dropped when a request has the same messages.
    `left_out` are the newest of the `left_out_count` messages that did not fit. `texts` are the texts before the calls
    of each round, by the round's index. `pieces` is the text since the last call; a rewind does not remove the first
    `settled` pieces. `asked` is the beginning of the user's question.
    """

    run: ObservedRun
    began_at: float
    redaction: Redaction
    asked: str = ""
    calls: dict[str, ShownCall] = field(default_factory=dict)
    requests: list[SentRequest] = field(default_factory=list)
    given: tuple[ChatDict, ...] = ()
    left_out: tuple[ChatDict, ...] = ()
    left_out_count: int = 0
    questions: dict[str, InputRequest] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    settled: int = 0
    status: str = ""
    ended_at: float | None = None
    ending: Done | Error | None = None
    chars: int = 0

    def show(self, question: str = "") -> ShownRun:
        """Return the run as a page shows it; `question` is the question as the store has it."""
        calls = tuple(self.calls.values())
        state: RunState = "waiting" if self.questions else "running"
        reason = ""
        if self.ending is not None:
            state, reason = read_ending(self.ending)
        return ShownRun(
            run_id=self.run.run_id,
            agent_id=self.run.agent_id,
            user_id=self.run.user_id,
            user_name=self.run.user_name,
            chat_id=self.run.chat_id,
            state=state,
            began_at=self.began_at,
            ended_at=self.ended_at,
            reason=reason,
            question=question or self.redaction(self.asked),
            texts=dict(self.texts),
            text="".join(self.pieces),
            calls=calls,
            call_count=len(calls),
            error_count=sum(call.is_failed for call in calls),
            requests=tuple(self.requests),
            questions=tuple(self.questions.values()),
            status=self.status,
            task=self.run.task,
        )

    def find_sent_messages(self, index: int) -> list[ChatDict] | None:
        """Return the messages of a request, None if they have been dropped."""
        first = index
        while self.requests[first].shared and first:
            first -= 1
        messages: list[ChatDict] = []
        for request in self.requests[first : index + 1]:
            if not request.is_kept:
                return None
            messages = [*messages[: request.shared], *request.tail]
        return messages


class RunWatch:
    """The watched runs, oldest first; `observe` is the observer."""

    def __init__(self, max_runs: int = MAX_RUNS, max_chars: int = MAX_CHARS) -> None:
        self._runs: dict[str, WatchedRun] = {}
        self._max_runs = max_runs
        self._max_chars = max_chars
        self._chars = 0
        self._looked_at = -LOOK_SECONDS
        self._last_messages: dict[str, Sequence[ChatDict]] = {}

    def __iter__(self) -> Iterator[WatchedRun]:
        return iter(tuple(self._runs.values()))

    def find(self, run_id: str) -> WatchedRun | None:
        """Return a watched run, None if it is unknown or was dropped."""
        return self._runs.get(run_id)

    def forget_chat(self, chat_id: str) -> None:
        """Forget the ended runs of a chat."""
        for watched in self:
            if watched.run.chat_id == chat_id and watched.ended_at is not None:
                self._drop(watched)

    def forget_user(self, user_id: str) -> None:
        """Forget the ended runs of a user."""
        for watched in self:
            if watched.run.user_id == user_id and watched.ended_at is not None:
                self._drop(watched)

    async def forget_gone(self, store: Store) -> None:
        """Forget the ended runs of chats that another server or a command has deleted."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        # Chats that no client has named are deleted together with their turns; tasks are not stored.
        kept = {
            watched.run.chat_id
            for watched in self
            if watched.ended_at is not None
            and watched.run.task is None
            and watched.run.chat_id is not None
            and not watched.run.chat_id.startswith(OWN_CHAT_PREFIX)
        }
        if kept:
            with suppress(StorageError):
                for chat_id in await store.overview(ANY_USER).find_missing(kept):
                    self.forget_chat(chat_id)

    def observe(self, run: ObservedRun, what: Observation) -> None:
        """Add an observation to its run."""
        watched = self._runs.get(run.run_id)
        if isinstance(what, RunStart | RunTakenOver):
            watched = self._begin(run)
        elif isinstance(what, RunLeft) and watched is not None:
            self._drop(watched)
            return
        if watched is None:
            # The run was left to another server, and its agent could not be stopped.
            return
        now = time.time()
        before = watched.chars
        match what:
            case Message():
                watched.pieces.append(what.content)
                watched.chars += len(what.content)
            case RunPrepared():
                watched.given = tuple(what.messages)
                watched.asked = _find_question(what.messages)
                watched.left_out = tuple(what.left_out)
                watched.left_out_count = what.left_out_count
                watched.chars += count_chars(*watched.given, *watched.left_out)
            case ModelAsked():
                self._take_request(watched, what, now)
            case ModelAnswered():
                _take_answer(watched, what, now)
            case _:
                _take_event(watched, what, now)
        self._chars += watched.chars - before
        if self._chars > self._max_chars or len(self._runs) > self._max_runs:
            self._make_room()
        if watched.ended_at is not None:
            self._last_messages.pop(run.run_id, None)

    def _begin(self, run: ObservedRun) -> WatchedRun:
        if old := self._runs.get(run.run_id):
            self._drop(old)
        watched = self._runs[run.run_id] = WatchedRun(run, time.time(), current.get() or Redaction())
        return watched

    def _take_request(self, watched: WatchedRun, asked: ModelAsked, now: float) -> None:
        # This is the agent's own task, so its redaction knows the secrets that the tools have added.
        watched.redaction = current.get() or watched.redaction
        sent = SentRequest(len(watched.requests), asked.model, now, asked.messages, asked.tools)
        watched.requests.append(sent)
        if (request := asked.request) is not None:
            last = self._last_messages.get(watched.run.run_id, ())
            _keep_messages(sent, request, last)
            # The request has the same messages.
            watched.chars -= count_chars(*watched.given)
            watched.given = ()
            watched.chars += count_chars(*sent.tail)
            self._last_messages[watched.run.run_id] = tuple(request.messages)
            _keep_offer(watched, sent, request)

    def _make_room(self) -> None:
        for watched in self:
            if len(self._runs) <= self._max_runs and self._chars <= self._max_chars:
                return
            if watched.ended_at is not None:
                self._drop(watched)
        for watched in self:
            if self._chars > self._max_chars:
                freed = count_chars(*watched.given, *watched.left_out)
                watched.given = ()
                watched.left_out = ()
                watched.chars -= freed
                self._chars -= freed
            for index in range(len(watched.requests)):
                if self._chars <= self._max_chars:
                    return
                freed = _drop_request(watched.requests, index)
                watched.chars -= freed
                self._chars -= freed

    def _drop(self, watched: WatchedRun) -> None:
        self._chars -= watched.chars
        del self._runs[watched.run.run_id]
        self._last_messages.pop(watched.run.run_id, None)


def _find_question(messages: Sequence[ChatDict]) -> str:
    """Return the beginning of the last message of the user."""
    asked = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    return strip_context(content_text(asked.get("content")))[:QUESTION_CHARS] if asked else ""


def count_chars(*values: object) -> int:
    """Return the approximate size of JSON values, in characters."""
    chars = 0
    todo = [*values]
    while todo:
        chars += VALUE_CHARS
        match todo.pop():
            case str() as text:
                chars += len(text)
            case Mapping() as members:
                todo += [*members, *members.values()]
            case (list() | tuple()) as members:
                todo += members
            case _:
                pass
    return chars


def _keep_messages(sent: SentRequest, request: ModelRequest, last: Sequence[ChatDict]) -> None:
    shared = 0
    # A conversation grows at its end, so only the new messages are kept. The comparison is fast, because the texts of
    # the others are the same objects.
    for before, now in zip(last, request.messages, strict=False):
        if before != now:
            break
        shared += 1
    sent.shared = shared
    sent.tail = tuple(request.messages[shared:])
    sent.is_kept = True


def _keep_offer(watched: WatchedRun, sent: SentRequest, request: ModelRequest) -> None:
    """Keep the options and tools of a request; equal tools of several requests are one object."""
    sent.options = dict(request.options)
    watched.chars += count_chars(*sent.options.items())
    offered = tuple(request.tools)
    kept = next((one.offered for one in reversed(watched.requests) if one.offered == offered), None)
    if kept is None:
        watched.chars += count_chars(*offered)
    sent.offered = offered if kept is None else kept


def _drop_request(requests: Sequence[SentRequest], index: int) -> int:
    """Drop the messages, tools and options of a request, and return the characters that this frees."""
    request = requests[index]
    freed = count_chars(*request.tail, *request.options.items())
    if not any(later.offered is request.offered for later in requests[index + 1 :]):
        freed += count_chars(*request.offered)
    # Later requests begin with its messages, so they are incomplete too.
    request.is_kept = False
    request.tail = ()
    request.offered = ()
    request.options = {}
    return freed


def _take_answer(watched: WatchedRun, answer: ModelAnswered, now: float) -> None:
    for sent in reversed(watched.requests):
        if sent.answer is None and sent.model == answer.model:
            # Without the pieces of the answer: the text of the run has them.
            sent.answer = replace(answer, deltas=())
            sent.answered_at = now
            return


def _take_event(watched: WatchedRun, event: Observation, now: float) -> None:
    match event:
        case CallEvent():
            _take_call_event(watched, event)
        case InputRequest():
            watched.questions[event.request_id] = event
        case Status():
            watched.status = event.content
        case Rewind():
            watched.chars -= sum(map(len, watched.pieces[watched.settled :]))
            del watched.pieces[watched.settled :]
        case Done() | Error():
            watched.ended_at = now
            watched.ending = event
            watched.questions.clear()
        case _:
            pass


def _take_call_event(watched: WatchedRun, event: CallEvent) -> None:
    call = follow_call(watched.calls, event)
    match event:
        case ToolCallStart():
            if watched.pieces:
                watched.texts[event.round_index] = watched.texts.get(event.round_index, "") + "".join(watched.pieces)
                watched.pieces.clear()
            watched.settled = 0
            watched.chars += CALL_CHARS + count_chars(event.tool_args)
        case ToolStatus() if call:
            watched.chars += len(event.data.message)
        case ToolCallComplete() | ToolCallError():
            watched.settled = len(watched.pieces)
            if isinstance(call, EndedCall):
                watched.chars += len(call.result_text) + count_chars(*call.files, *call.embeds)
            questions = [one for one, asked in watched.questions.items() if asked.tool_call_id == event.tool_call_id]
            for request_id in questions:
                del watched.questions[request_id]
        case _:
            pass
