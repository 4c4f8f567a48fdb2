"""All runs of the server: started once per id, found again, cancelled, kept for a while after their end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from callboard.agents import Consent, Limits, Registry, RunContext
from callboard.errors import RunConflict, StorageError, TooManyRuns, UnknownChat, UnknownRun
from callboard.formats import FormatChoice
from callboard.history import ChatHistory, ChatJournal, Journal, NoJournal, Turn, bound, replay
from callboard.runs.attachments import with_readable_files
from callboard.runs.call_ids import CallIds
from callboard.runs.chosen_model import with_chosen_model
from callboard.runs.files import RunFiles
from callboard.runs.inputs import Inputs
from callboard.runs.links import NO_LINKS, Links
from callboard.runs.log import EventLog
from callboard.runs.outgoing import Outgoing
from callboard.runs.recorder import Recorder
from callboard.runs.redaction import Redaction
from callboard.runs.run import INTERRUPTED, Owner, Run
from callboard.tools import Services
from callboard_protocol import RunRequest

KEEP_ENDED_SECONDS = 300
"""How long the log of an ended run can still be read."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What holds for every run."""

    grace_seconds: float = 30
    max_runs: int = 100
    history_tokens: int = 0
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
        self._redact = redact
        self._runs: dict[str, Run] = {}
        self._call_ids: WeakValueDictionary[str, CallIds] = WeakValueDictionary()

    async def start(self, request: RunRequest) -> Run:
        """Start the run that `request` asks for, or find it where its id is already running.

        Raises `UnknownAgent`, `RunConflict` and `TooManyRuns`. Where the stored history
        cannot be read, the run goes on with what the client sent.
        """
        run_id = request.run_id or uuid4().hex
        owner = _owner(request)
        if run := self._attached(run_id, owner):
            return run
        agent = self._registry.get(request.agent)
        request = await with_readable_files(request)
        request, history = await self._own(request)
        # While the database answered, the same request may have come in a second time.
        if run := self._attached(run_id, owner):
            return run
        if sum(not run.ended for run in self._runs.values()) >= self._settings.max_runs:
            raise TooManyRuns(f"{self._settings.max_runs} runs are under way: try again in a moment")
        replayed = replay([message.to_openai() for message in request.messages], history.records)
        log = EventLog()
        outgoing = self._outgoing(run_id, request)
        recorder = Recorder(
            log, self._journal(run_id, request), self._ids_of(request, history), self._redact, outgoing.prepare
        )
        context = RunContext(
            run_id=run_id,
            messages=bound(replayed.messages, self._settings.history_tokens),
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
            recall=request.recall and self._services.settings.recall,
        )
        run = self._runs[run_id] = Run(run_id, owner, log, recorder, outgoing, self._settings.grace_seconds)
        run.start(with_chosen_model(agent, history.model), context, self._redact, self._keep_for_a_while)
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

    def _attached(self, run_id: str, owner: Owner) -> Run | None:
        run = self._runs.get(run_id)
        if run and run.owner != owner:
            raise RunConflict(f"run {run_id!r} belongs to another chat or user: choose another run_id")
        return run

    async def _own(self, request: RunRequest) -> tuple[RunRequest, ChatHistory]:
        """The request with its chat's history; a chat that is somebody else's is continued and not kept."""
        if not _is_kept(request):
            return request, ChatHistory()
        try:
            return request, await self._store.load_chat(str(request.chat_id), request.user.id if request.user else None)
        except UnknownChat:
            _log.info("chat_of_another_user", chat_id=request.chat_id)
            return request.model_copy(update={"chat_id": None}), ChatHistory()
        except StorageError as error:
            _log.warning("history_not_loaded", chat_id=request.chat_id, error=str(error))
            return request, ChatHistory()

    def _journal(self, run_id: str, request: RunRequest) -> Journal:
        if not _is_kept(request):
            return NoJournal()
        asked = next((message for message in reversed(request.messages) if message.role == "user"), None)
        turn = Turn(
            chat_id=str(request.chat_id),
            run_id=run_id,
            message_id=request.message_id,
            user_id=request.user.id if request.user else None,
            user_content=asked.content if asked else None,
        )
        return ChatJournal(self._store, turn)

    def _outgoing(self, run_id: str, request: RunRequest) -> Outgoing:
        inputs, files = Inputs(self._settings.input_timeout_seconds), RunFiles(run_id)
        if not _is_kept(request):
            return Outgoing(inputs, files)
        return Outgoing(inputs, files, partial(self._settings.links.to_result, str(request.chat_id)))

    def _ids_of(self, request: RunRequest, history: ChatHistory) -> CallIds:
        """One set of ids a chat: two models may be answering in it side by side."""
        sent = {call.id for message in request.messages for call in message.tool_calls or ()}
        ids = self._call_ids.setdefault(request.chat_id, CallIds()) if request.chat_id else CallIds()
        ids.add(history.tool_call_ids | sent)
        return ids

    def _keep_for_a_while(self, run: Run) -> None:
        asyncio.get_running_loop().call_later(KEEP_ENDED_SECONDS, self._runs.pop, run.run_id, None)


def _is_kept(request: RunRequest) -> bool:
    return request.chat_id is not None and request.task is None


def _owner(request: RunRequest) -> Owner:
    return Owner(request.agent, request.chat_id, request.message_id, request.user.id if request.user else None)
