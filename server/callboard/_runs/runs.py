"""All runs of the server: started once per id, found again, cancelled, kept for a while after their end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

import anyio
import structlog

from callboard._agents import AgentAccess, AgentLike, Approval, Registry
from callboard._redaction import Redaction
from callboard._runs.conversation import Continuation, open_conversation
from callboard._runs.factory import RunFactory, RunSpec, is_stored, observed_run, owner_of
from callboard._runs.followed_run import FollowedRun
from callboard._runs.forgetting import forget_user
from callboard._runs.left_run import LEFT_RUN, end_of_left_run
from callboard._runs.links import NO_LINKS, Links
from callboard._runs.memory_budget import MemoryBudget, RunMemory
from callboard._runs.ownership import Ownership
from callboard._runs.quota import Quota
from callboard._runs.reopening import Reopened, reopen
from callboard._runs.run import INTERRUPTED, Owner, Run
from callboard._runs.run_slots import RunSlots
from callboard._runs.run_watcher import RunWatcher
from callboard._runs.stored_request import StoredRequest, enter_origin, find_origin, pack_request, unpack_request
from callboard._settings import Settings
from callboard._threads import REQUESTS
from callboard._tracing import RunSpans, Tracing
from callboard.calls import ClientTool, Services
from callboard.errors import RunConflict, ShuttingDown, StorageError, UnknownAgent, UnknownRun
from callboard.observers import Observer, RunLeft, RunObservers
from callboard.storage import (
    OWN_CHAT_PREFIX,
    LoggedRun,
    NewRun,
    Orders,
    RunLog,
    RunRecord,
)
from callboard_protocol import Done, Error, RunRequest, RunStart, encode

MAX_OWNERS = 3
"""The servers that may try one run: what kills each that runs it is given up."""
END_SECONDS = 15
"""The seconds that the last events of runs may take to be kept when the server stops."""

USERS_SHARING_MEMORY = 4
"""One user's runs may take this part of what all may."""

_log = structlog.get_logger(__name__)


class Runs:
    """The live runs, and those that ended a short while ago."""

    def __init__(
        self,
        registry: Registry,
        services: Services,
        settings: Settings,
        redact: Redaction,
        run_log: RunLog,
        links: Links = NO_LINKS,
        observers: Sequence[Observer] = (),
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing or Tracing()
        self._registry = registry
        self._services = services
        self._store = services.store
        self._settings = settings
        self._redaction = redact
        self._run_log = run_log
        self._watcher = RunWatcher(run_log, self._logged_ids, self._receive_signals)
        self._runs: dict[str, Run] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._ended: dict[str, RunMemory] = {}
        self.on_forgotten: Callable[[str], None] = lambda _: None
        """Is told of each user who is forgotten here: whoever remembers runs forgets theirs."""
        self.is_closing = False
        """True where no runs are taken any more."""
        self._has_left = False
        self._quota = Quota(self._store, settings.max_user_calls_per_day, settings.max_user_tokens_per_day)
        self.access = AgentAccess.of(settings.agent_access)
        """Who may ask which agent."""
        self._slots = RunSlots(settings.max_runs, settings.max_user_runs, settings.run_queue_seconds)
        memory_bytes = settings.run_memory_mib * 1024 * 1024
        self._user_bytes = memory_bytes // USERS_SHARING_MEMORY
        self._budget = MemoryBudget(memory_bytes, self._user_bytes, self._evict_oldest)
        self._factory = RunFactory(
            services, settings, redact, run_log, links, observers, self._tracing, self._quota, self._budget
        )

    @asynccontextmanager
    async def owning(self) -> AsyncIterator[None]:
        """Be known to other servers of the store until the block ends, and go on with what they leave meanwhile.

        Raises `StorageError` where the store cannot be written at the beginning.
        """
        ownership = Ownership(
            self._run_log,
            self._watcher,
            self.continue_run,
            self._settings.lease_seconds,
            self._settings.keep_run_seconds,
            self._user_bytes,
            self._factory.end_left_run,
            lambda: self.is_closing,
        )
        async with ownership.held():
            yield

    def _logged_ids(self) -> frozenset[str]:
        return frozenset(run.run_id for run in self._runs.values() if run.is_logged and not run.ended)

    def _receive_signals(self, orders: Mapping[str, Orders]) -> None:
        for run_id, order in orders.items():
            if run := self._runs.get(run_id):
                run.inputs.take(order.answers)
                if order.is_cancelled:
                    run.cancel()

    async def start_or_follow(self, request: RunRequest, caller: str | None = None) -> Run | FollowedRun:
        """Start the run that `request` asks for, or find it where its id is running here or on another server.

        Raises as `start` does.
        """
        try:
            return await self.start(request, caller=caller)
        except _RunsElsewhere as elsewhere:
            # The same may have been asked here a moment ago.
            if run := self._find_here(elsewhere.run.run_id, owner_of(request)):
                return run
            if elsewhere.run.owner != owner_of(request):
                raise
            return elsewhere.run

    async def start(
        self, request: RunRequest, continuation: Continuation | None = None, caller: str | None = None
    ) -> Run:
        """Start the run that `request` asks for, or find it where its id is already running here.

        `caller` is the name of the key that it was asked with, for the audit.

        Raises `UnknownAgent`, `AgentRefused`, `RunConflict`, `TooManyRuns`, `QuotaExceeded`, `ShuttingDown`, and
        `RequestError` for functions that no model can call and for what the store should know and does not. Where the
        stored history cannot be read, the run goes on with what the client sent, and says so.
        """
        run_id = request.run_id or uuid4().hex
        owner = owner_of(request)
        if run := self._find_here(run_id, owner):
            return run
        self._refuse_when_closing()
        agent = self._registry.get(request.agent)
        self.access.check(agent.agent_id, request.user)
        functions = tuple(map(ClientTool.of, request.functions))
        user = owner.user_id or ""
        await self._slots.acquire(user)
        started = False
        try:
            # Not before: while this run waited for its place, others may have used up what was left.
            await self._quota.check(user)
            conversation = await open_conversation(self._store, request, run_id, continuation)
            # The OpenAI routes name a continuation, and have no event for a question.
            conversation = replace(conversation, can_ask=continuation is None)
            # While the database answered, the same request may have come in a second time, and the server have ended.
            if run := self._find_here(run_id, owner):
                return run
            self._refuse_when_closing()
            is_alone = await self._run_log.is_alone()
            spans = self._tracing.begin(observed_run(run_id, request), agent.name)
            # Who else started it leaves with this server.
            packed = await self._pack(request, spans) if continuation is None else None
            logged, new = await self._begin_in_store(run_id, conversation.request, packed)
            if run := self._find_here(run_id, owner):
                return run
            if self.is_closing and logged and not new:
                # Otherwise another server would begin it, of which the client knows nothing.
                with suppress(StorageError):
                    await self._run_log.withdraw(run_id)
            self._refuse_when_closing()
            record = self._factory.open_record(run_id, owner, logged, conversation, new)
            ids = self._factory.ids_of(conversation, is_alone=is_alone)
            run = self._begin(
                RunSpec(run_id, owner, agent, conversation, functions, ids, spans, record, logged, caller)
            )
            run.can_be_continued = logged is not None and packed is not None and _can_continue(agent)
            started = True
        finally:
            if not started:
                self._slots.release(user)
        _log.info("run_started", run_id=run_id, agent=owner.agent_id, chat_id=owner.chat_id, task=request.task)
        return run

    def _begin(self, spec: RunSpec) -> Run:
        return self._factory.make(spec, self._keep, partial(self._end, chat_id=spec.conversation.request.chat_id))

    def _keep(self, run: Run) -> None:
        self._runs[run.run_id] = run

    async def find(self, run_id: str, user_id: str | None = None) -> Run | FollowedRun:
        """Return the run of that id, wherever it goes on.

        Raises `UnknownRun`, also where it is another user's, and `StorageError` where that cannot be known now.
        """
        run = self._runs.get(run_id) or await self._find_elsewhere(run_id)
        if run is None or not run.owner.may_be_seen_by(user_id):
            raise UnknownRun(
                f"there is no run {run_id!r} of this user: it was started for another, or ended more than "
                f"{self._settings.keep_run_seconds:g} s ago"
            )
        return run

    async def forget_user(self, user_id: str, caller: str | None = None) -> Mapping[str, int]:
        """End a user's runs, and forget these and all that is kept of the user; return how much of each kind.

        `caller` is the name of the key that it was asked with, for the audit. Raises `StorageError`.
        """
        mine = [run for run in self if run.owner.user_id == user_id]
        for run in mine:
            run.cancel()
        await asyncio.gather(*(run.wait() for run in mine))
        for run in mine:
            self._forget(run.run_id)
        self.on_forgotten(user_id)
        return await forget_user(self._store, self._run_log, user_id, caller)

    async def _find_elsewhere(self, run_id: str) -> FollowedRun | None:
        if self._has_left:
            raise _shutting_down()
        logged = (await self._run_log.find([run_id])).get(run_id)
        return FollowedRun(logged, self._run_log, self._watcher, self._runs.get) if logged else None

    async def continue_run(self, logged: LoggedRun) -> Error | None:
        """Go on with a run that another server has left, in its log; return its last event where it can only be ended.

        What was said since the last finished round is taken back; see `reopen`. Raises `StorageError`, and `RunLost`
        where another server has it by now.
        """
        kept = await self._run_log.load_request(logged.run_id)
        if kept is None:
            return LEFT_RUN
        if logged.losses >= MAX_OWNERS:
            # Perhaps for what is in its request: that is not even read.
            return LEFT_RUN
        if logged.age_seconds >= self._settings.run_timeout_seconds:
            # Perhaps in a copy of the database that was put back: what it did since then is not known.
            return LEFT_RUN
        request = unpack_request(kept)
        enter_origin(request.origin)
        try:
            agent = self._registry.get(request.agent)
        except UnknownAgent:
            return LEFT_RUN
        # One that says nothing of it may not read its own finished rounds, and do all anew.
        if not _can_continue(agent):
            return end_of_left_run(agent.agent_id)
        approval = Approval(self._settings.confirm_tools)
        async with self._factory.record_of_left_run(logged, request) as (logged, record):
            reopened = await reopen(self._run_log, self._store, logged, record, request, agent, approval)
            if not isinstance(reopened, Reopened):
                return reopened
            await self._restart(logged, record, request, agent, reopened)
            return None

    async def _restart(
        self, logged: LoggedRun, record: RunRecord, request: StoredRequest, agent: AgentLike, reopened: Reopened
    ) -> None:
        conversation = reopened.conversation
        owner = owner_of(request)
        ids = self._factory.ids_of(conversation, is_alone=await self._run_log.is_alone())
        await self._slots.acquire(owner.user_id or "", without_timeout=True)
        if self.is_closing:
            self._slots.release(owner.user_id or "")
            await record.hand_over()
            return
        functions = tuple(map(ClientTool.of, request.functions))
        spans = self._tracing.begin(observed_run(logged.run_id, request), agent.name, request.origin.get("run", ""))
        key = request.origin.get("key")
        has_begun = False
        try:
            run = self._begin(
                RunSpec(logged.run_id, owner, agent, conversation, functions, ids, spans, record, logged, key, reopened)
            )
            has_begun = True
        finally:
            if not has_begun:
                self._runs.pop(logged.run_id, None)
                self._slots.release(owner.user_id or "")
        run.can_be_continued = True
        self._watcher.wake(run.run_id)
        _log.warning("run_continued", run_id=logged.run_id, agent=owner.agent_id, losses=logged.losses)

    async def _pack(self, request: RunRequest, spans: RunSpans) -> bytes | None:
        """Return the request as it is kept, without secrets; None where that is not to be, or it is too large."""
        if not is_stored(request):
            return None
        public = await self._redaction.large(request.model_dump(exclude_unset=True))
        kept = StoredRequest.model_validate({**public, "origin": find_origin(spans.context)})
        return await REQUESTS.run(partial(pack_request, kept))

    async def _begin_in_store(
        self, run_id: str, request: RunRequest, packed: bytes | None
    ) -> tuple[LoggedRun | None, NewRun | None]:
        """Make the run this server's in the database; (None, None) if it is not stored.

        `packed` is what another server needs to continue it. If the database is in trouble the second value says that
        the run is still to be begun there.
        """
        if not is_stored(request):
            return None, None
        user_id = owner_of(request).user_id
        mine = LoggedRun(run_id, request.agent, request.chat_id, request.message_id, user_id, last_seq=1)
        first = encode(1, RunStart(run_id=run_id, agent=request.agent))
        try:
            there = await self._run_log.begin(mine, packed, self._settings.max_user_runs, first)
        except StorageError as error:
            if not await self._run_log.begins_alone():
                # Another server may have it, or begin it anew.
                raise
            _log.warning("run_not_begun", run_id=run_id, error=str(error))
            return mine, NewRun(packed, first)
        if there is not mine:
            raise _RunsElsewhere(FollowedRun(there, self._run_log, self._watcher, self._runs.get))
        return mine, None

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    def is_going_on(self, run_id: str) -> bool:
        """Return whether there is such a run here that has no end yet, and is not another server's by now."""
        run = self._runs.get(run_id)
        return run is not None and not run.ended

    @property
    def waiting(self) -> int:
        """The number of runs that wait for a place."""
        return self._slots.waiting

    @property
    def listeners(self) -> int:
        """The number of those who listen to runs here, to runs of other servers too."""
        return sum(run.readers for run in self) + self._watcher.listeners

    @property
    def log_bytes(self) -> int:
        """What the logs and files of runs take in memory, of those that have ended too."""
        return self._budget.used_bytes

    async def drain(self, seconds: float, hurried: anyio.Event) -> None:
        """Take no more runs, and return when those that are here have ended, after `seconds`, or once `hurried`."""
        self.is_closing = True
        going_on = [run for run in self if not run.ended]
        _log.info("draining", runs=len(going_on), seconds=seconds)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:

                async def hurry() -> None:
                    await hurried.wait()
                    group.cancel_scope.cancel()

                group.start_soon(hurry)
                for run in going_on:
                    await run.wait()
                group.cancel_scope.cancel()

    async def close(self) -> None:
        """Leave every run to the next server, end those that it cannot go on with, and take no more."""
        self.is_closing = True
        runs = tuple(self)
        for run in runs:
            if run.can_be_continued:
                run.leave()
            else:
                run.cancel(INTERRUPTED)
        ends = {asyncio.create_task(run.wait()): run for run in runs}
        late = (await asyncio.wait(ends, timeout=END_SECONDS))[1] if ends else ()
        for end in late:
            # What it said last cannot be kept, so nobody has seen it: the next server ends it.
            ends[end].abandon()
        await asyncio.gather(*late)
        await asyncio.gather(*self._forgetting)
        await self._quota.close()
        await self._factory.formats.call_styles.aclose()
        self._has_left = True

    def _refuse_when_closing(self) -> None:
        if self.is_closing:
            raise _shutting_down()

    def _find_here(self, run_id: str, owner: Owner) -> Run | None:
        run = self._runs.get(run_id)
        if run and run.owner != owner:
            raise RunConflict(f"run {run_id!r} belongs to another chat or user: choose another run_id")
        return run

    async def _forget_own_chat(self, chat_id: str) -> None:
        try:
            await self._store.forget_own_chat(chat_id)
        except StorageError as error:
            _log.warning("own_chat_not_forgotten", chat_id=chat_id, error=str(error))

    def _end(self, run: Run, memory: RunMemory, observers: RunObservers, chat_id: str | None) -> None:
        """Give the run's place back; the log can be read for a while.

        What no client has named is kept for a client that is to go on with it.
        """
        self._slots.release(run.owner.user_id or "")
        if run.log.is_abandoned:
            # Whoever asks for it now is to find it where it goes on.
            observers.tell(RunLeft())
            memory.close()
            # It may have come back meanwhile, and go on here.
            if self._runs.get(run.run_id) is run:
                del self._runs[run.run_id]
            return
        self._ended[run.run_id] = memory
        match run.last_event:
            case Done(finish_reason="stop" | "length" | "max_turns" | "content_filter" | "refusal") if (
                chat_id and chat_id.startswith(OWN_CHAT_PREFIX)
            ):
                task = asyncio.create_task(self._forget_own_chat(chat_id))
                self._forgetting.add(task)
                task.add_done_callback(self._forgetting.discard)
            case _:
                pass
        asyncio.get_running_loop().call_later(self._settings.keep_run_seconds, self._forget, run.run_id)

    def _forget(self, run_id: str) -> None:
        # It may be forgotten already: there was no room for it.
        if memory := self._ended.pop(run_id, None):
            memory.close()
            del self._runs[run_id]

    def _evict_oldest(self, user: str | None) -> bool:
        oldest = next((run_id for run_id, memory in self._ended.items() if user in (None, memory.user)), None)
        if oldest is None:
            return False
        _log.info("ended_run_forgotten", run_id=oldest)
        self._forget(oldest)
        return True


class _RunsElsewhere(RunConflict):
    """The run id is that of a run of another server."""

    def __init__(self, run: FollowedRun) -> None:
        super().__init__(f"run {run.run_id!r} is another one: choose another run_id")
        self.run = run


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The server is shutting down: send the message again when it is back.")


def _can_continue(agent: AgentLike) -> bool:
    """Return whether the agent can go on where another server has left it."""
    return getattr(agent, "on_owner_loss", "end") == "continue"
