"""Builds runs: the log, the record and the recorder of each run, and the context of its agent."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import structlog

from callboard._formats import FormatChoice, answer_key
from callboard._history import Replayed, RowChange, Turn, TurnRows, limit_tokens, replay
from callboard.agents import Agent, AgentLike
from callboard.agents.agent import ignored_options
from callboard.agents.context import TurnContext
from callboard.calls import Services
from callboard.calls.approval import Approval
from callboard.calls.context import SourceNumbers
from callboard.calls.limits import Limits
from callboard.calls.tool import ClientTool
from callboard.errors import RunLost, StorageError
from callboard.models import ChatDict
from callboard.observers import ObservedRun, Observer, RunObservers, RunPrepared, RunTakenOver
from callboard.openwebui.details_parser import SAID_FIELD
from callboard.openwebui.requests import remove_unusable_prompts
from callboard.redaction import Redaction
from callboard.runs.call_tracker import CallIds, CallTracker
from callboard.runs.chosen_model import find_model
from callboard.runs.conversation import Conversation
from callboard.runs.files import ReadableFiles, RunFiles
from callboard.runs.grants import FindRun, Grants, RunGrants
from callboard.runs.inputs import Inputs
from callboard.runs.left_runs import LeftRun, Reopened, end_run, read_left_run
from callboard.runs.limits import MemoryBudget, Quota, RunMemory
from callboard.runs.links import Links
from callboard.runs.log import EventLog
from callboard.runs.openwebui_tools import make_openwebui_tools, offer_tools
from callboard.runs.recorder import Recorder
from callboard.runs.run import Run, RunIdentity
from callboard.settings import Settings
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import StoredRun
from callboard.text import storable
from callboard.threads import REQUESTS
from callboard_protocol import Error, RunRequest, RunStart, Status

MAX_NAME_CHARS = 255
"""The characters of a user's name and e-mail address that are stored."""
MAX_WHOLE_LEFT_OUT = 200
"""The most messages dropped by the token limit that observers get; these are the newest ones."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The inputs of a new or continued run.

    `stored` and `record` are None if the run is not stored, `reopened` is None if the run is new. `is_alone` means that
    no other server uses the database. `can_be_continued` means that another server can continue the run. `caller` is
    the name of the request's API key.
    """

    run_id: str
    identity: RunIdentity
    agent: AgentLike
    conversation: Conversation
    functions: Sequence[ClientTool]
    is_alone: bool
    record: RunRecord | None
    stored: StoredRun | None
    caller: str | None
    can_be_continued: bool
    reopened: Reopened | None = None


OnEnd = Callable[[Run, str | None, RunMemory, RunObservers], None]
"""Called when a run has ended or was left, with the id of its chat, its memory usage and its observers."""


class RunFactory:
    """Builds the runs of a server."""

    def __init__(
        self,
        services: Services,
        settings: Settings,
        redaction: Redaction,
        stored_runs: StoredRuns,
        links: Links,
        observers: Sequence[Observer],
        quota: Quota,
        budget: MemoryBudget,
        find_run: FindRun,
    ) -> None:
        self._services = services
        self._store = services.store
        self._settings = settings
        self._redaction = redaction
        self._stored_runs = stored_runs
        self._links = links
        self._observers = observers
        self._quota = quota
        self._budget = budget
        self._find_run = find_run
        # Shared by all runs, because it remembers which models support native calls.
        self.formats = FormatChoice(settings.tool_format, settings.react_models)
        self._call_ids: WeakValueDictionary[str, CallIds] = WeakValueDictionary()

    def make(self, spec: RunSpec, on_end: OnEnd) -> Run:
        """Build a run and start its agent, or continue the run of a server that has stopped.

        Observers get every event, so they are there before the log. Events that are stored already, by `Runs.start` or
        `reopen`, are in the log before it gets its record, which stores all later ones. The agent starts last.
        """
        run_id = spec.run_id
        identity = spec.identity
        conversation = spec.conversation
        record = spec.record
        stored = spec.stored
        reopened = spec.reopened
        left = reopened.left if reopened else LeftRun()
        request = conversation.request
        memory = RunMemory(self._budget, identity.user_id or "")
        redaction = Redaction(above=self._redaction)
        observers = RunObservers(observed_run(run_id, request), self._observers)
        log = EventLog(memory=memory, on_append=observers.tell)
        stored_runs = self._stored_runs if stored else None
        calls = CallTracker(self._share_call_ids(conversation, is_alone=spec.is_alone), left.next_round)
        inputs = Inputs(
            run_id,
            log,
            stored_runs,
            calls,
            self._settings.input_timeout_seconds,
            # A server that continues the run can run the calls that wait.
            calls_can_wait=spec.can_be_continued
            and request.approvals_wait
            and getattr(spec.agent, "calls_can_wait", False),
            signals=left.signals,
            read=left.read_messages,
        )
        files = RunFiles(run_id, memory)
        link = partial(self._links.to_result, str(request.chat_id)) if stored else lambda _: None
        rows = record.writer.rows if record else None
        audit_fields = {
            "user_id": identity.user_id,
            "key": spec.caller,
            "agent": identity.agent_id,
            "chat_id": identity.chat_id,
            "run_id": run_id,
        }
        recorder = Recorder(log, calls, inputs, files, rows, redaction, audit_fields, link)
        run = Run(
            run_id,
            identity,
            log,
            recorder,
            inputs,
            files,
            self._settings.detach_grace_seconds,
            stored_runs,
            can_be_continued=spec.can_be_continued,
            ignored=ignored_options(spec.agent, [function.name for function in spec.functions], request.options),
        )
        if reopened and stored:
            observers.tell(RunTakenOver(stored.losses))
            for event in reopened.added:
                observers.tell(event)
            log.continue_after(stored.last_seq + len(reopened.added))
            open_calls = {call_id: left.open_calls[call_id].name for call_id in reopened.repeated}
            recorder.restore(open_calls, left.sources, left.kept_answer)
            # Clients show these calls, which have no rows.
            calls.ids.add(left.unstarted)
        else:
            log.append(RunStart(run_id=run_id, agent=identity.agent_id))
        if record:
            log.on_lost = run.lose
            log.store_in(record, files)
        if conversation.history.is_missing or (is_stored(request) and stored is None):
            recorder.report_unremembered()
        run.start(
            spec.agent,
            partial(self._begin_turn, spec, log, recorder, redaction, inputs, observers),
            redaction,
            lambda run: on_end(run, request.chat_id, memory, observers),
            self._settings.run_timeout_seconds,
            stored.age_seconds if stored else 0.0,
            needs_listeners=not left.signals.has_waited,
        )
        if left.signals.is_cancelled:
            run.cancel()
        return run

    async def _begin_turn(
        self,
        spec: RunSpec,
        log: EventLog,
        recorder: Recorder,
        redaction: Redaction,
        inputs: Inputs,
        observers: RunObservers,
    ) -> TurnContext:
        """Store the question, and return the agent's context.

        Files become text first, because context and question contain this text. Only the context has the stored calls,
        and is shortened to the token limit. The endpoint is asked for the chosen model last, because it may be slow.
        """
        conversation = spec.conversation
        request = conversation.request
        files = ReadableFiles(spec.identity.user_id or "")
        messages = await files.read(conversation.messages)
        offer = offer_tools(spec.agent, request, messages)
        messages = remove_unusable_prompts(messages, offer.usable)
        if offer.status and not spec.reopened:
            await recorder.record_whole(Status(content=offer.status, done=True))
        limits = Limits(self._settings.max_tool_calls_per_turn, self._settings.tool_timeout_seconds)
        own_limits: Limits = getattr(spec.agent, "limits", None) or limits
        redacted, sources = await self._add_history(messages, conversation, recorder, observers)
        if spec.record:
            log.write(await self._make_question_changes(spec.record.writer.rows, conversation, messages, files))
        model, status = await find_model(spec.agent, self._services.model, conversation.history.model)
        if status:
            await recorder.record_whole(Status(content=status, done=True))
        return TurnContext(
            run_id=spec.run_id,
            messages=redacted,
            sources=sources,
            claim_tool_call_id=recorder.calls.claim,
            model=model,
            chat_id=request.chat_id,
            message_id=request.message_id,
            user=request.user,
            task=request.task,
            options=request.options,
            limits=limits.without(len(conversation.calls_made)),
            formats=self.formats,
            approval=Approval(
                (*self._settings.confirm_tools, *(tool.name for tool in offer.tools if tool.asks_first)),
                inputs.wait,
                self._settings.text_calls,
                can_ask=conversation.can_ask,
                was_asked=inputs.was_asked,
                is_from_inspector=inputs.is_from_inspector,
                remembered=self._find_grants(request, inputs),
                forbid_always=self._settings.forbid_always,
            ),
            services=self._services,
            functions=spec.functions,
            must_call=request.must_call,
            openwebui_tools=make_openwebui_tools(offer.tools, inputs, recorder, own_limits.tool_timeout_seconds),
            redaction=redaction,
            left_running=recorder.left_running,
            provider_details=recorder.provider_details,
            replaced=recorder.replaced,
            recall=request.recall and self._settings.recall,
            spend=self._quota.spend_of(spec.identity.user_id or ""),
            observers=observers,
            calls_made=conversation.calls_made,
            unfinished=conversation.unfinished,
            agent_id=request.agent,
            emit=recorder.record_whole,
            is_left=lambda: log.is_leaving and isinstance(spec.agent, Agent),
            wait_until_stored=recorder.wait_until_stored,
            take_messages=inputs.take_messages,
        )

    async def _add_history(
        self,
        messages: list[ChatDict],
        conversation: Conversation,
        recorder: Recorder,
        observers: RunObservers,
    ) -> tuple[list[ChatDict], SourceNumbers]:
        """Return the messages with the stored calls, without secrets, and the numbers for new sources.

        The recorder gets the sources and the provider details of the history.
        """
        history = conversation.history
        max_tokens = self._settings.history_tokens

        def replay_history() -> tuple[Replayed, list[ChatDict], list[ChatDict]]:
            unfinished = [call.id for call in conversation.unfinished]
            replayed = replay(messages, history.calls, unfinished, history.questions, history.said)
            return replayed, *limit_tokens(replayed.messages, max_tokens)

        # In a thread, because long chats would block other requests.
        replayed, bounded, left_out = await REQUESTS.run(replay_history)
        recorder.earlier_sources.add(replayed.sources)
        details = {call.tool_call_id: call.details for call in history.calls if call.details}
        details |= {answer_key(text): sent for text, sent in history.answers}
        recorder.provider_details.update(await self._redaction.large(details))
        redacted = await self._redaction.large(bounded)
        if observers.observers:
            newest = await self._redaction.large(left_out[-MAX_WHOLE_LEFT_OUT:])
            observers.tell(RunPrepared(redacted, newest, len(left_out)))
        return redacted, SourceNumbers(max(replayed.sources, default=-1))

    async def _make_question_changes(
        self, rows: TurnRows, conversation: Conversation, messages: Sequence[ChatDict], files: ReadableFiles
    ) -> Sequence[RowChange]:
        """Return the row changes that store the question, and the response and results of the request."""
        response = conversation.response
        if response is not None:
            new_messages = await files.read(response.new_messages)
            response = replace(response, new_messages=await self._redaction.large(new_messages))
        results = await self._redaction.large(dict(conversation.results))
        return rows.begin(await self._redaction.large(find_question(messages)), results, response)

    def open_record(self, stored: StoredRun | None, conversation: Conversation) -> RunRecord | None:
        """Return the record of a new run; None if it is not stored."""
        if stored is None:
            return None
        place = sum(message["role"] == "user" for message in conversation.messages)
        return self._make_record(stored, place, conversation.request)

    def _make_record(self, stored: StoredRun, place: int | None, request: RunRequest | None) -> RunRecord:
        turn = Turn(
            str(stored.chat_id),
            stored.run_id,
            stored.message_id,
            stored.user_id,
            None,
            place=place,
            agent_id=stored.agent_id,
            user_name=name_user(request) if request else None,
            user_email=_shorten(request.user.email) if request and request.user else None,
        )
        return self._store.record(self._stored_runs, stored, turn, compact_results=self._settings.compact_results)

    @asynccontextmanager
    async def record_of_left_run(
        self, stored: StoredRun, request: RunRequest | None
    ) -> AsyncIterator[tuple[StoredRun, RunRecord]]:
        """Yield the current state of a stored run, and its record; the record is stopped if the block raises.

        Raises `StorageError`, and `RunLost` if another server has taken over the run, or the run has ended.
        """
        found = (await self._stored_runs.find([stored.run_id])).get(stored.run_id)
        # This server may have ended the run itself, and lost the connection before it learned of the commit.
        if found is None or found.epoch != stored.epoch or found.is_ended:
            raise RunLost(f"run {stored.run_id!r} has been taken over by another server, or has ended")
        stored = replace(found, age_seconds=stored.age_seconds)
        place = sum(message.role == "user" for message in request.messages) if request else None
        record = self._make_record(stored, place, request)
        with ExitStack() as unless_used:
            unless_used.callback(record.stop)
            yield stored, record
            unless_used.pop_all()

    async def end_left_run(self, stored: StoredRun, ending: Error) -> None:
        """End a left run that cannot continue, and notify observers. Raises `StorageError`, `RunLost`."""
        try:
            left = await read_left_run(self._stored_runs, stored.run_id)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - another version may have written the events; listeners need an end
            _log.error("left_run_unreadable", run_id=stored.run_id, exc_info=error)
            left = LeftRun()
        async with self.record_of_left_run(stored, None) as (stored, record):
            last = await end_run(record, stored, left, ending)
        observed = ObservedRun(stored.run_id, stored.agent_id, stored.chat_id, stored.user_id)
        observers = RunObservers(observed, self._observers)
        observers.tell(RunTakenOver(stored.losses))
        for event in last:
            observers.tell(event)

    def _find_grants(self, request: RunRequest, inputs: Inputs) -> RunGrants | None:
        if not is_stored(request) or request.user is None:
            return None
        grants = Grants(self._services.store, request.user.id, str(request.chat_id))
        return RunGrants(grants, inputs, identify(request), self._stored_runs, self._find_run)

    def _share_call_ids(self, conversation: Conversation, *, is_alone: bool) -> CallIds:
        """Return the call ids of the chat. Concurrent runs of a chat share one object, so that they use different ids.

        If there may be other servers, they may use ids that this server does not know.
        """
        request = conversation.request
        history = conversation.history
        sent = {call.id for message in request.messages for call in message.tool_calls or ()}
        ids = self._call_ids.setdefault(request.chat_id, CallIds()) if request.chat_id else CallIds()
        ids.add(history.tool_call_ids | sent)
        if history.is_missing or not is_alone:
            ids.distrust()
        return ids


def find_question(messages: Sequence[ChatDict]) -> str | list[dict[str, Any]] | None:
    """Return the last message of the user; None if the turn continues, because its question is already stored."""
    if messages[-1]["role"] == "tool":
        return None
    asked = (one for one in reversed(messages) if one["role"] == "user" and SAID_FIELD not in one)
    return next((message.get("content") for message in asked), None)


def is_stored(request: RunRequest) -> bool:
    """Return whether a run of this request is stored: it belongs to a chat and is no background task."""
    return request.chat_id is not None and request.task is None


def name_user(request: RunRequest) -> str | None:
    """Return the user's name, None if the client sent none."""
    return _shorten(request.user.name) if request.user else None


def _shorten(name: str) -> str | None:
    return storable(name.strip()[:MAX_NAME_CHARS]) or None


def observed_run(run_id: str, request: RunRequest) -> ObservedRun:
    """Return the description of a run that observers get."""
    user_id = request.user.id if request.user else None
    return ObservedRun(run_id, request.agent, request.chat_id, user_id, request.task, name_user(request))


def identify(request: RunRequest) -> RunIdentity:
    """Return the agent, chat, message and user of a request."""
    return RunIdentity(request.agent, request.chat_id, request.message_id, request.user.id if request.user else None)
