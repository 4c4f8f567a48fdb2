"""All runs of the server: starts, finds, continues, cancels and deletes them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

import anyio
import structlog

from callboard.agents import AgentLike
from callboard.agents.registry import AgentAccess, Registry
from callboard.calls import Services
from callboard.calls.tool import ClientTool
from callboard.errors import QuotaExceeded, RunConflict, ShuttingDown, StorageError, UnknownRun
from callboard.observers import Observer, RunLeft, RunObservers
from callboard.redaction import Redaction
from callboard.runs.conversation import (
    Reference,
    StoredRequest,
    enter_origin,
    find_origin,
    open_conversation,
    pack_request,
    unpack_request,
)
from callboard.runs.database_poller import DatabasePoller
from callboard.runs.factory import RunFactory, RunSpec, identify, is_stored
from callboard.runs.followed_run import FollowedRun
from callboard.runs.forgetting import forget_user
from callboard.runs.grants import Grants
from callboard.runs.inputs import NO_SIGNALS
from callboard.runs.left_runs import STOPPED_DURING_ANSWER, Reopened, can_continue, reopen
from callboard.runs.limits import MemoryBudget, Quota, RunMemory, RunSlots
from callboard.runs.links import Links
from callboard.runs.ownership import Ownership
from callboard.runs.run import INTERRUPTED, SHUTTING_DOWN, Run, RunIdentity
from callboard.settings import Settings
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import OWN_CHAT_PREFIX, GivenAnswer, RunSignals, StoredRun
from callboard.text import storable
from callboard.threads import REQUESTS
from callboard_protocol import Done, Error, RunRequest, RunStart, encode

MAX_LOSSES = 3
"""The most servers that run one run: a run may crash its server, and must not crash all of them."""
END_SECONDS = 15
"""The longest wait at shutdown for the last events of runs to be stored."""

USERS_SHARING_MEMORY = 4
"""The runs of one user may use the server's run memory divided by this number."""

_log = structlog.get_logger(__name__)


class Runs:
    """The live runs of this server, and those that ended recently."""

    def __init__(
        self,
        registry: Registry,
        services: Services,
        settings: Settings,
        redact: Redaction,
        stored_runs: StoredRuns,
        links: Links,
        observers: Sequence[Observer],
    ) -> None:
        self._registry = registry
        self._services = services
        self._store = services.store
        self._settings = settings
        self._redaction = redact
        self._stored_runs = stored_runs
        self._poller = DatabasePoller(stored_runs, self._stored_ids, self._receive_signals)
        self._runs: dict[str, Run] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._ended: dict[str, RunMemory] = {}
        self.on_user_forgotten: Callable[[str], None] = lambda _: None
        """Called with the id of each user whose data is deleted; the inspector then deletes its copies of the runs."""
        self.is_closing = False
        """True if the server starts no more runs."""
        self._is_closed = False
        self._quota = Quota(self._store, settings.max_user_calls_per_day, settings.max_user_tokens_per_day)
        self.access = AgentAccess.of(settings.agent_access)
        """Which users may use which agent."""
        self._slots = RunSlots(settings.max_runs, settings.max_user_runs, settings.run_queue_seconds)
        memory_bytes = settings.run_memory_mib * 1024 * 1024
        self._user_bytes = memory_bytes // USERS_SHARING_MEMORY
        self._budget = MemoryBudget(memory_bytes, self._user_bytes, self._evict_oldest)
        self._factory = RunFactory(
            services,
            settings,
            redact,
            stored_runs,
            links,
            (*self._quota.observers, *observers),
            self._quota,
            self._budget,
            self.find,
        )

    def holding_lease(self) -> AbstractAsyncContextManager[None]:
        """Hold this server's lease until the block ends, and continue runs of servers that stop in the meantime.

        Raises `StorageError` if the database cannot be written at the beginning.
        """
        return Ownership(
            self._stored_runs,
            self._poller,
            self.continue_run,
            self._settings.lease_seconds,
            self._settings.keep_run_seconds,
            self._user_bytes,
            self._factory.end_left_run,
            lambda: self.is_closing,
        ).held()

    def _stored_ids(self) -> frozenset[str]:
        return frozenset(run.run_id for run in self._runs.values() if run.log.is_stored and not run.ended)

    def _receive_signals(self, signals: Mapping[str, RunSignals]) -> None:
        for run_id, signal in signals.items():
            if run := self._runs.get(run_id):
                run.inputs.accept(signal.answers)
                run.inputs.accept_messages(signal.messages)
                if signal.is_cancelled:
                    run.cancel()

    async def start(
        self,
        request: RunRequest,
        *,
        caller: str | None = None,
        reference: Reference | None = None,
        on_start: Callable[[Run], None] = lambda _: None,
    ) -> Run | FollowedRun:
        """Start the run of `request`, or return the existing run with its id, on this or another server.

        `caller` is the name of the request's API key, for the log; `on_start` is called with the run if it is new. If
        the stored history cannot be read, the run starts with the client's messages only, and a status says so.

        Raises:
            UnknownAgent: There is no such agent.
            AgentRefused: The user may not use the agent.
            RunConflict: The run id belongs to another chat or user, or to a run whose events are deleted.
            TooManyRuns: No slot is free.
            QuotaExceeded: The user has used up a daily quota.
            ShuttingDown: The server starts no more runs.
            RequestError: The functions are invalid, or `open_conversation` refuses the request.
            StorageError: Another server may have the run, and the database cannot tell.
        """
        run_id = request.run_id or uuid4().hex
        identity = identify(request)
        if existing := self._find_here(run_id, identity):
            return existing
        self._refuse_when_closing()
        agent = self._find_agent(request)
        functions = tuple(map(ClientTool.of, request.functions))
        user = identity.user_id or ""
        await self._slots.acquire(user)
        with ExitStack() as unless_started:
            unless_started.callback(self._slots.release, user)
            # After the wait for a slot, during which other runs may have used up the quota.
            await self._quota.check(user)
            conversation = await open_conversation(self._store, request, run_id, reference)
            if reference is not None:
                # A request without a chat id gets the chat of the response or the call that it continues.
                identity = identify(conversation.request)
            # During the queries, the same request may have arrived again, or the shutdown may have begun.
            if existing := self._find_here(run_id, identity):
                return existing
            self._refuse_when_closing()
            is_alone = await self._stored_runs.is_alone()
            # Runs of the OpenAI routes end with their connection, so no other server continues them.
            packed = await self._pack(request) if reference is None and is_stored(request) else None
            stored = await self._begin_in_store(run_id, conversation.request, packed)
            try:
                if existing := self._find_here(run_id, identity):
                    return existing
                if isinstance(stored, FollowedRun):
                    # With the stored chat id: `open_conversation` gives one to a request with functions and no chat.
                    _check_identity(stored, identify(conversation.request))
                    return stored
                self._refuse_when_closing()
            except (RunConflict, ShuttingDown):
                if isinstance(stored, StoredRun):
                    # Otherwise the run would stay active, or another server would take it over, without a client.
                    with suppress(StorageError):
                        await self._stored_runs.delete(run_id)
                raise
            spec = RunSpec(
                run_id,
                identity,
                agent,
                conversation,
                functions,
                is_alone,
                self._factory.open_record(stored, conversation),
                stored,
                caller,
                can_be_continued=stored is not None and packed is not None and can_continue(agent),
            )
            run = self._runs[run_id] = self._factory.make(spec, self._on_run_end)
            unless_started.pop_all()
        on_start(run)
        _log.info("run_started", run_id=run_id, agent=identity.agent_id, chat_id=identity.chat_id, task=request.task)
        return run

    async def find(self, run_id: str, user_id: str | None = None) -> Run | FollowedRun:
        """Return the run with that id, on this or another server.

        Raises `UnknownRun`, also for a run of another user, and `StorageError`.
        """
        run: Run | FollowedRun | None = self._runs.get(run_id)
        if run is None:
            if self._is_closed:
                raise ShuttingDown(SHUTTING_DOWN)
            stored = (await self._stored_runs.find([run_id])).get(run_id)
            run = self._follow(stored) if stored else None
        if run is None or not run.identity.may_be_seen_by(user_id):
            raise UnknownRun(
                f"there is no run {run_id!r} of this user: it was started for another, ended more than "
                f"{self._settings.keep_run_seconds:g} s ago, or its chat was deleted"
            )
        return run

    async def add_message(self, run_id: str, user_id: str | None, content: str) -> str:
        """Accept a message of its user to a run on any server, and return the message's id.

        Raises `UnknownRun`, `RunEnding`, `RequestTooLarge` and `StorageError`.
        """
        run = await self.find(run_id, user_id)
        return await run.add_message(storable(await self._redaction.large(content)))

    def grants(self, user_id: str, chat_id: str) -> Grants:
        """Return the grants of a user in a chat."""
        return Grants(self._store, user_id, chat_id, self._settings.forbid_always)

    async def find_answers(self, run_id: str) -> Mapping[str, GivenAnswer]:
        """Return the answers to a stored run's questions, by the questions' ids; {} if the database cannot be read."""
        try:
            return (await self._stored_runs.signals([run_id])).get(run_id, NO_SIGNALS).answers
        except StorageError:
            return {}

    async def forget_user(self, user_id: str, caller: str | None = None) -> Mapping[str, int]:
        """End a user's runs, and delete all data of the user; return the number of deleted items of each kind.

        `caller` is the name of the request's API key, for the log. Raises `StorageError`.
        """
        mine = [run for run in self if run.identity.user_id == user_id]
        for run in mine:
            run.cancel()
        await asyncio.gather(*(run.wait() for run in mine))
        for run in mine:
            self._forget(run.run_id)
        self.on_user_forgotten(user_id)
        return await forget_user(self._store, self._stored_runs, user_id, caller)

    async def continue_run(self, stored: StoredRun) -> Error | None:
        """Continue a run that was lost, released or begun again; return its last event if it can only be ended.

        Text after the last start or end of a call is taken back, see `reopen`. Raises `StorageError`, `RunLost` if
        another server has taken over the run, and `AgentError` if the user may no longer use the agent, or it is gone.
        """
        packed = await self._stored_runs.load_request(stored.run_id)
        is_too_old = stored.age_seconds >= self._settings.run_timeout_seconds
        if packed is None or stored.losses >= MAX_LOSSES or is_too_old:
            # After several losses the request is not parsed: it may crash servers. The database of an old run may be a
            # restored backup: it is unknown what the run did after the backup.
            return STOPPED_DURING_ANSWER
        request = unpack_request(packed)
        enter_origin(request.origin)
        # The agents and the settings may have changed since, for example while a call waited.
        agent = self._find_agent(request)
        async with self._factory.record_of_left_run(stored, request) as (stored, record):
            reopened = await reopen(self._stored_runs, self._store, stored, record, request, agent)
            if not isinstance(reopened, Reopened):
                return reopened
            return await self._restart(stored, record, request, agent, reopened)

    def _find_agent(self, request: RunRequest) -> AgentLike:
        """Return the agent. Raises `UnknownAgent`, and `AgentRefused` if the user may not use it."""
        agent = self._registry.get(request.agent, lambda other: self.access.admits(other, request.user))
        self.access.check(agent.agent_id, request.user)
        return agent

    async def _restart(
        self, stored: StoredRun, record: RunRecord, request: StoredRequest, agent: AgentLike, reopened: Reopened
    ) -> Error | None:
        """Continue a run when its user has a slot; return its last event if the user has used up a quota since."""
        identity = identify(request)
        user = identity.user_id or ""
        await self._slots.acquire(user, without_timeout=True)
        with ExitStack() as unless_begun:
            unless_begun.callback(self._slots.release, user)
            is_alone = await self._stored_runs.is_alone()
            if reopened.left.has_waited:
                try:
                    # Each call is counted when it runs.
                    await self._quota.check(user, with_calls=False)
                except QuotaExceeded as error:
                    return Error(message=str(error), code=error.code)
            # While the run waited for its slot, clients may have cancelled it, and may have answered its questions.
            signals = (await self._stored_runs.signals([stored.run_id])).get(stored.run_id, NO_SIGNALS)
            reopened = replace(reopened, left=replace(reopened.left, signals=signals))
            if self.is_closing:
                await record.release()
                return None
            functions = tuple(map(ClientTool.of, request.functions))
            spec = RunSpec(
                stored.run_id,
                identity,
                agent,
                reopened.conversation,
                functions,
                is_alone,
                record,
                stored,
                request.origin.get("key"),
                can_be_continued=True,
                reopened=reopened,
            )
            self._runs[stored.run_id] = self._factory.make(spec, self._on_run_end)
            unless_begun.pop_all()
        self._poller.wake(stored.run_id)
        _log.warning("run_continued", run_id=stored.run_id, agent=identity.agent_id, losses=stored.losses)
        return None

    async def _pack(self, request: RunRequest) -> bytes | None:
        """Return the packed request without secrets; None if it is too large to be stored."""
        public = await self._redaction.large(request.model_dump(exclude_unset=True))
        return await REQUESTS.run(partial(pack_request, {**public, "origin": find_origin()}))

    async def _begin_in_store(
        self, run_id: str, request: RunRequest, packed: bytes | None
    ) -> StoredRun | FollowedRun | None:
        """Begin the run in the database as this server's; return None if the run is not stored.

        Returns a `FollowedRun` if the database has a run with that id. `packed` is the request for a server that
        continues the run. If the database fails, the run is not stored. Raises `StorageError` if there may be other
        servers.
        """
        mine = StoredRun(run_id, *identify(request), last_seq=1)
        first = encode(1, RunStart(run_id=run_id, agent=request.agent))
        there: StoredRun | None = None
        try:
            if is_stored(request):
                there = await self._stored_runs.begin(mine, packed, self._settings.max_user_runs, first)
            elif request.run_id:
                # A run that is not stored would hide the stored run with its id from that run's user at this server.
                there = (await self._stored_runs.find([run_id])).get(run_id)
        except StorageError as error:
            if not await self._stored_runs.is_alone():
                # Another server may have the run already, or begin it at the same time.
                raise
            _log.warning("run_not_begun", run_id=run_id, error=str(error))
            return None
        return self._follow(there) if there and there is not mine else there

    def _follow(self, stored: StoredRun) -> FollowedRun:
        return FollowedRun(stored, self._stored_runs, self._poller, self._runs.get)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    def is_live(self, run_id: str) -> bool:
        """Return whether this server runs that run at the moment."""
        run = self._runs.get(run_id)
        return run is not None and not run.ended

    @property
    def queued(self) -> int:
        """The number of runs that wait for a slot."""
        return self._slots.queued

    @property
    def listeners(self) -> int:
        """The number of listeners on this server, including listeners to runs of other servers."""
        return sum(run.readers for run in self) + self._poller.listeners

    @property
    def log_bytes(self) -> int:
        """The memory that the logs and files of live and ended runs use."""
        return self._budget.used_bytes

    async def drain(self, seconds: float, hurried: anyio.Event) -> None:
        """Start no more runs; wait until all runs have ended, at most `seconds`, or until `hurried` is set."""
        self.is_closing = True
        live = [run for run in self if not run.ended]
        _log.info("draining", runs=len(live), seconds=seconds)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:

                async def hurry() -> None:
                    await hurried.wait()
                    group.cancel_scope.cancel()

                group.start_soon(hurry)
                for run in live:
                    await run.wait()
                group.cancel_scope.cancel()

    async def close(self) -> None:
        """Start no more runs. Hand over each run to another server if possible, and end the others."""
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
            # Its last events could not be stored, so no listener has seen them; another server ends the run.
            ends[end].lose()
        await asyncio.gather(*late)
        await asyncio.gather(*self._forgetting)
        with suppress(StorageError):
            await self._stored_runs.delete_unstored()
        await self._quota.close()
        await self._factory.formats.call_styles.descriptions.aclose()
        self._is_closed = True

    def _refuse_when_closing(self) -> None:
        if self.is_closing:
            raise ShuttingDown(SHUTTING_DOWN)

    def _find_here(self, run_id: str, identity: RunIdentity) -> Run | None:
        if run := self._runs.get(run_id):
            _check_identity(run, identity)
        return run

    async def _forget_own_chat(self, chat_id: str) -> None:
        try:
            await self._store.forget_own_chat(chat_id)
        except StorageError as error:
            _log.warning("own_chat_not_forgotten", chat_id=chat_id, error=str(error))

    def _on_run_end(self, run: Run, chat_id: str | None, memory: RunMemory, observers: RunObservers) -> None:
        """Release the slot of a run that has ended, and delete its log after `keep_run_seconds`.

        If its events are stored, the log is deleted when the last listener leaves: later ones read the database.
        A chat that the server made for the request is deleted after an answer, so the same request with results of the
        client's functions is then refused. After any other end it stays, because the client may continue it, for
        example with such results.
        """
        self._slots.release(run.identity.user_id or "")
        if run.log.is_left:
            # From now on, `find` returns the run of the other server.
            observers.tell(RunLeft())
            memory.close()
            # This server may have taken it over again in the meantime.
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
        if run.log.has_stored_all:
            run.on_unread = partial(self._forget, run.run_id)

    def _forget(self, run_id: str) -> None:
        # It may have been evicted already.
        if memory := self._ended.pop(run_id, None):
            memory.close()
            self._runs.pop(run_id).drop_unread_log()

    def _evict_oldest(self, user: str | None) -> bool:
        oldest = next((run_id for run_id, memory in self._ended.items() if user in (None, memory.user)), None)
        if oldest is None:
            return False
        _log.info("ended_run_forgotten", run_id=oldest)
        # A slow listener would keep it in memory.
        self._runs[oldest].log.drop()
        self._forget(oldest)
        return True


def _check_identity(run: Run | FollowedRun, identity: RunIdentity) -> None:
    if run.identity != identity:
        raise RunConflict(f"run {run.run_id!r} belongs to another chat or user: choose another run_id")
