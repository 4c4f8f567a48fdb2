"""Decides which users may use an agent, by role and group. Every user may use an agent without an entry."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from callboard.errors import AgentRefused
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class _Entry:
    agents: str
    kind: str
    name: str

    def admits(self, user: User | None) -> bool:
        if user is None:
            return False
        return self.name in user.groups if self.kind == "group" else self.name == user.role


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The entries of `AGENT_ACCESS`. If several entries name an agent, one that admits the user is enough."""

    entries: Sequence[_Entry] = ()

    @classmethod
    def of(cls, entries: Sequence[str]) -> Self:
        """Return the access for entries of the form `coder=group:Developers` or `home*=role:admin`."""
        return cls(tuple(_read_entry(entry) for entry in entries))

    def admits(self, agent_id: str, user: User | None) -> bool:
        """Return whether the user may use the agent."""
        naming = [entry for entry in self.entries if fnmatchcase(agent_id, entry.agents)]
        return not naming or any(entry.admits(user) for entry in naming)

    def check(self, agent_id: str, user: User | None) -> None:
        """Raise `AgentRefused` unless the user may use the agent."""
        if not self.admits(agent_id, user):
            raise AgentRefused(
                f"You may not use the agent {agent_id!r}: ask an admin for a role or group that may use it."
            )

    def unknown(self, agent_ids: Sequence[str]) -> list[str]:
        """Return the agent patterns that match none of these agents; they are probably misspelt."""
        return [entry.agents for entry in self.entries if not any(fnmatchcase(one, entry.agents) for one in agent_ids)]


def _read_entry(entry: str) -> _Entry:
    agents, _, who = entry.partition("=")
    kind, _, name = who.partition(":")
    return _Entry(agents.strip(), kind, name)
