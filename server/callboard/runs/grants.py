"""The tools that users have allowed always in a chat, so that later calls of them run without a question.

A grant holds for the tool as it was when the user allowed it. A tool with another fingerprint asks again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from callboard.calls.approval import ALWAYS, matches_any
from callboard.errors import StorageError, UnknownInput, UnknownRun
from callboard.runs.followed_run import FollowedRun
from callboard.runs.inputs import Inputs
from callboard.runs.left_runs import read_questions
from callboard.runs.run import Run, RunIdentity
from callboard.storage import Store
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GRANTS, GivenAnswer, digest
from callboard_protocol import InputRequest

MAX_LISTED = 100

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """A tool of an agent that its user has allowed always in a chat, at `at` in seconds since the epoch.

    It holds while the tool has this `fingerprint` (`Tool.fingerprint`).
    """

    agent_id: str
    tool_name: str
    at: float
    fingerprint: str


class Grants:
    """The grants of one user in one chat, which are deleted with the chat. Methods raise `StorageError`.

    `forbidden` are patterns of tools whose grants do not hold.
    """

    def __init__(self, store: Store, user_id: str, chat_id: str, forbidden: Sequence[str] = ()) -> None:
        self._forbidden = forbidden
        self._records = store.records(GRANTS, user_id)
        self._prefix = digest(chat_id)

    async def list(self) -> Sequence[Grant]:
        """Return the grants that hold, at most `MAX_LISTED`."""
        found = [one.value for one in await self._records.find(self._prefix, limit=MAX_LISTED)]
        # Records without a fingerprint are of an earlier version: they are no grants any more.
        known = [one for one in found if "tool_fingerprint" in one]
        return [
            Grant(one["agent"], one["tool"], one["at"], one["tool_fingerprint"])
            for one in known
            if not matches_any(one["tool"], self._forbidden)
        ]

    async def find(self, agent_id: str, tool_name: str) -> str:
        """Return the fingerprint of the tool that the user has allowed always; "" if there is none."""
        record = await self._records.get(self._key(agent_id, tool_name))
        return str(record.value.get("tool_fingerprint", "")) if record else ""

    async def add(self, agent_id: str, tool_name: str, fingerprint: str) -> None:
        """Allow the tool always, as long as it has this fingerprint."""
        value = {"agent": agent_id, "tool": tool_name, "at": time.time(), "tool_fingerprint": fingerprint}
        await self._records.put(self._key(agent_id, tool_name), value)

    async def revoke(self, agent_id: str, tool_name: str) -> bool:
        """Ask again before the tool runs; False if it was not allowed."""
        return await self._records.remove(self._key(agent_id, tool_name))

    def _key(self, agent_id: str, tool_name: str) -> str:
        return self._prefix + digest(f"{agent_id}\0{tool_name}")


FindRun = Callable[[str, str | None], Awaitable[Run | FollowedRun]]
"""Returns a run of a user, on any server. Raises `UnknownRun`, `StorageError`."""


class RunGrants:
    """The grants of one run, as its approvals use them. A database that fails counts as no grant."""

    def __init__(
        self, grants: Grants, inputs: Inputs, identity: RunIdentity, stored_runs: StoredRuns, find_run: FindRun
    ) -> None:
        self._grants = grants
        self._inputs = inputs
        self._identity = identity
        self._stored_runs = stored_runs
        self._find_run = find_run
        self._reading = asyncio.Lock()

    async def answer(self, request: InputRequest, tool_name: str) -> bool:
        """Answer an approval before it is asked, if its tool is always allowed.

        Return whether the tool has changed since it was allowed.
        """
        try:
            # One after the other, so that the user is asked about parallel calls in their order.
            async with self._reading:
                allowed = await self._grants.find(self._identity.agent_id, tool_name)
            if allowed == request.tool_fingerprint:
                await self._inputs.answer_early(request.request_id, GivenAnswer(ALWAYS))
        except StorageError as error:
            _log.warning("grant_not_read", tool=tool_name, error=str(error))
            return False
        return allowed not in ("", request.tool_fingerprint)

    async def add(self, tool_name: str, fingerprint: str) -> None:
        """Allow the tool always in this chat, as long as it has this fingerprint, also for open questions."""
        try:
            if await self._grants.find(self._identity.agent_id, tool_name) != fingerprint:
                await self._grants.add(self._identity.agent_id, tool_name, fingerprint)
                await self._answer_open_questions(fingerprint)
        except StorageError as error:
            _log.warning("grant_not_stored", tool=tool_name, error=str(error))

    async def _answer_open_questions(self, fingerprint: str) -> None:
        """Answer the open and waiting questions about a tool in this chat, also those of other runs and servers."""
        chat_id, user_id = str(self._identity.chat_id), str(self._identity.user_id)
        unanswered = await self._stored_runs.list_open_questions(chat_id, self._identity.agent_id, user_id)
        for run_id in {run_id for run_id, _ in unanswered}:
            for request_id, question in (await read_questions(self._stored_runs, run_id)).items():
                is_of_tool = question.remember and question.tool_fingerprint == fingerprint
                if is_of_tool and (run_id, request_id) in unanswered:
                    # It may have been answered, or its run may have been deleted, in the meantime.
                    with suppress(UnknownInput, UnknownRun):
                        await (await self._find_run(run_id, user_id)).answer(request_id, GivenAnswer(ALWAYS))
