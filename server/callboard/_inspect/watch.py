"""The watch: what is seen of runs while they go on, and what the store does not keep.

An observer. Of each run it has the events, put together, with the times at which they came, and what each model was
sent. It lasts as long as the process and is bounded: the oldest runs that have ended go first, then the oldest requests
of those that go on. Other servers' runs it does not see, and a run that is left to one it forgets.
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
"""The seconds between two looks for chats that were forgotten elsewhere."""
MAX_RUNS = 500
MAX_CHARS = 32 * 1024 * 1024
"""The characters that the watch keeps, of all runs together: of texts, and of schemas of tools."""
CALL_CHARS = 500
"""What a call takes beside its texts."""
VALUE_CHARS = 40
"""What each value within a message, or a schema, takes beside its text."""
QUESTION_CHARS = 2_000
"""The characters that are kept of a question, beside the messages that hold it."""


@dataclass(slots=True)
class SeenRun:
    """A run as it was seen from its first event on.

    `given` is the conversation that its agent began with, where the agent does not tell what its model is sent;
    `left_out` the newest of the `left_out_count` messages that had no place in it. `texts` are what was said before
    the calls of a round, by the round's index, `pieces` what has been said since, of which the first `settled` are not
    taken back. `asked` is the beginning of what the user typed.
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

    def sent(self, index: int) -> list[ChatDict] | None:
        """Return the messages of a request, None where they are not kept."""
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
    """The runs that were seen, oldest first; `tell` is the observer."""

    def __init__(self, max_runs: int = MAX_RUNS, max_chars: int = MAX_CHARS) -> None:
        self._runs: dict[str, SeenRun] = {}
        self._max_runs = max_runs
        self._max_chars = max_chars
        self._chars = 0
        self._looked_at = -LOOK_SECONDS
        self._last_messages: dict[str, Sequence[ChatDict]] = {}

    def __iter__(self) -> Iterator[SeenRun]:
        return iter(tuple(self._runs.values()))

    def find(self, run_id: str) -> SeenRun | None:
        """Return what was seen of a run, None where it is nothing, or no more."""
        return self._runs.get(run_id)

    def forget_chat(self, chat_id: str) -> None:
        """Forget the runs of a chat that have ended."""
        for seen in self:
            if seen.run.chat_id == chat_id and seen.ended_at is not None:
                self._drop(seen)

    def forget_user(self, user_id: str) -> None:
        """Forget the runs of a user that have ended."""
        for seen in self:
            if seen.run.user_id == user_id and seen.ended_at is not None:
                self._drop(seen)

    async def forget_gone(self, store: Store) -> None:
        """Forget the runs of chats that are no longer there, whoever forgot them: another server, or a command."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        # Chats that no client has named are gone with their turns, and tasks are kept nowhere.
        kept = {
            seen.run.chat_id
            for seen in self
            if seen.ended_at is not None
            and seen.run.task is None
            and seen.run.chat_id is not None
            and not seen.run.chat_id.startswith(OWN_CHAT_PREFIX)
        }
        if kept:
            with suppress(StorageError):
                for chat_id in await store.overview(ANY_USER).find_missing(kept):
                    self.forget_chat(chat_id)

    def tell(self, run: ObservedRun, what: Observation) -> None:
        """Take note of what a run does."""
        seen = self._runs.get(run.run_id)
        if isinstance(what, RunStart | RunTakenOver):
            seen = self._begin(run)
        elif isinstance(what, RunLeft) and seen is not None:
            self._drop(seen)
            return
        if seen is None:
            # The run was left, and an agent that could not be stopped is still at work.
            return
        now = time.time()
        before = seen.chars
        match what:
            case Message():
                seen.pieces.append(what.content)
                seen.chars += len(what.content)
            case RunPrepared():
                seen.given = tuple(what.messages)
                seen.asked = _find_question(what.messages)
                seen.left_out = tuple(what.left_out)
                seen.left_out_count = what.left_out_count
                seen.chars += count_chars(*seen.given, *seen.left_out)
            case ModelAsked():
                self._take_request(seen, what, now)
            case ModelAnswered():
                _take_answer(seen, what, now)
            case _:
                _take_event(seen, what, now)
        self._chars += seen.chars - before
        if self._chars > self._max_chars or len(self._runs) > self._max_runs:
            self._make_room()
        if seen.ended_at is not None:
            self._last_messages.pop(run.run_id, None)

    def _begin(self, run: ObservedRun) -> SeenRun:
        if old := self._runs.get(run.run_id):
            self._drop(old)
        seen = self._runs[run.run_id] = SeenRun(run, time.time(), current.get() or Redaction())
        return seen

    def _take_request(self, seen: SeenRun, asked: ModelAsked, now: float) -> None:
        # The agent's own task: what its tools named as secret is known to the redaction that is current there.
        seen.redaction = current.get() or seen.redaction
        sent = SentRequest(len(seen.requests), asked.model, now, asked.messages, asked.tools)
        seen.requests.append(sent)
        if (request := asked.request) is not None:
            last = self._last_messages.get(seen.run.run_id, ())
            _keep_messages(sent, request, last)
            # The request has all of it.
            seen.chars -= count_chars(*seen.given)
            seen.given = ()
            seen.chars += count_chars(*sent.tail)
            self._last_messages[seen.run.run_id] = tuple(request.messages)
            _keep_offer(seen, sent, request)

    def _make_room(self) -> None:
        for seen in self:
            if len(self._runs) <= self._max_runs and self._chars <= self._max_chars:
                return
            if seen.ended_at is not None:
                self._drop(seen)
        for seen in self:
            if self._chars > self._max_chars:
                freed = count_chars(*seen.given, *seen.left_out)
                seen.given = ()
                seen.left_out = ()
                seen.chars -= freed
                self._chars -= freed
            for index in range(len(seen.requests)):
                if self._chars <= self._max_chars:
                    return
                freed = _let_go(seen.requests, index)
                seen.chars -= freed
                self._chars -= freed

    def _drop(self, seen: SeenRun) -> None:
        self._chars -= seen.chars
        del self._runs[seen.run.run_id]
        self._last_messages.pop(seen.run.run_id, None)


def _find_question(messages: Sequence[ChatDict]) -> str:
    """Return the beginning of what the user typed last."""
    asked = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    return strip_context(content_text(asked.get("content")))[:QUESTION_CHARS] if asked else ""


def count_chars(*values: object) -> int:
    """Return about how many characters values take that JSON can hold: messages, schemas, arguments."""
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
    # A conversation grows at its end: what was sent before is not kept a second time. Its texts are the same objects,
    # so this compares hardly a character.
    for before, now in zip(last, request.messages, strict=False):
        if before != now:
            break
        shared += 1
    sent.shared = shared
    sent.tail = tuple(request.messages[shared:])
    sent.is_kept = True


def _keep_offer(seen: SeenRun, sent: SentRequest, request: ModelRequest) -> None:
    """Keep what a request offers beside its messages; tools that another request of the run has are not kept twice."""
    sent.options = dict(request.options)
    seen.chars += count_chars(*sent.options.items())
    offered = tuple(request.tools)
    kept = next((one.offered for one in reversed(seen.requests) if one.offered == offered), None)
    if kept is None:
        seen.chars += count_chars(*offered)
    sent.offered = offered if kept is None else kept


def _let_go(requests: Sequence[SentRequest], index: int) -> int:
    """Let go of what one of the requests sent, oldest first; return how many characters that frees."""
    request = requests[index]
    freed = count_chars(*request.tail, *request.options.items())
    if not any(later.offered is request.offered for later in requests[index + 1 :]):
        freed += count_chars(*request.offered)
    # Those after it begin with its messages.
    request.is_kept = False
    request.tail = ()
    request.offered = ()
    request.options = {}
    return freed


def _take_answer(seen: SeenRun, answer: ModelAnswered, now: float) -> None:
    for sent in reversed(seen.requests):
        if sent.answer is None and sent.model == answer.model:
            # Its text has come as the run's already, in pieces of its own.
            sent.answer = replace(answer, deltas=())
            sent.answered_at = now
            return


def _take_event(seen: SeenRun, event: Observation, now: float) -> None:
    match event:
        case CallEvent():
            _take_call_event(seen, event)
        case InputRequest():
            seen.questions[event.request_id] = event
        case Status():
            seen.status = event.content
        case Rewind():
            seen.chars -= sum(map(len, seen.pieces[seen.settled :]))
            del seen.pieces[seen.settled :]
        case Done() | Error():
            seen.ended_at = now
            seen.ending = event
            seen.questions.clear()
        case _:
            pass


def _take_call_event(seen: SeenRun, event: CallEvent) -> None:
    call = follow_call(seen.calls, event)
    match event:
        case ToolCallStart():
            if seen.pieces:
                seen.texts[event.round_index] = seen.texts.get(event.round_index, "") + "".join(seen.pieces)
                seen.pieces.clear()
            seen.settled = 0
            seen.chars += CALL_CHARS + count_chars(event.tool_args)
        case ToolStatus() if call:
            seen.chars += len(event.data.message)
        case ToolCallComplete() | ToolCallError():
            seen.settled = len(seen.pieces)
            if isinstance(call, EndedCall):
                seen.chars += len(call.result_text) + count_chars(*call.files)
            questions = [one for one, asked in seen.questions.items() if asked.tool_call_id == event.tool_call_id]
            for request_id in questions:
                del seen.questions[request_id]
        case _:
            pass
