"""`RunWatch`, an observer that keeps the runs of this server in memory, for the inspector.

For each run it has the texts, the calls with their times, and the requests to models, which are not stored. Its memory
is limited: the oldest ended runs are dropped first, then the requests of the oldest running runs. It does not see runs
of other servers, and drops a run that is left to another server.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile

from callboard._inspect.shown import RunState, SentRequest, ShownCall, ShownRun, read_ending
from callboard.calls import EndedCall, follow_call
from callboard.errors import StorageError
from callboard.models import ChatDict, ModelRequest
from callboard.models.messages import content_text
from callboard.observers import (
    ModelAnswered,
    ModelAsked,
    Observation,
    ObservedRun,
    RunLeft,
    RunPrepared,
    RunTakenOver,
)
from callboard.openwebui.requests import strip_context
from callboard.redaction import Redaction, current_redaction
from callboard.storage import Store
from callboard.storage.values import ANY_USER, OWN_CHAT_PREFIX
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    InputRequest,
    Message,
    Plan,
    Rewind,
    RunStart,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    UserMessage,
)

CHECK_SECONDS = 1.0
"""The minimum time between two checks for chats that were deleted elsewhere."""
MAX_RUNS = 500
MAX_CHARS = 32 * 1024 * 1024
"""The maximum size of all runs together, in characters (see `count_chars`)."""
CALL_CHARS = 4_000
"""The size of a call without its texts: its start and its end take about 4 KB of memory."""
VALUE_CHARS = 40
"""The assumed size of each value in a message or schema without its text, in characters."""
QUESTION_CHARS = 2_000
"""The maximum number of characters of the question that are kept."""


@dataclass(slots=True)
class WatchedRun:
    """A run that this server has watched since it began here.

    Attributes:
        asked: The beginning of the user's question.
        given: The conversation that the agent started with. It is dropped when a request reports its messages.
        left_out: The newest messages that did not fit into the conversation.
        left_out_count: The number of all messages that did not fit.
        asking: The ids of the calls that have asked the user; None for a question of the agent itself.
        texts: The texts before the calls of each round, by the round's index.
        pieces: The pieces of the text since the last call.
        kept_count: The number of pieces at the beginning that a rewind does not remove.
        request_chars: The size of the messages, options and tools of all requests.
        chars: The size of all kept data.
        is_continued: It had begun before, so that it may have stored calls that are not in `calls`.
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
    asking: set[str | None] = field(default_factory=set)
    texts: dict[int, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    kept_count: int = 0
    status: str = ""
    is_continued: bool = False
    ended_at: float | None = None
    ending: Done | Error | None = None
    said: list[tuple[float, str]] = field(default_factory=list)
    request_chars: int = 0
    chars: int = 0

    def show(self, question: str = "") -> ShownRun:
        """Return the run as a page shows it. `question` is the stored question, "" if none is stored."""
        calls = tuple(self.calls.values())
        state: RunState = "waiting" if self.asking else "running"
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
            said=tuple(self.said),
            status=self.status,
            task=self.run.task,
            is_continued=self.is_continued,
        )

    def add(self, observation: Observation) -> None:
        """Add an observation of the run."""
        match observation:
            case Message():
                # Not joined before it is shown: strings that grow leave holes in the heap, a hundred times their size.
                self.pieces.append(observation.content)
                self.chars += len(observation.content)
            case Rewind():
                self.chars -= sum(map(len, self.pieces[self.kept_count :]))
                del self.pieces[self.kept_count :]
            case RunPrepared():
                self.given = tuple(observation.messages)
                self.asked = _find_question(observation.messages)
                self.left_out = tuple(observation.left_out)
                self.left_out_count = observation.left_out_count
                self.chars += count_chars(*self.given, *self.left_out)
            case ModelAsked():
                self._add_request(observation)
            case ModelAnswered():
                self._add_answer(observation)
            case CallEvent() | UserMessage():
                self._add_step(observation)
            case InputRequest():
                self.asking.add(observation.tool_call_id)
            case Status(content=status) | Plan(summary=status):
                self.status = status
            case Done() | Error():
                self.ended_at = time.time()
                self.ending = observation
                self.asking.clear()
            case _:
                pass

    def _add_request(self, asked: ModelAsked) -> None:
        # This runs in the agent's task, so the current redaction knows the secrets that tools have added.
        self.redaction = current_redaction.get() or self.redaction
        sent = SentRequest(len(self.requests), asked.model, time.time(), asked.messages)
        if asked.request is not None:
            self._keep_request(sent, asked.request)
            # The request contains these messages.
            self.chars -= count_chars(*self.given)
            self.given = ()
        self.requests.append(sent)

    def _keep_request(self, sent: SentRequest, request: ModelRequest) -> None:
        """Store the messages of a request, its options and its tools. Equal parts of requests are the same objects."""
        # Most requests only add messages at the end. The comparison is fast, because most texts are the same object.
        last = (self.requests[-1].messages if self.requests else None) or ()
        same = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, request.messages, strict=False))]
        added = request.messages[len(same) :]
        sent.shared = len(same)
        sent.messages = (*same, *added)
        sent.options = dict(request.options)
        chars = count_chars(*added, *sent.options.items())
        sent.offered = tuple(request.tools)
        equal = [one.offered for one in self.requests if one.offered == sent.offered]
        if equal:
            sent.offered = equal[-1]
        else:
            chars += count_chars(*sent.offered)
        self.request_chars += chars
        self.chars += chars

    def _add_answer(self, answer: ModelAnswered) -> None:
        for sent in reversed(self.requests):
            if sent.answer is None and sent.model == answer.model:
                sent.answer = answer
                return

    def _add_step(self, event: CallEvent | UserMessage) -> None:
        call = follow_call(self.calls, event) if isinstance(event, CallEvent) else None
        match event:
            case UserMessage(content=content):
                self.said.append((time.time(), content))
                self.kept_count = len(self.pieces)
                self.chars += len(content)
            case ToolCallStart():
                if self.pieces:
                    self.texts[event.round_index] = self.texts.get(event.round_index, "") + "".join(self.pieces)
                self.pieces.clear()
                self.kept_count = 0
                self.chars += CALL_CHARS + count_chars(event.tool_args)
            case ToolStatus() if call:
                self.chars += len(event.data.message)
                if call.status != "waiting":
                    self.asking.discard(call.id)
            case ToolCallComplete() | ToolCallError():
                self.kept_count = len(self.pieces)
                if isinstance(call, EndedCall):
                    self.chars += len(call.result_text) + count_chars(*call.files, *call.embeds)
                self.asking.discard(event.tool_call_id)
            case _:
                pass

    def drop_messages(self) -> int:
        """Drop the conversation that the agent started with; if there is none, the data of all requests.

        Return the number of characters that this frees; 0 if there is nothing to drop.
        """
        freed = count_chars(*self.given, *self.left_out)
        self.given = self.left_out = ()
        if not freed:
            freed = self.request_chars
            self.request_chars = 0
            for sent in self.requests:
                sent.messages, sent.options, sent.offered = None, {}, ()
        self.chars -= freed
        return freed


class RunWatch:
    """The watched runs, oldest first. `observe` is the observer."""

    def __init__(self, max_runs: int = MAX_RUNS, max_chars: int = MAX_CHARS) -> None:
        self._runs: dict[str, WatchedRun] = {}
        self._max_runs = max_runs
        self._max_chars = max_chars
        self._chars = 0
        self._checked_at = -CHECK_SECONDS

    def __iter__(self) -> Iterator[WatchedRun]:
        return iter(tuple(self._runs.values()))

    def find(self, run_id: str) -> WatchedRun | None:
        """Return a watched run; None if it is unknown or was dropped."""
        return self._runs.get(run_id)

    def forget_chat(self, chat_id: str) -> None:
        """Drop the ended runs of a chat."""
        self._forget(lambda run: run.chat_id == chat_id)

    def forget_user(self, user_id: str) -> None:
        """Drop the ended runs of a user."""
        self._forget(lambda run: run.user_id == user_id)

    async def forget_deleted_chats(self, store: Store) -> None:
        """Drop the ended runs of chats that another server or a command has deleted."""
        now = time.monotonic()
        if now < self._checked_at + CHECK_SECONDS:
            return
        self._checked_at = now
        # Without chats that the server has named itself, because they are deleted with their turns, and without tasks,
        # because they are not stored.
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

    def observe(self, run: ObservedRun, observation: Observation) -> None:
        """Add an observation to its run."""
        watched = self._runs.get(run.run_id)
        is_beginning = isinstance(observation, RunStart | RunTakenOver)
        if watched is not None and (is_beginning or isinstance(observation, RunLeft)):
            self._drop(watched)
            watched = None
        if is_beginning:
            watched = WatchedRun(run, time.time(), current_redaction.get() or Redaction())
            watched.is_continued = isinstance(observation, RunTakenOver)
            self._runs[run.run_id] = watched
        if watched is None:
            # The run was left to another server, but its agent could not be stopped and still sends observations.
            return
        before = watched.chars
        watched.add(observation)
        self._chars += watched.chars - before
        if self._is_full:
            self._drop_until_it_fits()

    def _drop_until_it_fits(self) -> None:
        for watched in self:
            if watched.ended_at is not None and self._is_full:
                self._drop(watched)
        for watched in self:
            while self._chars > self._max_chars and (freed := watched.drop_messages()):
                self._chars -= freed

    @property
    def _is_full(self) -> bool:
        return len(self._runs) > self._max_runs or self._chars > self._max_chars

    def _forget(self, is_wanted: Callable[[ObservedRun], bool]) -> None:
        for watched in self:
            if watched.ended_at is not None and is_wanted(watched.run):
                self._drop(watched)

    def _drop(self, watched: WatchedRun) -> None:
        self._chars -= watched.chars
        del self._runs[watched.run.run_id]


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
