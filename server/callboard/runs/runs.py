"""All runs of the server: started once per id, found again, cancelled, kept for a while after their end."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from callboard.agents import AgentLike, Consent, Limits, Registry, RunContext
from callboard.errors import RunConflict, StorageError, UnknownChat, UnknownRun
from callboard.formats import FormatChoice
from callboard.history import ChatHistory, ChatJournal, Journal, NoJournal, Turn, bound, replay
from callboard.models import ChatDict
from callboard.runs.attachments import with_readable_files
from callboard.runs.call_ids import CallIds
from callboard.runs.chosen_model import with_chosen_model
from callboard.runs.files import RunFiles
from callboard.runs.holdings import Account, Holdings
from callboard.runs.inputs import Inputs
from callboard.runs.links import NO_LINKS, Links
from callboard.runs.log import EventLog
from callboard.runs.outgoing import Outgoing
from callboard.runs.places import Places
from callboard.runs.recorder import Recorder
from callboard.runs.redaction import Redaction
from callboard.runs.run import INTERRUPTED, Owner, Run
from callboard.threads import REQUESTS
from callboard.tools import Services
from callboard_protocol import ChatMessage, RunRequest

KEEP_ENDED_SECONDS = 300
"""How long the log of an ended run can still be read, where its place in memory is not needed before."""

USERS_SHARING_MEMORY = 4
"""One user's runs may take this part of what all may."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What holds for every run."""

    grace_seconds: float = 30
    timeout_seconds: float = 3600
    max_runs: int = 100
    max_user_runs: int = 20
    queue_seconds: float = 10
    memory_bytes: int = 512 * 1024 * 1024
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
        self._ended: dict[str, Account] = {}
        self._places = Places(settings.max_runs, settings.max_user_runs, settings.queue_seconds)
        self._holdings = Holdings(
            settings.memory_bytes, settings.memory_bytes // USERS_SHARING_MEMORY, self._forget_oldest
        )
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
        user = owner.user_id or ""
        await self._places.take(user)
        started = False
        try:
            request, history = await self._own(request)
            # While the database answered, the same request may have come in a second time.
            if run := self._attached(run_id, owner):
                return run
            run = self._begin(run_id, owner, agent, request, history)
            started = True
        finally:
            if not started:
                self._places.give_back(user)
        _log.info("run_started", run_id=run_id, agent=owner.agent_id, chat_id=owner.chat_id, task=request.task)
        return run

    def _begin(self, run_id: str, owner: Owner, agent: AgentLike, request: RunRequest, history: ChatHistory) -> Run:
        account = Account(self._holdings, owner.user_id or "")
        log = EventLog(account=account)
        outgoing = self._outgoing(run_id, request, account)
        journal = self._journal(run_id, request)
        recorder = Recorder(log, journal, self._ids_of(request, history), self._redact, outgoing.prepare)
        run = self._runs[run_id] = Run(run_id, owner, log, recorder, outgoing, self._settings.grace_seconds)
        run.start(
            with_chosen_model(agent, history.model),
            partial(self._prepare, run_id, request, history, recorder.claim, outgoing.inputs, journal),
            self._redact,
            partial(self._end, account=account),
            self._settings.timeout_seconds,
        )
        return run

    async def _prepare(
        self,
        run_id: str,
        request: RunRequest,
        history: ChatHistory,
        claim: Callable[[str], str],
        inputs: Inputs,
        journal: Journal,
    ) -> RunContext:
        """What the agent is given: the messages with the text of their files, and the stored calls in them."""
        messages = await with_readable_files(request.messages, request.user.id if request.user else "")
        if isinstance(journal, ChatJournal):
            journal.ask(_asked(messages))
        max_tokens = self._settings.history_tokens

        def replayed() -> tuple[list[ChatDict], int]:
            found = replay([message.to_openai() for message in messages], history.records)
            return bound(found.messages, max_tokens), found.max_source_number

        # Long chats take a while, in which others are answered.
        told, max_source_number = await REQUESTS.run(replayed)
        return RunContext(
            run_id=run_id,
            messages=told,
            max_source_number=max_source_number,
            claim_tool_call_id=claim,
            model=self._services.model,
            chat_id=request.chat_id,
            message_id=request.message_id,
            user=request.user,
            task=request.task,
            options=request.options,
            limits=self._settings.limits,
            formats=self._settings.formats,
            consent=Consent(self._settings.confirm_tools, inputs.wait, self._settings.input_timeout_seconds),
            services=self._services,
        )

    def get(self, run_id: str, user_id: str | None = None) -> Run:
        """The run of that id; raises `UnknownRun`, also where it was started for another user."""
        run = self._runs.get(run_id)
        if run is None or not run.is_of(user_id):
            raise UnknownRun(
                f"there is no run {run_id!r} of this user: it was started for another, ended more than "
                f"{KEEP_ENDED_SECONDS} s ago, or the server was restarted since"
            )
        return run

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    async def close(self) -> None:
        """End every run, each with a proper last event."""
        runs = tuple(self)
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
        turn = Turn(
            chat_id=str(request.chat_id),
            run_id=run_id,
            message_id=request.message_id,
            user_id=request.user.id if request.user else None,
            user_content=_asked(request.messages),
        )
        return ChatJournal(self._store, turn)

    def _outgoing(self, run_id: str, request: RunRequest, account: Account) -> Outgoing:
        inputs, files = Inputs(self._settings.input_timeout_seconds), RunFiles(run_id, account)
        if not _is_kept(request):
            return Outgoing(inputs, files)
        return Outgoing(inputs, files, partial(self._settings.links.to_result, str(request.chat_id)))

    def _ids_of(self, request: RunRequest, history: ChatHistory) -> CallIds:
        """One set of ids a chat: two models may be answering in it side by side."""
        sent = {call.id for message in request.messages for call in message.tool_calls or ()}
        ids = self._call_ids.setdefault(request.chat_id, CallIds()) if request.chat_id else CallIds()
        ids.add(history.tool_call_ids | sent)
        return ids

    def _end(self, run: Run, account: Account) -> None:
        """The place is free; the log can be read for a while."""
        self._places.give_back(run.owner.user_id or "")
        self._ended[run.run_id] = account
        asyncio.get_running_loop().call_later(KEEP_ENDED_SECONDS, self._forget, run.run_id)

    def _forget(self, run_id: str) -> None:
        # It may be forgotten already: there was no room for it.
        if account := self._ended.pop(run_id, None):
            account.close()
            del self._runs[run_id]

    def _forget_oldest(self, user: str | None) -> bool:
        oldest = next((run_id for run_id, account in self._ended.items() if user in (None, account.user)), None)
        if oldest is None:
            return False
        _log.info("ended_run_forgotten", run_id=oldest)
        self._forget(oldest)
        return True


def _asked(messages: Sequence[ChatMessage]) -> str | list[dict[str, Any]] | None:
    """The user's newest message."""
    return next((message.content for message in reversed(messages) if message.role == "user"), None)


def _is_kept(request: RunRequest) -> bool:
    return request.chat_id is not None and request.task is None


def _owner(request: RunRequest) -> Owner:
    return Owner(request.agent, request.chat_id, request.message_id, request.user.id if request.user else None)
