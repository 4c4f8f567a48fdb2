"""Signals of a connection to the task that keeps it."""

import asyncio
from dataclasses import dataclass, field

ENDED = "it ended"
"""Reason for which a connection is of no more use, where nothing more is known."""


@dataclass(slots=True)
class Signals:
    """Set from anywhere in the event loop; `wake` with each."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    tools_changed: bool = True
    end_reason: str = ""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Tools of the list that was read last which cannot be used, with the reason of each."""

    def change_tools(self) -> None:
        """Have the server's list of tools read again."""
        self.tools_changed = True
        self.wake.set()

    def leave_out(self, tool_name: str, reason: str) -> None:
        """Note that a tool of the server's list cannot be used."""
        self.left_out.append((tool_name, reason))

    def end(self, reason: str) -> None:
        """Say that the connection is of no more use; the first reason counts."""
        self.end_reason = self.end_reason or reason
        self.wake.set()

    def stop(self) -> None:
        """Say that nobody needs the server any longer."""
        self.stopping = True
        self.wake.set()

    def begin(self) -> None:
        """Forget what was said of the last connection: a new one begins."""
        self.tools_changed = True
        self.end_reason = ""
