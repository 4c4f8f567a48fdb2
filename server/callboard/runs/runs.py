"""All runs of the server: started once per id, found again, cancelled, kept for a while after their end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from callboard.agents import Consent, Limits, Registry, RunContext, functions_left_out
from callboard.errors import RunConflict, StorageError, TooManyRuns, UnknownRun
from callboard.formats import FormatChoice
from callboard.history import (
    OWN_CHAT_PREFIX,
    ChatJournal,
    CompactResults,
    Journal,
    NoJournal,
    Turn,
    bound,
    forget_own_chat,
    replay,
)
from callboard.redaction import Redaction
from callboard.runs.attachments import with_readable_files
from callboard.runs.call_ids import CallIds
from callboard.runs.chosen_model import with_chosen_model
from callboard.runs.conversation import Continuation, Conversation, open_conversation
from callboard.runs.earlier_sources import EarlierSources
from callboard.runs.files import RunFiles
from callboard.runs.inputs import Inputs
from callboard.runs.links import NO_LINKS, Links
from callboard.runs.log import EventLog
from callboard.runs.outgoing import Outgoing
from callboard.runs.recorder import Recorder
from callboard.runs.run import INTERRUPTED, Owner, Run
from callboard.tools import ClientTool, Services
from callboard_protocol import Done, RunRequest

KEEP_ENDED_SECONDS = 300
"""How long the log of an ended run can still be read."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What holds for every run."""

    grace_seconds: float = 30
    max_runs: int = 100
    history_tokens: int = 0
    compact_results: CompactResults = "cited"
    limits: Limits = field(default_factory=Limits)
    formats: FormatChoice = field(default_factory=FormatChoice)
    confirm_tools: Sequence[str] = ()
    input_timeout_seconds: float = 120
    links: Links = NO_LINKS


class Runs:
    """The live runs, and those that ended a short while ago."""

    def __init__(self, registry: Registry, services: Services, settings: RunSettings, redact: Redaction) -> None:
        self._registry = registry
        self._services = services
        self._store = services.store
        self._settings = settings
        self._redaction = redact
        self._runs: dict[str, Run] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._call_ids: WeakValueDictionary[str, CallIds] = WeakValueDictionary()

    async def start(self, request: RunRequest, continuation: Continuation | None = None) -> Run:
        """Start the run that `request` asks for, or find it where its id is already running.

        Raises `UnknownAgent`, `RunConflict`, `TooManyRuns`, and `RequestError` for functions that no model
        can call and for what the store should know and does not. Where the stored history cannot be read,
        the run goes on with what the client sent, and says so.
        """
        run_id = request.run_id or uuid4().hex
        owner = _owner(request)
        if run := self._attached(run_id, owner):
            return run
        agent = self._registry.get(request.agent)
        functions = tuple(map(ClientTool.of, request.functions))
        request = await with_readable_files(request)
        conversation = await open_conversation(self._store, request, run_id, continuation)
        request, history = conversation.request, conversation.history
        replayed = replay(conversation.messages, history.records)
        messages = await self._redaction.large(bound(replayed.messages, self._settings.history_tokens))
        conversation = await self._without_secrets(conversation)
        asked = await self._redaction.large(_asked(request))
        # While the database answered, the same request may have come in a second time.
        if run := self._attached(run_id, owner):
            return run
        if sum(not run.ended for run in self._runs.values()) >= self._settings.max_runs:
            raise TooManyRuns(f"{self._settings.max_runs} runs are under way: try again in a moment")
        log = EventLog()
        redaction = Redaction(above=self._redaction)
        outgoing = self._outgoing(run_id, request)
        recorder = Recorder(
            log,
            self._journal(run_id, conversation, asked),
            self._ids_of(conversation),
            redaction,
            outgoing.prepare,
            EarlierSources(replayed.source_map),
            is_without_history=history.is_missing,
        )
        context = RunContext(
            run_id=run_id,
            messages=messages,
            max_source_number=replayed.max_source_number,
            claim_tool_call_id=recorder.claim,
            model=self._services.model,
            chat_id=request.chat_id,
            message_id=request.message_id,
            user=request.user,
            task=request.task,
            options=request.options,
            limits=self._settings.limits,
            formats=self._settings.formats,
            consent=Consent(self._settings.confirm_tools, outgoing.inputs.wait, self._settings.input_timeout_seconds),
            services=self._services,
            functions=functions,
            must_call=request.must_call,
            redaction=redaction,
            left_running=recorder.left_running,
            recall=request.recall and self._services.settings.recall,
        )
        run = self._runs[run_id] = Run(run_id, owner, log, recorder, outgoing, self._settings.grace_seconds)
        run.functions_left_out = functions_left_out(agent, [function.name for function in functions])
        run.start(with_chosen_model(agent, history.model), context, partial(self._end, request.chat_id))
        _log.info("run_started", run_id=run_id, agent=owner.agent_id, chat_id=owner.chat_id, task=request.task)
        return run

    def get(self, run_id: str) -> Run:
        """The run of that id; raises `UnknownRun`."""
        try:
            return self._runs[run_id]
        except KeyError:
            raise UnknownRun(
                f"there is no run {run_id!r}: it ended more than {KEEP_ENDED_SECONDS} s ago, or the server was "
                "restarted since"
            ) from None

    async def close(self) -> None:
        """End every run, each with a proper last event."""
        runs = list(self._runs.values())
        for run in runs:
            run.cancel(INTERRUPTED)
        await asyncio.gather(*(run.wait() for run in runs))
        await asyncio.gather(*self._forgetting)

    def _attached(self, run_id: str, owner: Owner) -> Run | None:
        run = self._runs.get(run_id)
        if run and run.owner != owner:
            raise RunConflict(f"run {run_id!r} belongs to another chat or user: choose another run_id")
        return run

    async def _forget(self, chat_id: str) -> None:
        try:
            await forget_own_chat(self._store, chat_id)
        except StorageError as error:
            _log.warning("own_chat_not_forgotten", chat_id=chat_id, error=str(error))

    async def _without_secrets(self, conversation: Conversation) -> Conversation:
        """Return what is to be stored of it as it may be."""
        response = conversation.response
        if response is not None:
            response = replace(response, brought=await self._redaction.large(list(response.brought)))
        return replace(conversation, results=await self._redaction.large(dict(conversation.results)), response=response)

    def _journal(self, run_id: str, conversation: Conversation, asked: str | list[dict[str, Any]] | None) -> Journal:
        request = conversation.request
        if not _is_kept(request):
            return NoJournal()
        turn = Turn(
            chat_id=str(request.chat_id),
            run_id=run_id,
            message_id=request.message_id,
            user_id=request.user.id if request.user else None,
            user_content=asked,
            place=sum(message["role"] == "user" for message in conversation.messages),
            results=conversation.results,
            response=conversation.response,
        )
        return ChatJournal(self._store, turn, self._settings.compact_results)

    def _outgoing(self, run_id: str, request: RunRequest) -> Outgoing:
        inputs, files = Inputs(self._settings.input_timeout_seconds), RunFiles(run_id)
        if not _is_kept(request):
            return Outgoing(inputs, files)
        return Outgoing(inputs, files, partial(self._settings.links.to_result, str(request.chat_id)))

    def _ids_of(self, conversation: Conversation) -> CallIds:
        """One set of ids a chat: two models may be answering in it side by side."""
        request, history = conversation.request, conversation.history
        sent = {call.id for message in request.messages for call in message.tool_calls or ()}
        ids = self._call_ids.setdefault(request.chat_id, CallIds()) if request.chat_id else CallIds()
        ids.add(history.tool_call_ids | sent)
        if history.is_missing:
            ids.distrust()
        return ids

    def _end(self, chat_id: str | None, run: Run) -> None:
        """Keep the run's log for a while; what no client has named is kept for a client that is to go on with it."""
        match run.last_event:
            case Done(finish_reason="stop" | "length" | "max_turns") if chat_id and chat_id.startswith(OWN_CHAT_PREFIX):
                task = asyncio.create_task(self._forget(chat_id))
                self._forgetting.add(task)
                task.add_done_callback(self._forgetting.discard)
            case _:
                pass
        asyncio.get_running_loop().call_later(KEEP_ENDED_SECONDS, self._runs.pop, run.run_id, None)


def _asked(request: RunRequest) -> str | list[dict[str, Any]] | None:
    """What the user said last; None where a turn goes on, for that was written with its beginning."""
    if request.messages[-1].role == "tool":
        return None
    return next((message.content for message in reversed(request.messages) if message.role == "user"), None)


def _is_kept(request: RunRequest) -> bool:
    return request.chat_id is not None and request.task is None


def _owner(request: RunRequest) -> Owner:
    return Owner(request.agent, request.chat_id, request.message_id, request.user.id if request.user else None)
