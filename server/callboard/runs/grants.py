"""The tools that users have allowed always in a chat, so that later calls of them run without a question."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from callboard.calls import ALWAYS
from callboard.errors import StorageError
from callboard.runs.inputs import Inputs
from callboard.storage import GivenAnswer, Store
from callboard.storage.values import GRANTS, digest
from callboard_protocol import InputRequest, OpenWebUITool

MAX_LISTED = 100
OWN = ""
"""The origin of an agent's own tools."""

_log = structlog.get_logger(__name__)


def find_origin_of_tool(tool: OpenWebUITool) -> str:
    """Return the origin of a tool of Open WebUI. The name is not enough, because other tools may have the same name."""
    return f"openwebui/{tool.id}"


@dataclass(frozen=True, slots=True)
class Grant:
    """A tool of an agent that its user has allowed always in a chat, at `at` in seconds since the epoch.

    `origin` says where the tool comes from; a tool of the same name with another origin still asks.
    """

    agent_id: str
    tool_name: str
    at: float
    origin: str = OWN


class Grants:
    """The grants of one user in one chat, which are deleted with the chat. Methods raise `StorageError`."""

    def __init__(self, store: Store, user_id: str, chat_id: str) -> None:
        self._records = store.records(GRANTS, user_id)
        self._prefix = digest(chat_id)

    async def list(self) -> Sequence[Grant]:
        """Return the grants, at most `MAX_LISTED`."""
        found = [one.value for one in await self._records.find(self._prefix, limit=MAX_LISTED)]
        return [Grant(one["agent"], one["tool"], one["at"], one.get("origin", OWN)) for one in found]

    async def has(self, agent_id: str, tool_name: str, origin: str = OWN) -> bool:
        """Return whether the agent may run the tool without a question."""
        return await self._records.get(self._key(agent_id, tool_name, origin)) is not None

    async def add(self, agent_id: str, tool_name: str, origin: str = OWN) -> None:
        """Allow the tool always."""
        value = {"agent": agent_id, "tool": tool_name, "at": time.time(), "origin": origin}
        await self._records.put(self._key(agent_id, tool_name, origin), value)

    async def revoke(self, agent_id: str, tool_name: str, origin: str = OWN) -> bool:
        """Ask again before the tool runs; False if it was not allowed."""
        return await self._records.remove(self._key(agent_id, tool_name, origin))

    def _key(self, agent_id: str, tool_name: str, origin: str) -> str:
        return self._prefix + digest("\0".join([agent_id, tool_name, *([origin] if origin else [])]))


class RunGrants:
    """The grants that hold for one run, as its approvals use them. A database that fails counts as no grant.

    `origins` are the origins of the tools that are not the agent's own, by their names.
    """

    def __init__(self, grants: Grants, inputs: Inputs, agent_id: str, origins: Mapping[str, str]) -> None:
        self._grants = grants
        self._inputs = inputs
        self._agent_id = agent_id
        self._origins = origins
        self._reading = asyncio.Lock()

    async def answer(self, request: InputRequest, tool_name: str) -> None:
        """Answer an approval before it is asked, if its tool is always allowed."""
        try:
            # One after the other, so that the user is asked about parallel calls in their order.
            async with self._reading:
                is_allowed = await self._grants.has(self._agent_id, tool_name, self._origins.get(tool_name, OWN))
            if is_allowed:
                await self._inputs.answer_early(request.request_id, GivenAnswer(ALWAYS))
        except StorageError as error:
            _log.warning("grant_not_read", tool=tool_name, error=str(error))

    async def add(self, tool_name: str) -> None:
        """Allow the tool always in this chat."""
        try:
            await self._grants.add(self._agent_id, tool_name, self._origins.get(tool_name, OWN))
        except StorageError as error:
            _log.warning("grant_not_stored", tool=tool_name, error=str(error))
